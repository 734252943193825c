"""CrewAI: a crew of one agent inside `supervise`, with native tool calls and with ReAct."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# Nothing may leave the machine: before the framework is imported.
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"

from crewai import Agent, Crew, Task
from crewai.tools import tool

from checkrein_integrations.crewai import aresume, resume, supervise
from checkrein_integrations.testing.crewai import ScriptedLLM, action, call, final

from .observed import Ran
from .scenario import INPUT, MODEL, OUTPUT, Variant

VARIANTS = tuple(
    Variant(mode, form, streamed, style)
    for mode in ("sync", "async")
    for form, style in (("sequential", "native"), ("parallel", "native"), ("sequential", "react"))
    for streamed in (False, True)
    # ReAct texts hold the agent's thoughts: what is streamed is not the answer.
    if not (streamed and style == "react")
)


def scripted(turns: list[Any], *, native: bool, prefix: str = "c") -> ScriptedLLM:
    """A model that plays the turns."""
    script: list[Any] = []
    number = 0
    for turn in turns:
        if isinstance(turn, Exception):
            script.append(turn)
        elif isinstance(turn, str):
            script.append(turn if native else final(turn))
        elif native:
            calls = []
            for ask in turn:
                number += 1
                calls.append(call(ask.tool, f"{prefix}{number}", **ask.arguments))
            script.append(calls)
        else:
            script.append(action(turn[0].tool, **turn[0].arguments))
    return ScriptedLLM(
        script=script, native=native, model=MODEL, input_tokens=INPUT, output_tokens=OUTPUT
    )


def tool_of(name: str, fn: Callable[..., Any]) -> Any:
    """A function as a CrewAI tool."""
    return tool(name)(fn)


class Run:
    """One run of a scenario."""

    def __init__(self, case: Any) -> None:
        self.case = case
        # A resumed run is done again as a whole: what was streamed before is not its answer.
        self.streamed = case.variant.streamed and case.scenario.decide is None
        self.native = case.variant.style == "native"
        self.model = scripted(case.turns, native=self.native)
        self.functions = dict(case.functions)
        if case.inner:
            self.functions["delegate"] = self._delegate()
        self.text = ""

    def _crew(self, model: Any, functions: dict[str, Any], text: str, **more: Any) -> Any:
        tools = [tool_of(name, fn) for name, fn in functions.items()]
        agent = Agent(
            role="clerk", goal="work", backstory="none", llm=model, tools=tools,
            max_retry_limit=0,  # a failed task is not begun again
        )  # fmt: skip
        task = Task(description=text, expected_output="a word", agent=agent)
        return Crew(agents=[agent], tasks=[task], stream=self.streamed and not more)

    def _first(self) -> Any:
        return self._crew(self.model, self.functions, self.case.scenario.user)

    def _delegate(self) -> Callable[..., Any]:
        model = scripted(self.case.inner, native=self.native, prefix="i")

        def delegate(input: str) -> str:
            """Hand a task to another agent."""
            return str(self._crew(model, self.case.functions, input, inner=True).kickoff().raw)

        return delegate

    def start(self) -> Any:
        with supervise(self.case.rein):
            out = self._first().kickoff()
            if not self.streamed:
                return out.raw
            for chunk in out:
                self._show(chunk)
            return out.result.raw

    async def astart(self) -> Any:
        async with supervise(self.case.rein):
            out = await self._first().akickoff()
            if not self.streamed:
                return out.raw
            async for chunk in out:
                self._show(chunk)
            return out.result.raw

    def _show(self, chunk: Any) -> None:
        if chunk.chunk_type.value == "text":
            self.text += chunk.content

    def go_on(self) -> Any:
        return _raw(resume(self.case.rein, self.case.session, self._first))

    async def ago_on(self) -> Any:
        return _raw(await aresume(self.case.rein, self.case.session, self._first))

    def resume(self, token: str) -> Any:
        return _raw(resume(self.case.rein, token, self._first))

    async def aresume(self, token: str) -> Any:
        return _raw(await aresume(self.case.rein, token, self._first))

    def ran(self, value: Any, error: BaseException | None) -> Ran:
        saw = []
        for message in self.model.seen[-1] if self.model.seen else ():
            text = str(message.get("content") or "")
            if message["role"] == "tool":
                saw.append(text)
            elif message["role"] == "assistant" and "Observation: " in text:
                # Without the framework's reminders of the tools and the format.
                told = text.split("Observation: ")[1].split("\n\n\nYou ONLY", maxsplit=1)[0]
                saw.append(told.strip())
        return Ran(value, error, saw, self.model.sent, self.text if self.streamed else None)


def _raw(out: Any) -> Any:
    return getattr(out, "raw", out)
