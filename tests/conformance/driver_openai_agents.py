"""OpenAI Agents SDK: `run_sync`, `run` and `run_streamed` over a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from agents import Agent, FunctionTool, RunConfig, function_tool

from checkrein_integrations.openai_agents import aresume, resume, run, run_streamed, run_sync
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call

from .observed import Ran
from .scenario import INPUT, MODEL, OUTPUT, Variant

VARIANTS = tuple(
    Variant(mode, form, streamed)
    # The SDK streams in async code only.
    for mode, streamed in (("sync", False), ("async", False), ("async", True))
    for form in ("sequential", "parallel")
)
_CONFIG = {
    "tracing_disabled": True,
    # Its own answer to a tool that does not exist is to end the run.
    "tool_not_found_behavior": "return_error_to_model",
}


def scripted(turns: list[Any], prefix: str = "c") -> ScriptedModel:
    """A model that plays the turns."""
    script: list[Any] = []
    number = 0
    for turn in turns:
        if isinstance(turn, (str, Exception)):
            script.append(turn)
            continue
        calls = []
        for each in turn:
            number += 1
            calls.append(call(each.tool, f"{prefix}{number}", **each.arguments))
        script.append(ask(*calls))
    return ScriptedModel(script, model=MODEL, input_tokens=INPUT, output_tokens=OUTPUT)


@contextlib.contextmanager
def _loop_closed() -> Iterator[None]:
    """`run_sync` keeps the loop of its thread, as the SDK does: close it."""
    try:
        yield
    finally:
        asyncio.get_event_loop_policy().get_event_loop().close()
        asyncio.set_event_loop(None)


class Run:
    """One run of a scenario."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.model = scripted(case.turns)
        tools = [self._tool(name, fn) for name, fn in case.functions.items()]
        if case.inner:
            tools.append(self._delegate(tools))
        self.agent = Agent[Any](name="clerk", model=self.model, tools=list(tools))
        self.options: dict[str, Any] = {"run_config": RunConfig(**_CONFIG)}
        self._texts: dict[str, str] = {}

    def _failure(self) -> Any:
        """How the SDK is told what to make of a tool's error."""
        if self.case.scenario.errors == "raised":
            return None
        return lambda context, error: str(error)

    def _tool(self, name: str, fn: Callable[..., Any]) -> FunctionTool:
        return function_tool(
            fn, name_override=name, failure_error_function=self._failure(), strict_mode=False
        )

    def _delegate(self, tools: list[FunctionTool]) -> Any:
        inner = Agent[Any](name="inner", model=scripted(self.case.inner, "i"), tools=list(tools))
        return inner.as_tool(
            tool_name="delegate",
            tool_description="Hand on a task.",
            failure_error_function=self._failure(),
        )

    # -- running

    def start(self) -> Any:
        user = self.case.scenario.user
        with _loop_closed():
            return _final(run_sync(self.case.rein, self.agent, user, **self.options))

    async def astart(self) -> Any:
        rein, user = self.case.rein, self.case.scenario.user
        if not self.case.variant.streamed:
            return _final(await run(rein, self.agent, user, **self.options))
        result = run_streamed(rein, self.agent, user, **self.options)
        async for event in result.stream_events():
            data = getattr(event, "data", None)
            if getattr(data, "type", "") == "response.output_text.delta":
                self._texts[data.item_id] = self._texts.get(data.item_id, "") + data.delta
        return _final(result)

    def go_on(self) -> Any:
        return self.resume(self.case.session)

    async def ago_on(self) -> Any:
        return await self.aresume(self.case.session)

    def resume(self, token: str) -> Any:
        with _loop_closed():
            return _final(resume(self.case.rein, token, self.agent, **self.options))

    async def aresume(self, token: str) -> Any:
        return _final(await aresume(self.case.rein, token, self.agent, **self.options))

    def ran(self, value: Any, error: BaseException | None) -> Ran:
        seen = self.model.seen
        items = seen[-1] if seen else []
        # The SDK sends results as they come; which is whose is told by the id.
        results = {i["call_id"]: i["output"] for i in items if "output" in i}
        calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
        saw = [str(results[id]) for id in calls if id in results]
        streamed = None
        if self.case.variant.streamed and self.case.scenario.decide is None:
            streamed = list(self._texts.values())[-1] if self._texts else ""
        return Ran(value, error, saw, self.model.sent, streamed)


def _final(result: Any) -> str | None:
    """The agent's answer; None where the run is paused."""
    return None if result.interruptions else str(result.final_output)
