"""Accounts and the bill in memory, as they are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from checkrein.errors import StoreUnavailable
from checkrein.store import Balance, Batch, CostRow, OpenHold, Page, Total
from checkrein.store._accounts import Accounts
from checkrein.store._dimensions import check_dimension, ordered
from checkrein.store._paging import page_of, place_of
from checkrein.store._periods import QUARTER
from checkrein.store._rules import micros

_SUMMED = ("tokens", "input", "output", "cache_read", "cache_write", "reasoning", "audio", "saved")


class Ledger:
    """The part of a store in memory that keeps money. Whoever derives from it commits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts = Accounts()
        self._costs: list[CostRow] = []
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("store memory: was closed, and its content is gone")

    def balance(
        self, account: str, *, at: int | None = None, window: float | None = None
    ) -> Balance | None:
        """An account; with `window`, what counts at `at` (by default now)."""
        now = time.time_ns() // 1000 if at is None else at
        with self._lock:
            self._check_open()
            return self._accounts.balance(account, now, 0 if window is None else micros(window))

    def balances(self, prefix: str = "", limit: int = 1000) -> list[Balance]:
        """Accounts whose name begins with `prefix`, by name."""
        with self._lock:
            self._check_open()
            return self._accounts.balances(prefix, limit)

    def holds(
        self, *, session: str | None = None, call: str | None = None, account: str | None = None
    ) -> list[OpenHold]:
        """Holds that are not settled, oldest first."""
        with self._lock:
            self._check_open()
            return self._accounts.holds(session, call, account)

    def _book(self, batch: Batch) -> None:
        for row in batch.costs:
            row.at = batch.at
            self._costs.append(row)

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
        limit: int | None = None,
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
        return ordered(found.values())[:limit]


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
