"""Reading: rows, pages and events, each by way of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkrein.codec import loads
from checkrein.store import Event, OpenHold, Page, Record, SessionRow, Standing
from checkrein.store._paging import page_of, place_of
from checkrein_plugins.stores.postgres.connections import Connection

SESSION = (
    "s.sid, s.id, s.state, s.rollback, s.stopped, s.owner, s.fence, s.n, s.head, s.created, "
    "s.updated, s.body"
)
_RECORD = "rid, kind, id, state, session, label, created, updated, body"
_EVENT = (
    "e.seq, coalesce(s.id, ''), e.n, e.kind, e.call, e.attempt, e.at, e.view, e.ref, e.prev, e.hash"
)
PAYLOAD = (
    "SELECT e.ref, e.salt, e.data, e.place, e.kind, e.view, coalesce(s.id, ''), e.n, e.call, "
    "e.attempt, e.at, e.prev, e.hash FROM events e LEFT JOIN sessions s USING (sid) "
    "WHERE e.seq = %s"
)
_BY_CALL = (
    # Two partial indexes hold a call's events: the kinds that are single, and the others.
    "SELECT seq FROM events WHERE call = %s AND kind IN ('intent', 'outcome') UNION ALL "
    "SELECT seq FROM events WHERE call = %s AND call != '' AND kind NOT IN ('intent', 'outcome')"
)


def session_row(row: Sequence[Any]) -> SessionRow:
    """A session from its columns (after the cursor's)."""
    _, id, state, rollback, stopped, owner, fence, n, head, created, updated, body = row
    return SessionRow(
        id, state, rollback, stopped == 1, owner, fence, n, head.hex(), created, updated,
        loads(body), stopped == 2,
    )  # fmt: skip


def read_session(connection: Connection, id: str) -> SessionRow | None:
    """One session."""
    row = connection.execute(f"SELECT {SESSION} FROM sessions s WHERE s.id = %s", (id,)).fetchone()
    return None if row is None else session_row(row)


def read_sessions(
    connection: Connection,
    wanted: dict[str, str | None],
    prefix: str | None,
    after: str | None,
    limit: int,
) -> Page:
    """A page of sessions, newest first."""
    where, values = _where(wanted, "s.")
    if prefix:
        where.append("starts_with(s.id, %s)")
        values.append(prefix)
    place = place_of(after)
    if place is not None:
        where.append("s.sid < %s")
        values.append(place)
    rows = connection.execute(
        f"SELECT {SESSION} FROM sessions s {_clause(where)} ORDER BY s.sid DESC LIMIT %s",
        (*values, limit + 1),
    ).fetchall()
    return page_of(rows, limit, session_row)


def _record(row: Sequence[Any]) -> Record:
    _, kind, id, state, session, label, created, updated, body = row
    return Record(kind, id, state, session, label, created, updated, loads(body))


def read_record(connection: Connection, kind: str, id: str) -> Record | None:
    """One record."""
    row = connection.execute(
        f"SELECT {_RECORD} FROM records WHERE kind = %s AND id = %s", (kind, id)
    ).fetchone()
    return None if row is None else _record(row)


def read_records(
    connection: Connection,
    kind: str,
    wanted: dict[str, str | None],
    prefix: str | None,
    after: str | None,
    limit: int,
) -> Page:
    """A page of records of one kind, oldest first."""
    where, values = _where({"kind": kind, **wanted})
    if prefix:
        where.append("starts_with(id, %s)")
        values.append(prefix)
    place = place_of(after)
    if place is not None:
        where.append("rid > %s")
        values.append(place)
    rows = connection.execute(
        f"SELECT {_RECORD} FROM records {_clause(where)} ORDER BY rid LIMIT %s",
        (*values, limit + 1),
    ).fetchall()
    return page_of(rows, limit, _record)


def _where(wanted: dict[str, str | None], prefix: str = "") -> tuple[list[str], list[Any]]:
    given = {column: value for column, value in wanted.items() if value is not None}
    return [f"{prefix}{column} = %s" for column in given], list(given.values())


def _clause(where: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(where)}" if where else ""


def event_of(row: Sequence[Any]) -> Event:
    """An event from its columns."""
    seq, session, n, kind, call, attempt, at, view, ref, prev, digest = row
    return Event(
        seq, session, n, kind, call, attempt, at, loads(view), ref.hex(), prev.hex(), digest.hex()
    )


def read_events(
    connection: Connection,
    *,
    session: str | None,
    call: str | None,
    kinds: Sequence[str] | None,
    after: int,
    before: int | None,
    reverse: bool,
    limit: int,
) -> list[Event]:
    """Events in the order of `seq`, forwards or backwards."""
    where, values = ["e.seq > %s"], list[Any]([after])
    if session is None and call is None:
        # A number may be written later than one above it: whoever follows all sessions must not
        # step over it. Asked before the events are looked at, and in a statement of its own.
        (until,) = connection.execute("SELECT settled_until()").fetchone() or (0,)
        where.append("e.seq <= %s")
        values.append(until)
    if before is not None:
        where.append("e.seq < %s")
        values.append(before)
    if kinds is not None:
        where.append("e.kind = ANY (%s)")
        values.append(list(kinds))
    if session is not None:
        where.append("s.id = %s")
        values.append(session)
    if call is not None:
        where.append(f"e.seq IN ({_BY_CALL})")
        values += [call, call]
    join = "JOIN" if session is not None else "LEFT JOIN"
    rows = connection.execute(
        f"SELECT {_EVENT} FROM events e {join} sessions s ON s.sid = e.sid "
        f"{_clause(where)} ORDER BY e.seq {'DESC' if reverse else ''} LIMIT %s",
        (*values, limit),
    ).fetchall()
    return [event_of(row) for row in rows]


def read_holds(connection: Connection, wanted: dict[str, str | None]) -> list[OpenHold]:
    """Open holds. There are as many as calls run, so they are looked through."""
    where, values = _where(wanted)
    rows = connection.execute(
        "SELECT id, account, amount, unit, settle, call, session FROM holds "
        f"{_clause(where)} ORDER BY at, id",
        values,
    ).fetchall()
    return [OpenHold(*row) for row in rows]


def read_balance(
    connection: Connection, account: str, at: int, span: int
) -> tuple[str, int, int] | None:
    """Unit, spent and held; with `span` (microseconds), what was booked since `at - span`."""
    spent = "a.spent"
    values: tuple[Any, ...] = (account,)
    if span:
        spent = (
            "(SELECT coalesce(sum(b.amount), 0) FROM bookings b "
            "WHERE b.account = a.account AND b.at > %s)::bigint"
        )
        values = (at - span, account)
    row: tuple[str, int, int] | None = connection.execute(
        f"SELECT a.unit, {spent}, a.held FROM balances a WHERE a.account = %s", values
    ).fetchone()
    return row


# -- standings

_ASKED = (
    "EXISTS (SELECT 1 FROM records r WHERE r.session = s.id AND r.session != '' "
    "AND r.kind = 'approval' AND r.state = '{}' "
    "AND (r.body::jsonb ->> 'expires')::numeric > %(at)s)"
)
_DOUBT = (
    "coalesce((SELECT d.state FROM records d WHERE d.kind = 'doubt' AND d.id = s.id "
    "AND d.state IN ('open', 'failed')), '')"
)
_PAGE = (
    f"SELECT {SESSION}, {_ASKED.format('pending')}, {_ASKED.format('approved')}, {_DOUBT} "
    "FROM sessions s {} ORDER BY s.sid DESC LIMIT %(limit)s"
)
# What has records of these kinds is counted one by one, everything else by its columns.
_MARKED = (
    "SELECT DISTINCT session FROM records WHERE (kind = 'approval' AND state IN ('pending', "
    "'approved') AND (body::jsonb ->> 'expires')::numeric > %(at)s) "
    "OR (kind = 'doubt' AND state IN ('open', 'failed'))"
)
_COUNTS = (
    f"WITH marked AS MATERIALIZED ({_MARKED}) "
    "SELECT s.stopped, s.state, s.rollback, s.owner, false, false, '', count(*) FROM sessions s "
    "WHERE {} NOT EXISTS (SELECT 1 FROM marked m WHERE m.session = s.id) GROUP BY 1, 2, 3, 4 "
    f"UNION ALL SELECT s.stopped, s.state, s.rollback, s.owner, {_ASKED.format('pending')}, "
    f"{_ASKED.format('approved')}, {_DOUBT}, 1 FROM sessions s "
    "JOIN marked m ON m.session = s.id WHERE {} true"
)


def read_standings(
    connection: Connection, at: int, agent: str | None, after: str | None, limit: int
) -> Page:
    """A page of sessions with what their records say of them, newest first."""
    where: list[str] = []
    place = place_of(after)
    if agent is not None:
        where.append("s.agent = %(agent)s")
    if place is not None:
        where.append("s.sid < %(place)s")
    values = {"at": at, "agent": agent, "place": place, "limit": limit + 1}
    rows = connection.execute(_PAGE.format(_clause(where)), values).fetchall()
    return page_of(
        rows, limit, lambda row: Standing(session_row(row[:-3]), row[-3], row[-2], row[-1])
    )


def count_standings(
    connection: Connection, at: int, agent: str | None
) -> list[tuple[Standing, int]]:
    """How many sessions there are of each standing."""
    clause = "" if agent is None else "s.agent = %(agent)s AND"
    counts: dict[Standing, int] = {}
    rows = connection.execute(_COUNTS.format(clause, clause), {"at": at, "agent": agent})
    for stopped, state, rollback, owner, pending, approved, doubt, number in rows.fetchall():
        bare = SessionRow(
            "", state, rollback, stopped == 1, owner, 0, 0, "", 0, 0, (),  # type: ignore[arg-type]  # as `nameless`
            stopped == 2,
        )  # fmt: skip
        found = Standing(bare, pending, approved, doubt)
        counts[found] = counts.get(found, 0) + number
    return list(counts.items())
