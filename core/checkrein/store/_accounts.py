"""Accounts and holds in memory."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

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

    def slide(self, at: int, span: int) -> None:
        """Drop what has slid out of the longest window: nobody counts it any more."""
        self.span = max(self.span, span)
        gone = bisect_right(self.bookings, (at - self.span, _TOP))
        if gone:
            self.recent -= sum(amount for _, amount in self.bookings[:gone])
            del self.bookings[:gone]

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

_Taken: TypeAlias = tuple[HoldRow, int, int]
"""A hold, its window in microseconds (0: none) and when it was taken."""

_Settled: TypeAlias = tuple[_Taken, int, int, int, tuple[list[tuple[int, int]], int] | None]
"""A hold that was closed: what was booked, whether in a window, and for when; or the failures
in a row that were forgotten."""


class Accounts:
    """Holds are taken and settled under the lock of the store that owns this."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._holds: dict[str, _Taken] = {}

    def take_all(self, holds: Sequence[HoldRow], at: int) -> list[str]:
        """Take holds, all or none; returns what `give_back` needs: the accounts that are new.

        Raises `HoldRefused` where an account has no room.
        """
        index = 0
        new: list[str] = []
        try:
            for index, hold in enumerate(holds):
                if self._take(hold, index, at):
                    new.append(hold.account)
        except BaseException:
            self.give_back(holds[:index], new)
            raise
        return new

    def _take(self, hold: HoldRow, index: int, at: int) -> bool:
        """Take a hold; whether its account is a new one."""
        known = self._accounts.get(hold.account)
        account = known or _Account(hold.unit)
        if account.unit != hold.unit:
            raise ConfigError(
                f"account {hold.account} counts {account.unit}, hold {hold.id} is in "
                f"{hold.unit}: use another account name"
            )
        span = 0
        streak = hold.settle == "streak"
        if hold.window is None:
            counted = account.recent if streak else account.spent
        else:
            span = micros(hold.window)
            if streak:
                counted = account.recent
            else:
                account.slide(at, span)
                counted = account.counted(at, span)
        if counted + account.held + hold.amount > hold.limit and not (
            streak and not account.held and account.rested(at, span)
        ):
            raise HoldRefused(index, hold.account, counted, account.held)
        if hold.id in self._holds:
            raise Conflict(f"hold {hold.id} is taken already")
        if known is None:
            self._accounts[hold.account] = account
        account.held += hold.amount
        self._holds[hold.id] = (hold, span, at)
        return known is None

    def give_back(self, holds: Sequence[HoldRow], new: Sequence[str]) -> None:
        """Undo `take_all`."""
        for hold in holds:
            del self._holds[hold.id]
            self._accounts[hold.account].held -= hold.amount
        for name in new:
            del self._accounts[name]

    def settle(self, settle: SettleRow, now: int) -> _Settled | None:
        """Close a hold and book; nothing happens if it is not there. Returns how it was."""
        found = self._holds.pop(settle.id, None)
        if found is None:
            return None
        hold, span, at = found
        account = self._accounts[hold.account]
        account.held -= hold.amount
        if settle.streak == "clear":
            if not account.bookings or account.bookings[-1][0] > at:
                return found, 0, 0, 0, None
            before, account.bookings = (account.bookings, account.recent), []
            account.recent = 0
            return found, 0, 0, 0, before
        actual = settle.actual
        if settle.streak:
            at, span = now, 1
        account.spent += actual
        if span and actual:
            # At the time of the hold: what counts in a window is when the call began.
            account.recent += actual
            insort(account.bookings, (at, actual))
        return found, actual, span, at, None

    def reopen(self, settled: _Settled) -> None:
        """Undo `settle`."""
        found, actual, span, at, before = settled
        hold = found[0]
        account = self._accounts[hold.account]
        account.held += hold.amount
        account.spent -= actual
        if before is not None:
            account.bookings, account.recent = before
        if span and actual:
            account.recent -= actual
            account.bookings.remove((at, actual))
        self._holds[hold.id] = found

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
            OpenHold(
                hold.id, hold.account, hold.amount, hold.unit, hold.settle, hold.call, hold.session
            )
            for hold, _, _ in sorted(self._holds.values(), key=lambda held: (held[2], held[0].id))
            if (session is None or hold.session == session)
            and (call is None or hold.call == call)
            and (account is None or hold.account == account)
        ]

    def check(self, *, repair: bool) -> list[str]:
        """Compare totals with the holds and bookings that they are made of."""
        found: list[str] = []
        held: dict[str, int] = {}
        for hold, _, _ in self._holds.values():
            held[hold.account] = held.get(hold.account, 0) + hold.amount
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
