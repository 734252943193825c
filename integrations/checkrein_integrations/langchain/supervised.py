"""`supervise_tool`: a LangChain tool that is supervised wherever it is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import ValidationError

from checkrein.engine import Entry
from checkrein.errors import ApprovalPending, ConfigError, Denied
from checkrein_integrations.langchain import results
from checkrein_integrations.langchain.binding import Bound, binder_of, watched
from checkrein_integrations.langchain.execution import (
    NOTHING,
    RUNNING,
    Execution,
    NothingRan,
    covered,
)
from checkrein_integrations.langchain.gate import Gate
from checkrein_integrations.langchain.keys import call_key, place_of
from checkrein_integrations.langchain.landing import Landed
from checkrein_integrations.langchain.sessions import Runs
from checkrein_integrations.langchain.signals import SIGNALS, ending

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call

T = TypeVar("T", bound=BaseTool)


def supervise_tool(rein: Rein, tool: T) -> T:
    """A copy of `tool` whose every call goes through the hooks of `rein`, sync and async.

    For chains, scripts and graphs of one's own; in an agent with `CheckreinMiddleware` the call
    is decided, charged and recorded once. A denial raises; where the call came from a model
    (it has a tool call id), the model gets the refusal, unless the denial halts the run.

    Raises `ConfigError` for what is no LangChain tool, or a tool of another Rein.
    """
    if not isinstance(tool, BaseTool):
        raise ConfigError(
            f"{type(tool).__name__} is not a LangChain tool: pass a BaseTool (@tool makes one)"
        )
    owner = getattr(tool, "checkrein_owner", None)
    if owner is not None:
        if owner.rein is rein:
            return tool
        raise ConfigError(f"tool {tool.name} is supervised by another Rein already")
    bound = binder_of(rein).of(tool)
    assert bound.watched is not None
    copy = watched(bound.watched) if bound.watched is tool else bound.watched.model_copy()
    object.__setattr__(copy, "__class__", _supervised_class(type(copy)))
    # Not fields: the tool's own schema and its comparison stay as they are.
    object.__setattr__(copy, "checkrein_inner", tool)
    object.__setattr__(copy, "checkrein_owner", _Owner(rein, bound, tool))
    return cast("T", copy)


@cache
def _supervised_class(cls: type[BaseTool]) -> type[BaseTool]:
    run, arun = cls.run, cls.arun

    def _supervised_run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        owner: _Owner = self.checkrein_owner
        if covered(owner.rein, self.name):
            return run(self, tool_input, *args, **kwargs)
        job = _Job(owner, tool_input, kwargs)
        entry = job.entry(lambda given: run(self, given, *args, **kwargs))
        while True:
            try:
                return job.given(owner.gate.run(job.session, entry))
            except ApprovalPending as pending:
                job.pause(pending)
            except BaseException as error:  # noqa: BLE001 - raised again, or told to a model
                return job.told(error)
            entry = job.entry(lambda given: run(self, given, *args, **kwargs))

    async def _supervised_arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        owner: _Owner = self.checkrein_owner
        if covered(owner.rein, self.name):
            return await arun(self, tool_input, *args, **kwargs)
        job = _Job(owner, tool_input, kwargs)
        while True:
            entry = job.entry(lambda given: arun(self, given, *args, **kwargs), is_async=True)
            try:
                return job.given(await owner.gate.arun(job.session, entry))
            except ApprovalPending as pending:
                job.pause(pending)
            except BaseException as error:  # noqa: BLE001 - raised again, or told to a model
                return job.told(error)

    return type(
        cls.__name__,
        (cls,),
        {
            "run": _supervised_run,
            "arun": _supervised_arun,
            "__module__": cls.__module__,
            "__doc__": cls.__doc__,
        },
    )


class _Owner:
    """What a supervised tool knows of its Rein."""

    def __init__(self, rein: Rein, bound: Bound, tool: BaseTool) -> None:
        self.rein = rein
        self.bound = bound
        self.gate = Gate(rein, Runs(rein))
        schema: Any = tool.tool_call_schema
        own = set() if isinstance(schema, dict) else set(schema.model_fields)
        full = tool.get_input_schema()
        self.injected = frozenset(getattr(full, "model_fields", {})) - own
        """Parameters that the framework fills in: no argument of the call, in no record."""
        if isinstance(schema, dict):
            self.injected = frozenset()
        self.injected |= frozenset(getattr(tool, "_injected_args_keys", ()))


class _Job(Landed):
    """One call of a supervised tool."""

    def __init__(self, owner: _Owner, tool_input: Any, kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.owner = owner
        self.tool_call_id: str | None = kwargs.get("tool_call_id")
        self.call = {"name": owner.bound.declared.info.name, "id": self.tool_call_id or ""}
        config: RunnableConfig | None = kwargs.get("config")
        self.place = place_of(config)
        self.session = owner.gate.runs.session({})
        declared = owner.bound.declared
        if isinstance(tool_input, dict):
            given = {k: v for k, v in tool_input.items() if k not in owner.injected}
            self.rest = {k: v for k, v in tool_input.items() if k in owner.injected}
        else:
            given = {(declared.parameters or ("input",))[0]: tool_input}
            self.rest = {}
        self.original = tool_input
        self.arguments = declared.complete(given)
        step = ((config or {}).get("configurable") or {}).get("checkpoint_ns")
        self.key = ""
        if self.tool_call_id and step:
            # The step's id stands for the model's message: it is the same when the step runs
            # again, and another one in a later turn.
            self.key = call_key(
                owner.rein.store.key, given, self.place.thread or self.session.id, step,
                self.tool_call_id, declared.info.name,
            )  # fmt: skip
        self.suspends = bool(self.key) and owner.gate.may_suspend(self.session, self.place)
        self.refused: BaseException | None = None

    def entry(self, body: Callable[[Any], Any], is_async: bool = False) -> Entry:
        def start(exact: dict[str, Any]) -> Any:
            watched = self.owner.bound.watched
            assert watched is not None
            self.execution = Execution(
                self.owner.rein, watched.name, repeatable=True, threaded=is_async
            )
            return self.original if exact == self.arguments else {**exact, **self.rest}

        def run(_: Call, exact: dict[str, Any]) -> Any:
            given = start(exact)
            token = RUNNING.set(self.execution)
            try:
                return self.received(body(given))
            except ValidationError as error:
                raise self.unfit(error)  # noqa: B904 - the same error
            finally:
                RUNNING.reset(token)

        async def later(_: Call, exact: dict[str, Any]) -> Any:
            given = start(exact)
            token = RUNNING.set(self.execution)
            try:
                return self.received(await body(given))
            except ValidationError as error:
                raise self.unfit(error)  # noqa: B904 - the same error
            finally:
                RUNNING.reset(token)

        return Entry(
            tool=self.owner.bound.declared,
            arguments=dict(self.arguments),
            session=self.session,
            run=later if is_async else run,
            is_async=is_async,
            call_id=self.key,
            keyed=bool(self.key),
            labels=self.owner.gate.labels(self.place),
            can_suspend=self.suspends,
            signals=SIGNALS,
            dump=self._dump if self.tool_call_id else None,
            load=results.loaded if self.tool_call_id else None,
            raw=self._raw,
            left=self._left if is_async else None,
        )

    def unfit(self, error: ValidationError) -> BaseException:
        """Arguments that do not fit the tool's schema: nothing of the tool was started."""
        if self.execution is not None and self.execution.runs == 0:
            self.refused = error
            return NothingRan(self.call["name"])
        return error

    def received(self, result: Any) -> Any:
        execution = self.execution
        assert execution is not None
        self.result = result
        message = results.message_in(result, self.tool_call_id or "")
        if execution.error is not None:
            # The tool turned its error into text itself (`handle_tool_error`).
            self.refused = execution.error
            raise execution.error
        self.value = result if message is None else results.value_in(message, execution.raw)
        return self.value

    def _shown(self, value: Any) -> Any:
        return value if self.tool_call_id is None else super()._shown(value)

    def pause(self, pending: ApprovalPending) -> None:
        """Pause the graph. Raises where the call cannot be taken up again."""
        if not self.suspends or pending.call_id != self.key:
            raise pending
        self.session.waiting.add(self.key)
        self.owner.gate.pause(self.session, pending, self.tool_call_id or "")

    def told(self, error: BaseException) -> Any:
        """What stands for an error: a message for a model, or the error raised."""
        if self.refused is not None and isinstance(error, NothingRan):
            raise self.refused
        if error is self.refused and self.result is not NOTHING:
            return self.result
        if isinstance(error, Denied) and self.tool_call_id and not error.halt:
            if error.code != "no_approver":
                return results.answer(error.refusal(), self.call, "error")
        if self.tool_call_id:
            error = self.owner.gate.final(error)
        elif isinstance(error, Denied) and error.halt:
            error = ending(error)
        raise error
