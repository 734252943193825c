"""Plugins, agents and tools that the tests of the LangChain adapter share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent
from tests.integrations.shared import Rules, effects, kinds, states

__all__ = ["Agent", "Rules", "effects", "kinds", "states"]


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
def agent(mode: str) -> Callable[..., Agent]:
    def make(model: Any, tools: Any, *middleware: Any, **settings: Any) -> Agent:
        return Agent(create_agent(model, tools, middleware=list(middleware), **settings), mode)

    return make
