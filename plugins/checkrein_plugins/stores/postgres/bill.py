"""The bill: rows by page, and totals that the server adds up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein.store import CostRow, Page, Total
from checkrein.store._bill_rows import COLUMNS, SUMMED
from checkrein.store._dimensions import check_dimension, ordered
from checkrein.store._paging import page_of, place_of
from checkrein.store._periods import QUARTER
from checkrein_plugins.stores.postgres.connections import Connection

_COLUMNS = ", ".join(f'c."{column}"' for column in COLUMNS)
_ROWS = (
    f"SELECT c.seq, coalesce(e.call, ''), c.at, s.id, {_COLUMNS} FROM costs c "
    "LEFT JOIN events e ON e.seq = c.seq JOIN sessions s ON s.sid = c.sid "
)
_BY = {
    "": ("''", "true"),
    "session": ("s.id", "true"),
    "tool": ("c.name", "c.kind != 'model'"),
    "model": ("c.name", "c.kind = 'model'"),
    **{name: (f'c."{name}"', "true") for name in ("agent", "task", "user", "tenant", "role")},
}
_SUMS = ", ".join(
    [
        "count(*)",
        *(f"coalesce(sum(c.{name}), 0)::bigint" for name in SUMMED),
        *(f"count(*) FILTER (WHERE c.state = '{state}')" for state in ("estimated", "unpriced")),
    ]
)


def read_costs(
    connection: Connection,
    session: str | None,
    since: int | None,
    until: int | None,
    after: str | None,
    limit: int,
) -> Page:
    """Rows of the bill, oldest first."""
    where, values = ["c.seq > %s"], list[Any]([place_of(after) or 0])
    if session:
        where.append("s.id = %s")
        values.append(session)
    _between(where, values, since, until)
    rows = connection.execute(
        f"{_ROWS} WHERE {' AND '.join(where)} ORDER BY c.seq LIMIT %s", (*values, limit + 1)
    ).fetchall()
    return page_of(rows, limit, lambda row: CostRow(*row[1:]))


def read_totals(
    connection: Connection,
    by: str,
    since: int | None,
    until: int | None,
    wanted: Mapping[str, str] | None,
    limit: int | None,
) -> list[Total]:
    """The bill added up by one dimension, dearest first."""
    check_dimension(by, wanted)
    column, condition = _BY[by]
    where: list[str] = [condition]
    values: list[Any] = []
    _between(
        where, values,
        None if since is None else since // QUARTER * QUARTER,
        None if until is None else until // QUARTER * QUARTER,
    )  # fmt: skip
    for name, value in (wanted or {}).items():
        its, condition = _BY[name]
        where += [condition, f"{its} = %s"]
        values.append(value)
    rows = connection.execute(
        f"SELECT {column}, {_SUMS} FROM costs c JOIN sessions s ON s.sid = c.sid "
        f"WHERE {' AND '.join(where)} GROUP BY 1 ORDER BY 3 DESC, 4 DESC, 2 DESC, 1 LIMIT %s",
        (*values, limit),
    ).fetchall()
    return ordered(Total(*row) for row in rows)


def _between(where: list[str], values: list[Any], since: int | None, until: int | None) -> None:
    for border, test in ((since, "c.at >= %s"), (until, "c.at < %s")):
        if border is not None:
            where.append(test)
            values.append(border)
