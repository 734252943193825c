"""Budgets and other limits."""

from __future__ import annotations

from checkrein import Hold
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

from .scenario import MODEL, Expect, Scenario, says, use
from .world import Rules

DONE = "intent outcome:done"
PRICES = {MODEL: {"input": 1000.0, "output": 2000.0}}


def _at_most(limit: int, *, halt: bool = False) -> Rules:
    return Rules({"tick": Hold("ticks", 1, "calls", limit, settle="keep", halt=halt)})


SCENARIOS = [
    Scenario(
        "limit_in_parallel",
        "2 of 4 calls have room: exactly 2 run, and all 4 are answered",
        [tuple(use("tick", number=n) for n in range(4)), "done"],
        Expect(
            ["tick", "tick"],
            ["ticked", "ticked", says("[budget_exceeded] tick"), says("[budget_exceeded] tick")],
            [f"tick {DONE}"] * 2 + ["tick denied:budget_exceeded"] * 2,
            unordered=True,
        ),
        plugins=lambda: [_at_most(2)],
        covers="D03",
    ),
    Scenario(
        "limit_zero",
        "a limit of nothing lets nothing through",
        [(use("tick", number=1), use("tick", number=2)), "done"],
        Expect(
            [],
            [says("[budget_exceeded] tick")] * 2,
            ["tick denied:budget_exceeded"] * 2,
        ),
        plugins=lambda: [_at_most(0)],
        covers="D03",
    ),
    Scenario(
        "limit_halts",
        "a limit that ends the run, and undoes what it did",
        [use("pay", to="ann", amount=5), use("tick", number=1), use("tick", number=2), "never"],
        Expect(
            ["pay ann 5", "tick", "-pay ann 5"],
            ["paid 5 to ann", "ticked"],
            [f"pay {DONE}", f"tick {DONE}", "tick denied:budget_exceeded"],
            models=[DONE] * 3,
            final=None,
            end="BudgetExceeded",
            session="FAILED partial",
        ),
        plugins=lambda: [_at_most(1, halt=True)],
        covers="D02 B",
    ),
    Scenario(
        "calls_budget",
        "a budget of calls counts model calls and tool calls",
        [use("note", text="x"), use("note", text="y"), "never"],
        Expect(
            ["note x", "note y"],
            ["noted x"],
            [f"note {DONE}"] * 2,
            models=[DONE, DONE, "denied:budget_exceeded"],
            final=None,
            end="BudgetExceeded",
            session="FAILED partial",
        ),
        plugins=lambda: [Budget(calls=4, halt=True)],
    ),
    Scenario(
        "tokens_budget",
        "a budget of tokens stops the model call that would pass it",
        [use("note", text="x"), use("note", text="y"), "never"],
        Expect(
            ["note x", "note y"],
            ["noted x"],
            [f"note {DONE}"] * 2,
            models=[DONE, DONE, "denied:budget_exceeded"],
            final=None,
            end="BudgetExceeded",
            session="FAILED partial",
        ),
        plugins=lambda: [Budget(tokens=40, estimate_tokens=15)],
    ),
    Scenario(
        "cost",
        "what the model reports is on the bill",
        [use("note", text="x"), "done"],
        Expect(["note x"], ["noted x"], [f"note {DONE}"], usd=0.02),
        plugins=lambda: [Cost(overlay=PRICES)],
    ),
    Scenario(
        "usd_budget",
        "a budget of dollars",
        [use("note", text="x"), use("note", text="y"), "never"],
        Expect(
            ["note x", "note y"],
            ["noted x"],
            [f"note {DONE}"] * 2,
            models=[DONE, DONE, "denied:budget_exceeded"],
            final=None,
            end="BudgetExceeded",
            session="FAILED partial",
            usd=0.02,
        ),
        plugins=lambda: [Cost(overlay=PRICES), Budget(usd=0.05, prices=PRICES, estimate_usd=0.02)],
    ),
]
