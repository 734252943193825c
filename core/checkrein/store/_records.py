"""Rows in memory."""

from __future__ import annotations

from collections.abc import Callable

from checkrein.store import Page, Put, Record, SessionRow, Standing
from checkrein.store._paging import page_of, place_of
from checkrein.store._rules import put_conflict


class Records:
    """Rows by kind, in the order of their creation. The owner holds its lock around calls."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Record] = {}
        self._order: dict[str, list[str]] = {}

    def put(self, put: Put, at: int, undo: list[Callable[[], object]]) -> None:
        """Write a row. Raises `Conflict` where its state is not one of those wanted."""
        key = (put.kind, put.id)
        known = self._rows.get(key)
        state = known.state if known else ""
        if put.if_state is not None and state not in put.if_state:
            raise put_conflict(put, state)
        created = known.created if known else at
        self._rows[key] = Record(
            put.kind, put.id, put.state, put.session, put.label, created, at, put.body
        )
        if known is None:
            order = self._order.setdefault(put.kind, [])
            order.append(put.id)
            undo.append(order.pop)
            undo.append(lambda: self._rows.pop(key))
        else:
            undo.append(lambda: self._rows.__setitem__(key, known))

    def standing(self, row: SessionRow, at: int) -> Standing:
        """What the rows of a session say of it."""
        asked: set[str] = set()
        for id in self._order.get("approval", ()):
            found = self._rows["approval", id]
            if found.session == row.id and found.body["expires"] > at:
                asked.add(found.state)
        doubt = self._rows.get(("doubt", row.id))
        state = doubt.state if doubt is not None and doubt.state in ("open", "failed") else ""
        return Standing(row, "pending" in asked, "approved" in asked, state)

    def drop(self, session: str) -> None:
        """Delete the rows of a session."""
        for kind, order in self._order.items():
            gone = [id for id in order if self._rows[kind, id].session == session]
            for id in gone:
                order.remove(id)
                del self._rows[kind, id]

    def get(self, kind: str, id: str) -> Record | None:
        """One row."""
        return self._rows.get((kind, id))

    def page(
        self,
        kind: str,
        state: str | None,
        session: str | None,
        label: str | None,
        prefix: str | None,
        after: str | None,
        limit: int,
    ) -> Page:
        """Rows of one kind, oldest first."""
        order = self._order.get(kind, [])
        place = place_of(after)
        found: list[tuple[int, Record]] = []
        for index in range(0 if place is None else place + 1, len(order)):
            row = self._rows[(kind, order[index])]
            if (
                (state is None or row.state == state)
                and (session is None or row.session == session)
                and (label is None or row.label == label)
                and row.id.startswith(prefix or "")
            ):
                found.append((index, row))
                if len(found) > limit:
                    break
        return page_of(found, limit, lambda found: found[1])
