"""What the tests of all adapters share: rules from functions, effects, and looks into a store."""

from __future__ import annotations

from typing import Any

from checkrein import Plugin, Rein

effects: list[Any] = []
"""What the tools of a test have done."""


class Rules(Plugin):
    """`pre_call` and `post_call` from functions."""

    def __init__(self, pre: Any = None, post: Any = None, kind: str = "tool") -> None:
        self._pre = pre
        self._post = post
        self._kind = kind

    def pre_call(self, call: Any) -> Any:
        return self._pre(call) if self._pre is not None and call.kind == self._kind else None

    def post_call(self, call: Any, outcome: Any) -> Any:
        return self._post(call, outcome) if self._post and call.kind == self._kind else None


def kinds(rein: Rein, session: str | None = None) -> list[tuple[str, str]]:
    """(kind, name or state) of all events, oldest first."""
    found = []
    for event in rein.store.events(session=session, limit=1000):
        about = event.view.get("name") or event.view.get("state") or ""
        found.append((event.kind, str(about)))
    return found


def states(rein: Rein) -> list[tuple[str, str]]:
    """(state, rollback) of all sessions, newest first."""
    return [(row.state, row.rollback) for row in rein.store.sessions().rows]
