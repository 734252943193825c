"""Tools outside agents, hand-made tool nodes, and threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool, Tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import ValidationError

from checkrein import Answer, Ask, Deny, Hold, Replace, Rewrite
from checkrein.errors import BudgetExceeded, ConfigError, Denied, SessionClosed
from checkrein_integrations.langchain import (
    CheckreinMiddleware,
    resume,
    supervise_tool,
    tool_node_wrappers,
)
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, effects, kinds, states


@tool
def pay(amount: int, note: str = "none") -> dict[str, Any]:
    """Pay an amount."""
    effects.append(amount)
    return {"paid": amount}


@tool
async def apay(amount: int) -> str:
    """Pay, as a coroutine."""
    effects.append(amount)
    return f"paid {amount}"


def use(target: Any, given: Any, mode: str, config: Any = None) -> Any:
    if mode == "sync":
        return target.invoke(given, config)
    return asyncio.run(target.ainvoke(given, config))


def test_looks_like_the_tool(rein: Any) -> None:
    wrapped = supervise_tool(rein(), pay)
    assert (wrapped.name, wrapped.description) == (pay.name, pay.description)
    assert wrapped.args == pay.args
    assert isinstance(wrapped, StructuredTool)
    assert supervise_tool(wrapped.checkrein_owner.rein, wrapped) is wrapped  # type: ignore[attr-defined]


def test_allowed(rein: Any, mode: str) -> None:
    r = rein(Rules())
    with r.session() as session:
        assert use(supervise_tool(r, pay), {"amount": 1}, mode) == {"paid": 1}
    assert kinds(r, session.id)[1:3] == [("intent", "pay"), ("outcome", "done")]
    assert r.store.events(kinds=("intent",))[0].view["arguments"] == {"amount": 1, "note": "none"}


def test_denied_raises_outside_and_is_told_to_a_model(rein: Any, mode: str) -> None:
    wrapped = supervise_tool(rein(Rules(lambda c: Deny("no"))), pay)
    with pytest.raises(Denied):
        use(wrapped, {"amount": 1}, mode)
    message = use(wrapped, {**call("pay", "c1", amount=1)}, mode)
    assert message.status == "error"
    assert message.content.startswith("[denied] pay")
    assert effects == []


def test_coroutine_tool(rein: Any) -> None:
    rules = Rules(lambda c: Rewrite(c.replace(arguments={"amount": 2})))
    wrapped = supervise_tool(rein(rules), apay)
    assert use(wrapped, {"amount": 1}, "async") == "paid 2"
    assert effects == [2]


def test_answer_and_replace(rein: Any, mode: str) -> None:
    answered = supervise_tool(rein(Rules(lambda c: Answer("cached"))), pay)
    assert use(answered, {"amount": 1}, mode) == "cached"
    assert effects == []
    replaced = supervise_tool(rein(Rules(post=lambda c, o: Replace("masked"))), pay)
    assert use(replaced, {"amount": 1}, mode) == "masked"
    assert use(replaced, {**call("pay", "c1", amount=1)}, mode).content == "masked"


def test_arguments_that_do_not_fit(rein: Any, mode: str) -> None:
    r = rein(Rules())
    with pytest.raises(ValidationError):
        use(supervise_tool(r, pay), {"amount": "many"}, mode)
    assert r.store.events(kinds=("outcome",))[0].view["state"] == "not_done"


def test_string_input(rein: Any, mode: str) -> None:
    old = Tool("echo", lambda text: f"echo {text}", "Echo.")
    seen: list[Any] = []
    wrapped = supervise_tool(rein(Rules(lambda c: seen.append(list(c.arguments.values())))), old)
    assert use(wrapped, "hello", mode) == "echo hello"
    assert seen == [["hello"]]


def test_not_a_tool(rein: Any) -> None:
    with pytest.raises(ConfigError, match="BaseTool"):
        supervise_tool(rein(), print)  # type: ignore[type-var]


def test_two_reins_on_one_tool(rein: Any) -> None:
    with pytest.raises(ConfigError, match="another Rein"):
        supervise_tool(rein(), supervise_tool(rein(), pay))


def test_supervised_twice_is_charged_once(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Hold("n", 1, "calls", 9, settle="keep")))
    model = ScriptedChatModel(script=[ai("", call("pay", amount=1)), ai("done")])
    agent(model, [supervise_tool(r, pay)], CheckreinMiddleware(r)).run()
    assert effects == [1]
    assert r.store.balance("n").spent == 1
    assert kinds(r).count(("intent", "pay")) == 1


def test_rollback_undoes_a_supervised_tool(rein: Any) -> None:
    r = rein(Rules())
    r.declare("pay", undo=lambda result: effects.append(("undone", result["paid"])))
    with r.session() as session:
        use(supervise_tool(r, pay), {"amount": 4}, "sync")
        session.rollback()
    assert effects == [4, ("undone", 4)]


def graph_of(node: Any, **settings: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(**settings)


def asked(*calls: Any) -> Any:
    return {"messages": [ai("", *calls)]}


def test_hand_made_tool_node(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Deny("no") if c.arguments["amount"] > 5 else None))
    graph = graph_of(ToolNode([pay], **tool_node_wrappers(r)))
    with r.session() as session:
        result = use(graph, asked(call("pay", amount=1), call("pay", amount=9)), mode)
    texts = [m.content for m in result["messages"][1:]]
    assert texts[0] == '{"paid": 1}'
    assert texts[1].startswith("[denied]")
    assert len([k for k, n in kinds(r, session.id) if n == "pay"]) == 2


def test_tool_node_does_not_eat_a_halt(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Hold("n", 1, "calls", 0, halt=True)))
    graph = graph_of(ToolNode([pay], handle_tool_errors=True, **tool_node_wrappers(r)))
    with pytest.raises(BudgetExceeded):
        use(graph, asked(call("pay", amount=1)), mode)
    wrapped = graph_of(ToolNode([supervise_tool(r, pay)], handle_tool_errors=True))
    with pytest.raises(BudgetExceeded):
        use(wrapped, asked(call("pay", amount=1)), mode)
    assert effects == []


def test_pause_in_a_hand_made_node_does_not_repeat_siblings(rein: Any) -> None:
    r = rein(
        Rules(lambda c: Ask("large") if c.arguments["amount"] > 5 else None), approvals="store"
    )
    graph = graph_of(ToolNode([pay], **tool_node_wrappers(r)), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    with r.session():
        graph.invoke(asked(call("pay", "a", amount=1), call("pay", "b", amount=9)), config)
    assert effects == [1]
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    texts = [m.content for m in resume(r, token, graph)["messages"][1:]]
    assert texts == ['{"paid": 1}', '{"paid": 9}']
    assert effects == [1, 9]
    assert states(r) == [("COMPLETED", "none")]


def test_supervised_tool_pauses_its_graph(rein: Any) -> None:
    r = rein(Rules(lambda c: Ask("large")), approvals="store")
    graph = graph_of(ToolNode([supervise_tool(r, pay)]), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    with r.session():
        graph.invoke(asked(call("pay", "b", amount=9)), config)
    assert effects == []
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    assert resume(r, token, graph)["messages"][1].content == '{"paid": 9}'
    assert effects == [9]


# -- threads


def spent(r: Any, session: str) -> int:
    balance = r.store.balance(f"calls/{session}")
    return 0 if balance is None else balance.spent


@pytest.fixture
def metered(rein: Any) -> Any:
    def make(**settings: Any) -> Any:
        return rein(
            Rules(lambda c: Hold(f"calls/{c.session}", 1, "calls", 9, settle="keep")), **settings
        )

    return make


def test_to_thread_keeps_the_session(metered: Any) -> None:
    r = metered()
    wrapped = supervise_tool(r, pay)

    async def run() -> str:
        async with r.session() as session:
            await asyncio.to_thread(wrapped.invoke, {"amount": 1})
        return str(session.id)

    assert spent(r, asyncio.run(run())) == 1


@pytest.mark.parametrize("how", ["executor", "pool", "thread"])
def test_threads_without_context_are_unattributed_never_free(
    metered: Any, how: str, caplog: Any
) -> None:
    r = metered()
    wrapped = supervise_tool(r, pay)

    def elsewhere(fn: Any) -> None:
        if how == "pool":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(fn).result()
        elif how == "thread":
            thread = threading.Thread(target=fn)
            thread.start()
            thread.join()
        else:

            async def run() -> None:
                await asyncio.get_running_loop().run_in_executor(None, fn)

            asyncio.run(run())

    with r.session() as session:
        elsewhere(lambda: wrapped.invoke({"amount": 1}))
        assert spent(r, session.id) == 0
        (account,) = r.store.balances("calls/unattributed")
        assert account.spent == 1
        elsewhere(session.bind(lambda: wrapped.invoke({"amount": 2})))
        assert spent(r, session.id) == 1
    assert "outside any session" in caplog.text


def test_threads_without_context_can_be_refused(metered: Any) -> None:
    r = metered(unattributed="refuse")
    wrapped = supervise_tool(r, pay)
    with r.session(), ThreadPoolExecutor(1) as pool:
        future = pool.submit(wrapped.invoke, {"amount": 1})
        with pytest.raises(SessionClosed, match=r"session\.bind"):
            future.result()
    assert effects == []


def test_threads_of_the_framework_keep_the_session(metered: Any, mode: str) -> None:
    r = metered()
    calls = [call("pay", amount=n) for n in range(3)]
    model = ScriptedChatModel(script=[ai("", *calls), ai("done")])
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(r)])
    with r.session() as session:
        use(graph, {"messages": [("user", "go")]}, mode)
    assert spent(r, session.id) == 3
