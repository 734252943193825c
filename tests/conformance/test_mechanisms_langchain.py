"""What LangChain and LangGraph do of themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain_core.tools import tool

from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call


def test_langgraph_cancels_siblings() -> None:
    """An async node gathers its tools: when one raises, LangGraph cancels the others."""
    ended: list[str] = []

    @tool
    async def collapse() -> str:
        """Fail at once."""
        raise ValueError("down")

    @tool
    async def steady() -> str:
        """Wait."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    from langchain.agents import create_agent

    model = ScriptedChatModel(script=[ai("", call("steady"), call("collapse"))])
    agent = create_agent(model, [collapse, steady])
    with pytest.raises(ValueError, match="down"):
        asyncio.run(agent.ainvoke({"messages": [("user", "go")]}))
    assert ended == ["cancelled"]


def test_langchain_cut_stream_tells_no_usage() -> None:
    """Usage comes with the last chunk: who closes the stream before does not get it."""
    model = ScriptedChatModel(script=[ai("one two three")])
    stream: Any = model.stream("go")
    first = next(stream)
    stream.close()
    assert first.content == "one "
    assert first.usage_metadata is None
