"""The bill in SQLite, added up: what stands in `rollups`, and what lies behind its watermark.

SQLite adds up. Where only the dearest are wanted, they are found by their cost alone, and the
other sums are made for those: a Python object for each of 100,000 sessions costs half a second.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from checkrein.store._bill_rows import KEPT, SUMMED

_SUM = {
    "calls": "count(*)",
    **{name: f"coalesce(sum({name}), 0)" for name in SUMMED},
    **{state: f"sum(state = '{state}')" for state in ("estimated", "unpriced")},
}
SUMS = ", ".join(f"{_SUM[name]} AS {name}" for name in KEPT)
SID = "(SELECT sid FROM sessions WHERE id = ?)"
BY = {
    "": ("''", "1"),
    "session": ("sid", "1"),
    "tool": ("name", "kind != 'model'"),
    "model": ("name", "kind = 'model'"),
    **{name: (name, "1") for name in ("agent", "task", "user", "tenant", "role")},
}
# Totals of a damaged file, whose sessions are gone in part, are shown all the same.
_NAMED = "coalesce((SELECT id FROM sessions s WHERE s.sid = t.value), '')"
_SUMMED = ", ".join(f"sum({c})" for c in KEPT)
_SOUGHT = 100
"""Buckets in which values are looked up one by one."""
_RANK = ("cost", "tokens", "calls")


Query = tuple[str, tuple[Any, ...]]
"""A statement that selects `value` and sums, and what is given for its marks."""


def between(where: list[str], given: list[Any], since: int | None, until: int | None) -> None:
    """Add the conditions of a period."""
    for border, test in ((since, "at >= ?"), (until, "at < ?")):
        if border is not None:
            where.append(f"c.{test}")
            given.append(border)


class Sums:
    """Totals of one dimension.

    `rolled`: (level, first, end) of the buckets of `rollups` that a period consists of. `folded`:
    the watermark; rows behind it are added up as they stand, those of a period, with `wanted`
    values.
    """

    def __init__(
        self,
        by: str,
        rolled: Sequence[tuple[int, int, int]],
        folded: int,
        since: int | None,
        until: int | None,
        wanted: Mapping[str, str],
    ) -> None:
        self._by = by
        self._rolled = rolled
        self._column, condition = BY[by]
        self._where: list[str] = ["c.seq > ?", condition]
        self._given: list[Any] = [folded]
        between(self._where, self._given, since, until)
        for name, value in wanted.items():
            its, condition = BY[name]
            self._where += [condition, f"sid = {SID}" if name == "session" else f"{its} = ?"]
            self._given.append(value)

    def rows(self, connection: sqlite3.Connection, limit: int | None) -> Iterable[tuple[Any, ...]]:
        """`value` and `KEPT`, in no order."""
        values = None if limit is None or not self._by else self._dearest(connection, limit)
        text, given = self._union(KEPT, values)
        text = f"SELECT value, {_SUMMED} FROM ({text}) GROUP BY value"
        return connection.execute(text, given)

    def _dearest(self, connection: sqlite3.Connection, limit: int) -> list[str]:
        """The values with the largest cost.

        By that alone, which is faster, if it tells which is the last of them.
        """
        for names in (_RANK[:1], _RANK):
            order = ", ".join(f"{name} DESC" for name in names)
            text, given = self._ranked(names, limit + 1, f"{order}, value")
            found = connection.execute(text, given).fetchall()
            if len(found) <= limit or found[limit - 1][1] != found[limit][1]:
                break
        return [row[0] for row in found[:limit]]

    def _ranked(self, names: Sequence[str], limit: int, order: str) -> Query:
        if len(self._rolled) == 1 and self._rolled[0][2] - self._rolled[0][1] == 1:
            return self._of_one(names, limit, order)
        text, given = self._union(names, None)
        sums = ", ".join(f"sum({name}) AS {name}" for name in names)
        text = f"SELECT value, {sums} FROM ({text}) GROUP BY value ORDER BY {order} LIMIT ?"
        return text, (*given, limit)

    def _of_one(self, names: Sequence[str], limit: int, order: str) -> Query:
        """Of one bucket: no row of it has to be added to another.

        What lies behind only makes values dearer. So the dearest of both are among the dearest
        of the bucket, and those that something lies behind.
        """
        ((level, bucket, _),) = self._rolled
        place = (self._by, level, bucket)
        tail, given = self._tail(names, None)
        own = ", ".join(names)
        both = ", ".join(f"t.{name} + coalesce(r.{name}, 0) AS {name}" for name in names)
        most = ", ".join(f"max({name}) AS {name}" for name in names)
        text = (
            f"SELECT value, {most} FROM ("
            f"SELECT * FROM (SELECT value, {own} FROM rollups WHERE dimension = ? "
            f"AND level = ? AND bucket = ? ORDER BY {order} LIMIT ?) UNION ALL "
            f"SELECT t.value, {both} FROM ({tail}) t LEFT JOIN rollups r "
            "ON r.dimension = ? AND r.level = ? AND r.bucket = ? AND r.value = t.value"
            f") GROUP BY value ORDER BY {order} LIMIT ?"
        )
        return text, (*place, limit, *given, *place, limit)

    def _union(self, names: Sequence[str], values: Sequence[str] | None) -> Query:
        """Everything that has to be added up, of `values` alone if they are given."""
        text, given = self._tail(names, values)
        parts, marks = [text], [*given]
        for level, first, end in self._rolled:
            sums = ", ".join(f"r.{name}" for name in names)
            if values is not None and level and end - first <= _SOUGHT:
                # Few rows of many: each is looked up by its key.
                parts.append(
                    f"SELECT r.value, {sums} FROM json_each(?) v CROSS JOIN json_each(?) b "
                    "CROSS JOIN rollups r WHERE r.dimension = ? AND r.level = ? "
                    "AND r.bucket = b.value AND r.value = v.value"
                )
                marks += [*_marks(values), json.dumps([*range(first, end)]), self._by, level]
                continue
            parts.append(
                f"SELECT r.value, {sums} FROM rollups r WHERE r.dimension = ? AND r.level = ? "
                f"AND r.bucket >= ? AND r.bucket < ?{_among('r.value', values)}"
            )
            marks += [self._by, level, first, end, *_marks(values)]
        return " UNION ALL ".join(parts), tuple(marks)

    def _tail(self, names: Sequence[str], values: Sequence[str] | None) -> Query:
        """Rows behind the watermark, added up."""
        sums = ", ".join(f"{_SUM[name]} AS {name}" for name in names)
        among = _among(self._column, values)
        if self._by == "session" and values is not None:
            among = f" AND sid IN (SELECT sid FROM sessions WHERE 1{_among('id', values)})"
        text = (
            f"SELECT {self._column} AS value, {sums} FROM costs c "
            f"WHERE {' AND '.join(self._where)}{among} GROUP BY 1"
        )
        if self._by == "session":
            text = f"SELECT {_NAMED} AS value, {', '.join(names)} FROM ({text}) t"
        return text, (*self._given, *_marks(values))


def _among(column: str, values: Sequence[str] | None) -> str:
    return "" if values is None else f" AND {column} IN (SELECT value FROM json_each(?))"


def _marks(values: Sequence[str] | None) -> tuple[str, ...]:
    return () if values is None else (json.dumps(values),)
