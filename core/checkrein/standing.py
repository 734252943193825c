"""What a session is called in lists: derived from its row, its owner and its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkrein import owner
from checkrein.errors import ConfigError
from checkrein.store import SessionRow, Standing, Store

if TYPE_CHECKING:
    from checkrein.rein import Rein

STATES = {
    "ACTIVE": "its process is at work",
    "AWAITING_APPROVAL": "a call waits for a person",
    "APPROVED": "a call was approved and waits to be resumed",
    "SUSPENDED": "open, and no process runs it",
    "PAUSED": "takes no calls until `checkrein continue`",
    "STOPPED": "takes no more calls",
    "ORPHANED": "its process died: `checkrein recover`",
    "COMPLETED": "ended well",
    "FAILED": "ended with an error; nothing was rolled back",
    "ABANDONED": "nobody went on with it in time",
    "ROLLING_BACK": "its effects are being undone",
    "REVERTED": "its effects were undone",
    "PARTIALLY_REVERTED": "some effects were undone, and others stay",
    "ROLLBACK_FAILED": "an effect could not be undone, or nobody can tell: `checkrein show`",
}


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session in a list."""

    row: SessionRow
    display: str
    """One of `STATES`."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest first, and where the next page begins (None = no more)."""

    sessions: tuple[SessionView, ...]
    next: str | None = None


class Standings:
    """Derives display states, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    def page(
        self, agent: str | None, state: str | None, after: str | None, limit: int
    ) -> SessionPage:
        """A page of sessions; with `state`, it is filled up with those that are shown so."""
        if state is not None and state not in STATES:
            raise ConfigError(f"state: {state!r} is not one of {', '.join(STATES)}")
        now = self.rein.clock()
        alive = Alive(self.store, now)
        found: list[SessionView] = []
        while True:
            page = self.store.standings(at=now, agent=agent, after=after, limit=limit)
            for standing in page.rows:
                shown = display_of(standing, alive)
                if state is None or shown == state:
                    found.append(SessionView(standing.row, shown))
            after = page.next
            if after is None or state is None or len(found) >= limit:
                return SessionPage(tuple(found), after)

    def counts(self, agent: str | None) -> dict[str, int]:
        """How many sessions are shown in which state; states that none is in are left out."""
        now = self.rein.clock()
        alive = Alive(self.store, now)
        found: dict[str, int] = {}
        for standing, number in self.store.standing_counts(at=now, agent=agent):
            shown = display_of(standing, alive)
            found[shown] = found.get(shown, 0) + number
        return {state: found[state] for state in STATES if state in found}

    def of(self, row: SessionRow) -> str:
        """Display state of one session."""
        id, now = row.id, self.rein.clock()
        asked = set()
        for state in ("pending", "approved"):
            page = self.store.records("approval", state=state, session=id, limit=100)
            asked |= {state for record in page.rows if record.body["expires"] > now}
        doubt = self.store.record("doubt", id)
        standing = Standing(
            row, "pending" in asked, "approved" in asked,
            doubt.state if doubt is not None and doubt.state in ("open", "failed") else "",
        )  # fmt: skip
        return display_of(standing, Alive(self.store, now))


class Alive:
    """Which owners can still be at work: each is looked up once."""

    def __init__(self, store: Store, now: int) -> None:
        self._store = store
        self._now = now
        self._known: dict[str, bool] = {"": False}

    def __call__(self, id: str) -> bool:
        known = self._known.get(id)
        if known is None:
            known = self._known[id] = owner.alive(self._store.owner(id), self._now)
        return known


def display_of(standing: Standing, alive: Alive) -> str:
    """One of `STATES`."""
    row = standing.row
    orphaned = bool(row.owner) and not alive(row.owner)
    if row.rollback == "rolled_back":
        return "REVERTED"
    if row.rollback == "partial":
        return "ROLLBACK_FAILED" if standing.doubt else "PARTIALLY_REVERTED"
    if row.rollback == "rolling_back":
        return "ORPHANED" if orphaned else "ROLLING_BACK"
    if row.state != "ACTIVE":
        return "ORPHANED" if orphaned and row.state == "FAILED" else row.state
    if row.stopped:
        return "STOPPED"
    if standing.pending:
        return "AWAITING_APPROVAL"
    if orphaned:
        return "ORPHANED"
    if row.paused:
        return "PAUSED"
    if row.owner:
        return "ACTIVE"
    return "APPROVED" if standing.approved else "SUSPENDED"
