"""The callback handler: it stops what it must on every road, and refuses what it cannot carry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from checkrein import Answer, Approved, Ask, Deny, Hold, Plugin, Rejected, Replace, Retry, Rewrite
from checkrein.errors import ApprovalRejected, BudgetExceeded, ConfigError, Denied
from checkrein_integrations.langchain import CheckreinCallbackHandler, CheckreinMiddleware
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, effects, kinds


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    if amount == 13:
        raise ValueError("unlucky")
    return f"paid {amount}"


@tool
async def apay(amount: int) -> str:
    """Pay, as a coroutine."""
    effects.append(amount)
    return f"paid {amount}"


def use(target: Any, given: Any, r: Any, mode: str) -> Any:
    config = {"callbacks": [CheckreinCallbackHandler(r)]}
    if mode == "sync":
        return target.invoke(given, config)
    return asyncio.run(target.ainvoke(given, config))


def test_denied_on_every_road(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Deny("no", rule="never")))
    with r.session(), pytest.raises(Denied, match="no"):
        use(pay, {"amount": 1}, r, mode)
    assert effects == []
    assert [k for k, n in kinds(r) if n == "pay"] == ["denied"]


def test_denied_async_tool(rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("no")))
    with pytest.raises(Denied):
        use(apay, {"amount": 1}, r, "async")
    assert effects == []


def test_denied_inside_an_agent(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Deny("no", halt=True)))
    graph = create_agent(ScriptedChatModel(script=[ai("", call("pay", amount=1)), ai("x")]), [pay])
    with pytest.raises(Denied):
        use(graph, {"messages": [("user", "go")]}, r, mode)
    assert effects == []


def test_allowed_call_is_one_intent_and_one_outcome(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Hold("n", 1, "calls", 5, settle="keep")))
    with r.session() as session:
        assert use(pay, {"amount": 2}, r, mode) == "paid 2"
    assert kinds(r, session.id)[1:3] == [("intent", "pay"), ("outcome", "done")]
    assert r.store.balance("n").spent == 1
    assert r.store.events(kinds=("outcome",))[0].view["result"] == "paid 2"


def test_error_of_the_tool_is_recorded_and_passes(rein: Any, mode: str) -> None:
    r = rein(Rules())
    with r.session(on_error="keep"), pytest.raises(ValueError, match="unlucky"):
        use(pay, {"amount": 13}, r, mode)
    (outcome,) = r.store.events(kinds=("outcome",))
    assert (outcome.view["state"], outcome.view["error"]["type"]) == ("unknown", "ValueError")


def test_model_calls_are_counted_and_stopped(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Hold("tokens", 20, "tokens", 30, halt=True), kind="model"))
    model = ScriptedChatModel(script=[ai("one"), ai("two"), ai("three")])
    assert use(model, "hello", r, mode).content == "one"
    assert r.store.balance("tokens").spent == 15
    with pytest.raises(BudgetExceeded):
        use(model, "hello", r, mode)
    assert len(model.seen) == 1
    (outcome,) = r.store.events(kinds=("outcome",))
    assert outcome.view["usage"] == {"input_tokens": 10, "output_tokens": 5, "model": "scripted-1"}
    assert outcome.view["result"]["parts"] == [{"type": "text", "content": "one"}]


def test_streamed_model_call(rein: Any) -> None:
    r = rein(Rules(lambda c: Hold("tokens", 20, "tokens", 30), kind="model"))
    model = ScriptedChatModel(script=[ai("one two")])
    config: Any = {"callbacks": [CheckreinCallbackHandler(r)]}
    assert "".join(str(c.content) for c in model.stream("x", config)) == "one two"
    assert r.store.balance("tokens").spent == 15


class Person(Plugin):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def pre_call(self, call: Any) -> Any:
        return Ask("may I") if call.kind == "tool" else None

    def on_approval(self, call: Any, request: Any) -> Any:
        return self.answer


def test_waiting_approval(rein: Any, mode: str) -> None:
    r = rein(Person(Approved(by="ann")))
    assert use(pay, {"amount": 1}, r, mode) == "paid 1"
    r = rein(Person(Rejected(by="ann")))
    with pytest.raises(ApprovalRejected):
        use(pay, {"amount": 2}, r, mode)
    assert effects == [1]


class Streams(Plugin):
    def open_stream(self, call: Any, channel: str) -> Any:
        return None


class Rewrites(Plugin):
    rewrites = True

    def pre_call(self, call: Any) -> Any:
        return None


@pytest.mark.parametrize("plugin", [Streams(), Rewrites()])
def test_refuses_plugins_that_change_things(rein: Any, plugin: Any) -> None:
    with pytest.raises(ConfigError, match="CheckreinMiddleware"):
        CheckreinCallbackHandler(rein(plugin))


def test_refuses_to_suspend(rein: Any) -> None:
    with pytest.raises(ConfigError, match="checkpointer"):
        CheckreinCallbackHandler(rein(wait="suspend"))


@pytest.mark.parametrize(
    "rules",
    [
        Rules(lambda c: Rewrite(c.replace(arguments={"amount": 2}))),
        Rules(lambda c: Answer("cached")),
    ],
)
def test_what_it_finds_out_late_stops_the_call(rein: Any, mode: str, rules: Any) -> None:
    r = rein(rules)
    with pytest.raises(ConfigError, match="CheckreinMiddleware"):
        use(pay, {"amount": 1}, r, mode)
    assert effects == []


def test_a_result_that_should_be_replaced_is_withheld(rein: Any, mode: str) -> None:
    r = rein(Rules(post=lambda c, o: Replace("masked")))
    with pytest.raises(ConfigError, match="replaces"):
        use(pay, {"amount": 1}, r, mode)
    r = rein(Rules(post=lambda c, o: Deny("secret")))
    with pytest.raises(Denied, match="secret"):
        use(pay, {"amount": 1}, r, mode)


def test_an_attempt_it_cannot_make_did_not_happen(rein: Any) -> None:
    r = rein(Rules(post=lambda c, o: Retry() if o.attempts == 1 else None))
    r.declare("pay", idempotent=True)
    with r.session(on_error="keep"), pytest.raises(ConfigError, match="repeats"):
        use(pay, {"amount": 1}, r, "sync")
    assert [e.view["state"] for e in r.store.events(kinds=("outcome",))] == ["done", "not_done"]


def test_under_the_middleware_nothing_is_counted_twice(rein: Any, mode: str) -> None:
    r = rein(
        Rules(lambda c: Hold("tools", 1, "calls", 9, settle="keep")),
        Rules(lambda c: Hold("models", 1, "calls", 9, settle="keep"), kind="model"),
    )
    model = ScriptedChatModel(script=[ai("", call("pay", amount=1)), ai("x")])
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(r)])
    use(graph, {"messages": [("user", "go")]}, r, mode)
    assert r.store.balance("tools").spent == 1
    assert r.store.balance("models").spent == 2


def test_reaches_the_sub_agent_that_has_no_middleware(rein: Any, mode: str) -> None:
    inner = create_agent(ScriptedChatModel(script=[ai("", call("pay", amount=5)), ai("x")]), [pay])

    @tool
    def ask() -> str:
        """Ask."""
        return str(inner.invoke({"messages": [("user", "x")]})["messages"][-1].content)

    @tool
    async def aask() -> str:
        """Ask."""
        return str((await inner.ainvoke({"messages": [("user", "x")]}))["messages"][-1].content)

    outer = ask if mode == "sync" else aask
    r = rein(Rules(lambda c: Deny("no") if c.name == "pay" else None))
    graph = create_agent(ScriptedChatModel(script=[ai("", call(outer.name)), ai("x")]), [outer])
    with pytest.raises(Denied):
        use(graph, {"messages": [("user", "go")]}, r, mode)
    assert effects == []
