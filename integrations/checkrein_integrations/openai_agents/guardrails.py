"""The SDK's own guardrail objects, which ask the plugins of a Rein.

They let pass or stop, as such objects can. They count nothing against limits, and what they
did not check stands in their `output_info`. An agent that is supervised is not judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkrein.call import Call, ToolInfo, new_outcome
from checkrein.checks import PreFold, fold_post
from checkrein.engine import Entry
from checkrein.errors import ConfigError, Denied
from checkrein.tools import Tool
from checkrein_integrations._shared.responses import arguments_of, told_input
from checkrein_integrations.openai_agents.framework import (
    GuardrailFunctionOutput,
    InputGuardrail,
    OutputGuardrail,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
    check,
)
from checkrein_integrations.openai_agents.models import name_of
from checkrein_integrations.openai_agents.signals import ending
from checkrein_integrations.openai_agents.supervision import owner_of

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.session import Session

_NAME = "checkrein"
_ELSEWHERE = {"checkrein": "judged where the agent is supervised"}


def as_input_guardrail(rein: Rein) -> InputGuardrail[Any]:
    """A guardrail on what an agent is given; it is done before the first turn begins.

    Raises `ConfigError` for plugins that change calls: only `supervise_agent` can.
    """
    judge = _Judge(rein)

    async def checkrein(_: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        if judge.covers(agent):
            return GuardrailFunctionOutput(_ELSEWHERE, tripwire_triggered=False)
        call = judge.model_call(agent, told_input(given).messages)
        denied, info = await judge.before(call)
        return GuardrailFunctionOutput(info, tripwire_triggered=denied is not None)

    return InputGuardrail(guardrail_function=checkrein, name=_NAME, run_in_parallel=False)


def as_output_guardrail(rein: Rein) -> OutputGuardrail[Any]:
    """A guardrail on an agent's final output. Raises `ConfigError` as `as_input_guardrail`."""
    judge = _Judge(rein)

    async def checkrein(_: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        if judge.covers(agent):
            return GuardrailFunctionOutput(_ELSEWHERE, tripwire_triggered=False)
        part = {"type": "text", "content": output if isinstance(output, str) else repr(output)}
        call = judge.model_call(agent, [])
        value = {"role": "assistant", "parts": [part]}
        denied, info = await judge.after(call, value)
        return GuardrailFunctionOutput(info, tripwire_triggered=denied is not None)

    return OutputGuardrail(guardrail_function=checkrein, name=_NAME)


def as_tool_input_guardrail(rein: Rein) -> ToolInputGuardrail[Any]:
    """A guardrail on the arguments of a tool. Raises `ConfigError` as `as_input_guardrail`.

    Arguments that are no JSON object are refused: nobody can judge them.
    """
    judge = _Judge(rein)

    async def checkrein(data: Any) -> ToolGuardrailFunctionOutput:
        if judge.covers(data.agent):
            return ToolGuardrailFunctionOutput.allow(_ELSEWHERE)
        arguments = arguments_of(data.context.tool_arguments)
        if not isinstance(arguments, dict):
            return ToolGuardrailFunctionOutput.reject_content(
                f"[invalid_arguments] {data.context.tool_name} was not run: its arguments are not "
                "a JSON object."
            )
        return _said(*await judge.before(judge.tool_call(data, arguments)))

    return ToolInputGuardrail(guardrail_function=checkrein, name=_NAME)


def as_tool_output_guardrail(rein: Rein) -> ToolOutputGuardrail[Any]:
    """A guardrail on the result of a tool. Raises `ConfigError` as `as_input_guardrail`."""
    judge = _Judge(rein)

    async def checkrein(data: Any) -> ToolGuardrailFunctionOutput:
        if judge.covers(data.agent):
            return ToolGuardrailFunctionOutput.allow(_ELSEWHERE)
        arguments = arguments_of(data.context.tool_arguments)
        given = arguments if isinstance(arguments, dict) else {"input": arguments}
        return _said(*await judge.after(judge.tool_call(data, given), data.output))

    return ToolOutputGuardrail(guardrail_function=checkrein, name=_NAME)


def _said(denied: Denied | None, info: Any) -> ToolGuardrailFunctionOutput:
    if denied is None:
        return ToolGuardrailFunctionOutput.allow(info)
    if denied.halt:
        raise ending(denied)
    return ToolGuardrailFunctionOutput.reject_content(denied.refusal(), info)


class _Judge:
    """Asks the plugins of a Rein without running anything."""

    def __init__(self, rein: Rein) -> None:
        check()
        unfit = [impl.plugin for impl in rein.plugins.chains["open_stream"]]
        unfit += [
            name
            for name, plugin in rein.plugins
            if getattr(plugin, "rewrites", False) and name not in unfit
        ]
        if unfit:
            raise ConfigError(
                f"{', '.join(unfit)}: these plugins change calls or results, and a guardrail can "
                "only let them pass or stop them; use supervise_agent"
            )
        if rein.wait == "suspend":
            raise ConfigError(
                "wait='suspend': a guardrail cannot pause a run; use run(rein, agent, ...)"
            )
        self._rein = rein

    def covers(self, agent: Any) -> bool:
        """Whether the agent is supervised by this Rein anyway."""
        owner = owner_of(agent)
        return owner is not None and owner.rein is self._rein

    def model_call(self, agent: Any, messages: list[Any]) -> Call:
        """The model call that an agent's input or output belongs to."""
        model = agent.model if isinstance(agent.model, str) else name_of(agent.model)
        arguments = {"system": None, "messages": messages, "tools": []}
        return self._call("model", model, arguments, ToolInfo(model, effect="read"), agent.name)

    def tool_call(self, data: Any, arguments: dict[str, Any]) -> Call:
        """A tool call as the SDK tells it."""
        name = data.context.tool_name
        known = self._rein.tools.get(name)
        info = known.info if known is not None else ToolInfo(name)
        return self._call("tool", name, arguments, info, data.agent.name)

    def _call(
        self, kind: Any, name: str, arguments: dict[str, Any], info: ToolInfo, agent: str
    ) -> Call:
        session = self._rein.current_session()
        return Call(
            self._rein.ids.new(), session.id, kind, name, arguments, info, agent, session.task,
            session.user, session.tenant, next(session.steps),
        )  # fmt: skip

    async def before(self, call: Call) -> tuple[Denied | None, Any]:
        """What `pre_call` says: (a denial, what the SDK shows)."""
        rein = self._rein
        fold = PreFold(rein.async_io, rein.engine.pre, rein.hook_timeout)
        checked = await fold.run(call)
        if checked.denied is not None:
            return await self._refused(call, checked.denied)
        odd = "rewrites this call" if checked.call is not call else ""
        odd = "wants a person to decide" if checked.asks else odd
        odd = "answers in its place" if checked.answer is not None else odd
        if odd:
            raise ending(
                ConfigError(
                    f"{call.name}: a plugin {odd}, which a guardrail cannot carry out; use "
                    "supervise_agent"
                )
            )
        limits = sorted({hold.account for _, hold in checked.holds})
        return None, {"checkrein": "allowed", "unchecked": [*checked.unchecked, *limits]}

    async def after(self, call: Call, value: Any) -> tuple[Denied | None, Any]:
        """What `post_call` says: (a denial, what the SDK shows)."""
        rein = self._rein
        outcome = new_outcome("done", value, None, None, None, None, 0.0, 1, "call")
        folded = await fold_post(rein.async_io, rein.engine.post, rein.hook_timeout, call, outcome)
        error = folded.outcome.error
        if isinstance(error, Denied):
            return await self._refused(call, error)
        if folded.changed or folded.asks:
            raise ending(
                ConfigError(
                    f"{call.name}: a plugin replaces this result or asks about it, which a "
                    "guardrail cannot carry out; use supervise_agent"
                )
            )
        return None, {"checkrein": "allowed", "unchecked": folded.unchecked}

    async def _refused(self, call: Call, denied: Denied) -> tuple[Denied, Any]:
        """Record a denial."""
        rein = self._rein
        session = self._session()
        entry = Entry(Tool(call.tool, None), dict(call.arguments), session)
        try:
            await rein.engine.refuse(rein.async_io, entry, call, dict(call.arguments), denied)
        except Denied as refused:
            if refused is not denied:
                raise ending(refused) from None
        return denied, {"checkrein": denied.code, "reason": denied.reason, "rule": denied.rule}

    def _session(self) -> Session:
        return self._rein.current_session()
