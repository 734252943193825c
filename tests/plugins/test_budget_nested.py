"""Budgets over each other: every dimension, wall time, and caps that change or are too low."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.call import Call, Usage
from checkrein.errors import ApprovalPending, BudgetExceeded, ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Ask, PreVerdict
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

HOW = pytest.mark.parametrize("how", ["sync", "async"])
PRICES = {"mine": {"input": 1, "output": 10}}
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
ANSWER = {"model": "mine", "usage": {"prompt_tokens": 100_000, "completion_tokens": 0}}
"""A tenth of a dollar."""


def search(query: str = "") -> str:
    return query


def call(rein: Rein, fn: Callable[..., Any], how: str, *args: Any) -> Any:
    if how == "sync":
        return rein.call(fn, *args)
    return asyncio.run(rein.acall(fn, *args))


def ask(rein: Rein, how: str) -> Any:
    if how == "sync":
        return rein.model_call(lambda **_: ANSWER, model="mine", messages=MESSAGES)
    return asyncio.run(rein.amodel_call(lambda **_: ANSWER, model="mine", messages=MESSAGES))


SESSIONS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "agent": ({"agent": "a"}, {"agent": "b"}),
    "task": ({"task": "a"}, {"task": "b"}),
    "user": ({"user": "a"}, {"user": "b"}),
    "tenant": ({"tenant": "a"}, {"tenant": "b"}),
}


@HOW
@pytest.mark.parametrize("inner", ["agent", "task", "user", "tenant", "session", "tool", "call"])
@pytest.mark.parametrize("unit", ["calls", "usd"])
def test_a_call_must_fit_in_all_of_them(how: str, inner: str, unit: str) -> None:
    """A narrow cap inside a wide one: the narrow one refuses, and the wide one pays nothing."""
    priced: dict[str, Any] = {} if unit == "calls" else {"tool_prices": {"search": 1}}
    few = {"calls": 2} if unit == "calls" else {"usd": 2}
    many = {"calls": 100} if unit == "calls" else {"usd": 100}
    narrow = Budget(**few, per=inner, name="narrow", halt=False, **priced)  # type: ignore[arg-type]
    wide = Budget(**many, per="tenant", window="month", name="wide", halt=False, **priced)
    if inner == "tenant":
        wide = Budget(**many, per="agent", name="wide", halt=False, **priced)
    with Rein(plugins=[narrow, wide]) as rein:
        first, second = SESSIONS.get(inner, ({}, {}))
        with rein.session(**first, on_error="keep"):  # type: ignore[arg-type]
            for _ in range(2):
                call(rein, search, how)
            if inner == "call":
                call(rein, search, how)  # each has an account of its own
            else:
                with pytest.raises(BudgetExceeded) as refused:
                    call(rein, search, how)
                assert refused.value.account.startswith(f"narrow/{unit}/{inner}/")
        wide_ = rein.store.balances("wide/")
        units = 1 if unit == "calls" else 10**9
        ran = 3 if inner == "call" else 2
        assert sum(b.spent for b in wide_) == ran * units and not any(b.held for b in wide_)
        if inner not in ("call", "tool"):
            with rein.session(**second):  # type: ignore[arg-type]
                call(rein, search, how)


@HOW
def test_a_cap_of_one_call(how: str) -> None:
    budget = Budget(usd=0.05, per="call", prices=PRICES, max_output_tokens=100)
    with Rein(plugins=[budget]) as rein, rein.session(on_error="keep"):
        for _ in range(3):
            ask(rein, how)  # booked above what it held, each in an account of its own
        many = rein.options(labels={"max_output_tokens": "6000"})
        with many, pytest.raises(BudgetExceeded) as refused:
            ask(rein, how)
    assert "limit $0.0500 of budget/usd/call/" in refused.value.reason


# Wall time


@HOW
def test_wall_time_is_what_calls_took(how: str) -> None:
    with (
        Rein(plugins=[Budget(seconds=0.15, estimate_seconds=0.02)]) as rein,
        rein.session(on_error="keep") as session,
    ):

        def slow() -> None:
            time.sleep(0.06)

        def fails() -> None:
            time.sleep(0.03)
            raise ValueError

        call(rein, slow, how)
        with pytest.raises(ValueError):
            call(rein, fails, how)
        account = f"budget/seconds/session/{session.id}"
        found = rein.store.balance(account)
        assert found is not None and found.held == 0
        assert 90_000 <= found.spent < 10_000_000, "microseconds, also of a call that failed"
        call(rein, slow, how)
        with pytest.raises(BudgetExceeded) as refused:
            call(rein, slow, how)
        assert refused.value.halt and " s of budget/seconds/session/" in refused.value.reason


def test_a_timeout_is_what_a_call_may_take_at_most() -> None:
    """Four at once of two seconds each: only two fit in four seconds."""
    with Rein(plugins=[Budget(seconds=4, halt=False)]) as rein, rein.session(on_error="keep"):
        ran: list[int] = []

        @rein.tool(timeout=2, effect="read")
        async def slow() -> None:
            ran.append(1)
            await asyncio.sleep(0.02)

        async def at_once() -> list[Any]:
            return await asyncio.gather(*(slow() for _ in range(4)), return_exceptions=True)

        found = asyncio.run(at_once())
    assert len(ran) == 2
    assert sum(isinstance(one, BudgetExceeded) for one in found) == 2


@HOW
def test_the_wall_time_of_one_call_is_its_timeout(how: str) -> None:
    with Rein(plugins=[Budget(seconds=0.05, per="call")]) as rein, rein.session(on_error="keep"):
        with pytest.raises(TimeoutError, match=r"0\.05 s"):
            call(rein, lambda: time.sleep(0.3), how)
        assert call(rein, search, how, "x") == "x"


# Caps that are too low, and caps that change


def test_a_cap_below_what_is_spent_lets_nothing_through(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    with Rein(plugins=[Budget(usd=1, per="user", prices=PRICES), Cost(overlay=PRICES)],
              store=store) as rein, rein.session(user="ann"):  # fmt: skip
        for _ in range(3):
            ask(rein, "sync")
    ran: list[int] = []
    low = Budget(usd=0.2, per="user", prices=PRICES, max_output_tokens=1)
    with Rein(plugins=[low], store=store) as rein, rein.session(user="ann", on_error="keep"):
        with pytest.raises(BudgetExceeded) as refused:
            rein.model_call(lambda **_: ran.append(1), model="mine", messages=MESSAGES)
        found = rein.store.balance("budget/usd/user/ann")
        assert found is not None and (found.spent, found.held) == (300_000_000, 0)
    assert not ran
    assert refused.value.account == "budget/usd/user/ann"
    assert "limit $0.2000" in refused.value.reason
    assert "$0.3000 spent, more than the limit" in refused.value.reason


@pytest.mark.parametrize("key", ["usd", "tokens", "calls", "seconds", "per", "window", "soft"])
def test_a_budget_does_not_change(key: str) -> None:
    budget = Budget(calls=1)
    with Rein(plugins=[budget]) as rein, rein.session(on_error="keep"):
        with pytest.raises(ConfigError, match=rf"budget\.{key}: a budget does not change"):
            setattr(budget, key, 5)
        rein.call(search)
        with pytest.raises(BudgetExceeded):
            rein.call(search)


@HOW
def test_a_session_stays_under_the_budget_that_it_began_with(how: str, tmp_path: Path) -> None:
    """Taken up by a process with a wider budget, it still ends at the narrow one."""

    class Asks(Plugin):
        def pre_call(self, call: Call) -> PreVerdict:
            return Ask("may it?") if call.arguments.get("query") == "ask" else None

    store = f"sqlite:///{tmp_path}/s.db"
    narrow, wide = Budget(calls=3), Budget(calls=100)
    with (
        Rein(plugins=[narrow, Asks()], store=store, approvals="store") as rein,
        contextlib.suppress(ApprovalPending),
        rein.session(id="s", wait="suspend"),
    ):
        call(rein, search, how)
        call(rein, search, how, "ask")
    with Rein(plugins=[wide, Asks()], store=store, approvals="store") as rein:
        with rein.session(id="s", wait="suspend", on_error="keep"):
            for _ in range(2):
                call(rein, search, how)
            with pytest.raises(BudgetExceeded, match="limit 3 calls of budget/calls/session/s"):
                call(rein, search, how)
        kinds = [event.kind for event in rein.read("s").events()]
        found = rein.store.balance("budget/calls/session/s")
    assert "policy_changed" in kinds
    assert found is not None and (found.spent, found.held) == (3, 0)


def test_equal_budgets_pin_equally_and_can_be_built_again() -> None:
    settings: dict[str, Any] = {
        "usd": 1, "tokens": 5, "calls": 3, "seconds": 2.5, "per": ("user", "tool"),
        "window": "day", "timezone": "Europe/Berlin", "soft": ({"at": 0.5, "do": "warn"},),
        "tool_prices": {"a": 0.5}, "prices": PRICES, "halt": True, "name": "x",
    }  # fmt: skip
    del settings["tokens"]  # tools use none
    name, options = Budget(**settings).pin()
    assert name == "budget"
    assert Budget(**options).pin() == (name, options) == Budget(**settings).pin()
    assert Budget(**{**settings, "usd": 2}).pin() != (name, options)


# Tools that call models themselves


@HOW
def test_a_tool_that_reports_usage_is_capped_too(how: str) -> None:
    plugins = [Budget(usd=0.5, tokens=1000, prices=PRICES, estimate_tokens=400, estimate_usd=0.2),
               Cost(overlay=PRICES)]  # fmt: skip
    with Rein(plugins=plugins) as rein, rein.session(on_error="keep") as session:

        @rein.tool(effect="read", usage=lambda used: Usage(used, 0, model="mine"))
        def summarise(used: int) -> int:
            return used

        call(rein, summarise, how, 300)
        found = rein.store.balance(f"budget/tokens/session/{session.id}")
        assert found is not None and (found.spent, found.held) == (300, 0)
        found = rein.store.balance(f"budget/usd/session/{session.id}")
        assert found is not None and found.spent == 300_000, "at the price of its model"
        call(rein, summarise, how, 350)
        with pytest.raises(BudgetExceeded):
            call(rein, summarise, how, 1)
