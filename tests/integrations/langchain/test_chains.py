"""Outside agents: LCEL chains, retrievers, and several adapters on one road."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool

from checkrein import Deny, Hold, Rein, Replace
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein_integrations.langchain import (
    CheckreinCallbackHandler,
    CheckreinMiddleware,
    supervise_tool,
)
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, effects, kinds


class Shelf(BaseRetriever):
    """Finds what it is asked for."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        effects.append(query)
        if query == "broken":
            raise OSError("no shelf")
        return [Document(f"all about {query}"), Document("mail bob@example.com")]


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    return f"paid {amount}"


def chain_of(model: Any) -> Any:
    """The usual chain: find, fill in, ask, read."""
    prompt = ChatPromptTemplate.from_messages([("system", "use {found}"), ("user", "{question}")])
    found = Shelf() | (lambda documents: " ".join(d.page_content for d in documents))
    return {"found": found, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()


def use(target: Any, given: Any, mode: str, r: Rein | None = None) -> Any:
    config: Any = {"callbacks": [CheckreinCallbackHandler(r)]} if r is not None else None
    if mode == "sync":
        return target.invoke(given, config)
    return asyncio.run(target.ainvoke(given, config))


def test_a_chain_is_recorded_and_charged(rein: Any, mode: str) -> None:
    r = rein()
    with r.session() as session:
        assert use(chain_of(ScriptedChatModel(script=[ai("an answer")])), "cats", mode, r) == (
            "an answer"
        )
    assert [(k, n) for k, n in kinds(r) if k == "intent"] == [
        ("intent", "Shelf"), ("intent", "scripted-1")
    ]  # fmt: skip
    events = list(session.events())
    read = next(e for e in events if e.kind == "intent" and e.view["name"] == "Shelf")
    assert (read.view["effect"], read.view["arguments"]) == ("read", {"query": "cats"})
    asked = next(e for e in events if e.kind == "intent" and e.view["name"] == "scripted-1")
    assert "all about cats" in str(asked.view["arguments"]["system"])
    assert session.spend().tokens == 15


@pytest.mark.parametrize("refused", ["Shelf", "scripted-1"])
def test_a_refused_step_ends_the_chain(rein: Any, mode: str, refused: str) -> None:
    def rule(c: Any) -> Any:
        return Deny("closed", rule="closed") if c.name == refused else None

    r = rein(Rules(rule, kind="tool" if refused == "Shelf" else "model"))
    model = ScriptedChatModel(script=[ai("never")])
    with pytest.raises(Denied, match="closed"), r.session():
        use(chain_of(model), "cats", mode, r)
    assert model.seen == []
    assert effects == ([] if refused == "Shelf" else ["cats"])
    assert [n for k, n in kinds(r) if k == "denied"] == [refused]


def test_a_chain_in_a_batch_keeps_to_a_limit(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Hold("m", 1, "calls", limit=2, settle="keep"), kind="model"))
    chain = chain_of(ScriptedChatModel(script=[ai("a"), ai("b"), ai("c")]))
    config: Any = {"callbacks": [CheckreinCallbackHandler(r)]}
    with r.session(on_error="keep"):
        if mode == "sync":
            got = chain.batch(["x", "y", "z"], config, return_exceptions=True)
        else:
            got = asyncio.run(chain.abatch(["x", "y", "z"], config, return_exceptions=True))
    assert sum(isinstance(one, BudgetExceeded) for one in got) == 1
    assert sum(isinstance(one, str) for one in got) == 2


def test_a_retriever_that_fails_is_recorded(rein: Any, mode: str) -> None:
    r = rein()
    with pytest.raises(OSError, match="no shelf"), r.session():
        use(Shelf(), "broken", mode, r)
    assert kinds(r)[1:3] == [("intent", "Shelf"), ("outcome", "unknown")]


def test_a_result_of_a_retriever_that_should_be_replaced_is_withheld(rein: Any, mode: str) -> None:
    r = rein(Rules(post=lambda call, outcome: Replace("hidden")))
    with pytest.raises(ConfigError, match="replaces the result of"), r.session():
        use(Shelf(), "cats", mode, r)


def test_a_retriever_as_a_supervised_tool_may_be_redacted(rein: Any, mode: str) -> None:
    def hide(call: Any, outcome: Any) -> Any:
        return Replace(outcome.value.replace("bob@example.com", "[EMAIL]"))

    r = rein(Rules(post=hide))
    search = supervise_tool(r, create_retriever_tool(Shelf(), "search", "Search the shelf."))
    chain = search | RunnableLambda(str.upper)
    with r.session():
        assert use(chain, {"query": "cats"}, mode) == "ALL ABOUT CATS\n\nMAIL [EMAIL]"
    assert [n for k, n in kinds(r) if k == "intent"] == ["search"]


def test_a_supervised_tool_in_a_chain_is_decided_once_under_a_handler(rein: Any, mode: str) -> None:
    r = rein(Rules(lambda c: Hold("pays", 1, "calls", limit=1, settle="keep")))
    chain = RunnableLambda(lambda n: {"amount": n}) | supervise_tool(r, pay)
    with r.session():
        assert use(chain, 3, mode, r) == "paid 3"
    assert effects == [3]
    assert [k for k, n in kinds(r) if n == "pay"] == ["intent"]


def script() -> ScriptedChatModel:
    return ScriptedChatModel(script=[ai("", call("pay", amount=1)), ai("done")])


def run(graph: Any, mode: str, config: Any = None) -> Any:
    given = {"messages": [("user", "go")]}
    if mode == "sync":
        return graph.invoke(given, config)
    return asyncio.run(graph.ainvoke(given, config))


def test_the_same_middleware_twice_is_refused(rein: Any, mode: str) -> None:
    r = rein()
    with pytest.raises(AssertionError, match="duplicate middleware"):
        create_agent(script(), [pay], middleware=[CheckreinMiddleware(r), CheckreinMiddleware(r)])

    class Mine(CheckreinMiddleware):
        """Another name, which the framework takes."""

    model = script()
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(r), Mine(r)])
    with pytest.raises(ConfigError, match="twice"):
        run(graph, mode)
    assert (effects, model.seen) == ([], [])


@pytest.mark.parametrize("inner", ["middleware", "tool", "handler"])
def test_two_reins_on_one_agent_are_refused(rein: Any, mode: str, inner: str) -> None:
    class Other(CheckreinMiddleware):
        """Another name, which the framework takes."""

    a, b = rein(), rein()
    middleware: list[Any] = [CheckreinMiddleware(a)]
    tools: list[Any] = [pay]
    config: Any = None
    if inner == "middleware":
        middleware.append(Other(b))
    elif inner == "tool":
        tools = [supervise_tool(b, pay)]
    else:
        config = {"callbacks": [CheckreinCallbackHandler(b)]}
    graph = create_agent(script(), tools, middleware=middleware)
    with pytest.raises(ConfigError, match="supervised by another Rein already"):
        run(graph, mode, config)
    assert effects == []


def test_an_agent_inside_a_tool_may_have_the_middleware_too(rein: Any, mode: str) -> None:
    r = rein()
    inner = create_agent(script(), [pay], middleware=[CheckreinMiddleware(r)])

    @tool
    def delegate(amount: int) -> str:
        """Let another agent pay."""
        return str(run(inner, "sync")["messages"][-1].content)

    outer = create_agent(
        ScriptedChatModel(script=[ai("", call("delegate", amount=1)), ai("all done")]),
        [delegate], middleware=[CheckreinMiddleware(r)],
    )  # fmt: skip
    with r.session():
        assert run(outer, mode)["messages"][-1].content == "all done"
    assert effects == [1]
