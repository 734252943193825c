"""Budget: what a call holds before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein.call import NANO, Call, CallKind, ToolInfo
from checkrein.errors import ConfigError
from checkrein.verdicts import Deny, Hold
from checkrein_plugins.budget import (
    MAX_OUTPUT_TOKENS,
    UNKNOWN_INPUT_USD,
    UNKNOWN_OUTPUT_USD,
    Budget,
)

OWN = {"mine": {"input": 1, "output": 10}, "local": {"input": 0, "output": 0}}


def call(name: str = "mine", kind: CallKind = "model", **fields: Any) -> Call:
    fields.setdefault("arguments", {})
    return Call("c1", "s1", kind, name, tool=ToolInfo(name), **fields)


def says(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "parts": [{"type": "text", "content": text}]}]}


def holds(budget: Budget, a_call: Call) -> dict[str, Hold]:
    found = budget.pre_call(a_call)
    assert budget.pre_call(a_call) == found, "pre_call must be pure"
    assert isinstance(found, tuple)
    kept = [hold for hold in found if isinstance(hold, Hold)]
    assert len(kept) == len(found)
    return {hold.unit: hold for hold in kept}


def amount(budget: Budget, a_call: Call, unit: str = "usd") -> int:
    return holds(budget, a_call)[unit].amount


# Estimates


def test_a_model_call_holds_its_input_and_the_most_it_may_answer() -> None:
    budget = Budget(usd=5, prices=OWN)
    small = amount(budget, call(arguments={**says("x" * 4000), "max_tokens": 100}))
    assert 1_000_000 + 1_000_000 <= small <= 1_020_000 + 1_000_000
    unstated = amount(budget, call(arguments=says("x" * 4000)))
    assert unstated - small == (MAX_OUTPUT_TOKENS - 100) * 10_000
    labelled = amount(
        budget, call(arguments=says("x" * 4000), labels={"max_output_tokens": "100"})
    )
    assert labelled == small
    assumed = Budget(usd=5, prices=OWN, max_output_tokens=100)
    assert amount(assumed, call(arguments=says("x" * 4000))) == small
    double = amount(budget, call(arguments={**says("x" * 4000), "max_tokens": 100, "n": 2}))
    assert double - small == 1_000_000


def test_system_text_tools_and_other_scripts_count() -> None:
    budget = Budget(tokens=10**6, max_output_tokens=1)
    empty = amount(budget, call(), "tokens")
    for more in (
        {"system": "x" * 400},
        {"tools": [{"name": "t", "description": "x" * 400}]},
        says("漢" * 134),
        says("x" * 400),
    ):
        assert amount(budget, call(arguments=more), "tokens") >= empty + 100
    image = {"messages": [{"parts": [{"type": "blob", "content": b"x" * 10**7}]}]}
    assert 1000 < amount(budget, call(arguments=image), "tokens") < 10_000


def test_a_stated_estimate_is_held_as_it_is() -> None:
    budget = Budget(usd=1, tokens=1000, estimate_usd=0.45, estimate_tokens=50)
    assert amount(budget, call("no-such-model")) == 450_000_000
    assert amount(budget, call("gpt-4o"), "tokens") == 50


def test_an_unknown_model_is_never_free() -> None:
    held = amount(Budget(usd=1), call("no-such-model", arguments={"max_tokens": 1000}))
    assert held == UNKNOWN_OUTPUT_USD * 1000 * NANO / 10**6
    longer = amount(
        Budget(usd=1), call("no-such-model", arguments={**says("x" * 4000), "max_tokens": 1000})
    )
    assert longer - held >= UNKNOWN_INPUT_USD * 1000 * NANO / 10**6
    refused = Budget(usd=1, unpriced="deny").pre_call(call("no-such-model"))
    assert isinstance(refused, Deny)
    assert refused.halt
    assert "no-such-model" in refused.reason
    estimated = Budget(usd=1, unpriced="deny", estimate_usd=0.1)
    assert isinstance(estimated.pre_call(call("no-such-model")), Deny)
    assert amount(estimated, call("gpt-4o")) == 100_000_000


def test_an_explicit_zero_price_holds_nothing() -> None:
    assert amount(Budget(usd=0, prices=OWN), call("local", arguments=says("x"))) == 0


# What is counted


def test_tools_hold_their_price_and_undo_holds_nothing() -> None:
    budget = Budget(usd=1, calls=5, tool_prices={"search": 0.03, "maps_*": 0.005})
    found = holds(budget, call("search", "tool"))
    assert (found["usd"].amount, found["usd"].settle) == (30_000_000, "measured")
    assert (found["calls"].amount, found["calls"].settle) == (1, "keep")
    assert amount(budget, call("Maps-Route", "tool")) == 5_000_000
    assert set(holds(budget, call("other", "tool"))) == {"calls"}
    assert budget.pre_call(call("search", "undo")) is None
    assert set(holds(Budget(calls=5), call("gpt-4o"))) == {"calls"}
    assert Budget(tokens=5).pre_call(call("other", "tool")) is None


def test_limits_are_whole_nano_dollars_and_never_rounded_up() -> None:
    assert holds(Budget(usd=0.1), call("gpt-4o"))["usd"].limit == 100_000_000
    assert holds(Budget(usd=1e-9 / 3), call("gpt-4o"))["usd"].limit == 0
    assert holds(Budget(calls=0), call("x", "tool"))["calls"].limit == 0


def test_halt_by_default_on_money_and_tokens_only() -> None:
    found = holds(Budget(usd=1, tokens=1, calls=1), call("gpt-4o"))
    assert {unit: hold.halt for unit, hold in found.items()} == {
        "usd": True, "tokens": True, "calls": False,
    }  # fmt: skip
    for halt in (True, False):
        found = holds(Budget(usd=1, tokens=1, calls=1, halt=halt), call("gpt-4o"))
        assert {hold.halt for hold in found.values()} == {halt}


@pytest.mark.parametrize(
    ("settings", "account"),
    [
        ({}, "budget/calls/session/s1"),
        ({"per": "agent"}, "budget/calls/agent/a"),
        ({"per": "user"}, "budget/calls/user/u"),
        ({"per": "tenant"}, "budget/calls/tenant/unattributed"),
        ({"per": "task"}, "budget/calls/task/plan"),
        ({"per": "tool"}, "budget/calls/tool/search"),
        ({"per": "call"}, "budget/calls/call/c1"),
        ({"per": ["session", "tool"]}, "budget/calls/session+tool/s1/search"),
        ({"window": 3600}, "budget/calls/session@3600s/s1"),
        ({"name": "daily", "window": 86400, "per": "user"}, "daily/calls/user@86400s/u"),
    ],
)
def test_accounts(settings: dict[str, Any], account: str) -> None:
    a_call = call("search", "tool", agent="a", user="u", task="plan")
    assert holds(Budget(calls=1, **settings), a_call)["calls"].account == account


def test_combined_keys_cannot_be_made_to_meet() -> None:
    budget = Budget(calls=1, per=["tenant", "user"])
    first = holds(budget, call("t", "tool", tenant="a/b", user="c"))["calls"].account
    second = holds(budget, call("t", "tool", tenant="a", user="b/c"))["calls"].account
    assert first != second


def test_per_tool_and_per_model_count_only_those() -> None:
    assert Budget(calls=1, per="tool").pre_call(call("gpt-4o")) is None
    assert Budget(calls=1, per="model").pre_call(call("search", "tool")) is None
    assert holds(Budget(tokens=9, per="model"), call("gpt-4o"))["tokens"].account == (
        "budget/tokens/model/gpt-4o"
    )


# Bad settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "budget: state a limit: usd, tokens or calls"),
        ({"usdd": 1}, "budget: unknown key 'usdd'; allowed: usd, tokens, calls, per"),
        ({"usd": -1}, "budget.usd: must not be negative"),
        ({"usd": float("nan")}, "budget.usd: must be a finite number"),
        ({"usd": float("inf")}, "budget.usd: must be a finite number"),
        ({"usd": True}, "budget.usd"),
        ({"usd": "5"}, "budget.usd"),
        ({"usd": 1e30}, "budget.usd: must not be above"),
        ({"tokens": 1.5}, "budget.tokens"),
        ({"tokens": True}, "budget.tokens"),
        ({"tokens": -1}, "budget.tokens: must not be negative"),
        ({"calls": 10**30}, "budget.calls: must not be above"),
        ({"calls": 1, "per": "day"}, "budget.per: .*'session'"),
        ({"calls": 1, "per": []}, "budget.per"),
        ({"calls": 1, "per": ["user", "user"]}, "budget.per: a dimension stands there twice"),
        ({"calls": 1, "per": ["tool", "model"]}, "no call is of a tool and of a model"),
        ({"calls": 1, "window": 0}, "budget.window: must be above 0"),
        ({"calls": 1, "window": -5}, "budget.window: must be above 0"),
        ({"calls": 1, "window": float("nan")}, "budget.window: must be a finite"),
        ({"calls": 1, "window": "day"}, "budget.window"),
        ({"calls": 1, "halt": "yes"}, "budget.halt"),
        ({"calls": 1, "name": "a/b"}, "budget.name"),
        ({"calls": 1, "estimate_usd": 1}, "budget.estimate_usd: has no meaning without usd"),
        ({"calls": 1, "estimate_tokens": 1}, "estimate_tokens: has no meaning without tokens"),
        ({"calls": 1, "tool_prices": {"a": 1}}, "tool_prices: has no meaning without usd"),
        ({"usd": 1, "estimate_usd": 0}, "an estimate of 0 would hold nothing"),
        ({"usd": 1, "per": "tool"}, "budget.usd: per tool needs tool_prices"),
        ({"tokens": 1, "per": "tool"}, "budget.tokens: tools use none"),
        ({"usd": 1, "unpriced": "free"}, "budget.unpriced"),
        ({"usd": 1, "max_output_tokens": 0}, "budget.max_output_tokens"),
        ({"usd": 1, "prices": {"m": {"input": 1}}}, "budget.prices.*m.output"),
        ({"usd": 1, "tool_prices": {"a": float("inf")}}, "tool_prices.a"),
    ],
)
def test_bad_settings_are_refused_with_their_place(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(**settings)
