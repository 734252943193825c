"""Part of the store's protocol: sessions in lists, and sessions that are to be forgotten."""

from __future__ import annotations

from typing import Protocol

from checkrein.store._rows import Page, Standing


class Keeping(Protocol):
    """What a backend must do with sessions as wholes."""

    def standings(
        self, *, at: int, agent: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page:
        """As `sessions`, each row a `Standing` at the time `at` (microseconds): one query."""
        ...

    def standing_counts(self, *, at: int, agent: str | None = None) -> list[tuple[Standing, int]]:
        """How many sessions there are of each standing; their rows are without id and body."""
        ...

    def forget(self, session: str, *, at: int) -> bool:
        """Delete a session's events, payloads and records; False if it is not there.

        Its row stays, and a new chain begins with one event of kind `session_forgotten`, whose
        view names the length and the head of the one that was deleted. What calls cost stays on
        the bill. Raises `Conflict` for a session that is ACTIVE or rolling back.
        """
        ...

    def sweep(self) -> int:
        """Remove files of payloads that no event names any more; how many."""
        ...
