"""Tool calls of a graph: `wrap_tool_call` in terms of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from checkrein._io import finish
from checkrein.engine import Entry
from checkrein.errors import ApprovalPending, Denied, InDoubt
from checkrein_integrations._shared.refusals import in_doubt
from checkrein_integrations.langchain import results
from checkrein_integrations.langchain.binding import binder_of
from checkrein_integrations.langchain.execution import (
    NOTHING,
    RUNNING,
    Execution,
    NothingRan,
    Repeated,
    first,
)
from checkrein_integrations.langchain.gate import Gate
from checkrein_integrations.langchain.keys import call_key, message_of, place_of
from checkrein_integrations.langchain.landing import Landed
from checkrein_integrations.langchain.sessions import Runs
from checkrein_integrations.langchain.signals import SIGNALS, ending

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call

_REPEATABLE = ("read",)


class ToolCalls(Gate):
    """Supervises tool calls, for middleware and hand-made tool nodes."""

    kind = "tool"

    def __init__(self, rein: Rein, runs: Runs) -> None:
        super().__init__(rein, runs)
        self.binder = binder_of(rein)

    def wrap(self, request: ToolCallRequest, handler: Callable[[Any], Any]) -> Any:
        """Run one tool call under supervision; its message or command."""
        job = _Job(self, request)
        while True:
            try:
                return job.given(self.run(job.session, job.entry(handler)))
            except ApprovalPending as pending:
                if not job.waits(pending):
                    raise ending(pending)  # noqa: B904 - the same error
                self.pause(job.session, pending, request.tool_call["id"] or "")
            except BaseException as error:
                message = job.told(error)
                if message is not None:
                    return message
                final = self.final(error)
                finish(self.failed(self.rein.sync_io, job, final))
                if final is error:
                    raise
                raise final from error

    async def awrap(
        self, request: ToolCallRequest, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """The async twin of `wrap`."""
        job = _Job(self, request)
        while True:
            try:
                return job.given(await self.arun(job.session, job.aentry(handler)))
            except ApprovalPending as pending:
                if not job.waits(pending):
                    raise ending(pending)  # noqa: B904 - the same error
                self.pause(job.session, pending, request.tool_call["id"] or "")
            except BaseException as error:
                message = job.told(error)
                if message is not None:
                    return message
                final = self.final(error)
                await self.failed(self.rein.async_io, job, final)
                if final is error:
                    raise
                raise final from error


class _Job(Landed):
    """One tool call on its way."""

    __slots__ = (
        "arguments", "bound", "gate", "labels", "raised", "request", "suspends", "told_by",
    )  # fmt: skip

    def __init__(self, gate: ToolCalls, request: ToolCallRequest) -> None:
        super().__init__()
        self.gate = gate
        self.request = request
        call = self.call = request.tool_call
        first(gate.rein, call["name"], request.state)
        tool = request.tool
        runtime: Any = request.runtime
        self.bound = (
            gate.binder.of(tool, getattr(runtime, "tools", None) or ())
            if tool is not None
            else gate.binder.unknown(call["name"])
        )
        place = place_of(runtime.config if runtime is not None else None)
        self.session = gate.runs.session(request.state)
        messages: Any = request.state
        if isinstance(messages, dict):
            messages = messages.get("messages", ())
        elif not isinstance(messages, list):
            messages = getattr(messages, "messages", ())
        self.key = call_key(
            gate.rein.store.key,
            call["args"],
            place.thread or self.session.id,
            message_of(messages, call["id"] or ""),
            call["id"],
            call["name"],
        )
        self.suspends = gate.may_suspend(self.session, place)
        self.labels = gate.labels(place)
        self.arguments = self.bound.declared.complete(call["args"])
        self.raised: BaseException | None = None
        self.told_by: Any = None
        """What a middleware inside made of the error, or of a call that was not made."""

    # -- into the engine

    def entry(self, handler: Callable[[Any], Any]) -> Entry:
        """The entry of a sync call."""

        def run(_: Call, exact: dict[str, Any]) -> Any:
            request, token = self._start(exact)
            try:
                result = handler(request)
            except BaseException as error:  # noqa: BLE001 - raised again
                raise self._caught(error)  # noqa: B904 - the same error
            finally:
                RUNNING.reset(token)
            return self._received(result)

        return self._entry(run, False)

    def aentry(self, handler: Callable[[Any], Awaitable[Any]]) -> Entry:
        """The entry of an async call."""

        async def run(_: Call, exact: dict[str, Any]) -> Any:
            request, token = self._start(exact, is_async=True)
            try:
                result = await handler(request)
            except BaseException as error:  # noqa: BLE001 - raised again
                raise self._caught(error)  # noqa: B904 - the same error
            finally:
                RUNNING.reset(token)
            return self._received(result)

        return self._entry(run, True)

    def _entry(self, run: Callable[..., Any], is_async: bool) -> Entry:
        self.raised = self.told_by = None
        self.result = NOTHING
        self.value = NOTHING
        return Entry(
            tool=self.bound.declared,
            arguments=dict(self.arguments),
            session=self.session,
            run=run,
            is_async=is_async,
            call_id=self.key,
            keyed=True,
            labels=self.labels,
            can_suspend=self.suspends,
            signals=SIGNALS,
            dump=self._dump,
            load=results.loaded,
            raw=self._raw,
            left=self._left if is_async else None,
        )

    def _start(self, exact: dict[str, Any], is_async: bool = False) -> tuple[ToolCallRequest, Any]:
        declared = self.bound.declared
        info = declared.info
        watched = self.bound.watched
        self.execution = Execution(
            self.gate.rein,
            watched.name if watched is not None else info.name,
            repeatable=info.idempotent or info.effect in _REPEATABLE,
            harmless=declared.no_effect_on,
            threaded=is_async,
            state=self.request.state,
        )
        request = self.request
        changes: dict[str, Any] = {}
        if watched is not None:
            changes["tool"] = watched
        if exact != self.arguments:
            changes["tool_call"] = {**self.call, "args": exact}
        if changes:
            request = _changed(request, changes)
        return request, RUNNING.set(self.execution)

    def _caught(self, error: BaseException) -> BaseException:
        """What the engine records of an error that came out of the inner chain."""
        execution = self.execution
        assert execution is not None
        if isinstance(error, Repeated) and execution.error is not None:
            error = execution.error
        self.raised = error
        return error

    def _received(self, result: Any) -> Any:
        """The value of a result; raises what a middleware inside turned into a message."""
        execution = self.execution
        assert execution is not None
        self.result = result
        message = results.message_in(result, self.call["id"] or "")
        if execution.error is not None:
            self.told_by = result
            self.raised = execution.error
            raise execution.error
        if execution.runs == 0 and message is not None:
            unknown = self.bound.watched is None
            if not unknown or (message.status == "error" and _names_no_tool(message)):
                # Nothing of the tool was started: an unknown name, arguments that do not fit,
                # or a middleware inside that answered.
                self.told_by = result
                self.raised = NothingRan(self.call["name"])
                raise self.raised
        self.value = results.value_in(message, execution.raw)
        return self.value

    # -- back to the graph

    def waits(self, pending: ApprovalPending) -> bool:
        """Whether it is this very call that waits, not one inside the tool.

        A tool that asks in its middle would repeat its first half on resume: it is not paused.
        """
        if pending.call_id != self.key or not self.suspends:
            return False
        self.session.waiting.add(self.key)
        return True

    def told(self, error: BaseException) -> Any:
        """The message that stands for an error; None where it has to be raised."""
        if error is self.raised:
            execution = self.execution
            if execution is not None and execution.repeated:
                return self._refusal(in_doubt(self.call["name"]))
            return self.told_by
        if isinstance(error, Denied):
            self.session.waiting.discard(self.key)
            if not error.halt and error.code != "no_approver":
                return self._refusal(error.refusal())
        if isinstance(error, InDoubt) and error.outcome is None:
            return self._refusal(in_doubt(self.call["name"]))
        return None

    def _refusal(self, text: str) -> ToolMessage:
        return results.answer(text, self.call, "error")


def _changed(request: ToolCallRequest, changes: dict[str, Any]) -> ToolCallRequest:
    """As `request.override`, at a tenth of its price, which every call would pay."""
    if type(request) is not ToolCallRequest:
        return request.override(**changes)
    changed = object.__new__(ToolCallRequest)
    changed.__dict__.update(request.__dict__)
    changed.__dict__.update(changes)
    return changed


def _names_no_tool(message: ToolMessage) -> bool:
    return isinstance(message.content, str) and "is not a valid tool" in message.content


def tool_node_wrappers(rein: Rein) -> dict[str, Any]:
    """`wrap_tool_call` and `awrap_tool_call` for a hand-made `ToolNode(tools, **wrappers)`.

    Open `rein.session(...)` around the graph's run: without one the calls go to the account of
    calls that belong to none.
    """
    calls = ToolCalls(rein, Runs(rein))
    return {"wrap_tool_call": calls.wrap, "awrap_tool_call": calls.awrap}
