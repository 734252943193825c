"""Tool calls of an agent in terms of the engine."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

from checkrein.call import Call, Outcome
from checkrein.engine import Entry
from checkrein.errors import ApprovalPending, CheckreinError, ConfigError, Denied, InDoubt
from checkrein.verdicts import Ask
from checkrein_integrations._shared.refusals import in_doubt
from checkrein_integrations._shared.responses import arguments_of, text_of
from checkrein_integrations.openai_agents import results
from checkrein_integrations.openai_agents.binding import tells_start
from checkrein_integrations.openai_agents.execution import RUNNING, Execution, NothingRan
from checkrein_integrations.openai_agents.framework import (
    AgentsException,
    FailureHandling,
    FunctionTool,
    ModelBehaviorError,
    ToolContext,
    get_agent_tool_state_scope,
    maybe_invoke_function_tool_failure_error_function,
    peek_agent_tool_run_result,
)
from checkrein_integrations.openai_agents.runs import SCOPE, acting, run_of
from checkrein_integrations.openai_agents.signals import SIGNALS, Paused, ending, final
from checkrein_integrations.openai_agents.unknown import own_formatter

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.session import Session
    from checkrein.tools import Tool
    from checkrein_integrations.openai_agents.binding import Body
    from checkrein_integrations.openai_agents.runs import Run

_OWN = "openai-agents"
"""Who asks where the tool's own `needs_approval` does."""


class Gate:
    """Supervises one function tool of one Rein."""

    def __init__(
        self,
        rein: Rein,
        tool: FunctionTool,
        agent: str,
        declared: Tool,
        body: Body,
        *,
        custom: bool = False,
    ) -> None:
        self.rein = rein
        self.tool = tool
        self.agent = agent
        self.declared = declared
        self.body = body
        self.custom = custom
        """Its input is a text of its own form, no JSON."""
        self.own = tool.needs_approval
        self.starts = tells_start(tool)
        invoker = tool.on_invoke_tool
        self.policy = invoker if isinstance(invoker, FailureHandling) else None
        for signal in SIGNALS:
            if signal not in rein.pause_signals:
                rein.pause_signals.append(signal)

    def supervised(self) -> FunctionTool:
        """The tool with every call of it under supervision."""
        wrapped = copy.copy(self.tool)
        wrapped.on_invoke_tool = self.invoke
        wrapped.needs_approval = self.needs_approval
        return wrapped

    async def needs_approval(self, context: Any, arguments: dict[str, Any], id: str) -> bool:
        """Whether the run has to be interrupted before this call."""
        run = run_of(self.rein)
        if run is None or run.session.wait == "block" or self._unasked(run.session):
            return False
        job = _Job(self, run, run.session, context, id, arguments, text_of(arguments))
        try:
            outcome = await self.rein.aenter(await job.entry(asks_only=True))
        except ApprovalPending as pending:
            run.waits[pending.token] = [id, self.tool.name]
            return True
        except Denied as denied:
            run.decided[job.key] = denied
            return False
        except CheckreinError:
            return False  # the call itself meets it again, where it can be told
        if outcome.source:
            run.decided[job.key] = outcome
        return False

    def _unasked(self, session: Session) -> bool:
        """Whether nobody is there to ask: no plugin, and no setting of the tool's own."""
        return not (
            self.rein.engine.hooked or self.own is not False or session.pinned or session.sandbox
        )

    async def invoke(self, context: ToolContext[Any], text: str) -> Any:
        """Run one call under supervision; what the model gets."""
        config = context.run_config
        if config is not None and config.model is not None:
            if getattr(config.model, "checkrein_rein", None) is not self.rein:
                raise ending(
                    ConfigError(
                        "the run's RunConfig names a model, which is not supervised: pass "
                        "run_config(rein, config), or use run(rein, agent, ...)"
                    )
                )
        run = run_of(self.rein)
        session = run.session if run is not None else self.rein.current_session()
        arguments = {"input": text} if self.custom else arguments_of(text)
        if not isinstance(arguments, dict):
            return await self._malformed(session, text)
        job = _Job(self, run, session, context, context.tool_call_id, arguments, text)
        try:
            decided = run.decided.pop(job.key, None) if run is not None else None
            if isinstance(decided, Denied):
                return await self._told(job, decided)
            if isinstance(decided, Outcome):
                return results.given(decided.value)
            outcome = await self.rein.aenter(await job.entry())
            return results.given(outcome.value)
        except Paused:
            return job.value
        except Exception as error:  # noqa: BLE001 - told to the model, or raised again
            return await self._told(job, error)
        finally:
            job.end()

    async def _malformed(self, session: Session, text: str) -> str:
        """Arguments that nobody can judge: recorded, and never passed on."""
        name = self.tool.name
        denied = Denied(
            "its arguments are not a JSON object", tool=name, code="invalid_arguments",
            rule="arguments",
        )  # fmt: skip
        rein, given = self.rein, {"input": text}
        call = Call(
            rein.ids.new(), session.id, "tool", name, given, self.declared.info, self.agent,
            session.task, session.user, session.tenant, next(session.steps), SCOPE.get(),
        )  # fmt: skip
        entry = Entry(self.declared, given, session)
        try:
            await rein.engine.refuse(rein.async_io, entry, call, dict(given), denied)
        except Denied as refused:
            if refused is not denied:
                raise final(refused) from None
        return (
            f"[{denied.code}] {name} was not run: {denied.reason}. Call it again with valid JSON."
        )

    async def _told(self, job: _Job, error: Exception) -> Any:
        """What the model is told of an error; raises what ends the run."""
        if isinstance(error, CheckreinError) and error is not job.raised:
            if isinstance(error, Denied) and not error.halt and error.code != "no_approver":
                return error.refusal()
            if isinstance(error, InDoubt) and error.outcome is None:
                return in_doubt(self.tool.name)
            raise final(error)
        cause = job.misfit if isinstance(error, NothingRan) and job.misfit else error
        if isinstance(cause, CheckreinError):
            over = cause.halt or cause.code != "denied" if isinstance(cause, Denied) else True
            if over or isinstance(cause, AgentsException):
                raise final(cause)
            assert isinstance(cause, Denied)
            return cause.refusal()
        if self.policy is None:
            raise cause
        if self._uncertain(job, cause):
            return in_doubt(self.tool.name)
        said = await maybe_invoke_function_tool_failure_error_function(
            function_tool=self.tool, context=job.context, error=cause
        )
        if said is None:
            raise cause
        return said

    def _uncertain(self, job: _Job, error: Exception) -> bool:
        """Whether the SDK's own text, which invites a retry, would be wrong."""
        info = self.declared.info
        config = job.context.run_config
        return (
            getattr(self.tool, "_use_default_failure_error_function", True)
            and own_formatter(config) is None
            and not info.idempotent
            and info.effect != "read"
            and not isinstance(error, self.declared.no_effect_on)
            and job.misfit is None
        )


# The SDK evaluates the annotations of what it invokes at every call; ours tell it nothing.
Gate.invoke.__annotations__.clear()


class _Job:
    """One call of a tool on its way."""

    def __init__(
        self,
        gate: Gate,
        run: Run | None,
        session: Session,
        context: Any,
        id: str,
        given: dict[str, Any],
        text: str,
    ) -> None:
        self.gate = gate
        self.run = run
        self.session = session
        self.context = context
        self.id = id
        self.text = text
        self.given = given
        self.arguments = gate.declared.complete(given)
        self.mark = self.key = ""
        if run is not None:
            self.mark, self.key = run.key("tool", given, gate.agent, gate.tool.name, id)
        self.started = False
        self.paused = False
        self.value: Any = None
        self.execution: Execution | None = None
        self.raised: Exception | None = None
        self.misfit: Exception | None = None
        """The SDK's error for arguments that do not fit."""

    async def entry(self, *, asks_only: bool = False) -> Entry:
        """The engine's entry for this call."""
        gate, run = self.gate, self.run
        own = gate.own
        if callable(own):
            asked: Any = own(self.context, self.given, self.id)
            own = await asked if inspect.isawaitable(asked) else asked
        suspends = run is not None and asks_only
        if run is not None and not asks_only:
            run.counts[self.mark] += 1
            self.started = True
        return Entry(
            gate.declared,
            dict(self.arguments),
            self.session,
            run=self._start,
            is_async=True,
            call_id=self.key,
            keyed=bool(self.key),
            agent=gate.agent,
            labels=acting(self.session, gate.agent),
            asks=((_OWN, Ask("the tool needs approval", rule="needs_approval")),) if own else (),
            asks_only=asks_only,
            can_suspend=suspends,
            wait="" if suspends or self.session.wait != "suspend" else self._blocks(),
            signals=SIGNALS,
            dump=results.dumped,
            load=results.loaded,
            raw=self._raw,
            left=self._left,
        )

    def _blocks(self) -> str:
        if self.run is not None:
            return "block"
        raise ending(
            ConfigError(
                "wait='suspend' needs run(rein, agent, ...), which keeps the state of the run; "
                "Runner.run can only wait in place (wait='auto')"
            )
        )

    async def _start(self, _: Call, exact: dict[str, Any]) -> Any:
        gate = self.gate
        text = self.text
        if exact != self.arguments:
            text = str(exact["input"]) if gate.custom else text_of(exact)
            self.context.tool_arguments = text
        execution = self.execution = Execution()
        self.raised = self.misfit = None
        running, scope = RUNNING.set(execution), SCOPE.set(self.key or SCOPE.get())
        try:
            self.value = await gate.body(self.context, text)
        except ModelBehaviorError as error:
            if execution.runs or not str(error).startswith("Invalid JSON input for tool"):
                self.raised = error
                raise
            self.misfit = error
            raise NothingRan(gate.tool.name) from error
        except Exception as error:
            self.raised = error
            raise
        finally:
            SCOPE.reset(scope)
            RUNNING.reset(running)
        if self._waits():
            self.paused = True
            raise Paused(gate.tool.name)
        return self.value

    def _waits(self) -> bool:
        """Whether an agent inside this tool was interrupted."""
        context = self.context
        if not getattr(self.gate.tool, "_is_agent_tool", False) or context.tool_call is None:
            return False
        inner = peek_agent_tool_run_result(
            context.tool_call, scope_id=get_agent_tool_state_scope(context)
        )
        return bool(getattr(inner, "interruptions", None))

    def _raw(self, value: Any) -> Any:
        return value.result if isinstance(value, results.Stored) else value

    def _left(self) -> Any:
        return None if self.execution is None else self.execution.left()

    def end(self) -> None:
        """A paused call is the same call when it goes on."""
        if self.paused and self.run is not None and self.started:
            self.run.counts[self.mark] -= 1
