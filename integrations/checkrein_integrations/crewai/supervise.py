"""`supervise`: what crews and flows do inside a block goes through the hooks of a Rein."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from checkrein.errors import ConfigError
from checkrein.session import Session, active
from checkrein_integrations._shared.retracting import Streams, check_streams
from checkrein_integrations.crewai.binding import binder_of
from checkrein_integrations.crewai.calls import nothing_ran
from checkrein_integrations.crewai.framework import (
    BaseLLM,
    BaseTool,
    CrewStructuredTool,
    InterceptionPoint,
    check,
    outer_hooks,
    scoped_hooks,
)
from checkrein_integrations.crewai.instruments import Instruments
from checkrein_integrations.crewai.models import change_model, live
from checkrein_integrations.crewai.signals import failed
from checkrein_integrations.crewai.state import PASS, SCOPE, Pass, Scope

if TYPE_CHECKING:
    from types import TracebackType

    from checkrein import Rein


class supervise:  # noqa: N801 - reads as a function: `with supervise(rein):`
    """A block in which crews, agents and flows are supervised.

        with supervise(rein) as session:
            crew.kickoff()

    `async with` for `kickoff_async` and `akickoff`. Everything that is started inside belongs
    to it: delegated agents, async tasks, tools called directly, flows.

    Args:
        rein: The Rein whose plugins decide.
        session: `rein.session(agent=..., ...)`, not entered; by default a new one. A session
            that is open around the block is used as it is. `rein.session(id=...)` goes on with
            a run that was interrupted: what it has done is answered from the journal.
        models: Model objects by name, for plugins that fall back to or rewrite to another model.
        streams: `auto` tells of what the plugins' stream filters let through, and of nothing of
            an answer that a plugin wants to see whole; `hold` never tells of anything before the
            whole answer is judged; `pass` tells of it. What was told and is blocked or replaced
            is taken back with an `AnswerRetractedEvent` on CrewAI's event bus.

    Raises `ConfigError` for a CrewAI that lacks what the adapter needs, a block of another Rein
    around this one, and settings that cannot be used.
    """

    def __init__(
        self,
        rein: Rein,
        *,
        session: Session | None = None,
        models: Mapping[str, Any] | None = None,
        streams: Streams = "auto",
    ) -> None:
        check()
        check_streams(streams)
        given: Any = session
        if given is not None and (not isinstance(given, Session) or given.rein is not rein):
            raise ConfigError("session: pass rein.session(...) of the same Rein")
        for name, model in (models or {}).items():
            if not isinstance(model, BaseLLM):
                raise ConfigError(f"models[{name!r}]: {type(model).__name__} is not a CrewAI LLM")
        self.rein = rein
        self._models = dict(models or {})
        self._streams: Streams = streams
        self._given = session
        self._own: Session | None = None
        self._hooks: contextlib.ExitStack | None = None

    def __enter__(self) -> Session:
        session = self._session()
        if self._own is not None:
            self._own.__enter__()
        return self._begin(session)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if self._own is not None:
            self._own.__exit__(kind, error, trace)

    async def __aenter__(self) -> Session:
        session = self._session()
        if self._own is not None:
            await self._own.__aenter__()
        return self._begin(session)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if self._own is not None:
            await self._own.__aexit__(kind, error, trace)

    def _session(self) -> Session:
        """The session of the block; ours to enter and to end if nobody has opened one."""
        outer = SCOPE.get()
        if outer is not None and outer.rein is not self.rein:
            raise ConfigError("another Rein supervises this already: one block, one Rein")
        if self._hooks is not None:
            raise ConfigError("supervise(...): a block is entered once; make another one")
        if self._given is not None:
            if self.rein.opened(self._given.id) is not self._given:
                self._own = self._given
            return self._given
        around = active(self.rein)
        if around is not None:
            return around
        self._own = self.rein.session()
        return self._own

    def _begin(self, session: Session) -> Session:
        self._hooks = stack = contextlib.ExitStack()
        if SCOPE.get() is not None:
            # A block inside one of ours: what runs is supervised already, once.
            return session
        instruments = Instruments()
        scope = Scope(self.rein, session, self._models, instruments, self._streams)
        hooks = Hooks(scope)
        merged = outer_hooks()
        for point, hook in hooks.points():
            merged.setdefault(point, []).append(hook)
        stack.callback(instruments.release)
        stack.enter_context(scoped_hooks(merged))
        token = SCOPE.set(scope)
        stack.callback(SCOPE.reset, token)
        return session

    def _end(self) -> None:
        assert self._hooks is not None
        self._hooks.close()


class Hooks:
    """The framework's hooks of one block.

    CrewAI ignores whatever a hook raises, unless it is a `HookAborted`, and runs the tool: each
    hook catches everything, and what went wrong ends the run.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._passes: dict[int, Pass] = {}
        self._ready: dict[int, tuple[Any, Any]] = {}
        """(tool as the framework calls it, tool itself) of those that pass the engine."""

    def points(self) -> Iterable[tuple[Any, Any]]:
        """(interception point, hook) pairs."""
        return (
            (InterceptionPoint.EXECUTION_START, self.execution_start),
            (InterceptionPoint.PRE_TOOL_CALL, self.before_tool),
            (InterceptionPoint.POST_TOOL_CALL, self.after_tool),
            (InterceptionPoint.PRE_MODEL_CALL, self.before_model),
        )

    def execution_start(self, context: Any) -> None:
        """A crew or flow begins: its models are known now."""
        try:
            crew = context.crew
            agents = [*(getattr(crew, "agents", None) or ()), getattr(crew, "manager_agent", None)]
            owners = [crew, *agents]
            for owner in owners:
                # Not as attributes: some of the fields warn of their deprecation.
                fields = getattr(owner, "__dict__", {})
                for name in _MODELS:
                    self._model(fields.get(name))
        except Exception as error:
            raise failed(error) from error

    def _model(self, model: Any) -> None:
        if model is None or isinstance(model, str):
            return
        if not isinstance(model, BaseLLM):
            raise ConfigError(
                f"{type(model).__name__} is not a CrewAI LLM (BaseLLM): its calls cannot be "
                "supervised"
            )
        if getattr(model, "checkrein_owner", None) is None:
            self._scope.instruments.use(model, change_model)

    def before_model(self, context: Any) -> None:
        """A model is about to be called."""
        try:
            model = context.llm
            if context.executor is None:
                supervised = live(model) is not None
                if not supervised:
                    raise ConfigError(  # noqa: TRY301 - one way out for all
                        f"model {getattr(model, 'model', '')} is called past every agent: give "
                        "the caller supervise_model(rein, llm)"
                    )
                return
            self._model(model)
        except Exception as error:
            raise failed(error) from error

    def before_tool(self, context: Any) -> bool | None:
        """A tool is about to be called; False keeps the framework from calling it."""
        structured = context.tool
        ready = self._ready.get(id(structured))
        known = ready is not None and ready[0] is structured
        if ready is not None and known:
            tool = ready[1]
        else:
            tool = getattr(structured, "_original_tool", None) or structured
        told = Pass(context.tool_name, tool, context.tool_input, context.task, context.agent)
        self._passes[id(context.tool_input)] = told
        PASS.set(told)
        if known:
            return None
        try:
            if not isinstance(tool, (BaseTool, CrewStructuredTool)):
                unknown = binder_of(self._scope.rein).unknown(context.tool_name)
                nothing_ran(self._scope.rein, told, unknown, self._scope.session())
                return None if told.error is None and told.text is None else False
            owner = getattr(tool, "checkrein_owner", None)
            if owner is not None and owner.rein is not self._scope.rein:
                raise ConfigError(  # noqa: TRY301 - one way out for all
                    f"tool {tool.name} is supervised by another Rein already"
                )
            self._scope.instruments.tool(structured)
            self._ready[id(structured)] = (structured, tool)
        except BaseException as error:  # noqa: BLE001 - ends the run in the hook after the call
            told.error = failed(error) if isinstance(error, Exception) else error
            return False
        return None

    def after_tool(self, context: Any) -> str | None:
        """The framework is done with a tool call; a text replaces what it tells the model."""
        told = self._passes.pop(id(context.tool_input), None)
        if told is None:
            # Another hook said no before ours was asked.
            told = Pass(context.tool_name, None, context.tool_input, context.task, context.agent)
        PASS.set(told.before)
        if told.error is None and not told.entered:
            self._suppressed(told, context)
        if told.error is not None:
            raise told.error
        return told.text

    def _suppressed(self, told: Pass, context: Any) -> None:
        """The tool was never reached: a cached result, the guard against repeated calls."""
        scope = self._scope
        try:
            tool = told.tool or getattr(context.tool, "_original_tool", None) or context.tool
            binder = binder_of(scope.rein)
            known = isinstance(tool, (BaseTool, CrewStructuredTool))
            declared = binder.of(tool) if known else binder.unknown(told.name)
            nothing_ran(scope.rein, told, declared, scope.session())
        except Exception as error:  # noqa: BLE001 - ends the run
            told.error = failed(error)


_MODELS = ("llm", "function_calling_llm", "manager_llm", "planning_llm", "chat_llm")
"""Fields of crews and agents that hold a model."""
