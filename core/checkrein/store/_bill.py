"""The bill in SQLite: a row for each attempt, and totals that readers keep added up.

A row is written with its outcome, in the same statement. Whoever reads totals adds them to what
stands in `rollups` up to a watermark; when many rows lie behind it, the reader moves it.
No call waits for that: sums are made before the write lock is taken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from checkrein.store import CostRow, Page, Total
from checkrein.store._bill_rows import COLUMNS, KEPT
from checkrein.store._bill_sums import BY, SID, SUMS, Sums, between
from checkrein.store._connections import Connections
from checkrein.store._dimensions import check_dimension, ordered
from checkrein.store._paging import page_of, place_of
from checkrein.store._periods import LEVELS, QUARTER, bucket, pieces

FOLD_AT = 10_000
"""Rows that a reader adds up anew each time; with more, it moves the watermark."""

STEP = 5_000
"""Rows that the watermark is moved by at once, at most."""

LEAST = 200
"""... and at least: a reader who comes often pays for what came since, and not for more."""

_ROWS = (
    f"SELECT c.seq, e.call, c.at, s.id, {', '.join(f'c.{column}' for column in COLUMNS)} "
    "FROM costs c JOIN events e ON e.seq = c.seq JOIN sessions s ON s.sid = c.sid "
)
# By way of the marks of the session's events: the bill has no index of its own to keep.
_OF_SESSION = (
    f"c.seq IN (SELECT seq FROM marks WHERE sid = {SID} UNION ALL SELECT seq FROM costs "
    f"WHERE seq > (SELECT seq FROM folded) AND sid = {SID})"
)
_UPSERT = (
    f"INSERT INTO rollups VALUES (?, ?, ?, ?{', ?' * len(KEPT)}) "
    "ON CONFLICT (dimension, level, bucket, value) DO UPDATE SET "
    + ", ".join(f"{c} = {c} + excluded.{c}" for c in KEPT)
)
_FOLDED = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'folded'"


class Bill:
    """The part of a SQLite store that reads the bill."""

    _connections: Connections

    def costs(
        self,
        *,
        session: str | None = None,
        since: int | None = None,
        until: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Rows of the bill, oldest first."""
        where, given = ["c.seq > ?"], [place_of(after) or 0, *([session] * 2 if session else [])]
        if session:
            where.append(_OF_SESSION)
        between(where, given, since, until)
        with self._connections.reading() as connection:
            rows = connection.execute(
                f"{_ROWS} WHERE {' AND '.join(where)} ORDER BY c.seq LIMIT ?", (*given, limit + 1)
            ).fetchall()
        return page_of(rows, limit, lambda row: CostRow(*row[1:]))

    def totals(
        self,
        by: str = "",
        *,
        since: int | None = None,
        until: int | None = None,
        where: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Total]:
        """The bill added up by one dimension."""
        check_dimension(by, where)
        since = None if since is None else since // QUARTER * QUARTER
        until = None if until is None else until // QUARTER * QUARTER
        if not where:
            self._fold(FOLD_AT)
        with self._connections.reading() as connection:
            connection.execute("BEGIN")  # one snapshot: sums, and what lies behind them
            folded = 0 if where else connection.execute(_FOLDED).fetchone()[0]
            rolled = [] if where else list(pieces(since, until))
            sums = Sums(by, rolled, folded, since, until, where or {})
            found = [Total(*row) for row in sums.rows(connection, limit)]
        return ordered(found)

    def _fold(self, keep: int) -> None:
        """Move the watermark until at most `keep` rows lie behind it."""
        while True:
            with self._connections.reading() as connection:
                connection.execute("BEGIN")
                folded = connection.execute(_FOLDED).fetchone()[0]
                behind = connection.execute(
                    "SELECT count(*) FROM (SELECT 1 FROM costs WHERE seq > ? LIMIT ?)",
                    (folded, keep + STEP),
                ).fetchone()[0]
                if behind <= keep:
                    return
                upto = connection.execute(
                    "SELECT max(seq) FROM (SELECT seq FROM costs WHERE seq > ? "
                    "ORDER BY seq LIMIT ?)",
                    (folded, max(LEAST, min(STEP, behind - keep))),
                ).fetchone()[0]
                sums = _pieces_of(connection, folded, upto)
            with self._connections.writing() as cursor:
                moved = cursor.execute(
                    "UPDATE meta SET value = ? WHERE key = 'folded' AND value = ?",
                    (str(upto), str(folded)),
                ).rowcount
                if moved:  # else another reader was faster
                    cursor.executemany(_UPSERT, sums)


def _pieces_of(connection: sqlite3.Connection, folded: int, upto: int) -> list[tuple[Any, ...]]:
    """The rows between two numbers, added up for each dimension and level."""
    found: dict[tuple[str, int, int, str], list[int]] = {}
    for by, (column, condition) in BY.items():
        value = (
            f"(SELECT id FROM sessions s WHERE s.sid = c.{column})" if by == "session" else column
        )
        for key, quarter, *counts in connection.execute(
            f"SELECT {value}, at / {QUARTER}, {SUMS} FROM costs c "
            f"WHERE seq > ? AND seq <= ? AND {condition} GROUP BY {column}, 2",
            (folded, upto),
        ):
            for level in LEVELS:
                place = (by, level, bucket(quarter, level), key)
                known = found.get(place)
                if known is None:
                    found[place] = counts
                else:
                    found[place] = [a + b for a, b in zip(known, counts, strict=True)]
    return [(*place, *counts) for place, counts in found.items()]
