"""Hand-offs as supervised calls: one that is refused leaves the agent where it is."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from checkrein.engine import Entry
from checkrein.errors import CheckreinError, Denied, InDoubt
from checkrein_integrations._shared.refusals import in_doubt
from checkrein_integrations._shared.responses import arguments_of, text_of
from checkrein_integrations.openai_agents.execution import NothingRan
from checkrein_integrations.openai_agents.framework import Handoff, ModelBehaviorError
from checkrein_integrations.openai_agents.results import Stored
from checkrein_integrations.openai_agents.runs import acting, run_of
from checkrein_integrations.openai_agents.signals import final

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call
    from checkrein.tools import Tool

REFUSED: contextvars.ContextVar[str] = contextvars.ContextVar(
    "checkrein_openai_agents_refused", default=""
)
"""What the model is told instead of the name of the next agent."""


class SupervisedHandoff(Handoff[Any, Any]):
    """A hand-off that goes through the hooks of a Rein."""

    def get_transfer_message(self, agent: Any) -> str:
        refused = REFUSED.get()
        return refused or super().get_transfer_message(agent)


def supervised(
    rein: Rein,
    plain: Handoff[Any, Any],
    source: Any,
    declared: Tool,
    agent_of: Callable[[Any], Any],
) -> SupervisedHandoff:
    """The hand-off of an agent, supervised; `agent_of` supervises whom it leads to."""

    async def invoke(context: Any, text: str) -> Any:
        REFUSED.set("")
        run = run_of(rein)
        session = run.session if run is not None else rein.current_session()
        given = arguments_of(text)
        if not isinstance(given, dict):
            given = {"input": given}
        target: Any = None

        async def start(_: Call, exact: dict[str, Any]) -> Any:
            nonlocal target
            try:
                passed = text if exact == given else text_of(exact)
                target = agent_of(await plain.on_invoke_handoff(context, passed))
            except ModelBehaviorError as error:
                raise NothingRan(plain.tool_name) from error
            return {"agent": target.name}

        mark, key = ("", "")
        if run is not None:
            mark, key = run.key("handoff", given, source.name, plain.tool_name)
            run.counts[mark] += 1
        entry = Entry(
            declared, given, session, run=start, is_async=True, call_id=key, keyed=bool(key),
            agent=source.name, labels=acting(session, source.name), wait="block", load=Stored,
        )  # fmt: skip
        try:
            outcome = await rein.aenter(entry)
        except Denied as denied:
            if denied.halt or denied.code == "no_approver":
                raise final(denied) from None
            REFUSED.set(denied.refusal())
            return source
        except InDoubt as doubt:
            if doubt.outcome is not None:
                raise final(doubt) from None
            REFUSED.set(in_doubt(plain.tool_name))
            return source
        except CheckreinError as error:
            raise final(error) from None
        except NothingRan as error:
            raise (error.__cause__ or error) from None
        if target is None and isinstance(outcome.value, Stored):
            target = agent_of(await plain.on_invoke_handoff(context, text))
        if target is None:
            # A plugin answered in place of the hand-off: nobody took over.
            REFUSED.set(str(outcome.value))
            return source
        return target

    fields = {
        field.name: getattr(plain, field.name)
        for field in dataclasses.fields(plain)
        if field.init and field.name in _FIELDS
    }
    made = SupervisedHandoff(**{**fields, "on_invoke_handoff": invoke})
    made._agent_ref = plain._agent_ref  # noqa: SLF001 - by it the SDK finds agents in saved states
    return made


_FIELDS = {field.name for field in dataclasses.fields(Handoff)}
