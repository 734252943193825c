"""Calls of tools that do not exist: the SDK answers them itself, and tells its error formatter."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn

from checkrein.call import Call, ToolInfo
from checkrein.engine import Entry
from checkrein.errors import CheckreinError, Denied
from checkrein.tools import Tool
from checkrein_integrations.openai_agents.execution import NothingRan
from checkrein_integrations.openai_agents.runs import acting, run_of

if TYPE_CHECKING:
    from checkrein import Rein

Formatter = Callable[[Any], Any]


class Recording:
    """A `tool_error_formatter` that has such a call judged and recorded, before the user's own.

    Nothing runs whatever is decided; the model reads a refusal, or the SDK's own words.
    """

    def __init__(self, rein: Rein, own: Formatter | None, agent: Callable[[], str]) -> None:
        self.own = own
        """The user's formatter; None where the SDK's words stand."""
        self._rein = rein
        self._agent = agent

    async def __call__(self, args: Any) -> str | None:
        if args.kind == "tool_not_found":
            refusal = await _recorded(self._rein, str(args.tool_name), self._agent())
            if refusal is not None:
                return refusal
        said: Any = self.own(args) if self.own is not None else None
        text: str | None = await said if isawaitable(said) else said
        return text


def own_formatter(config: Any) -> Formatter | None:
    """The formatter that a user gave a run."""
    given = getattr(config, "tool_error_formatter", None)
    return given.own if isinstance(given, Recording) else given


async def _recorded(rein: Rein, name: str, agent: str) -> str | None:
    run = run_of(rein)
    session = run.session if run is not None else rein.current_session()
    entry = Entry(
        # Not declared: models make up names without end.
        Tool(ToolInfo(name), None, no_effect_on=(NothingRan,)),
        {},
        session,
        run=_nothing,
        agent=agent or session.agent,
        labels=acting(session, agent),
        wait="block",
    )
    try:
        await rein.aenter(entry)
    except Denied as denied:
        return denied.refusal()
    except (NothingRan, CheckreinError):
        # What ends the session is met by the next call: the SDK swallows what is raised here.
        return None
    return None


def _nothing(call: Call, _: dict[str, Any]) -> NoReturn:
    raise NothingRan(f"there is no tool {call.name}")
