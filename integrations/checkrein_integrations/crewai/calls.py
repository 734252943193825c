"""One tool call in terms of the engine, on whatever road the framework came to the tool."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from checkrein.engine import Entry
from checkrein.errors import CheckreinError, Denied, InDoubt
from checkrein_integrations._shared.refusals import in_doubt
from checkrein_integrations.crewai import results
from checkrein_integrations.crewai.binding import DIRECT, NothingRan, binder_of
from checkrein_integrations.crewai.framework import ToolFailure, ToolFailureReason
from checkrein_integrations.crewai.signals import failed, final
from checkrein_integrations.crewai.state import (
    LABEL,
    LIVE,
    PASS,
    PLACE,
    RUNNING,
    SCOPE,
    Pass,
    Running,
    covered,
)

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call
    from checkrein.session import Session
    from checkrein.tools import Tool as Declared

Body = Callable[..., Any]


class ToolCall:
    """One call of a tool on its way through the engine."""

    def __init__(
        self, rein: Rein, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.rein = rein
        self.declared = declared = binder_of(rein).of(tool)
        self.name = declared.info.name
        given = PASS.get()
        self.told: Pass | None = None
        """The framework's hooks around this call; None where the tool is called directly."""
        if given is not None and not given.entered and given.tool is tool:
            self.told = given
            given.entered = True
        scope = SCOPE.get()
        self.scope = scope if scope is not None and scope.rein is rein else None
        self.session: Session = (
            self.scope.session() if self.scope is not None else rein.current_session()
        )
        named = dict(zip(declared.parameters, args, strict=False)) if args else {}
        self.arguments = declared.complete({**named, **kwargs})
        self.given = (args, kwargs)
        self.running = Running(rein, self.name)
        self.raised: BaseException | None = None

    def run(self, body: Body, inside: bool = True) -> Any:
        """Call the tool under supervision: its value, or what the framework is given instead.

        `inside`: `body` is the tool's own code, and not a method that leads to it. Raises what
        the caller must see, where the tool was called directly.
        """

        def run(_: Call, exact: dict[str, Any]) -> Any:
            token, model = RUNNING.set(self.running), LIVE.set(None)
            self.running.inside = inside
            try:
                return _finished(self._call(body, exact))
            except BaseException as error:
                self.raised = error
                raise
            finally:
                LIVE.reset(model)
                RUNNING.reset(token)

        try:
            return self.rein.enter(self._entry(run, False)).value
        except BaseException as error:  # noqa: BLE001 - raised again, or told to a model
            return self._told(error)

    async def arun(self, body: Callable[..., Awaitable[Any]], inside: bool = True) -> Any:
        """The async twin of `run`."""

        async def run(_: Call, exact: dict[str, Any]) -> Any:
            token, model = RUNNING.set(self.running), LIVE.set(None)
            self.running.inside = inside
            try:
                return await self._call(body, exact)
            except BaseException as error:
                self.raised = error
                raise
            finally:
                LIVE.reset(model)
                RUNNING.reset(token)

        try:
            return (await self.rein.aenter(self._entry(run, True))).value
        except BaseException as error:  # noqa: BLE001 - raised again, or told to a model
            return self._told(error)

    def _call(self, body: Body, exact: dict[str, Any]) -> Any:
        if exact == self.arguments:
            args, kwargs = self.given
            return body(*args, **kwargs)
        spread = self.declared.spread(exact)
        return body(*spread[0], **spread[1])

    def _entry(self, run: Callable[..., Any], is_async: bool) -> Entry:
        told, scope = self.told, self.scope
        place = told.place if told is not None else PLACE.get()
        key = ""
        if scope is not None:
            key = scope.key(self.session, "tool", self.name, place, self.arguments)
        return Entry(
            tool=self.declared,
            arguments=dict(self.arguments),
            session=self.session,
            run=run,
            is_async=is_async,
            call_id=key,
            keyed=bool(key),
            task=told.task if told is not None else "",
            labels={LABEL: place[1]} if scope is not None else {},
            dump=results.dumped,
            load=results.loaded,
        )

    def _told(self, error: BaseException) -> Any:
        """What stands for an error where a model called the tool; raised otherwise."""
        told = self.told
        if told is None or not isinstance(error, Exception):
            if isinstance(error, Denied) and not error.halt:
                raise error
            raise final(error)
        if error is self.raised and not isinstance(error, CheckreinError):
            # Given to the framework as a value: what raises is started again, up to six times.
            failure = f"Error executing tool: {error}"
            return ToolFailure(message=failure, reason=ToolFailureReason.EXCEPTION)
        text = refusal(error, self.name)
        if text is None:
            told.error = failed(error)
            return ToolFailure(message="[stopped] The run is being ended.")
        told.text = text
        return ToolFailure(message=text)


def refusal(error: BaseException, name: str) -> str | None:
    """What a model is told of an error of ours; None where the run has to end."""
    if isinstance(error, Denied) and not error.halt and error.code != "no_approver":
        return error.refusal()
    if isinstance(error, TimeoutError) or (isinstance(error, InDoubt) and error.outcome is None):
        return in_doubt(name)
    return None


def taken(rein: Rein, tool: Any) -> bool:
    """Whether a call that is about to start needs no judging: it was judged further out."""
    return DIRECT.get() or covered(rein, binder_of(rein).of(tool).info.name)


def nothing_ran(rein: Rein, told: Pass, declared: Declared, session: Session) -> None:
    """Record a call that the framework answered itself, or that no tool is there for.

    Plugins decide on it as on any other; `told` then holds the refusal, or what ends the run.
    """

    def run(_: Call, __: dict[str, Any]) -> Any:
        raise NothingRan(declared.info.name)

    arguments = told.tool_input if isinstance(told.tool_input, dict) else {}
    entry = Entry(
        tool=declared,
        arguments=declared.complete(arguments),
        session=session,
        run=run,
        task=told.task,
        labels={LABEL: told.place[1], "not_executed": "crewai"},
    )
    told.entered = True
    try:
        rein.enter(entry)
    except NothingRan:
        return
    except Exception as error:  # noqa: BLE001 - told to the model, or ends the run
        told.text = refusal(error, declared.info.name)
        if told.text is None:
            told.error = failed(error)


def _finished(value: Any) -> Any:
    """The value of a tool whose function is async, as the framework itself gets it."""
    return asyncio.run(value) if inspect.iscoroutine(value) else value
