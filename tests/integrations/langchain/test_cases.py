"""Faults that people who run agents have reported, on every road at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, PIIMiddleware, ToolErrorMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeCancelledError
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from checkrein import Deny
from checkrein.errors import BudgetExceeded, Denied
from checkrein_integrations.langchain import (
    CheckreinCallbackHandler,
    CheckreinMiddleware,
    supervise_tool,
    tool_node_wrappers,
)
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call
from checkrein_plugins.budget import Budget

from .conftest import Rules, effects, kinds

MAIL = "bob@example.com"


@tool
def write(text: str) -> str:
    """Write."""
    effects.append(text)
    return f"wrote {text}"


def script(*calls: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[ai("", *calls), ai("done")])


def run(graph: Any, mode: str, config: Any = None) -> Any:
    given = {"messages": [("user", "go")]}
    if mode == "sync":
        return graph.invoke(given, config)
    return asyncio.run(graph.ainvoke(given, config))


# -- one policy, whatever road leads to the tool


def native(r: Any, mode: str) -> None:
    graph = create_agent(script(call("write", text="x")), [write],
                         middleware=[CheckreinMiddleware(r)])  # fmt: skip
    run(graph, mode)


def in_a_sub_agent(r: Any, mode: str) -> None:
    inner = create_agent(script(call("write", text="x")), [write],
                         middleware=[CheckreinMiddleware(r)])  # fmt: skip

    @tool
    def delegate(task: str) -> str:
        """Hand on."""
        return str(run(inner, "sync")["messages"][-1].content)

    outer = create_agent(script(call("delegate", task="t")), [delegate],
                         middleware=[CheckreinMiddleware(r)])  # fmt: skip
    run(outer, mode)


def in_a_sub_agent_without_middleware(r: Any, mode: str) -> None:
    inner = create_agent(script(call("write", text="x")), [write])
    with pytest.raises(Denied):
        run(inner, mode, {"callbacks": [CheckreinCallbackHandler(r)]})


def registered_later(r: Any, mode: str) -> None:
    """A middleware inside ours brings a tool that the agent was not made with."""

    class Finds(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=[*request.tools, write]))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(tools=[*request.tools, write]))

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tool=write))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(tool=write))

    graph = create_agent(script(call("write", text="x")), [],
                         middleware=[CheckreinMiddleware(r), Finds()])  # fmt: skip
    run(graph, mode)


def in_a_node(r: Any, mode: str) -> None:
    from langgraph.graph import END, START, MessagesState, StateGraph

    asked = ai("", call("write", text="x"))
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([write], **tool_node_wrappers(r)))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    compiled = graph.compile()
    given: Any = {"messages": [asked]}
    if mode == "sync":
        compiled.invoke(given)
    else:
        asyncio.run(compiled.ainvoke(given))


def by_hand(r: Any, mode: str) -> None:
    supervised = supervise_tool(r, write)

    def use() -> Any:
        if mode == "sync":
            return supervised.invoke({"text": "x"})
        return asyncio.run(supervised.ainvoke({"text": "x"}))

    with pytest.raises(Denied):
        use()


ROADS = [native, in_a_sub_agent, in_a_sub_agent_without_middleware, registered_later, in_a_node,
         by_hand]  # fmt: skip


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
def test_every_road_to_a_tool_gets_the_same_decision_and_one_record(
    rein: Any, mode: str, road: Any
) -> None:
    r = rein(Rules(lambda c: Deny("no writing", rule="ro") if c.name == "write" else None))
    with r.session(on_error="keep"):
        road(r, mode)
    assert effects == []
    records = [e for e in r.store.events(limit=100) if e.view.get("name") == "write"]
    assert [(e.kind, e.view["rule"]) for e in records] == [("denied", "ro")]


# -- what passes an error handler, and how it is recorded


@tool
def pauses(text: str) -> str:
    """Pause."""
    return str(interrupt("well?"))


ENDS: dict[str, Any] = {
    "paused": None,
    "cancelled": asyncio.CancelledError,
    "interrupted": KeyboardInterrupt,
    "denied": lambda: Denied("not here"),
    "error": lambda: ValueError("plain"),
}


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("what", ENDS)
def test_only_plain_errors_become_text(rein: Any, mode: str, what: str, handled: bool) -> None:
    """Pause, cancellation and denial pass a broad `except`, and are recorded as what they are."""
    raised = ENDS[what]

    @tool
    def fails(text: str) -> str:
        """Fail."""
        raise raised()

    r = rein()
    chosen = pauses if what == "paused" else fails
    chain: list[Any] = [CheckreinMiddleware(r)]
    if handled:
        chain.insert(0, ToolErrorMiddleware(on_error=lambda e, request: f"told: {e}"))
    graph = create_agent(script(call(chosen.name, text="x")), [chosen], middleware=chain,
                         checkpointer=InMemorySaver())  # fmt: skip
    config = {"configurable": {"thread_id": "t"}}
    errors = {"cancelled": NodeCancelledError, "denied": Denied,
              "interrupted": KeyboardInterrupt, "error": ValueError}  # fmt: skip
    if what == "paused":
        assert "__interrupt__" in run(graph, mode, config)
    elif what == "error" and handled:
        assert run(graph, mode, config)["messages"][2].content == "told: plain"
    else:
        with pytest.raises(errors[what]):
            run(graph, mode, config)
    (ended,) = [e.view["ended"] for e in r.store.events(kinds=("outcome",)) if "ended" in e.view]
    assert ended == {"interrupted": "cancelled"}.get(what, what)


# -- a limit is the end of a run, not a text


@pytest.mark.parametrize("inside", [False, True])
def test_a_used_up_budget_ends_the_run_under_a_retrying_middleware(
    rein: Any, mode: str, inside: bool
) -> None:
    from langchain.agents.middleware import ModelRetryMiddleware, ToolRetryMiddleware

    r = rein(Budget(tokens=20, estimate_tokens=15))
    tries: Any = {"max_retries": 2, "initial_delay": 0, "jitter": False}
    retries = [ToolRetryMiddleware(**tries), ModelRetryMiddleware(**tries)]
    ours = CheckreinMiddleware(r)
    model = ScriptedChatModel(script=[ai("", call("write", text="x")), ai("never"), ai("never")])
    chain = [ours, *retries] if inside else [*retries, ours]
    with pytest.raises(BudgetExceeded):
        run(create_agent(model, [write], middleware=chain), mode)
    assert (effects, len(model.seen)) == (["x"], 1)
    assert [k for k, n in kinds(r) if n == "scripted-1"].count("denied") == 1


# -- beside a middleware that redacts by itself


@pytest.mark.parametrize("inside", [False, True])
def test_beside_the_frameworks_own_redaction(rein: Any, mode: str, inside: bool) -> None:
    """What PIIMiddleware takes out stays out of what the model, our plugins and journal see."""

    @tool
    def find(who: str) -> str:
        """Find somebody."""
        return f"{who} is {MAIL}"

    seen: list[Any] = []
    r = rein(Rules(lambda c: seen.append(str(c.arguments)), kind="model"))
    pii = PIIMiddleware("email", apply_to_input=True, apply_to_tool_results=True)
    ours = CheckreinMiddleware(r)
    model = script(call("find", who="bob"))
    graph = create_agent(model, [find], middleware=[ours, pii] if inside else [pii, ours])
    messages = run(graph, mode)["messages"]
    (answer,) = [m for m in messages if isinstance(m, ToolMessage)]
    assert MAIL not in answer.content
    assert MAIL not in model.sent
    assert MAIL not in str(seen)
    asked = [e.view for e in r.store.events(kinds=("intent",)) if e.view["kind"] == "model"]
    assert MAIL not in str(asked)
