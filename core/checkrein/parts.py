"""Which effects of a session a rollback takes back: all, or those after a step."""

from __future__ import annotations

from collections.abc import Sequence

from checkrein.effects import PAGE, every, newest_first
from checkrein.errors import ConfigError, Conflict
from checkrein.store import Event, Store

_STEPS = ("intent", "answered", "denied")


class Part:
    """The effects of a session, and of the sessions inside it, that came after a step."""

    def __init__(self, store: Store, session: str, to: int | None, sessions: Sequence[str]) -> None:
        self.session = session
        self.to = to
        self._end = 0 if to is None else _end_of(store, session, to)
        if to is not None and not any(map(self.holds, newest_first(store, sessions))):
            raise Conflict(f"session {session} has no effect after step {to}: nothing was changed")

    def holds(self, intent: Event) -> bool:
        """Whether an effect belongs to it."""
        if self.to is None:
            return True
        if intent.session == self.session:
            return int(intent.view.get("step", 0)) > self.to
        return intent.seq > self._end

    @property
    def outside(self) -> str:
        """Why what does not belong to it is kept."""
        return f"not after step {self.to}"


def _end_of(store: Store, session: str, to: int) -> int:
    """Number of the event with which a step ended. Raises `ConfigError`, `Conflict`."""
    given: object = to
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError("rollback: to= is the number of a step that stays, 1 or more")
    last = 0
    before: int | None = None
    # Undos that another process has run bear numbers of their own.
    undo: Event | None = None
    while True:
        page = store.events(session=session, kinds=_STEPS, before=before, reverse=True, limit=PAGE)
        for event in page:
            step = int(event.view.get("step", 0))
            last = max(last, step)
            if step == to and event.view.get("kind") == "undo":
                undo = undo or event
            elif step == to:
                return _ended_at(store, event)
        if len(page) < PAGE:
            if undo is not None:
                return _ended_at(store, undo)
            raise Conflict(
                f"session {session} has no step {to} (its last is {last}): nothing was changed"
            )
        before = page[-1].seq


def _ended_at(store: Store, begun: Event) -> int:
    ends = every(store, begun.call, ("outcome", "answered", "denied"))
    return max([begun.seq, *(end.seq for end in ends)])


def last_step(store: Store, session: str) -> int:
    """The highest number that a step of a session bears; 0 if it has none.

    Calls that run side by side are recorded in any order, and undos of other processes bear
    numbers of their own: the newest event need not tell.
    """
    highest = 0
    before: int | None = None
    while True:
        page = store.events(session=session, kinds=_STEPS, before=before, reverse=True, limit=PAGE)
        highest = max([highest, *(int(event.view.get("step", 0)) for event in page)])
        if len(page) < PAGE or any(event.view.get("kind") != "undo" for event in page):
            return highest
        before = page[-1].seq
