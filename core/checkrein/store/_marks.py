"""What is derived from events late, by the hundred: which are whose, and the ends of chains.

An index of SQLite's own, or a row of the session that is kept up to date, is one more page in
every commit: 4 us of the 20 that one takes. Here the events up to a watermark are indexed in
`marks`, the rows of their sessions name the last of them, and the few after it are looked
through. `fold` moves the watermark, off the caller's path. What is read is exact at any time.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from checkrein.store._turns import begin

TABLES = (
    (
        "CREATE TABLE marks (sid INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (sid, seq)) "
        "STRICT, WITHOUT ROWID"
    ),
    "CREATE TABLE folded (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL) STRICT",
    "INSERT INTO folded VALUES (1, 0)",
)

LATE = 1000
"""Events without a mark above which a process that opens the file to write folds first."""

FOLDED = "(SELECT seq FROM folded WHERE one = 1)"
TAIL = (
    "WITH tail AS MATERIALIZED (SELECT sid, max(seq) AS seq, n, hash, at FROM events "
    f"WHERE seq > {FOLDED} GROUP BY sid) "
)
"""Before a statement: of each session the last event after the watermark."""

LAST = (
    f"events t ON t.seq = (SELECT seq FROM events x WHERE x.seq > {FOLDED} AND x.sid = s.sid "
    "ORDER BY x.seq DESC LIMIT 1)"
)
"""To be joined to one session `s`: the same."""

N, HEAD, UPDATED = (
    "coalesce(t.n, s.n)",
    "coalesce(t.hash, s.head)",
    "max(s.updated, ifnull(t.at, 0))",
)
"""Of a session `s` with `tail t`: where its chain ends, and since when."""

_LATE = f"SELECT coalesce(max(seq), 0) - {FOLDED} FROM events"
_FOLD = (
    f"INSERT OR IGNORE INTO marks SELECT sid, seq FROM events WHERE seq > {FOLDED}",
    (
        f"{TAIL} UPDATE sessions SET n = t.n, head = t.hash, updated = max(updated, t.at) "
        "FROM tail t WHERE sessions.sid = t.sid"
    ),
    "UPDATE folded SET seq = max(seq, (SELECT coalesce(max(seq), 0) FROM events))",
)
_WRONG = (
    (
        f"SELECT count(*) FROM events e WHERE seq <= {FOLDED} "
        "AND NOT EXISTS (SELECT 1 FROM marks m WHERE m.sid = e.sid AND m.seq = e.seq)"
    ),
    (
        "SELECT count(*) FROM marks m "
        "WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.seq = m.seq AND e.sid = m.sid)"
    ),
)


def fold(connection: sqlite3.Connection, patience: float) -> None:
    """Mark every event that has none, waiting `patience` seconds for a turn to write."""
    begin(connection, patience)
    try:
        mark(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def mark(on: sqlite3.Cursor | sqlite3.Connection) -> None:
    """As `fold`, in a transaction that is open already."""
    for statement in _FOLD:
        on.execute(statement)


def mark_moved(on: sqlite3.Cursor) -> None:
    """Mark every event of a store that was moved here with its sessions' rows as they ended."""
    for statement in (_FOLD[0], _FOLD[2]):
        on.execute(statement)


def late(connection: sqlite3.Connection) -> int:
    """How many events have no mark yet, at most."""
    return int(connection.execute(_LATE).fetchone()[0])


def check(connection: sqlite3.Connection, *, repair: bool) -> list[str]:
    """What is wrong with the marks; with `repair`, they are made anew."""
    missing, foreign = (connection.execute(statement).fetchone()[0] for statement in _WRONG)
    if repair and (missing or foreign):
        connection.execute("DELETE FROM marks")
        connection.execute("UPDATE folded SET seq = 0")
        mark(connection)
    return [
        f"marks: {count} {what}"
        for count, what in ((missing, "events have none"), (foreign, "belong to no event"))
        if count
    ]


def events_of(
    columns: str, where: list[str], values: list[Any], sid: int, *, reverse: bool = False
) -> tuple[str, list[Any]]:
    """A statement for a session's events by `seq`, to be ended with a LIMIT, and its values.

    `where`: conditions on `e`, of which those on `e.seq` are ranges; `values`: theirs.
    """
    more = f"AND {' AND '.join(where)}" if where else ""
    # The order of the join is said: by marks, each with its event.
    marked = more.replace("e.seq", "m.seq")
    first = columns.replace("e.seq", "m.seq", 1)
    return (
        (
            f"SELECT {first} FROM marks m CROSS JOIN events e ON e.seq = m.seq AND +e.sid = m.sid "
            f"WHERE m.sid = ? {marked} UNION ALL SELECT {columns} FROM events e "
            f"WHERE +e.sid = ? AND e.seq > {FOLDED} {more} ORDER BY 1 {'DESC' if reverse else ''}"
        ),
        [sid, *values, sid, *values],
    )
