"""Where our middleware stands: whether an error that leaves it may still be handled.

The framework tells a middleware nothing of the others. It asks each for its name while it makes
the agent, and there the list of all of them is at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware

if TYPE_CHECKING:
    from types import FrameType

_HOOKS = {
    "tool": ("wrap_tool_call", "awrap_tool_call"),
    "model": ("wrap_model_call", "awrap_model_call"),
}
_NEAR = 4
"""Frames between the question for the name and the function that makes the agent."""


class Standing:
    """What is known of the middlewares outside ours."""

    def __init__(self) -> None:
        self._alone: dict[str, bool] = {}

    def outermost(self, kind: str) -> bool:
        """Whether nobody outside can take up an error of a `tool` or `model` call.

        False where that is not known.
        """
        return self._alone.get(kind, False)

    def look(self, ours: object) -> None:
        """Somebody asks for the name of `ours`: if it is the framework, look at its list."""
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the one way to see the list
        for _ in range(_NEAR):
            if frame is None:
                return
            if frame.f_code.co_name == "create_agent":
                self._learn(ours, frame.f_locals.get("middleware"))
                return
            frame = frame.f_back

    def _learn(self, ours: object, chain: Any) -> None:
        if not isinstance(chain, Sequence) or not any(one is ours for one in chain):
            return
        before = list(chain[: next(i for i, one in enumerate(chain) if one is ours)])
        for kind, hooks in _HOOKS.items():
            alone = not any(_has_own(one, hook) for one in before for hook in hooks)
            # In several agents: only what holds in all of them.
            self._alone[kind] = alone and self._alone.get(kind, True)


def _has_own(middleware: object, hook: str) -> bool:
    return getattr(type(middleware), hook, None) is not getattr(AgentMiddleware, hook)
