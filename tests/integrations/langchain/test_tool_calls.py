"""Tool calls of an agent: verdicts, results, errors and what other middleware makes of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain.tools import InjectedToolCallId, ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from checkrein import Answer, Deny, Hold, Replace, Rewrite
from checkrein.errors import BudgetExceeded, Denied, SessionClosed
from checkrein_integrations.langchain import CheckreinMiddleware
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, effects, kinds, states


@tool
def pay(amount: int, note: str = "none") -> dict[str, Any]:
    """Pay an amount."""
    effects.append((amount, note))
    return {"paid": amount}


@tool
async def apay(amount: int) -> str:
    """Pay, as a coroutine."""
    effects.append(amount)
    return f"paid {amount}"


def script(*calls: Any, then: str = "done") -> ScriptedChatModel:
    return ScriptedChatModel(script=[ai("", *calls), ai(then), ai("never reached")])


def test_allowed(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    texts = agent(script(call("pay", amount=1)), [pay], CheckreinMiddleware(r)).texts()
    assert texts == ["go", "", '{"paid": 1}', "done"]
    assert effects == [(1, "none")]
    assert states(r) == [("COMPLETED", "none")]
    names = [k for k, _ in kinds(r)]
    assert names == ["session_started", *["intent", "outcome"] * 3, "session_ended"]


def test_plugins_see_defaults_and_the_tools_own_value(agent: Any, rein: Any) -> None:
    seen: list[Any] = []
    rules = Rules(lambda c: seen.append(dict(c.arguments)), lambda c, o: seen.append(o.value))
    agent(script(call("pay", amount=1)), [pay], CheckreinMiddleware(rein(rules))).run()
    assert seen == [{"amount": 1, "note": "none"}, {"paid": 1}]


def test_denial_is_told_to_the_model_and_the_run_goes_on(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("too much", rule="limit")))
    result = agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(r)).run()
    message = result["messages"][2]
    assert message.status == "error"
    assert message.content.startswith("[denied] pay was not run: too much.")
    assert result["messages"][3].content == "done"
    assert effects == []
    assert [k for k, n in kinds(r) if n == "pay"] == ["denied"]


def test_halt_ends_the_run_and_rolls_back(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("stop", halt=True)))
    with pytest.raises(Denied, match="stop"):
        agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(r)).run()
    assert effects == []
    assert states(r) == [("FAILED", "rolled_back")]


@pytest.mark.parametrize(
    "outside",
    [
        ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False),
        ToolErrorMiddleware(on_error=lambda e, r: "eaten"),
    ],
)
def test_middleware_outside_does_not_take_up_a_halt(agent: Any, rein: Any, outside: Any) -> None:
    r = rein(Rules(lambda c: Hold("all", 1, "calls", 0, settle="keep", halt=True)))
    with pytest.raises(BudgetExceeded):
        agent(script(call("pay", amount=9)), [pay], outside, CheckreinMiddleware(r)).run()
    assert effects == []
    assert [k for k, n in kinds(r) if n == "pay"] == ["denied"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_denial_that_the_tool_raises_is_not_retried(agent: Any, rein: Any, inside: bool) -> None:
    @tool
    def spend() -> str:
        """Spend."""
        effects.append(1)
        raise BudgetExceeded("empty", account="x")

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    ours = CheckreinMiddleware(rein(Rules()))
    chain = [ours, retry] if inside else [retry, ours]
    with pytest.raises(BudgetExceeded):
        agent(script(call("spend")), [spend], *chain).run()
    assert effects == [1]


def test_rewrite_changes_what_runs(agent: Any, rein: Any) -> None:
    rules = Rules(lambda c: Rewrite(c.replace(arguments={"amount": 2, "note": "cut"})))
    texts = agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(rein(rules))).texts()
    assert effects == [(2, "cut")]
    assert texts[2] == '{"paid": 2}'


def test_answer_runs_nothing(agent: Any, rein: Any) -> None:
    rules = Rules(lambda c: Answer({"paid": 0}, source="dry run"))
    result = agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(rein(rules))).run()
    assert effects == []
    assert result["messages"][2].content == '{"paid": 0}'
    assert result["messages"][2].status == "success"


def test_replace_changes_what_the_model_reads(agent: Any, rein: Any) -> None:
    rules = Rules(post=lambda c, o: Replace({"paid": "hidden"}))
    result = agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(rein(rules))).run()
    assert effects == [(9, "none")]
    assert result["messages"][2].content == '{"paid": "hidden"}'


def test_replace_does_not_bring_back_what_a_middleware_inside_took_out(
    agent: Any, rein: Any
) -> None:
    class Inside(AgentMiddleware):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request).model_copy(update={"content": "masked 4111"})

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return (await handler(request)).model_copy(update={"content": "masked 4111"})

    rules = Rules(post=lambda c, o: Replace(str(o.value).replace("4111", "CARD")))
    chain = [CheckreinMiddleware(rein(rules)), Inside()]
    texts = agent(script(call("pay", amount=9)), [pay], *chain).texts()
    assert texts[2] == "masked CARD"


def test_async_tool(rein: Any) -> None:
    from langchain.agents import create_agent

    graph = create_agent(
        script(call("apay", amount=3)), [apay], middleware=[CheckreinMiddleware(rein(Rules()))]
    )
    result = asyncio.run(graph.ainvoke({"messages": [("user", "go")]}))
    assert result["messages"][2].content == "paid 3"
    assert effects == [3]


def test_unknown_tool_is_seen_and_nothing_is_to_undo(agent: Any, rein: Any) -> None:
    seen: list[str] = []
    r = rein(Rules(lambda c: seen.append(c.name)))
    result = agent(script(call("launch")), [pay], CheckreinMiddleware(r)).run()
    assert seen == ["launch"]
    assert "not a valid tool" in result["messages"][2].content
    outcome = [e for e in r.store.events(kinds=("outcome",)) if e.view["state"] == "not_done"]
    assert len(outcome) == 1


def test_unknown_tool_can_be_denied(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("no such thing")))
    result = agent(script(call("launch")), [pay], CheckreinMiddleware(r)).run()
    assert result["messages"][2].content.startswith("[denied] launch")


def test_arguments_that_do_not_fit_run_nothing(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    result = agent(script(call("pay", amount="many")), [pay], CheckreinMiddleware(r)).run()
    assert result["messages"][2].status == "error"
    assert "amount" in result["messages"][2].content
    assert effects == []
    assert [e.view["state"] for e in r.store.events(kinds=("outcome",))][1] == "not_done"


def test_malformed_json_never_becomes_a_call(agent: Any, rein: Any) -> None:
    broken = ai("")
    broken.invalid_tool_calls = [
        {"name": "pay", "args": "{", "id": "c1", "error": "x", "type": "invalid_tool_call"}
    ]
    r = rein(Rules())
    agent(ScriptedChatModel(script=[broken, ai("done")]), [pay], CheckreinMiddleware(r)).run()
    assert effects == []
    assert ("intent", "pay") not in kinds(r)


def test_return_direct_denial_ends_the_run(agent: Any, rein: Any) -> None:
    @tool(return_direct=True)
    def answer(text: str) -> str:
        """Answer."""
        return text

    model = script(call("answer", text="x"))
    rules = Rules(lambda c: Deny("not that"))
    texts = agent(model, [answer], CheckreinMiddleware(rein(rules))).texts()
    assert texts[-1].startswith("[denied] answer was not run: not that")
    assert len(model.seen) == 1


def test_command_results_keep_their_update_and_can_be_replaced(agent: Any, rein: Any) -> None:
    @tool
    def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note something."""
        message = ToolMessage(f"noted {text}", tool_call_id=tool_call_id)
        return Command(update={"messages": [message]})

    rules = Rules(post=lambda c, o: Replace(o.value.upper()))
    texts = agent(script(call("note", text="x")), [note], CheckreinMiddleware(rein(rules))).texts()
    assert texts == ["go", "", "NOTED X", "done"]


def test_injected_runtime_is_no_argument(agent: Any, rein: Any) -> None:
    @tool
    def where(city: str, runtime: ToolRuntime) -> str:
        """Where."""
        return f"{city} {len(runtime.state['messages'])}"

    seen: list[Any] = []
    rules = Rules(lambda c: seen.append(dict(c.arguments)))
    model = script(call("where", city="Oslo"))
    texts = agent(model, [where], CheckreinMiddleware(rein(rules))).texts()
    assert seen == [{"city": "Oslo"}]
    assert texts[2] == "Oslo 2"


def test_plain_errors_pass_unchanged_and_are_unknown(agent: Any, rein: Any) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    r = rein(Rules())
    with pytest.raises(ValueError, match="broken") as caught:
        agent(script(call("fail")), [fail], CheckreinMiddleware(r)).run()
    assert not isinstance(caught.value, GraphBubbleUp)
    last = r.store.events(kinds=("outcome",))[-1]
    assert (last.view["state"], last.view["error"]["type"]) == ("unknown", "ValueError")


def test_error_turned_to_text_by_the_tool_is_still_unknown(agent: Any, rein: Any) -> None:
    def act() -> str:
        raise ToolException("half done")

    handled = StructuredTool.from_function(act, name="act", description="x", handle_tool_error=True)
    r = rein(Rules())
    result = agent(script(call("act")), [handled], CheckreinMiddleware(r)).run()
    assert result["messages"][2].content == "half done"
    assert r.store.events(kinds=("outcome",))[1].view["state"] == "unknown"


def test_error_turned_to_text_outside_lets_the_run_go_on(agent: Any, rein: Any) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    r = rein(Rules())
    chain = [ToolErrorMiddleware(on_error=lambda e, r: f"told: {e}"), CheckreinMiddleware(r)]
    texts = agent(script(call("fail")), [fail], *chain).texts()
    assert texts[2:] == ["told: broken", "done"]
    assert states(r) == [("COMPLETED", "none")]


@pytest.mark.parametrize("inside", [False, True])
def test_retry_middleware_does_not_repeat_what_is_in_doubt(
    agent: Any, rein: Any, inside: bool
) -> None:
    @tool
    def charge(amount: int) -> str:
        """Charge."""
        effects.append(amount)
        raise TimeoutError("no reply")

    r = rein(Rules())
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    ours = CheckreinMiddleware(r)
    chain = [ours, retry] if inside else [retry, ours]
    result = agent(script(call("charge", amount=5)), [charge], *chain).run()
    assert effects == [5]
    text = result["messages"][2].content
    assert text.startswith("[in_doubt] charge was started")
    assert "try again" not in text
    (end,) = [e for e in r.store.events(kinds=("outcome",)) if "error" in e.view]
    assert (end.view["state"], end.view["error"]["type"]) == ("unknown", "TimeoutError")


@pytest.mark.parametrize("inside", [False, True])
def test_retry_middleware_may_repeat_idempotent_tools(agent: Any, rein: Any, inside: bool) -> None:
    @tool
    def put(amount: int) -> str:
        """Put."""
        effects.append(amount)
        if len(effects) < 3:
            raise TimeoutError("no reply")
        return "put"

    r = rein(Rules())
    r.declare("put", idempotent=True)
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    ours = CheckreinMiddleware(r)
    chain = [ours, retry] if inside else [retry, ours]
    result = agent(script(call("put", amount=5)), [put], *chain).run()
    assert effects == [5, 5, 5]
    assert result["messages"][2].content == "put"


def test_at_most_two_of_four_parallel_calls(agent: Any, rein: Any) -> None:
    lock = threading.Lock()

    @tool
    def hit(n: int) -> str:
        """Hit."""
        with lock:
            effects.append(n)
        return f"hit {n}"

    r = rein(Rules(lambda c: Hold("hits", 1, "calls", 2, settle="keep")))
    model = ScriptedChatModel(
        script=[ai("", *[call("hit", n=n) for n in range(4)]), ai("done"), ai("again")]
    )
    a = agent(model, [hit], CheckreinMiddleware(r))
    messages = a.run()["messages"]
    answers = messages[2:6]
    assert len(effects) == 2
    assert [m.tool_call_id for m in answers] == [c["id"] for c in messages[1].tool_calls]
    assert sorted(m.status for m in answers) == ["error", "error", "success", "success"]
    balance = r.store.balance("hits")
    assert (balance.spent, balance.held) == (2, 0)
    again = a.run({"messages": [*messages, ("user", "more")]})
    assert again["messages"][-1].content == "again"


def test_reused_tool_call_ids_do_not_collide(agent: Any, rein: Any) -> None:
    same = ai("", call("pay", "c1", amount=1))
    model = ScriptedChatModel(script=[same, same.model_copy(), ai("done")])
    texts = agent(model, [pay], CheckreinMiddleware(rein(Rules()))).texts()
    assert len(effects) == 2
    assert texts[-1] == "done"


def test_stopped_session_ends_the_run(agent: Any, rein: Any) -> None:
    r = rein(Rules())

    @tool
    def stopper() -> str:
        """Stop."""
        r.stop(all=True)
        return "stopped"

    chain = [ToolErrorMiddleware(on_error=lambda e, r: "eaten"), CheckreinMiddleware(r)]
    with pytest.raises(SessionClosed):
        agent(script(call("stopper")), [stopper], *chain).run()


def test_undo_gets_the_tools_own_result(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("end", halt=True) if c.name == "bad" else None))

    def refund(result: Any) -> None:
        effects.append(("refund", result["paid"]))

    r.declare("pay", undo=refund)

    @tool
    def bad() -> str:
        """Bad."""
        return ""

    model = ScriptedChatModel(script=[ai("", call("pay", amount=4)), ai("", call("bad"))])
    with pytest.raises(Denied):
        agent(model, [pay, bad], CheckreinMiddleware(r)).run()
    assert effects == [(4, "none"), ("refund", 4)]
    assert states(r) == [("FAILED", "rolled_back")]


def test_undo_may_be_another_langchain_tool(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("end", halt=True) if c.name == "bad" else None))

    @tool
    def unpay(amount: int) -> str:
        """Take a payment back."""
        effects.append(("unpay", amount))
        return ""

    @tool
    def bad() -> str:
        """Bad."""
        return ""

    r.declare("pay", undo="unpay")
    model = ScriptedChatModel(
        script=[ai("", call("pay", amount=4), call("unpay", amount=1)), ai("", call("bad"))]
    )
    with pytest.raises(Denied):
        agent(model, [pay, unpay, bad], CheckreinMiddleware(r)).run()
    assert ("unpay", 4) in effects


def test_rein_tool_functions_are_supervised_once(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Hold("n", 1, "calls", 10, settle="keep")))

    @tool
    @r.tool(undo=lambda amount: effects.append(("undone", amount)))
    def once(amount: int) -> str:
        """Once."""
        effects.append(amount)
        return "ok"

    agent(script(call("once", amount=7)), [once], CheckreinMiddleware(r)).run()
    assert effects == [7]
    assert r.store.balance("n").spent == 1
    assert kinds(r).count(("intent", "once")) == 1


def test_sub_agents_share_the_session(agent: Any, rein: Any) -> None:
    from langchain.agents import create_agent

    r = rein(Rules())
    inner = create_agent(
        script(call("pay", amount=2), then="inner done"), [pay], middleware=[CheckreinMiddleware(r)]
    )

    @tool
    def ask() -> str:
        """Ask another agent."""
        return str(inner.invoke({"messages": [("user", "x")]})["messages"][-1].content)

    agent(script(call("ask")), [ask], CheckreinMiddleware(r)).run()
    assert effects == [(2, "none")]
    assert states(r) == [("COMPLETED", "none")]
    events = {e.view["name"]: e for e in r.store.events(kinds=("intent",))}
    assert events["pay"].view["parent"] == events["ask"].call
