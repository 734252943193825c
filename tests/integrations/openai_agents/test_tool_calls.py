"""Tool calls of an agent: decided, recorded and undone like any other call."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.tool import FunctionTool

from checkrein import Answer, Deny, Replace, Rewrite
from checkrein.errors import BudgetExceeded, ConfigError, Denied, Halted, WouldBlock
from checkrein_integrations.openai_agents import run, run_config, run_sync, supervise_agent
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call, raw_call

from .conftest import Pre, Rules, agent_of, effects, kinds, outputs, states


@function_tool
def pay(amount: int, currency: str = "EUR") -> dict[str, Any]:
    """Pay an amount."""
    effects.append(amount)
    return {"id": f"p-{amount}", "currency": currency}


@function_tool
async def lookup(name: str) -> str:
    """Look somebody up."""
    effects.append(name)
    return f"{name}: card 4111"


def verdict(call: Any) -> Any:
    amount = call.arguments.get("amount", 0)
    if amount > 1000:
        return Deny("hard limit", halt=True)
    if amount > 100:
        return Deny("more than 100", rule="limit")
    if amount == 7:
        return Rewrite(call.replace(arguments={**call.arguments, "amount": 1}))
    return Answer("from the cache", source="cache") if amount == 8 else None


def paying(amount: int) -> ScriptedModel:
    return ScriptedModel([ask(call("pay", "c1", amount=amount)), "done"])


def test_what_is_allowed_runs_and_is_recorded(go, rein):
    r, model = rein(Pre(verdict)), paying(5)
    assert go(r, agent_of(model, pay)).result.final_output == "done"
    assert effects == [5]
    assert outputs(model) == ["{'id': 'p-5', 'currency': 'EUR'}"]
    assert states(r) == [("COMPLETED", "none")]
    (intent,) = [e for e in r.store.events(kinds=("intent",)) if e.view["kind"] == "tool"]
    assert intent.view["arguments"] == {"amount": 5, "currency": "EUR"}


def test_a_denial_is_told_to_the_model(go, rein):
    r, model = rein(Pre(verdict)), paying(500)
    assert go(r, agent_of(model, pay)).result.final_output == "done"
    assert effects == []
    (told,) = outputs(model)
    assert told.startswith("[denied] pay was not run: more than 100")
    assert kinds(r).count("denied") == 1


def test_a_halt_ends_the_run_with_our_exception(go, rein):
    r, model = rein(Pre(verdict)), paying(5000)
    with pytest.raises(Denied, match="hard limit"):
        go(r, agent_of(model, pay))
    assert effects == []
    assert states(r)[0][0] == "FAILED"
    assert kinds(r).count("denied") == 1


def test_arguments_are_rewritten(go, rein):
    model = paying(7)
    go(rein(Pre(verdict)), agent_of(model, pay))
    assert effects == [1]


def test_a_plugin_answers_in_place_of_the_tool(go, rein):
    r, model = rein(Pre(verdict)), paying(8)
    go(r, agent_of(model, pay))
    assert (effects, outputs(model)) == ([], ["from the cache"])
    assert kinds(r).count("answered") == 1


def test_a_result_is_replaced(go, rein):
    r = rein(Rules(post=lambda call, outcome: Replace(outcome.value.replace("4111", "****"))))
    model = ScriptedModel([ask(call("lookup", name="ann")), "done"])
    go(r, agent_of(model, lookup))
    assert outputs(model) == ["ann: card ****"]


def test_effects_are_undone_when_the_run_fails(go, rein):
    r = rein(Pre(verdict))
    undone: list[Any] = []
    r.declare("pay", undo=lambda result: undone.append(result["id"]))
    model = ScriptedModel([ask(call("pay", amount=5)), ask(call("pay", amount=6)), ValueError("x")])
    with pytest.raises(ValueError, match="x"):
        go(r, agent_of(model, pay))
    assert undone == ["p-6", "p-5"]
    assert states(r) == [("FAILED", "rolled_back")]


def test_an_undo_may_be_another_tool_of_the_agent(go, rein):
    @function_tool
    def refund(id: str) -> str:
        """Take a payment back."""
        effects.append(f"back {id}")
        return id

    r = rein()
    r.declare("pay", undo="refund")

    @function_tool
    def pay(id: str) -> str:
        """Pay."""
        effects.append(id)
        return id

    model = ScriptedModel([ask(call("pay", id="x")), ValueError("down")])
    with pytest.raises(ValueError, match="down"):
        go(r, agent_of(model, pay, refund))
    assert effects == ["x", "back x"]


def test_parallel_calls_stop_at_the_limit(go, rein):
    r = rein(Limit(2))
    model = ScriptedModel([ask(*(call("pay", amount=n) for n in range(1, 5))), "done"])
    go(r, agent_of(model, pay))
    assert len(effects) == 2
    told = outputs(model)
    assert len(told) == 4
    assert sum("p-" in text for text in told) == 2
    assert sum("[budget_exceeded]" in text for text in told) == 2


class Limit(Pre):
    def __init__(self, calls: int) -> None:
        from checkrein import Hold

        super().__init__(lambda call: Hold("tools", 1, "calls", calls, settle="keep"))


def test_errors_follow_the_tools_own_policy(go, rein):
    @function_tool(failure_error_function=lambda context, error: f"sorry: {error}")
    def flaky(n: int) -> str:
        """Fail."""
        effects.append(n)
        raise ValueError("down")

    r, model = rein(), ScriptedModel([ask(call("flaky", n=1)), "done"])
    go(r, agent_of(model, flaky))
    assert outputs(model) == ["sorry: down"]
    (outcome,) = [e for e in r.store.events(kinds=("outcome",)) if "error" in e.view]
    assert outcome.view["state"] == "unknown"


def test_the_default_policy_does_not_invite_a_repetition_of_a_write(go, rein):
    @function_tool
    def flaky(n: int) -> str:
        """Fail."""
        raise ValueError("down")

    r, model = rein(), ScriptedModel([ask(call("flaky", n=1)), "done"])
    go(r, agent_of(model, flaky))
    (told,) = outputs(model)
    assert told.startswith("[in_doubt] flaky")
    assert "try again" not in told


def test_an_error_without_a_policy_ends_the_run(go, rein):
    @function_tool(failure_error_function=None)
    def flaky(n: int) -> str:
        """Fail."""
        raise ValueError("down")

    r = rein()
    with pytest.raises(Exception, match="down"):
        go(r, agent_of(ScriptedModel([ask(call("flaky", n=1))]), flaky))
    assert states(r)[0][0] == "FAILED"


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (BudgetExceeded("over"), True),
        (Halted("stopped"), True),
        (Denied("not this one"), False),
    ],
)
@pytest.mark.parametrize("road", ["function", "own", "agent"])
def test_errors_of_ours_inside_a_tool_are_never_friendly_text(go, rein, error, ends, road):
    def body() -> str:
        raise error

    plain = function_tool(body, name_override="body", description_override="Do it.")
    if road == "own":

        async def invoke(context: Any, text: str) -> str:
            raise error

        plain = FunctionTool("body", "Do it.", {"type": "object", "properties": {}}, invoke, False)
    tool = plain
    if road == "agent":
        inner = agent_of(ScriptedModel([ask(call("body")), "inner done"]), plain, name="inner")
        tool = inner.as_tool("body_agent", "Do it.")
    model = ScriptedModel(
        [ask(call(tool.name, **({"input": "x"} if road == "agent" else {}))), "ok"]
    )
    if ends:
        with pytest.raises(type(error)):
            go(rein(), agent_of(model, tool))
    else:
        assert go(rein(), agent_of(model, tool)).result.final_output == "ok"
        if road != "agent":
            assert outputs(model)[0].startswith("[denied]")
            assert "try again" not in outputs(model)[0]


@pytest.mark.parametrize("text", ["{bad", "[1]", "null"])
def test_arguments_that_are_no_object_are_refused(go, rein, text):
    r = rein(Pre(verdict))
    model = ScriptedModel([ask(raw_call("pay", text)), "done"])
    assert go(r, agent_of(model, pay)).result.final_output == "done"
    assert effects == []
    assert outputs(model)[0].startswith("[invalid_arguments] pay was not run")
    assert kinds(r).count("denied") == 1


def test_arguments_that_do_not_fit_start_nothing(go, rein):
    r = rein()
    model = ScriptedModel([ask(call("pay", amount="many")), "done"])
    go(r, agent_of(model, pay))
    assert effects == []
    (outcome,) = [e for e in r.store.events(kinds=("outcome",)) if e.view["state"] != "done"]
    assert outcome.view["state"] == "not_done"
    assert "error occurred" in outputs(model)[0]


def test_a_tool_that_rein_tool_declares_is_decided_once(go, rein):
    asked: list[str] = []
    r = rein(Pre(lambda call: asked.append(call.name)))

    @function_tool
    @r.tool(undo=lambda result: effects.append("undone"))
    def book(seat: int) -> int:
        """Book a seat."""
        effects.append(seat)
        return seat

    model = ScriptedModel([ask(call("book", seat=3)), "done"])
    with r.session() as session:
        go(r, agent_of(model, book))
        session.rollback()
    assert set(asked) == {"book"}
    assert kinds(r).count("intent") == 4  # two models, the tool, its undo
    assert effects == [3, "undone"]


def test_an_agent_is_supervised_once(rein):
    r = rein()
    agent = supervise_agent(r, agent_of(paying(1), pay))
    assert supervise_agent(r, agent) is agent
    with pytest.raises(ConfigError, match="another Rein"):
        supervise_agent(rein(), agent)
    again = agent_of(paying(1), *agent.tools)
    asyncio.run(run(r, again, "go"))
    assert effects == [1]
    assert kinds(r).count("intent") == 3


def test_the_runner_itself_takes_a_supervised_agent(rein):
    r, model = rein(Pre(verdict)), paying(500)
    agent = supervise_agent(r, agent_of(model, pay))
    with r.session() as session:
        asyncio.run(_plain(agent, run_config(r)))
    assert outputs(model)[0].startswith("[denied]")
    assert "denied" in [e.kind for e in session.events()]


async def _plain(agent: Any, config: Any = None) -> Any:
    return await Runner.run(agent, "go", run_config=config)


def test_a_model_beside_the_supervision_is_refused(rein):
    r = rein()
    agent = supervise_agent(r, agent_of(paying(1), pay))
    config = RunConfig(model=paying(1))
    with pytest.raises(ConfigError, match="not supervised"):
        asyncio.run(_plain(agent, config))
    assert effects == []


def test_a_loop_that_runs_is_not_blocked(rein):
    async def inside() -> None:
        run_sync(rein(), agent_of(paying(1), pay), "go")

    with pytest.raises(WouldBlock):
        asyncio.run(inside())


def test_what_is_no_agent_is_refused(rein):
    with pytest.raises(ConfigError, match="no Agent"):
        supervise_agent(rein(), "agent")  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="ungated"):
        supervise_agent(rein(), agent_of(paying(1)), ungated="maybe")
    with pytest.raises(ConfigError, match="streams"):
        supervise_agent(rein(), agent_of(paying(1)), streams="maybe")
    with pytest.raises(ConfigError, match="models"):
        supervise_agent(rein(), agent_of(paying(1)), models={"x": "y"})


def test_the_given_agent_is_left_as_it_is(rein):
    agent = agent_of(paying(1), pay)
    before = dict(vars(agent))
    made = supervise_agent(rein(), agent)
    assert vars(agent) == before
    assert type(agent) is Agent
    assert isinstance(made, Agent)


def test_a_thread_that_goes_on_after_a_halt_is_waited_for_and_undone(rein):
    begun, end = threading.Event(), threading.Event()

    @function_tool
    def slow(n: int) -> int:
        """Take a while."""
        begun.set()
        end.wait(10)
        effects.append(n)
        return n

    def rule(call: Any) -> Any:
        if call.name != "pay":
            return None
        begun.wait(10)
        threading.Timer(0.2, end.set).start()
        return Deny("stop", halt=True)

    r = rein(Pre(rule))
    r.declare("slow", undo=lambda n: effects.append(f"undone {n}"))
    model = ScriptedModel([ask(call("slow", n=1), call("pay", amount=1))])
    with pytest.raises(Denied, match="stop"):
        run_sync(r, agent_of(model, slow, pay), "go")
    end.wait(10)
    assert json.dumps(effects) == '[1, "undone 1"]'
