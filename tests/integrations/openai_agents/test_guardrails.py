"""The SDK's own guardrail objects, asked by the plugins of a Rein."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    Runner,
    function_tool,
)

from checkrein import Ask, Deny, Hold, Replace, Rewrite
from checkrein.errors import ConfigError, Denied
from checkrein_integrations.openai_agents import (
    as_input_guardrail,
    as_output_guardrail,
    as_tool_input_guardrail,
    as_tool_output_guardrail,
    run,
)
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call, raw_call
from checkrein_plugins.redaction import Redaction

from .conftest import Pre, Rules, agent_of, effects, kinds, outputs


def plain(agent: Any, given: Any = "go") -> Any:
    return asyncio.run(Runner.run(agent, given))


def words(call: Any) -> Any:
    return Deny("bad words", rule="words") if "bad" in str(call.arguments["messages"]) else None


def guarded_pay(r: Any, *, before: bool = True, after: bool = False) -> Any:
    @function_tool(
        tool_input_guardrails=[as_tool_input_guardrail(r)] if before else None,
        tool_output_guardrails=[as_tool_output_guardrail(r)] if after else None,
    )
    def pay(amount: int) -> str:
        """Pay an amount."""
        effects.append(amount)
        return f"paid {amount}"

    return pay


def test_an_input_guardrail_trips_before_the_first_turn(rein):
    r = rein(Rules(pre=words, kind="model"))
    guard = as_input_guardrail(r)
    assert guard.run_in_parallel is False
    model = ScriptedModel(["fine", "never"])
    agent = agent_of(model, input_guardrails=[guard])
    assert plain(agent, "good").final_output == "fine"
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        plain(agent, "bad")
    info = caught.value.guardrail_result.output.output_info
    assert info == {"checkrein": "denied", "reason": "bad words", "rule": "words"}
    assert len(model.seen) == 1
    assert kinds(r).count("denied") == 1


def test_an_output_guardrail_trips_on_the_answer(rein):
    def post(call: Any, outcome: Any) -> Any:
        return Deny("bad words") if "bad" in str(outcome.value) else None

    r = rein(Rules(post=post, kind="model"))
    guard = as_output_guardrail(r)
    agent = agent_of(ScriptedModel(["good", "bad"]), output_guardrails=[guard])
    assert plain(agent).final_output == "good"
    with pytest.raises(OutputGuardrailTripwireTriggered):
        plain(agent)
    assert kinds(r).count("denied") == 1


def test_a_tool_input_guardrail_tells_the_refusal_or_ends_the_run(rein):
    def rule(call: Any) -> Any:
        amount = call.arguments["amount"]
        return Deny("too much", halt=amount > 1000) if amount > 100 else None

    r = rein(Pre(rule))
    model = ScriptedModel(
        [ask(call("pay", amount=500), call("pay", amount=5), raw_call("pay", "{")), "done"]
    )
    assert plain(agent_of(model, guarded_pay(r))).final_output == "done"
    assert effects == [5]
    assert outputs(model)[0].startswith("[denied] pay was not run: too much")
    assert outputs(model)[2].startswith("[invalid_arguments]")
    with pytest.raises(Denied, match="too much"):
        plain(agent_of(ScriptedModel([ask(call("pay", amount=5000))]), guarded_pay(r)))


def test_a_tool_output_guardrail_withholds_a_result(rein):
    def post(call: Any, outcome: Any) -> Any:
        return Deny("secret result") if outcome.value == "paid 7" else None

    r = rein(Rules(post=post))
    model = ScriptedModel([ask(call("pay", amount=7), call("pay", amount=8)), "done"])
    plain(agent_of(model, guarded_pay(r, before=False, after=True)))
    assert "secret result" in outputs(model)[0]
    assert outputs(model)[1] == "paid 8"


@pytest.mark.parametrize(
    "make",
    [as_input_guardrail, as_output_guardrail, as_tool_input_guardrail, as_tool_output_guardrail],
)
def test_what_a_guardrail_cannot_carry_is_refused_at_construction(rein, make):
    with pytest.raises(ConfigError, match="supervise_agent"):
        make(rein(Redaction()))
    with pytest.raises(ConfigError, match="suspend"):
        make(rein(wait="suspend"))


@pytest.mark.parametrize(
    "verdict",
    [Ask("sure?"), lambda call: Rewrite(call.replace(arguments={"amount": 1}))],
)
def test_what_it_meets_all_the_same_ends_the_run(rein, verdict):
    r = rein(Pre(verdict if callable(verdict) else lambda call: verdict))
    with pytest.raises(ConfigError, match="cannot carry out"):
        plain(agent_of(ScriptedModel([ask(call("pay", amount=5))]), guarded_pay(r)))
    assert effects == []


def test_a_replaced_result_ends_the_run(rein):
    r = rein(Rules(post=lambda call, outcome: Replace("x")))
    tool = guarded_pay(r, before=False, after=True)
    with pytest.raises(ConfigError, match="cannot carry out"):
        plain(agent_of(ScriptedModel([ask(call("pay", amount=5))]), tool))


def test_limits_are_shown_as_not_checked(rein):
    r = rein(Rules(pre=lambda call: Hold("bill", 1, "calls", 0), kind="model"))
    agent = agent_of(ScriptedModel(["done"]), input_guardrails=[as_input_guardrail(r)])
    (result,) = plain(agent).input_guardrail_results
    assert result.output.output_info["unchecked"] == ["bill"]


def test_a_supervised_agent_is_judged_once(rein):
    asked: list[str] = []
    r = rein(Rules(pre=lambda call: asked.append(call.name), kind="tool"))
    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    agent = agent_of(
        model, guarded_pay(r, after=True), input_guardrails=[as_input_guardrail(r)],
        output_guardrails=[as_output_guardrail(r)],
    )  # fmt: skip
    with r.session(wait="block"):
        asyncio.run(run(r, agent, "go"))
    assert asked == ["pay"]
    assert kinds(r).count("intent") == 3
