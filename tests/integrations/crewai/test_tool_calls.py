"""Tools of a crew: what policies decide holds on every road, and each call runs once."""

from __future__ import annotations

import pytest
from crewai.tools import BaseTool, tool

from checkrein import Answer, Deny, Replace, Rewrite
from checkrein.errors import Denied

from .conftest import Rules, call, effects, kinds, told


@tool("pay")
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    if amount == 9:
        raise ValueError("no connection")
    return f"paid {amount}"


class Pay(BaseTool):
    name: str = "pay"
    description: str = "Pay an amount."

    def _run(self, amount: int) -> str:
        return pay.func(amount)


@pytest.fixture(params=["function", "class"])
def tools(request):
    return [pay if request.param == "function" else Pay()]


def rule(call):
    return {
        2: Deny("too much"),
        3: Deny("stop", halt=True),
        4: Rewrite(call.replace(arguments={"amount": 40})),
        5: Answer("from a cache"),
    }.get(call.arguments["amount"])


def run(road, rein, tools, amount):
    llm = road.llm([call("pay", amount=amount)], "done")
    result = road.run(rein, road.crew(llm, tools))
    assert result.raw == "done"
    return told(llm)[-1]


def test_an_allowed_call_runs_and_its_result_may_be_replaced(road, rein, tools):
    r = rein(Rules(rule, lambda call, outcome: Replace(outcome.value.replace("paid", "PAID"))))
    assert run(road, r, tools, 1) == "PAID 1"
    assert effects == [1]
    assert ("outcome", "done") in kinds(r)


@pytest.mark.parametrize(
    ("amount", "ran", "said"),
    [(4, [40], "paid 40"), (5, [], "from a cache")],
)
def test_rewrite_and_answer(road, rein, tools, amount, ran, said):
    assert run(road, rein(Rules(rule)), tools, amount) == said
    assert effects == ran


def test_a_denial_reaches_the_model_with_its_reason(road, rein, tools):
    r = rein(Rules(rule))
    said = run(road, r, tools, 2)
    assert effects == []
    assert said.startswith("[denied] pay was not run: too much.")
    assert [kind for kind, _ in kinds(r)].count("denied") == 1


def test_a_halt_ends_the_run(road, rein, tools):
    r = rein(Rules(rule))
    with pytest.raises(Denied, match="stop") as caught:
        run(road, r, tools, 3)
    assert caught.value.halt
    assert effects == []


def test_a_plugin_that_raises_denies(road, rein, tools):
    def broken(call):
        raise RuntimeError("out of order")

    assert run(road, rein(Rules(broken)), tools, 1).startswith("[check_failed] pay was not run")
    assert effects == []


def test_a_tool_that_fails_runs_once_and_its_effect_is_unknown(road, rein, tools):
    r = rein()
    assert run(road, r, tools, 9) == "Error executing tool: no connection"
    assert effects == [9]
    assert ("outcome", "unknown") in kinds(r)
