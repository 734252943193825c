"""What CrewAI does of itself."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

# Nothing may leave the machine: before the framework is imported.
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"

pytest.importorskip("crewai")

from crewai import Agent, Crew, Task
from crewai.hooks import InterceptionPoint
from crewai.hooks.dispatch import scoped_hooks
from crewai.tools import tool

from checkrein_integrations.testing.crewai import ScriptedLLM, action, call, final

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")


def crew(model: Any, *tools: Any) -> Any:
    agent = Agent(role="clerk", goal="work", backstory="none", llm=model, tools=list(tools))
    task = Task(description="do it", expected_output="a word", agent=agent)
    return Crew(agents=[agent], tasks=[task])


def test_crewai_tells_tool_errors() -> None:
    """A tool that raises becomes a text, and the crew goes on to its end."""

    @tool("fail")
    def fail() -> str:
        """Fail."""
        raise RuntimeError("carrier down")

    model = ScriptedLLM(script=[[call("fail")], "done"])
    assert crew(model, fail).kickoff().raw == "done"
    assert "carrier down" in model.sent


def test_crewai_suppresses_a_repeated_call() -> None:
    """The second identical call of a ReAct agent is answered, and not run."""
    ran: list[str] = []

    @tool("pay")
    def pay(to: str) -> str:
        """Pay."""
        ran.append(to)
        return "paid"

    model = ScriptedLLM(
        script=[action("pay", to="ann"), action("pay", to="ann"), final("done")], native=False
    )
    assert crew(model, pay).kickoff().raw == "done"
    assert ran == ["ann"]
    assert "I tried reusing the same input" in model.sent


def test_crewai_answers_an_unknown_tool_itself() -> None:
    """Native: a text without the name. ReAct: no hook is called at all."""
    seen: list[str] = []

    @tool("pay")
    def pay(to: str) -> str:
        """Pay."""
        return "paid"

    def hook(context: Any) -> None:
        seen.append(context.tool_name)

    native = ScriptedLLM(script=[[call("vanish", what="x")], "done"])
    react = ScriptedLLM(script=[action("vanish", what="x"), final("done")], native=False)
    with scoped_hooks({InterceptionPoint.PRE_TOOL_CALL: [hook]}):
        crew(native, pay).kickoff()
        assert seen == ["vanish"]
        crew(react, pay).kickoff()
        assert seen == ["vanish"]
    assert "Tool not found" in native.sent


def test_crewai_cancelling_does_not_reach_the_tool() -> None:
    """The thread of a tool goes on after the kickoff was cancelled."""
    started, ended = threading.Event(), threading.Event()

    @tool("hang")
    async def hang() -> str:
        """Wait a little."""
        started.set()
        await asyncio.sleep(0.2)
        ended.set()
        return "hung"

    model = ScriptedLLM(script=[[call("hang")], "never"])

    async def run() -> None:
        task = asyncio.ensure_future(crew(model, hang).akickoff())
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended.wait(10)


def test_crewai_react_call_is_text() -> None:
    """What rewrites the text of an answer rewrites the tool call in it."""
    ran: list[str] = []

    @tool("mail")
    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(to)
        return "sent"

    def hook(context: Any) -> str | None:
        text = context.response
        return text.replace("ann@example.org", "[EMAIL]") if isinstance(text, str) else None

    model = ScriptedLLM(script=[action("mail", to="ann@example.org"), final("done")], native=False)
    with scoped_hooks({InterceptionPoint.POST_MODEL_CALL: [hook]}):
        crew(model, mail).kickoff()
    assert ran == ["[EMAIL]"]
