"""Reading from SQLite: rows, pages and events, each by way of an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from checkrein.codec import loads
from checkrein.store import Event, OpenHold, Page, Record, SessionRow, _marks
from checkrein.store._paging import page_of, place_of

SESSION_COLUMNS = (
    f"s.sid, s.id, s.state, s.rollback, s.stopped, s.owner, s.fence, {_marks.N}, {_marks.HEAD}, "
    f"s.created, {_marks.UPDATED}, s.body"
)
"""Of a session `s` with `tail t`."""
_RECORD_COLUMNS = "rid, kind, id, state, session, label, created, updated, body"
_ID = "coalesce(s.id, '')"
_EVENT_COLUMNS = (
    f"e.seq, {_ID}, e.n, e.kind, e.call, e.attempt, e.at, e.view, e.ref, e.prev, e.hash"
)
PAYLOAD = (
    "SELECT e.ref, e.salt, e.data, e.place, e.kind, e.view, coalesce(s.id, ''), e.n, e.call, "
    "e.attempt, e.at, e.prev, e.hash FROM events e LEFT JOIN sessions s USING (sid) "
    "WHERE e.seq = ?"
)
_BY_CALL = (
    # Two partial indexes hold a call's events: the kinds that are single, and the others.
    "SELECT seq FROM events WHERE call = ? AND kind IN ('intent', 'outcome') UNION ALL "
    "SELECT seq FROM events WHERE call = ? AND kind NOT IN ('intent', 'outcome')"
)


def session_row(row: Sequence[Any]) -> SessionRow:
    """A session from its columns (after the cursor's)."""
    _, id, state, rollback, stopped, owner, fence, n, head, created, updated, body = row
    return SessionRow(
        id,
        state,
        rollback,
        stopped == 1,
        owner,
        fence,
        n,
        head.hex(),
        created,
        updated,
        loads(body),
        stopped == 2,
    )


def read_session(connection: sqlite3.Connection, id: str) -> SessionRow | None:
    """One session."""
    row = connection.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions s LEFT JOIN {_marks.LAST} WHERE s.id = ?", (id,)
    ).fetchone()
    return None if row is None else session_row(row)


def read_sessions(
    connection: sqlite3.Connection,
    wanted: dict[str, str | None],
    prefix: str | None,
    after: str | None,
    limit: int,
) -> Page:
    """A page of sessions, newest first."""
    # The first of these that is asked for is looked up by its index; the others filter. Left
    # to itself, SQLite may choose the one that nearly every row has.
    order = ["owner", "parent", "state", "agent", "rollback"]
    if wanted["state"] != "ACTIVE":
        order = ["owner", "parent", "rollback", "agent", "state"]
    if wanted["rollback"] == "none":
        order.remove("rollback")
        order.append("rollback")
    where, values = _where(order, wanted, by_index=not prefix)
    if prefix:
        where.append("s.id >= ? AND s.id < ?")
        values += (prefix, prefix + chr(0x10FFFF))
    place = place_of(after)
    if place is not None:
        where.append("s.sid < ?")
        values.append(place)
    rows = connection.execute(
        f"{_marks.TAIL} SELECT {SESSION_COLUMNS} FROM sessions s LEFT JOIN tail t ON t.sid = s.sid "
        f"{_clause(where)} ORDER BY {'+' if prefix else ''}s.sid DESC LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    return page_of(rows, limit, session_row)


def _record(row: Sequence[Any]) -> Record:
    _, kind, id, state, session, label, created, updated, body = row
    return Record(kind, id, state, session, label, created, updated, loads(body))


def read_record(connection: sqlite3.Connection, kind: str, id: str) -> Record | None:
    """One record."""
    row = connection.execute(
        f"SELECT {_RECORD_COLUMNS} FROM records WHERE kind = ? AND id = ?", (kind, id)
    ).fetchone()
    return None if row is None else _record(row)


def read_records(
    connection: sqlite3.Connection,
    kind: str,
    wanted: dict[str, str | None],
    prefix: str | None,
    after: str | None,
    limit: int,
) -> Page:
    """A page of records of one kind, oldest first."""
    where, values = _where(["session", "label", "state"], wanted, by_index=not prefix)
    # The kind stands first in every index but the one by session.
    by_session = wanted["session"] and not prefix
    where.insert(0, "+kind = ?" if by_session else "kind = ?")
    values.insert(0, kind)
    if prefix:
        where.append("id >= ? AND id < ?")
        values += (prefix, prefix + chr(0x10FFFF))
    place = place_of(after)
    if place is not None:
        where.append("rid > ?")
        values.append(place)
    rows = connection.execute(
        # The few of one prefix are sorted: in the order of `rid` all would be looked through.
        f"SELECT {_RECORD_COLUMNS} FROM records {_clause(where)} "
        f"ORDER BY {'+' if prefix else ''}rid LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    return page_of(rows, limit, _record)


def _where(
    order: list[str], wanted: dict[str, str | None], *, by_index: bool = True
) -> tuple[list[str], list[Any]]:
    """Conditions in which only the first may use an index (`+` keeps SQLite from it), or none."""
    where: list[str] = []
    values: list[Any] = []
    partial = ("owner", "parent", "session", "label")
    for column in order:
        value = wanted[column]
        if value is None:
            continue
        if by_index and not where and (value or column not in partial):
            where.append(f"{column} = ?")
            if column in partial:
                where.append(f"{column} != ''")
        else:
            where.append(f"+{column} = ?")
        values.append(value)
    return where, values


def _clause(where: list[str]) -> str:
    return f"WHERE {' AND '.join(where)}" if where else ""


def event_of(row: Sequence[Any]) -> Event:
    """An event from its columns."""
    seq, session, n, kind, call, attempt, at, view, ref, prev, digest = row
    return Event(
        seq, session, n, kind, call, attempt, at, loads(view), ref.hex(), prev.hex(), digest.hex()
    )


def read_events(
    connection: sqlite3.Connection,
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
    where = ["e.seq > ?"]
    values: list[Any] = [after]
    if before is not None:
        where.append("e.seq < ?")
        values.append(before)
    if kinds is not None:
        where.append(f"+e.kind IN ({', '.join('?' * len(kinds))})")
        values += kinds
    sid = -1
    if session is not None:
        found = connection.execute("SELECT sid FROM sessions WHERE id = ?", (session,)).fetchone()
        if found is None:
            return []
        sid = found[0]
    if call is not None:
        where.append(f"e.seq IN ({_BY_CALL})")
        values += (call, call)
        if session is not None:
            where.append("+e.sid = ?")
            values.append(sid)
    if session is not None and call is None:
        columns = _EVENT_COLUMNS.replace(f"{_ID}, ", "")
        statement, values = _marks.events_of(columns, where, values, sid, reverse=reverse)
        found = connection.execute(f"{statement} LIMIT ?", (*values, limit)).fetchall()
        rows = [(seq, session, *rest) for seq, *rest in found]
    else:
        rows = connection.execute(
            f"SELECT {_EVENT_COLUMNS} FROM events e LEFT JOIN sessions s ON s.sid = e.sid "
            f"{_clause(where)} ORDER BY e.seq {'DESC' if reverse else ''} LIMIT ?",
            (*values, limit),
        ).fetchall()
    return [event_of(row) for row in rows]


def read_holds(connection: sqlite3.Connection, wanted: dict[str, str | None]) -> list[OpenHold]:
    """Open holds. There are as many as calls run, so they are looked through."""
    where, values = _where(["session", "call", "account"], wanted)
    rows = connection.execute(
        "SELECT id, account, amount, unit, settle, call, session FROM holds "
        f"{_clause(where)} ORDER BY at, id",
        values,
    ).fetchall()
    return [OpenHold(*row) for row in rows]
