"""Plugins, crews and tools that the tests of the CrewAI adapter share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai")

from crewai import Agent, Crew, Task
from tests.integrations.shared import Rules, effects, kinds, states

from checkrein import Rein
from checkrein_integrations.crewai import supervise
from checkrein_integrations.testing.crewai import ScriptedLLM, action, call, final

# CrewAI reads deprecated fields of its own, and uses deprecated parts of others.
IGNORED = ("ignore::DeprecationWarning:crewai",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for warning in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(warning))


class Road:
    """One of the ways on which CrewAI comes to a tool, and runs a crew."""

    def __init__(self, native: bool, mode: str) -> None:
        self.native = native
        self.mode = mode

    def llm(self, *steps: Any, **fields: Any) -> ScriptedLLM:
        """A model that plays steps: a list of `call`s, or a final text."""
        script = list(steps)
        if not self.native:
            script = [self._react(step) for step in steps]
        return ScriptedLLM(script=script, native=self.native, **fields)

    @staticmethod
    def _react(step: Any) -> Any:
        import json

        if isinstance(step, list):
            function = step[0]["function"]
            return action(function["name"], **json.loads(function["arguments"]))
        return final(step) if isinstance(step, str) else step

    def crew(self, llm: Any, tools: Any, **fields: Any) -> Any:
        agent = Agent(role="clerk", goal="work", backstory="none", llm=llm, tools=list(tools))
        task = Task(description="do it", expected_output="a word", agent=agent)
        return Crew(agents=[agent], tasks=[task], **fields)

    def run(self, rein: Rein, crew: Any, **settings: Any) -> Any:
        if self.mode == "sync":
            with supervise(rein, **settings):
                return crew.kickoff()

        async def entry() -> Any:
            async with supervise(rein, **settings):
                return await (crew.kickoff_async() if self.mode == "async" else crew.akickoff())

        return asyncio.run(entry())


ROADS = [(native, mode) for native in (True, False) for mode in ("sync", "async", "akickoff")]


@pytest.fixture(params=ROADS, ids=lambda r: f"{'native' if r[0] else 'react'}-{r[1]}")
def road(request: pytest.FixtureRequest) -> Road:
    return Road(*request.param)


def told(llm: ScriptedLLM) -> list[str]:
    """What the model was told of its tools, in its last request."""
    found = []
    for message in llm.seen[-1]:
        text = str(message.get("content") or "")
        if message["role"] == "tool":
            found.append(text)
        elif message["role"] == "assistant" and "Observation: " in text:
            # Without the framework's reminders of the tools and the format.
            found.append(text.split("Observation: ")[1].split("\n\n\nYou ONLY", maxsplit=1)[0])
    return found


__all__ = ["Road", "Rules", "call", "effects", "kinds", "states", "told"]
