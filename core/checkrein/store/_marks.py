"""Which events belong to which session: an index that is written late, by the hundred.

An index of SQLite's own is one more page in every commit: 4 us of the 35 that one takes. Here
the events up to a watermark are indexed in `marks`, and the few after it are looked through.
`fold` moves the watermark, off the caller's path. What is read is exact at any time.
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

_FOLDED = "(SELECT seq FROM folded WHERE one = 1)"
_LATE = f"SELECT coalesce(max(seq), 0) - {_FOLDED} FROM events"
_FOLD = (
    f"INSERT OR IGNORE INTO marks SELECT sid, seq FROM events WHERE seq > {_FOLDED}",
    "UPDATE folded SET seq = max(seq, (SELECT coalesce(max(seq), 0) FROM events))",
)
_WRONG = (
    (
        f"SELECT count(*) FROM events e WHERE seq <= {_FOLDED} "
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
        for statement in _FOLD:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def late(connection: sqlite3.Connection) -> int:
    """How many events have no mark yet, at most."""
    return int(connection.execute(_LATE).fetchone()[0])


def check(connection: sqlite3.Connection, *, repair: bool) -> list[str]:
    """What is wrong with the marks; with `repair`, they are made anew."""
    missing, foreign = (connection.execute(statement).fetchone()[0] for statement in _WRONG)
    if repair and (missing or foreign):
        connection.execute("DELETE FROM marks")
        connection.execute("UPDATE folded SET seq = 0")
        for statement in _FOLD:
            connection.execute(statement)
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
            f"SELECT {first} FROM marks m CROSS JOIN events e ON e.seq = m.seq "
            f"WHERE m.sid = ? {marked} UNION ALL SELECT {columns} FROM events e "
            f"WHERE +e.sid = ? AND e.seq > {_FOLDED} {more} ORDER BY 1 {'DESC' if reverse else ''}"
        ),
        [sid, *values, sid, *values],
    )
