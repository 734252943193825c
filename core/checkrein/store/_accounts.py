"""Accounts and holds in memory."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from checkrein.errors import ConfigError, Conflict, HoldRefused
from checkrein.store import Balance, HoldRow, OpenHold, SettleRow
from checkrein.store._rules import micros
from checkrein.verdicts import Unit


@dataclass(slots=True)
class _Account:
    unit: Unit
    spent: int = 0
    """All that was ever booked."""
    held: int = 0
    recent: int = 0
    """Sum of `bookings`."""
    span: int = 0
    """Longest window asked for, microseconds: older bookings are dropped."""
    bookings: list[tuple[int, int]] = field(default_factory=list)
    """(time of the hold, amount), by time."""

    def slide(self, at: int, span: int, undo: list[Callable[[], object]]) -> None:
        """Drop what has slid out of the longest window."""
        before = self.span
        self.span = max(before, span)
        gone = self.bookings[: bisect_right(self.bookings, (at - self.span, _TOP))]
        self.recent -= sum(amount for _, amount in gone)
        del self.bookings[: len(gone)]

        def back() -> None:
            self.span = before
            self.bookings[:0] = gone
            self.recent += sum(amount for _, amount in gone)

        undo.append(back)

    def rested(self, at: int, span: int) -> bool:
        """Whether the last booking is at least `span` old."""
        return not self.bookings or self.bookings[-1][0] + span <= at

    def counted(self, at: int, span: int) -> int:
        """What was booked, or with `span` what of it counts at `at`."""
        if not span:
            return self.spent
        start = bisect_right(self.bookings, (at - span, _TOP))
        if not start:
            return self.recent
        return sum(amount for _, amount in self.bookings[start:])


_TOP = 2**63
"""Above every amount."""


class Accounts:
    """Holds are taken and settled under the lock of the store that owns this."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._holds: dict[str, tuple[OpenHold, int, int]] = {}
        """The hold, its window in microseconds (0: none) and when it was taken."""

    def take(self, hold: HoldRow, index: int, at: int, undo: list[Callable[[], object]]) -> None:
        """Take a hold. Raises `HoldRefused` where the account has no room."""
        known = self._accounts.get(hold.account)
        account = known or _Account(hold.unit)
        if account.unit != hold.unit:
            raise ConfigError(
                f"account {hold.account} counts {account.unit}, hold {hold.id} is in "
                f"{hold.unit}: use another account name"
            )
        span = 0 if hold.window is None else micros(hold.window)
        if span and hold.settle != "streak":
            account.slide(at, span, undo)
        streak = hold.settle == "streak"
        counted = account.recent if streak else account.counted(at, span)
        if counted + account.held + hold.amount > hold.limit and not (
            streak and not account.held and account.rested(at, span)
        ):
            raise HoldRefused(index, hold.account, counted, account.held)
        if hold.id in self._holds:
            raise Conflict(f"hold {hold.id} is taken already")
        if known is None:
            self._accounts[hold.account] = account
            undo.append(lambda: self._accounts.pop(hold.account))
        account.held += hold.amount
        opened = OpenHold(
            hold.id, hold.account, hold.amount, hold.unit, hold.settle, hold.call, hold.session
        )
        self._holds[hold.id] = (opened, span, at)
        undo.append(lambda: self._give_back(hold.id))

    def _give_back(self, id: str) -> None:
        opened, _, _ = self._holds.pop(id)
        self._accounts[opened.account].held -= opened.amount

    def settle(self, settle: SettleRow, now: int, undo: list[Callable[[], object]]) -> None:
        """Close a hold and book; nothing happens if it is not there."""
        found = self._holds.pop(settle.id, None)
        if found is not None:
            opened, span, at = found
            account = self._accounts[opened.account]
            account.held -= opened.amount
            undo.append(lambda: self._reopen(found))
            if settle.streak:
                self._step(account, settle, at, now, undo)
            else:
                self._book(account, settle.actual, span, at)
                undo.append(lambda: self._unbook(account, settle.actual, span, at))

    def _reopen(self, closed: tuple[OpenHold, int, int]) -> None:
        opened = closed[0]
        self._accounts[opened.account].held += opened.amount
        self._holds[opened.id] = closed

    @staticmethod
    def _unbook(account: _Account, actual: int, span: int, at: int) -> None:
        account.spent -= actual
        if span and actual:
            account.recent -= actual
            account.bookings.remove((at, actual))

    def _step(
        self,
        account: _Account,
        settle: SettleRow,
        at: int,
        now: int,
        undo: list[Callable[[], object]],
    ) -> None:
        """Count one more failure in a row, or none any more."""
        if settle.streak == "book":
            self._book(account, settle.actual, 1, now)
            undo.append(lambda: self._unbook(account, settle.actual, 1, now))
        elif account.bookings and account.bookings[-1][0] <= at:
            before, account.bookings = account.bookings, []
            counted, account.recent = account.recent, 0

            def back() -> None:
                account.bookings, account.recent = before, counted

            undo.append(back)

    @staticmethod
    def _book(account: _Account, actual: int, span: int, at: int) -> None:
        account.spent += actual
        if span and actual:
            # At the time of the hold: what counts in a window is when the call began.
            account.recent += actual
            insort(account.bookings, (at, actual))

    def balance(self, name: str, at: int, span: int) -> Balance | None:
        """One account; with `span`, what counts at `at`."""
        account = self._accounts.get(name)
        if account is None:
            return None
        return Balance(name, account.unit, account.counted(at, span), account.held)

    def balances(self, prefix: str, limit: int) -> list[Balance]:
        """Accounts whose name begins with `prefix`, by name."""
        names = sorted(name for name in self._accounts if name.startswith(prefix))
        found = ((name, self._accounts[name]) for name in names[:limit])
        return [Balance(name, known.unit, known.spent, known.held) for name, known in found]

    def holds(self, session: str | None, call: str | None, account: str | None) -> list[OpenHold]:
        """Open holds, oldest first."""
        return [
            opened
            for opened, _, _ in sorted(self._holds.values(), key=lambda held: (held[2], held[0].id))
            if (session is None or opened.session == session)
            and (call is None or opened.call == call)
            and (account is None or opened.account == account)
        ]

    def check(self, *, repair: bool) -> list[str]:
        """Compare totals with the holds and bookings that they are made of."""
        found: list[str] = []
        held: dict[str, int] = {}
        for opened, _, _ in self._holds.values():
            held[opened.account] = held.get(opened.account, 0) + opened.amount
        for name, account in self._accounts.items():
            real = {
                "held": held.get(name, 0),
                "recent": sum(amount for _, amount in account.bookings),
            }
            for column, total in real.items():
                if getattr(account, column) != total:
                    found.append(
                        f"account {name}: {column} is {getattr(account, column)}, "
                        f"its parts add up to {total}"
                    )
                    if repair:
                        setattr(account, column, total)
        return found
