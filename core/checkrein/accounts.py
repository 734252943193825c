"""Holds: what a call takes from accounts before it runs, and what it settles at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from checkrein.call import NANO, Call, Outcome
from checkrein.errors import BudgetExceeded, CheckreinError, HoldRefused
from checkrein.store import HoldRow, OpenHold, Put, SettleRow, StreakStep
from checkrein.verdicts import Hold

NO_LIMIT = 2**61
"""A limit that nothing reaches; the largest amount that a store takes."""


def hold_rows(call: Call, holds: Sequence[Hold], attempt: int) -> list[HoldRow]:
    """One row per account: several holds on one account and limit are taken as one."""
    return [
        HoldRow(
            f"{call.id}/{attempt}/{index}/{hold.account}", hold.account, hold.amount, hold.unit,
            hold.limit, hold.window, hold.settle, call.id, call.session,
        )
        for index, hold in enumerate(holds)
    ]  # fmt: skip


def actual(row: HoldRow | OpenHold, outcome: Outcome) -> int:
    """What a hold settles at.

    `not_done` gives back. What could not be measured is charged in full: a missing price or
    a lost reply is never free.
    """
    if row.settle == "streak":
        return row.amount if _failed(row, outcome) else 0
    if outcome.state == "not_done" or row.settle == "release":
        return 0
    if row.settle == "keep":
        return row.amount
    if row.account in outcome.amounts:
        return max(0, outcome.amounts[row.account])
    if row.settle == "once":
        return row.amount
    if row.unit == "usd" and outcome.cost is not None and outcome.cost_state != "unpriced":
        return max(0, outcome.cost)
    if row.unit == "tokens" and outcome.usage is not None:
        return max(0, outcome.usage.total_tokens)
    if row.unit == "seconds" and (outcome.state == "done" or outcome.duration > 0):
        # Of a call that failed too it is known how long it took; not of one whose process died.
        return unmeasured(row, outcome.duration)
    return row.amount


def unmeasured(row: HoldRow | OpenHold, duration: float) -> int:
    """What a hold settles at of which nothing is known but that its call is done.

    Of those that `keep`, `release`, or are `measured` in calls or seconds.
    """
    if row.settle == "release":
        return 0
    if row.settle == "measured" and row.unit == "seconds":
        return max(0, -int(-duration * 1_000_000 // 1))
    return row.amount


def settle_rows(rows: Iterable[HoldRow | OpenHold], outcome: Outcome) -> list[SettleRow]:
    """Close every hold of a call by what became of it."""
    return [SettleRow(row.id, actual(row, outcome), _step(row, outcome)) for row in rows]


def _failed(row: HoldRow | OpenHold, outcome: Outcome) -> bool:
    """Whether an outcome counts in an account of failures in a row.

    A plugin's measure decides; without one, what an application or a service raised does. A
    veto, a cancellation and a framework's own signals say nothing about a tool.
    """
    measured = outcome.amounts.get(row.account)
    if measured is not None:
        return measured > 0
    return isinstance(outcome.error, Exception) and not isinstance(outcome.error, CheckreinError)


def _step(row: HoldRow | OpenHold, outcome: Outcome) -> StreakStep:
    if row.settle != "streak":
        return ""
    if _failed(row, outcome):
        return "book"
    return "clear" if outcome.state == "done" else ""


def paid(rows: Iterable[HoldRow | OpenHold]) -> tuple[list[Any], list[Any]]:
    """(holds of money and tokens, all others): what was used up, and what is only counted."""
    money: list[Any] = []
    others: list[Any] = []
    for row in rows:
        (money if row.unit in ("usd", "tokens") else others).append(row)
    return money, others


def marks(rows: Iterable[HoldRow | OpenHold], outcome: Outcome) -> list[Put]:
    """Records of what may happen once: which call it was, and what is known of its effect."""
    return [_mark(row, outcome) for row in rows if row.settle == "once" and actual(row, outcome)]


def _mark(row: HoldRow | OpenHold, outcome: Outcome) -> Put:
    return Put("once", row.account, outcome.state, {"call": row.call}, row.session)


def closing(
    rows: Iterable[HoldRow | OpenHold], outcome: Outcome
) -> tuple[list[SettleRow], list[Put], list[str]]:
    """`settle_rows`, `marks` and `overrun` in one."""
    settles: list[SettleRow] = []
    puts: list[Put] = []
    over: list[str] = []
    for row in rows:
        amount = actual(row, outcome)
        settles.append(SettleRow(row.id, amount, _step(row, outcome)))
        if row.settle == "once" and amount:
            puts.append(_mark(row, outcome))
        if amount > row.amount:
            over.append(row.account)
    return settles, puts, over


def overrun(rows: Iterable[HoldRow | OpenHold], outcome: Outcome) -> list[str]:
    """Accounts where more was spent than held: booked all the same, and flagged."""
    return [
        row.account
        for row in rows
        if row.settle in ("measured", "once") and actual(row, outcome) > row.amount
    ]


def amount_text(amount: int, unit: str) -> str:
    """An amount as people read it."""
    if unit == "amount":
        return f"{amount / NANO:g}"
    if unit == "seconds":
        return f"{amount / 1e6:g} s"
    return f"${amount / NANO:.4f}" if unit == "usd" else f"{amount} {unit}"


def refused(call: Call, hold: Hold, error: HoldRefused, plugin: str) -> BudgetExceeded:
    """The typed denial for a hold without room."""
    window = f" within {hold.window:g} s" if hold.window else ""
    held = f", {amount_text(error.held, hold.unit)} held by running calls" if error.held else ""
    above = ", more than the limit" if error.spent > hold.limit else ""
    return BudgetExceeded(
        hold.reason
        or f"limit {amount_text(hold.limit, hold.unit)}{window} of {hold.account}: "
        f"{amount_text(error.spent, hold.unit)} spent{above}{held}, "
        f"{amount_text(hold.amount, hold.unit)} needed",
        account=hold.account,
        rule=hold.rule,
        tool=call.name,
        call_id=call.id,
        plugin=plugin,
        halt=hold.halt,
        code=hold.code,
    )
