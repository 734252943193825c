"""The bill: what one attempt cost, as it is written with its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from checkrein.accounts import actual
from checkrein.store import CostRow, HoldRow, OpenHold

if TYPE_CHECKING:
    from checkrein.call import Call, CostState, Outcome, Usage


def cost_rows(
    call: Call, outcome: Outcome, rows: Sequence[HoldRow], role: str = ""
) -> tuple[CostRow, ...]:
    """The row of an attempt; none for a tool that costs nothing and used nothing.

    Where the cost is not known, it is what budgets charge: a total of the bill is then that of
    their ledger. Without a budget nothing is charged, and the row says that it is unpriced.
    """
    model = call.kind == "model"
    charged, tokens = _charged(rows, outcome)
    usage, state, cost = outcome.usage, outcome.cost_state, outcome.cost
    known = usage is not None or state is not None or charged is not None or tokens is not None
    if not (known or model or call.tool.has_usage):
        return ()
    if outcome.state == "not_done":
        if not model:
            return ()
        usage, state, cost, tokens = None, "reported", 0, 0
    elif cost is None or state == "unpriced":
        cost = charged
        if cost is None or (state is None and charged is None):
            state = "unpriced"
        elif state is None:
            state = "estimated"
    return (_row(call, outcome.price, usage, state or "estimated", cost, tokens, role),)


def answer_rows(call: Call, saved: Usage | None) -> tuple[CostRow, ...]:
    """The row of a call that a plugin answered: it cost nothing, and saved what it says."""
    if call.kind != "model" and saved is None:
        return ()
    row = _row(call, "", None, "reported", 0, 0, "answer")
    row.saved = 0 if saved is None else saved.total_tokens
    return (row,)


def lost_rows(call: Call, holds: Iterable[OpenHold], outcome: Outcome) -> tuple[CostRow, ...]:
    """The row of an attempt whose process died: what is charged for it."""
    charged, tokens = _charged(holds, outcome)
    if outcome.state == "not_done" or (charged is None and tokens is None):
        return ()
    state: CostState = "unpriced" if charged is None else "estimated"
    return (_row(call, "", None, state, charged, tokens, ""),)


def _charged(rows: Iterable[HoldRow | OpenHold], outcome: Outcome) -> tuple[int | None, int | None]:
    """(nano-dollars, tokens) that budgets charge, by the one that charges most."""
    money: int | None = None
    tokens: int | None = None
    for row in rows:
        if row.settle not in ("measured", "keep"):
            continue
        if row.unit == "usd":
            money = max(money or 0, actual(row, outcome))
        elif row.unit == "tokens":
            tokens = max(tokens or 0, actual(row, outcome))
    return money, tokens


def _row(
    call: Call,
    price: str,
    usage: Usage | None,
    state: CostState,
    cost: int | None,
    tokens: int | None,
    role: str,
) -> CostRow:
    if not role:
        role = "guard" if call.guard else "retry" if call.attempt > 1 else ""
    row = CostRow(
        call.id, 0, call.session, call.kind, call.name, call.agent, call.task, call.user,
        call.tenant, role, state, cost, tokens or 0,
    )  # fmt: skip
    row.source = price
    if usage is not None:
        row.tokens = usage.input_tokens + usage.output_tokens
        row.input, row.output = usage.input_tokens, usage.output_tokens
        row.cache_read, row.cache_write = usage.cache_read_tokens, usage.cache_write_tokens
        row.reasoning = usage.reasoning_tokens
        row.audio = usage.input_audio_tokens + usage.output_audio_tokens
    return row
