"""What the OpenAI Agents SDK does of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, RunConfig, Runner, UserError, function_tool

from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call

CONFIG = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")


def _run(script: list[Any], *tools: Any) -> ScriptedModel:
    model = ScriptedModel(script)
    asyncio.run(
        Runner.run(Agent(name="a", model=model, tools=list(tools)), "go", run_config=CONFIG)
    )
    return model


def _outputs(model: ScriptedModel) -> list[str]:
    return [i["output"] for i in model.seen[-1] if i.get("type") == "function_call_output"]


@function_tool(failure_error_function=None)
def collapse() -> str:
    """Fail at once."""
    raise ValueError("down")


def test_agents_wrap_tool_errors() -> None:
    with pytest.raises(UserError) as raised:
        _run([ask(call("collapse"))], collapse)
    assert isinstance(raised.value.__cause__, ValueError)


def test_agents_cancel_siblings() -> None:
    """One tool call that raises cancels the tasks of the others."""
    ended: list[str] = []

    @function_tool
    async def steady() -> str:
        """Wait."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    with pytest.raises(UserError):
        _run([ask(call("steady"), call("collapse"))], steady, collapse)
    assert ended == ["cancelled"]


def test_agents_do_not_say_what_is_wrong_with_arguments() -> None:
    @function_tool(failure_error_function=lambda context, error: str(error))
    def pay(to: str, amount: int) -> str:
        """Pay."""
        return "paid"

    model = _run([ask(call("pay", to="ann")), "done"], pay)
    assert _outputs(model) == ["Invalid JSON input for tool pay"]


def test_agents_cut_stream_tells_no_usage() -> None:
    """Usage comes with the last event: who closes the stream before does not get it."""
    model = ScriptedModel(["one two three"])

    async def first() -> list[Any]:
        kinds = []
        stream: Any = model.stream_response(None, "go", None, [], None, [], None)
        async for event in stream:
            kinds.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.aclose()
        return kinds

    events = asyncio.run(first())
    assert events[-1].delta == "one "
    assert all(getattr(getattr(e, "response", None), "usage", None) is None for e in events)
