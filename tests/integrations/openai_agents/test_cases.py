"""Faults that people who run agents have reported, as they would be here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    SQLiteSession,
    function_tool,
)
from openai import AsyncOpenAI

from checkrein import Ask, Deny, Hold, Plugin, Replace, Retry
from checkrein.errors import ApprovalPending, BudgetExceeded, Conflict, Denied, Halted
from checkrein.testing import OpenAIServer, Reply, ToolCall
from checkrein_integrations.openai import supervise_client
from checkrein_integrations.openai_agents import resume, run_sync, supervise_agent
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call
from checkrein_plugins.budget import Budget
from checkrein_plugins.guardrails import IdempotencyGuard
from checkrein_plugins.redaction import Redaction
from checkrein_plugins.resilience import CircuitBreaker

from .conftest import Pre, Rules, agent_of, effects, kinds, outputs
from .test_agents import Server


@function_tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    return f"p-{amount}"


def views(rein: Any, *kinds: str) -> list[Any]:
    return [event.view for event in rein.store.events(kinds=kinds, limit=1000)]


# -- a lost reply, and our own errors, are not retried


def test_a_write_whose_reply_is_lost_runs_once_and_is_not_offered_again(go, rein):
    @function_tool
    def transfer(amount: int) -> str:
        """Transfer."""
        effects.append(amount)
        raise TimeoutError("read timed out")

    r = rein(Rules(post=lambda c, o: Retry(0) if o.error is not None else None))
    model = ScriptedModel([ask(call("transfer", amount=5)), "done"])
    go(r, agent_of(model, transfer))
    assert effects == [5]
    (outcome,) = views(r, "outcome")[1:2]
    assert outcome["state"] == "unknown"
    assert "try again" not in outputs(model)[0].lower()


def test_a_budget_that_is_used_up_ends_the_run_at_the_first_attempt(go, rein):
    r = rein(Budget(calls=1, halt=True), Rules(post=lambda c, o: Retry(0) if o.error else None))
    model = ScriptedModel([ask(call("pay", amount=5)), "never"])
    with pytest.raises(BudgetExceeded):
        go(r, agent_of(model, pay))
    assert effects == []
    assert len(model.seen) == 1


# -- at most N calls


class Limit(Pre):
    def __init__(self, calls: int) -> None:
        super().__init__(lambda call: Hold("tools", 1, "calls", calls, settle="keep"))


@pytest.mark.parametrize("limit", [0, 2])
def test_a_limit_holds_for_parallel_calls_and_the_next_turn_is_accepted(go, rein, limit):
    r = rein(Limit(limit))
    asked = [call("pay", f"c{n}", amount=n) for n in range(1, 5)]
    model = ScriptedModel([ask(*asked), ask(call("pay", "c5", amount=5)), "done"])
    # Supervised twice: counted once.
    agent = supervise_agent(r, supervise_agent(r, agent_of(model, pay)))
    assert go(r, agent).result.final_output == "done"
    assert len(effects) == limit
    items = {i["call_id"]: i["output"] for i in model.seen[-1] if "output" in i}
    assert set(items) == {f"c{n}" for n in range(1, 6)}, "every call is answered"
    assert sum("[budget_exceeded]" in text for text in items.values()) == 5 - limit
    balance = r.store.balance("tools")
    assert (balance.spent if balance else 0) == limit


# -- what came before a pause does not run again


def test_what_ran_before_the_gate_runs_once_through_every_pause(rein, tmp_path):
    r = rein(
        Pre(lambda c: Ask("a commit", rule="gate") if c.name == "commit" else None),
        store=f"sqlite:///{tmp_path}/c.db",
    )

    @function_tool
    def reserve(seat: int) -> str:
        """Reserve."""
        effects.append(f"reserve {seat}")
        return "reserved"

    @function_tool
    def commit(seat: int) -> str:
        """Commit."""
        effects.append(f"commit {seat}")
        return "committed"

    steps: list[Any] = [ask(call("reserve", seat=1))]
    steps += [ask(call("commit", seat=1)) for _ in range(3)]
    model = ScriptedModel([*steps, "done"])
    agent = agent_of(model, reserve, commit)
    result = run_sync(r, agent, "go")
    for number in range(3):
        assert result.interruptions
        (waits,) = r.approvals.pending()
        if number < 2:
            r.approvals.reject(waits.id, by="ann", reason="ask again later")
        else:
            r.approvals.approve(waits.id, by="ann")
        result = resume(r, waits.id, agent)
    assert result.final_output == "done"
    assert effects == ["reserve 1", "commit 1"]
    assert len(model.seen) == 5, "no turn was asked, or paid, twice"


# -- signals pass through whatever catches errors


@pytest.mark.parametrize("handling", [True, False])
@pytest.mark.parametrize(
    ("raised", "state"),
    [(KeyboardInterrupt(), "unknown"), (asyncio.CancelledError(), "unknown"),
     (Halted("stopped"), "unknown"), (ValueError("down"), "unknown")],
    ids=["interrupt", "cancelled", "halted", "plain"],
)  # fmt: skip
def test_only_a_plain_error_may_become_text(rein, raised, state, handling):
    def fail(n: int) -> str:
        """Fail."""
        raise raised

    settings: Any = {} if handling else {"failure_error_function": None}
    tool = function_tool(fail, **settings)
    r = rein()
    model = ScriptedModel([ask(call("fail", n=1)), "told"])
    plain = isinstance(raised, ValueError)
    # The SDK's own policy for errors takes a tool that raises a cancellation for a failed one.
    told = plain or isinstance(raised, asyncio.CancelledError)
    if told and handling:
        assert asyncio.run(_run(r, agent_of(model, tool))).final_output == "told"
    else:
        with pytest.raises(BaseException) as ended:
            asyncio.run(_run(r, agent_of(model, tool)))
        cause = ended.value.__cause__ if plain else ended.value
        assert isinstance(cause, type(raised))
    assert [v["state"] for v in views(r, "outcome") if "error" in v] == [state]


async def _run(rein: Any, agent: Any) -> Any:
    from checkrein_integrations.openai_agents import run

    return await run(rein, agent, "go")


def test_pauses_and_denials_do_not_open_a_circuit(rein, tmp_path):
    def rule(c: Any) -> Any:
        return Ask("a payment") if c.arguments["amount"] > 10 else Deny("too small")

    r = rein(
        Pre(rule),
        CircuitBreaker(threshold=1),
        store=f"sqlite:///{tmp_path}/c.db",
    )
    model = ScriptedModel([ask(call("pay", amount=1)), ask(call("pay", amount=20)), "done"])
    agent = agent_of(model, pay)
    assert run_sync(r, agent, "go").interruptions
    (waits,) = r.approvals.pending()
    r.approvals.approve(waits.id, by="ann")
    assert resume(r, waits.id, agent).final_output == "done"
    assert effects == [20]
    assert "error" not in {k for v in views(r, "outcome") for k in v}


# -- a check that fails in whatever way blocks


class Later(Plugin):
    async def pre_call(self, call: Any) -> Any:
        await asyncio.sleep(0)
        return Deny("not now") if call.kind == "tool" else None


@pytest.mark.parametrize("how", ["policy", "own error", "async"])
def test_a_denial_of_any_kind_blocks_and_the_record_says_so(go, rein, how):
    def broken(c: Any) -> Any:
        raise RuntimeError("a bug")

    plugin = {
        "policy": Pre(lambda c: Deny("not now")), "own error": Pre(broken), "async": Later()
    }[how]  # fmt: skip
    r = rein(plugin)
    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    go(r, agent_of(model, pay))
    assert effects == []
    (denied,) = views(r, "denied")
    assert denied["code"] == ("check_failed" if how == "own error" else "denied")
    assert "p-5" not in outputs(model)[0]


def test_a_redacted_result_replaces_the_real_one(go, rein):
    r = rein(Rules(post=lambda c, o: Replace("[hidden]")))
    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    go(r, agent_of(model, pay))
    assert effects == [5]
    assert outputs(model) == ["[hidden]"]


# -- identical calls


def test_a_second_identical_write_on_purpose_runs(go, rein):
    model = ScriptedModel([ask(call("pay", amount=10)), ask(call("pay", amount=10)), "done"])
    go(rein(), agent_of(model, pay))
    assert effects == [10, 10]


def test_an_answer_from_a_cache_is_labelled_and_passes_the_policy(go, rein):
    @function_tool
    def read(key: str) -> str:
        """Read."""
        effects.append(key)
        return f"value of {key}"

    seen: list[str] = []
    r = rein(
        Pre(lambda c: seen.append(c.name)), IdempotencyGuard(tools=["read"], duplicates="answer")
    )
    r.declare("read", effect="read", idempotent=True)
    again = [ask(call("read", key="x")) for _ in range(2)]
    model = ScriptedModel([*again, "done"])
    go(r, agent_of(model, read))
    assert effects == ["x"]
    assert outputs(model) == ["value of x"] * 2
    (answered,) = views(r, "answered")
    assert answered["source"]
    assert seen.count("read") >= 2, "an answer passes the checks as well"


# -- an answer that is rejected and asked again


@pytest.mark.parametrize("limit", [2])
def test_a_validator_that_rejects_always_ends_with_one_typed_error(go, rein, limit):
    def post(c: Any, outcome: Any) -> Any:
        if outcome.error is not None or "good" in str(outcome.value):
            return None
        return Retry(0) if c.attempt <= limit else Deny("never good", rule="validator")

    good = ScriptedModel(["bad", "good"])
    r = rein(Rules(post=post, kind="model"))
    assert go(r, agent_of(good)).result.final_output == "good"
    assert len(good.seen) == 2
    never = ScriptedModel(["bad"] * 9)
    with pytest.raises(Denied, match="never good"):
        go(r, agent_of(never))
    assert len(never.seen) == limit + 1
    session = r.store.sessions().rows[0].id
    assert r.read(session).spend().tokens == 15 * (limit + 1), "every attempt is on the bill"


def test_a_validator_that_breaks_fails_closed(go, rein):
    def post(c: Any, outcome: Any) -> Any:
        raise RuntimeError("a bug of the validator")

    with pytest.raises(Denied):
        go(rein(Rules(post=post, kind="model")), agent_of(ScriptedModel(["fine"])))


# -- checks come before effects, whatever agent acts


def test_a_slow_check_that_trips_comes_before_the_first_effect(go, rein):
    async def slow(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asyncio.sleep(0.05)
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    agent = agent_of(model, pay, input_guardrails=[InputGuardrail(slow)])
    r = rein(Budget(tokens=1000))
    with pytest.raises(InputGuardrailTripwireTriggered):
        go(r, agent)
    assert effects == []
    session = r.store.sessions().rows[0].id
    assert r.read(session).spend().tokens == 15 * len(model.seen)


def test_one_policy_holds_for_every_agent_and_the_record_names_who_acted(go, rein):
    b = agent_of(ScriptedModel([ask(call("pay", amount=5)), "b done"]), pay, name="b")
    helper = agent_of(ScriptedModel([ask(call("pay", amount=6)), "c done"]), pay, name="c")
    tool = helper.as_tool("helper", "Help.")
    steps = [ask(call("helper", input="x")), ask(call("transfer_to_b")), "never"]
    a = agent_of(ScriptedModel(steps), tool, name="a", handoffs=[b])
    r = rein(Pre(lambda c: Deny("no payments") if c.name == "pay" else None))
    assert go(r, a).result.final_output == "b done"
    assert effects == []
    denied = views(r, "denied")
    assert sorted(view["labels"]["agent"] for view in denied) == ["b", "c"]


@pytest.mark.parametrize("road", ["native", "mcp", "sub-agent", "later"])
@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_the_same_write_is_decided_the_same_on_every_road(rein, tmp_path, road, decision):
    verdict = Ask("a write") if decision == "ask" else Deny("no writes")
    r = rein(
        Pre(lambda c: verdict if c.name == "pay" else None),
        store=f"sqlite:///{tmp_path}/c.db",
    )
    steps: list[Any] = [ask(call("pay", amount=5)), "done"]
    agent = agent_of(ScriptedModel(steps))
    if road == "native":
        agent.tools = [pay]
    elif road == "mcp":
        agent.mcp_servers = [Server()]
    elif road == "sub-agent":
        inner = agent_of(ScriptedModel(steps), pay, name="inner")
        agent = agent_of(
            ScriptedModel([ask(call("helper", input="x")), "done"]),
            inner.as_tool("helper", "Help."),
        )
    else:
        # Registered after the start, where a policy could be late.
        agent = supervise_agent(r, agent)
        agent.tools.append(pay)
    result = run_sync(r, agent, "go")
    assert effects == []
    if decision == "ask":
        assert result.interruptions
        assert [v["tool"] for v in views(r, "approval_requested")] == ["pay"]
    else:
        assert result.final_output == "done"
        assert [v["code"] for v in views(r, "denied")] == ["denied"]


# -- blocked answers


def test_a_blocked_answer_is_in_no_history(go, rein, tmp_path):
    phrase = "a forbidden phrase"
    kept = SQLiteSession("s", str(tmp_path / "sdk.db"))
    r = rein(Rules(post=lambda c, o: Deny("no") if phrase in str(o.value) else None, kind="model"))
    model = ScriptedModel([f"this is {phrase} and more"], chunk_size=5)
    with pytest.raises(Denied) as ended:
        go(r, agent_of(model), session=kept)
    kept.close()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"go" in written
    assert phrase.encode() not in written
    assert phrase not in str(ended.value)


# -- two adapters on one agent


@pytest.mark.parametrize("form", ["chat", "responses"])
def test_a_supervised_client_behind_a_supervised_agent_is_judged_once(rein, form):
    replies = [Reply(None, [ToolCall("pay", {"amount": 5}, "c1")]), Reply("mail x@example.org")]
    r = rein(Budget(calls=9), Redaction())

    async def go(streamed: bool) -> Any:
        with OpenAIServer(replies) as server:
            async with AsyncOpenAI(base_url=server.url, api_key="none") as plain:
                client = supervise_client(r, plain)
                kind: Any = OpenAIChatCompletionsModel if form == "chat" else OpenAIResponsesModel
                settings = ModelSettings(include_usage=True)
                model = kind("gpt-4o-mini", client)
                agent = agent_of(model, pay, model_settings=settings)
                from checkrein_integrations.openai_agents import run, run_streamed

                config = RunConfig(tracing_disabled=True)
                if not streamed:
                    return await run(r, agent, "go", run_config=config)
                result = run_streamed(r, agent, "go", run_config=config)
                async for _ in result.stream_events():
                    pass
                return result

    for streamed in (False, True):
        assert asyncio.run(go(streamed)).final_output == "mail [EMAIL]"
        session = r.store.sessions().rows[0].id
        assert r.read(session).spend().calls == 3
        intents = r.store.events(session=session, kinds=("intent",))
        assert [e.view["kind"] for e in intents] == ["model", "tool", "model"]
        assert r.read(session).spend().tokens == 36
    assert effects == [5, 5]


# -- whose run it is


def test_a_token_of_another_tenant_leads_nowhere(rein, tmp_path):
    r = rein(Pre(lambda c: Ask("a payment")), store=f"sqlite:///{tmp_path}/c.db")
    model = ScriptedModel([ask(call("pay", amount=50)), "done"])
    agent = agent_of(model, pay)
    with r.session(tenant="acme"):
        assert run_sync(r, agent, "go").interruptions
    (waits,) = r.approvals.pending()
    r.approvals.approve(waits.id, by="ann")
    with r.session(tenant="other"), pytest.raises(Conflict, match="another tenant"):
        resume(r, waits.id, agent)
    assert (effects, len(model.seen)) == ([], 1)
    assert resume(r, waits.id, agent).final_output == "done"
    assert effects == [50]


def test_a_token_that_nobody_has_decided_waits(rein, tmp_path):
    r = rein(Pre(lambda c: Ask("a payment")), store=f"sqlite:///{tmp_path}/c.db")
    agent = agent_of(ScriptedModel([ask(call("pay", amount=50)), "done"]), pay)
    run_sync(r, agent, "go")
    (waits,) = r.approvals.pending()
    with pytest.raises(ApprovalPending):
        resume(r, waits.id, agent)
    assert effects == []
    assert "approval_decided" not in kinds(r)


# -- tools that do not exist


def test_a_tool_that_does_not_exist_is_judged_and_recorded(go, rein):
    own = RunConfig(
        tracing_disabled=True,
        tool_not_found_behavior="return_error_to_model",
        tool_error_formatter=lambda args: f"own words: {args.tool_name}",
    )
    r = rein(Pre(lambda c: Deny("no such road") if c.name == "secret" else None))
    model = ScriptedModel([ask(call("vanish", x=1)), ask(call("secret")), "done"])
    assert go(r, agent_of(model, pay), run_config=own).result.final_output == "done"
    first, second = outputs(model)
    assert first == "own words: vanish"
    assert second.startswith("[denied] secret was not run: no such road")
    assert [v["name"] for v in views(r, "intent") if v["kind"] == "tool"] == ["vanish"]
    assert [v["state"] for v in views(r, "outcome")] == ["done", "not_done", "done", "done"]
    assert [v["name"] for v in views(r, "denied")] == ["secret"]
    assert effects == []
