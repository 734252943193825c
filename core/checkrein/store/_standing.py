"""Sessions with what their records say of them: by page and counted, each in one query."""

from __future__ import annotations

import sqlite3

from checkrein.store import Page, SessionRow, Standing
from checkrein.store._marks import TAIL
from checkrein.store._paging import page_of, place_of
from checkrein.store._read import SESSION_COLUMNS, session_row

_ASKED = (
    "EXISTS (SELECT 1 FROM records r WHERE r.session = s.id AND r.session != '' "
    "AND +r.kind = 'approval' AND +r.state = '{}' AND json_extract(r.body, '$.expires') > :at)"
)
_PAGE = (
    f"{TAIL} SELECT {SESSION_COLUMNS}, {_ASKED.format('pending')}, {_ASKED.format('approved')}, "
    "(SELECT d.state FROM records d WHERE d.kind = 'doubt' AND d.id = s.id) FROM sessions s "
    "LEFT JOIN tail t ON t.sid = s.sid {} ORDER BY s.sid DESC LIMIT :limit"
)
_GROUP = "s.stopped, s.state, s.rollback, s.owner"
_COUNTS = f"SELECT {_GROUP}, count(*), 0, 0, '' FROM sessions s {{}} GROUP BY {_GROUP}"
# Of the few that have such records: they are taken out of the plain counts again.
_MARKED = (
    f"SELECT {_GROUP}, count(*), m.pending, m.approved, m.doubt FROM ("
    "SELECT session, max(kind = 'approval' AND state = 'pending') AS pending, "
    "max(kind = 'approval' AND state = 'approved') AS approved, "
    "max(iif(kind = 'doubt', state, '')) AS doubt FROM records "
    "WHERE (kind = 'approval' AND state IN ('pending', 'approved') "
    "AND json_extract(body, '$.expires') > :at) "
    "OR (kind = 'doubt' AND state IN ('open', 'failed')) GROUP BY session) m "
    f"CROSS JOIN sessions s ON s.id = m.session {{}} GROUP BY {_GROUP}, 6, 7, 8"
)


def read_standings(
    connection: sqlite3.Connection, at: int, agent: str | None, after: str | None, limit: int
) -> Page:
    """A page of sessions, newest first."""
    where: list[str] = []
    place = place_of(after)
    if agent is not None:
        where.append("s.agent = :agent")
    if place is not None:
        where.append("s.sid < :place")
    clause = f"WHERE {' AND '.join(where)}" if where else ""
    values = {"at": at, "agent": agent, "place": place, "limit": limit + 1}
    rows = connection.execute(_PAGE.format(clause), values).fetchall()
    return page_of(
        rows,
        limit,
        lambda row: Standing(session_row(row[:-3]), bool(row[-3]), bool(row[-2]), _doubt(row[-1])),
    )


def _doubt(state: str | None) -> str:
    return state if state in ("open", "failed") else ""


def count_standings(
    connection: sqlite3.Connection, at: int, agent: str | None
) -> list[tuple[Standing, int]]:
    """How many sessions there are of each standing."""
    clause = "" if agent is None else "WHERE s.agent = :agent"
    values = {"at": at, "agent": agent}
    counts: dict[Standing, int] = {}
    # One snapshot of both.
    connection.execute("BEGIN")
    try:
        plain = connection.execute(_COUNTS.format(clause), values).fetchall()
        marked = connection.execute(_MARKED.format(clause), values).fetchall()
    finally:
        connection.execute("ROLLBACK")
    for stopped, state, rollback, owner, number, pending, approved, doubt in (*plain, *marked):
        bare = SessionRow(
            "", state, rollback, stopped == 1, owner, 0, 0, "", 0, 0, (),  # type: ignore[arg-type]  # as `nameless`
            stopped == 2,
        )  # fmt: skip
        found = Standing(bare, bool(pending), bool(approved), doubt)
        counts[found] = counts.get(found, 0) + number
        if pending or approved or doubt:
            counts[Standing(bare)] -= number
    return [(found, number) for found, number in counts.items() if number]
