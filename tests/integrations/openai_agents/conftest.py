"""Plugins, agents and tools that the tests of the OpenAI Agents adapter share."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, set_tracing_disabled
from tests.integrations.shared import Rules, effects, states

from checkrein import Plugin, Rein
from checkrein_integrations.openai_agents import run, run_streamed, run_sync
from checkrein_integrations.testing.openai_agents import ScriptedModel

__all__ = ["Pre", "Rules", "Went", "agent_of", "effects", "kinds", "outputs", "states", "streamed"]

set_tracing_disabled(True)


@pytest.fixture(autouse=True)
def _clean() -> Any:
    yield
    # `run_sync` keeps the loop of its thread, as the SDK does.
    policy = asyncio.get_event_loop_policy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12, where there is no loop yet
        try:
            loop = policy.get_event_loop()
        except RuntimeError:
            return
    if not loop.is_running():
        loop.close()
        asyncio.set_event_loop(None)


class Pre(Plugin):
    """`pre_call` from a function, on tool calls; it looks at no answer."""

    def __init__(self, pre: Any) -> None:
        self._pre = pre

    def pre_call(self, call: Any) -> Any:
        return self._pre(call) if call.kind == "tool" else None


@pytest.fixture(params=["sync", "async", "streamed"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Went:
    """A run that has ended."""

    def __init__(self, result: Any, events: list[Any]) -> None:
        self.result = result
        self.events = events

    @property
    def streamed(self) -> str:
        """The text that was shown while it ran."""
        return "".join(
            event.delta
            for event in self.events
            if getattr(event, "type", "") == "response.output_text.delta"
        )


@pytest.fixture
def go(mode: str) -> Any:
    """Runs an agent the way that the test's mode says."""

    def start(rein: Rein, agent: Any, given: Any = "go", **options: Any) -> Went:
        if mode == "sync":
            return Went(run_sync(rein, agent, given, **options), [])
        if mode == "async":
            return Went(asyncio.run(run(rein, agent, given, **options)), [])
        return asyncio.run(streamed(rein, agent, given, **options))

    return start


async def streamed(rein: Rein, agent: Any, given: Any = "go", **options: Any) -> Went:
    """Run an agent and read its stream to the end."""
    result = run_streamed(rein, agent, given, **options)
    return Went(
        result,
        [e.data async for e in result.stream_events() if e.type == "raw_response_event"],
    )


def agent_of(model: ScriptedModel | str, *tools: Any, **settings: Any) -> Agent[Any]:
    return Agent(**{"name": "a", "model": model, "tools": list(tools), **settings})


def outputs(model: ScriptedModel) -> list[Any]:
    """What the last request told the model of its tool calls."""
    return [item["output"] for item in model.seen[-1] if item.get("type") == "function_call_output"]


def kinds(rein: Rein, session: str | None = None) -> list[str]:
    """Kinds of all events, oldest first."""
    return [event.kind for event in rein.store.events(session=session, limit=1000)]
