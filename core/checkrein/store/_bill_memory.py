"""The bill in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from checkrein.store import CostRow, Page, Total
from checkrein.store._bill import check_dimension, ordered
from checkrein.store._paging import page_of, place_of
from checkrein.store._periods import QUARTER

_SUMMED = ("tokens", "input", "output", "cache_read", "cache_write", "reasoning", "audio", "saved")


class MemoryBill:
    """The part of a store in memory that keeps the bill."""

    _lock: threading.Lock

    def __init__(self) -> None:
        self._costs: list[CostRow] = []

    def _check_open(self) -> None: ...

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
        with self._lock:
            self._check_open()
            found: list[tuple[int, CostRow]] = []
            for place in range(place_of(after) or 0, len(self._costs)):
                row = self._costs[place]
                if session in (None, row.session) and _within(row.at, since, until):
                    found.append((place + 1, row))
                    if len(found) > limit:
                        break
        return page_of(found, limit, lambda pair: pair[1])

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
        since = None if since is None else since // QUARTER * QUARTER
        until = None if until is None else until // QUARTER * QUARTER
        wanted = dict(where or {})
        with self._lock:
            self._check_open()
            rows = list(self._costs)
        found: dict[str, Total] = {}
        for row in rows:
            if not _within(row.at, since, until):
                continue
            if any(_value(row, name) != value for name, value in wanted.items()):
                continue
            key = _value(row, by)
            if key is not None:
                _add(found.setdefault(key, Total(key)), row)
        return ordered(found.values())


def _within(at: int, since: int | None, until: int | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


def _value(row: CostRow, by: str) -> str | None:
    """The row's key in a dimension; None where it does not count in it."""
    if by in ("tool", "model"):
        return row.name if (row.kind == "model") == (by == "model") else None
    return str(getattr(row, by)) if by else ""


def _add(total: Total, row: CostRow) -> None:
    total.calls += 1
    total.cost += row.cost or 0
    for name in _SUMMED:
        setattr(total, name, getattr(total, name) + getattr(row, name))
    total.estimated += row.state == "estimated"
    total.unpriced += row.state == "unpriced"
