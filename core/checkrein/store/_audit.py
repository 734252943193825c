"""Checking a SQLite store: chains against their events, and what is derived against its source."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from checkrein.store import Event
from checkrein.store._links import bad_event
from checkrein.store._marks import FOLDED, check, events_of
from checkrein.store._rules import GENESIS, missing_event

_PAGE = 500
"""Events held in memory at a time."""

_EVENTS = (
    "e.seq, e.n, e.kind, e.call, e.attempt, e.at, e.ref, e.prev, e.hash, e.view, e.salt, e.data, "
    "e.place"
)


def verify_session(connection: sqlite3.Connection, session: str, files: Path) -> Event | None:
    """The first event of a session that is not what was written, or None.

    Stored payloads are checked as well, the large ones in the directory `files`. A gap, a cut
    tail and a session without its row give an event of kind `missing`.
    """
    n, seq, head = 0, 0, GENESIS
    while True:
        # One snapshot for the events and the head they must lead to: others may be writing.
        connection.execute("BEGIN")
        row = connection.execute(
            "SELECT sid, n, head FROM sessions WHERE id = ?", (session,)
        ).fetchone()
        if row is None:
            connection.execute("ROLLBACK")
            return missing_event(session, 1, "")
        sid, stored_n, stored_head = row
        if not stored_n and stored_head != GENESIS:
            connection.execute("ROLLBACK")
            return missing_event(session, 1, stored_head.hex())
        statement, values = events_of(_EVENTS, ["e.seq > ?"], [seq], sid)
        events = connection.execute(f"{statement} LIMIT ?", (*values, _PAGE)).fetchall()
        connection.execute("ROLLBACK")
        for event in events:
            n += 1
            bad = bad_event(event, session, n, head, files)
            if bad is not None:
                return bad
            seq, head = event[0], event[8]
            if n == stored_n and head != stored_head:
                return missing_event(session, stored_n, stored_head.hex())
        if len(events) == _PAGE:
            continue
        # The row may be behind, see `_marks`; what it names must be there.
        return missing_event(session, n + 1, stored_head.hex()) if n < stored_n else None


def check_file(connection: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds wrong with the file."""
    rows = connection.execute("PRAGMA quick_check(20)").fetchall()
    return [f"file: {row[0]}" for row in rows if row[0] != "ok"]


def rebuild(connection: sqlite3.Connection, *, repair: bool) -> list[str]:
    """Compare what is derived with what it is derived from; with `repair`, write it anew.

    The caller has opened a transaction and ends it.
    """
    found: list[str] = []
    found += check(connection, repair=repair)
    _heads(connection, found.append, repair)
    _states(connection, found.append, repair)
    _accounts(connection, found.append, repair)
    return found


def _heads(connection: sqlite3.Connection, tell: Callable[[str], None], repair: bool) -> None:
    orphans = connection.execute(
        "SELECT count(*), count(DISTINCT sid) FROM events "
        "WHERE sid NOT IN (SELECT sid FROM sessions)"
    ).fetchone()
    if orphans[0]:
        tell(f"events: {orphans[0]} belong to {orphans[1]} sessions that have no row")
    lost = connection.execute(_LOST).fetchone()[0]
    if lost:
        tell(f"events: {lost} of the last ones are gone")
    wrong = connection.execute(_ENDS, {"genesis": GENESIS}).fetchall()
    for sid, id, stored, n, head in wrong:
        tell(
            f"session {id}: its row ends at event {stored}, its events at {n}"
            if stored > n
            else f"session {id}: the head in its row is not the hash of its event {stored}"
        )
        if repair:
            connection.execute("UPDATE sessions SET n = ?, head = ? WHERE sid = ?", (n, head, sid))


# Numbers after the watermark have no gaps: who deletes events rightly moves it first.
_LOST = (
    f"SELECT coalesce(max(seq), {FOLDED}) - {FOLDED} - count(*) FROM events WHERE seq > {FOLDED}"
)
# What a row names must be one of the session's events, and not lie before the watermark's.
_ENDS = (
    "SELECT s.sid, s.id, s.n, coalesce(e.n, 0), coalesce(e.hash, :genesis) FROM sessions s "
    "LEFT JOIN (SELECT sid, max(seq) AS seq, n, hash FROM events GROUP BY sid) e ON e.sid = s.sid "
    f"LEFT JOIN (SELECT sid, max(seq), n FROM events WHERE seq <= {FOLDED} GROUP BY sid) f "
    "ON f.sid = s.sid "
    "LEFT JOIN (SELECT x.sid, x.hash FROM events x JOIN sessions y ON y.sid = x.sid "
    "WHERE x.n = y.n) h ON h.sid = s.sid "
    "WHERE s.n > coalesce(e.n, 0) OR s.n < coalesce(f.n, 0) "
    "OR s.head IS NOT iif(s.n, h.hash, :genesis)"
)


_OVER = (
    "SELECT s.sid, s.id, s.state, s.rollback, e.ended, e.rolled FROM sessions s JOIN "
    "(SELECT sid, max(kind = 'session_ended') AS ended, max(kind = 'rollback_started') AS rolled "
    "FROM events WHERE kind IN ('session_ended', 'rollback_started') GROUP BY sid) e "
    "ON e.sid = s.sid WHERE s.state = 'ACTIVE' OR s.rollback = 'none'"
)

# Whoever writes this into a row by hand would have nothing undone.
_CLAIMED = (
    "SELECT s.sid, s.id, s.rollback FROM sessions s WHERE s.rollback != 'none' AND s.sid NOT IN "
    "(SELECT sid FROM events WHERE kind IN ('rollback_started', 'session_forgotten'))"
)


def _states(connection: sqlite3.Connection, tell: Callable[[str], None], repair: bool) -> None:
    """Sessions that their rows say are open, and their events that they are over."""
    for sid, id, state, rollback, ended, rolled in connection.execute(_OVER).fetchall():
        if state == "ACTIVE" and (ended or rolled):
            tell(f"session {id}: its row says ACTIVE, its events that it is over")
        if rollback == "none" and rolled:
            tell(f"session {id}: its row says nothing of a rollback, its events do")
        if repair and (ended or rolled):
            connection.execute(
                "UPDATE sessions SET state = iif(state = 'ACTIVE', 'FAILED', state), "
                "rollback = iif(rollback = 'none' AND ?, 'partial', rollback) WHERE sid = ?",
                (rolled, sid),
            )
    for sid, id, rollback in connection.execute(_CLAIMED).fetchall():
        tell(f"session {id}: its row says {rollback}, its events nothing of a rollback")
        if repair:
            connection.execute("UPDATE sessions SET rollback = 'none' WHERE sid = ?", (sid,))


def _accounts(connection: sqlite3.Connection, tell: Callable[[str], None], repair: bool) -> None:
    for column, source in (("held", "holds"), ("recent", "bookings")):
        total = f"(SELECT coalesce(sum(amount), 0) FROM {source} x WHERE x.account = a.account)"
        wrong = connection.execute(
            f"SELECT account, {column}, {total} FROM accounts a WHERE {column} != {total}"
        ).fetchall()
        for account, stored, real in wrong:
            tell(f"account {account}: {column} is {stored}, its {source} add up to {real}")
        if repair and wrong:
            connection.execute(f"UPDATE accounts AS a SET {column} = {total}")
    lost = connection.execute(
        "SELECT account, min(unit), sum(amount) FROM holds "
        "WHERE account NOT IN (SELECT account FROM accounts) GROUP BY account"
    ).fetchall()
    for account, unit, amount in lost:
        tell(f"account {account}: holds of {amount} and no row")
        if repair:
            connection.execute(
                "INSERT INTO accounts VALUES (?, ?, 0, ?, 0, 0)", (account, unit, amount)
            )
