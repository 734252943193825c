"""Sessions in lists, and forgotten ones, in memory."""

from __future__ import annotations

from typing import Any

from checkrein.store import Batch, NewEvent
from checkrein.store._rows import Page, Standing, nameless
from checkrein.store._rules import FORGOTTEN, check_forget


class MemoryKeeping:
    """The part of `MemoryStore` that keeps sessions as wholes."""

    def standings(
        self: Any,
        *,
        at: int,
        agent: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Sessions and what their records say of them, newest first."""
        page = self.sessions(agent=agent, after=after, limit=limit)
        with self._lock:
            return Page([self._records.standing(row, at) for row in page.rows], page.next)

    def standing_counts(
        self: Any, *, at: int, agent: str | None = None
    ) -> list[tuple[Standing, int]]:
        """How many sessions there are of each standing."""
        counts: dict[Standing, int] = {}
        after: str | None = None
        while True:
            page = self.standings(at=at, agent=agent, after=after, limit=1000)
            for found in page.rows:
                key = nameless(found)
                counts[key] = counts.get(key, 0) + 1
            after = page.next
            if after is None:
                return list(counts.items())

    def forget(self: Any, session: str, *, at: int) -> bool:
        """Delete a session's events and records."""
        with self._lock:
            self._check_open()
            known = self._sessions.get(session)
            if known is None:
                return False
            check_forget(session, known.state, known.rollback, known.owner)
            length, head = self._journal.forget(session)
            self._records.drop(session)
        view = {"events": length, "head": head}
        self.commit(Batch(session, (NewEvent(FORGOTTEN, "", at, view),), at))
        return True

    def sweep(self) -> int:
        """Remove nothing: there are no files."""
        return 0
