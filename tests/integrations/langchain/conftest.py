"""Plugins, agents and tools that the tests of the LangChain adapter share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent

from checkrein import Plugin, Rein

effects: list[Any] = []
"""What the tools of a test have done."""


@pytest.fixture(autouse=True)
def _clean() -> None:
    effects.clear()


class Rules(Plugin):
    """`pre_call` and `post_call` from functions."""

    def __init__(self, pre: Any = None, post: Any = None, kind: str = "tool") -> None:
        self._pre = pre
        self._post = post
        self._kind = kind

    def pre_call(self, call: Any) -> Any:
        return self._pre(call) if self._pre is not None and call.kind == self._kind else None

    def post_call(self, call: Any, outcome: Any) -> Any:
        return self._post(call, outcome) if self._post and call.kind == self._kind else None


class Agent:
    """An agent that is run sync or async by the same test."""

    def __init__(self, graph: Any, mode: str) -> None:
        self.graph = graph
        self.mode = mode

    def run(self, text: Any = "go", config: Any = None) -> Any:
        given = {"messages": [("user", text)]} if isinstance(text, str) else text
        if self.mode == "sync":
            return self.graph.invoke(given, config)
        return asyncio.run(self.graph.ainvoke(given, config))

    def texts(self, text: Any = "go", config: Any = None) -> list[Any]:
        return [m.content for m in self.run(text, config)["messages"]]


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rein(request: pytest.FixtureRequest) -> Any:
    """A function that makes a Rein and closes it at the end."""
    made: list[Rein] = []

    def make(*plugins: Any, **settings: Any) -> Rein:
        made.append(Rein(plugins=list(plugins), **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def agent(mode: str) -> Callable[..., Agent]:
    def make(model: Any, tools: Any, *middleware: Any, **settings: Any) -> Agent:
        return Agent(create_agent(model, tools, middleware=list(middleware), **settings), mode)

    return make


def kinds(rein: Rein, session: str | None = None) -> list[tuple[str, str]]:
    """(kind, name or state) of all events, oldest first."""
    found = []
    for event in rein.store.events(session=session, limit=1000):
        about = event.view.get("name") or event.view.get("state") or ""
        found.append((event.kind, str(about)))
    return found


def states(rein: Rein) -> list[tuple[str, str]]:
    """(state, rollback) of all sessions, newest first."""
    return [(row.state, row.rollback) for row in rein.store.sessions().rows]
