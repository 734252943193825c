"""The bill in SQLite: a row for each attempt, and totals that readers keep added up.

A row is written with its outcome, in the same statement. Whoever reads totals adds them to what
stands in `rollups` up to a watermark; when many rows lie behind it, the reader moves it.
No call waits for that: sums are made before the write lock is taken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from checkrein.store import CostRow, Page, Total
from checkrein.store._bill_rows import COLUMNS, KEPT, SUMMED
from checkrein.store._connections import Connections
from checkrein.store._dimensions import check_dimension, ordered
from checkrein.store._paging import page_of, place_of
from checkrein.store._periods import LEVELS, QUARTER, bucket, pieces

FOLD_AT = 10_000
"""Rows that a reader adds up anew each time; with more, it moves the watermark."""

STEP = 5_000
"""Rows that the watermark is moved by at once."""

_SUMS = ", ".join(
    ["count(*) AS calls", *(f"coalesce(sum({c}), 0) AS {c}" for c in SUMMED)]
    + [f"sum(state = '{state}') AS {state}" for state in ("estimated", "unpriced")]
)

_ROWS = (
    f"SELECT c.seq, e.call, c.at, s.id, {', '.join(f'c.{column}' for column in COLUMNS)} "
    "FROM costs c JOIN events e ON e.seq = c.seq JOIN sessions s ON s.sid = c.sid "
)
_SID = "(SELECT sid FROM sessions WHERE id = ?)"
# By way of the marks of the session's events: the bill has no index of its own to keep.
_OF_SESSION = (
    f"c.seq IN (SELECT seq FROM marks WHERE sid = {_SID} UNION ALL SELECT seq FROM costs "
    f"WHERE seq > (SELECT seq FROM folded) AND sid = {_SID})"
)
_BY = {
    "": ("''", "1"),
    "session": ("sid", "1"),
    "tool": ("name", "kind != 'model'"),
    "model": ("name", "kind = 'model'"),
    **{name: (name, "1") for name in ("agent", "task", "user", "tenant", "role")},
}
# Totals of a damaged file, whose sessions are gone in part, are shown all the same.
_NAMED = "coalesce((SELECT id FROM sessions s WHERE s.sid = t.value), '')"
_UPSERT = (
    f"INSERT INTO rollups VALUES (?, ?, ?, ?{', ?' * len(KEPT)}) "
    "ON CONFLICT (dimension, level, bucket, value) DO UPDATE SET "
    + ", ".join(f"{c} = {c} + excluded.{c}" for c in KEPT)
)
_ROLLED = (
    f"SELECT value, {', '.join(f'sum({c})' for c in KEPT)} FROM rollups "
    "WHERE dimension = ? AND level = ? AND bucket >= ? AND bucket < ? GROUP BY value"
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
        _between(where, given, since, until)
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
    ) -> list[Total]:
        """The bill added up by one dimension."""
        check_dimension(by, where)
        found: dict[str, Total] = {}
        since = None if since is None else since // QUARTER * QUARTER
        until = None if until is None else until // QUARTER * QUARTER
        if not where:
            self._fold(FOLD_AT)
        with self._connections.reading() as connection:
            connection.execute("BEGIN")  # one snapshot: sums, and what lies behind them
            folded = 0
            if not where:
                folded = connection.execute(_FOLDED).fetchone()[0]
                for level, first, end in pieces(since, until):
                    _merge(found, connection.execute(_ROLLED, (by, level, first, end)))
            _merge(found, _added_up(connection, by, folded, since, until, where or {}))
        return ordered(found.values())

    def _fold(self, keep: int) -> None:
        """Move the watermark until at most `keep` rows lie behind it."""
        while True:
            with self._connections.reading() as connection:
                connection.execute("BEGIN")
                folded = connection.execute(_FOLDED).fetchone()[0]
                behind = connection.execute(
                    "SELECT count(*) FROM (SELECT 1 FROM costs WHERE seq > ? LIMIT ?)",
                    (folded, keep + 1),
                ).fetchone()[0]
                if behind <= keep:
                    return
                upto = connection.execute(
                    "SELECT max(seq) FROM (SELECT seq FROM costs WHERE seq > ? "
                    "ORDER BY seq LIMIT ?)",
                    (folded, STEP),
                ).fetchone()[0]
                sums = _pieces_of(connection, folded, upto)
            with self._connections.writing() as cursor:
                moved = cursor.execute(
                    "UPDATE meta SET value = ? WHERE key = 'folded' AND value = ?",
                    (str(upto), str(folded)),
                ).rowcount
                if moved:  # else another reader was faster
                    cursor.executemany(_UPSERT, sums)


def _between(where: list[str], given: list[Any], since: int | None, until: int | None) -> None:
    for border, test in ((since, "at >= ?"), (until, "at < ?")):
        if border is not None:
            where.append(f"c.{test}")
            given.append(border)


def _added_up(
    connection: sqlite3.Connection,
    by: str,
    folded: int,
    since: int | None,
    until: int | None,
    wanted: Mapping[str, str],
) -> Iterable[tuple[Any, ...]]:
    """Rows behind the watermark, added up by SQLite."""
    column, condition = _BY[by]
    where, given = ["c.seq > ?", condition], [folded]
    _between(where, given, since, until)
    for name, value in wanted.items():
        its, condition = _BY[name]
        where += [condition, f"{its} = ?"]
        if name == "session":
            where[-1] = f"sid = {_SID}"
        given.append(value)  # type: ignore[arg-type]  # a text among numbers
    sums = f"SELECT {column} AS value, {_SUMS} FROM costs c WHERE {' AND '.join(where)} GROUP BY 1"
    if by == "session":
        sums = f"SELECT {_NAMED}, {', '.join(KEPT)} FROM ({sums}) t"
    return connection.execute(sums, given)


def _merge(found: dict[str, Total], rows: Iterable[tuple[Any, ...]]) -> None:
    for key, *counts in rows:
        known = found.get(key)
        if known is None:
            found[key] = Total(key, *counts)
            continue
        for name, count in zip(KEPT, counts, strict=True):
            setattr(known, name, getattr(known, name) + count)


def _pieces_of(connection: sqlite3.Connection, folded: int, upto: int) -> list[tuple[Any, ...]]:
    """The rows between two numbers, added up for each dimension and level."""
    found: dict[tuple[str, int, int, str], list[int]] = {}
    for by, (column, condition) in _BY.items():
        value = (
            f"(SELECT id FROM sessions s WHERE s.sid = c.{column})" if by == "session" else column
        )
        for key, quarter, *counts in connection.execute(
            f"SELECT {value}, at / {QUARTER}, {_SUMS} FROM costs c "
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
