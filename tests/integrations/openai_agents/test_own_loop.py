"""D36 with a real provider's client: a loop of one's own streams over HTTP.

Streamed costs what plain costs; without a report of usage the tokens are counted; a reader that
leaves and a connection that breaks are paid for as far as they came.
"""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from checkrein import Rein
from checkrein.counting import text_tokens
from checkrein.testing import OpenAIServer, Reply, ToolCall
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.redaction import Redaction

HOW = pytest.mark.parametrize("how", ["sync", "async"])
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
TEXT = "The answer is long enough for several pieces of a stream."
PRICES = {"gpt-4o": {"input": 2, "output": 10}}


def plugins(*more: Any) -> list[Any]:
    return [*more, Budget(usd=1, prices=PRICES), Cost(overlay=PRICES)]


def request(model: str, **_: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "go"}], "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip


def read(rein: Rein, server: OpenAIServer, how: str, stop: int | None = None) -> list[Any]:
    found: list[Any] = []
    settings: dict[str, Any] = {"base_url": server.url, "api_key": "none", "max_retries": 0}
    if how == "sync":
        with openai.OpenAI(**settings) as client:

            def provider(**given: Any) -> Any:
                return client.chat.completions.create(**request(**given))

            with rein.model_stream(provider, model="gpt-4o", messages=MESSAGES) as stream:
                for chunk in stream:
                    found.append(chunk)
                    if len(found) == stop:
                        break
        return found

    async def main() -> None:
        async with openai.AsyncOpenAI(**settings) as client:

            def provider(**given: Any) -> Any:
                return client.chat.completions.create(**request(**given))

            async with rein.amodel_stream(provider, model="gpt-4o", messages=MESSAGES) as stream:
                async for chunk in stream:
                    found.append(chunk)
                    if len(found) == stop:
                        break

    asyncio.run(main())
    return found


def text(chunks: list[Any]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def rows(rein: Rein) -> list[Any]:
    balances = rein.store.balances("budget/usd/")
    found: list[Any] = rein.store.costs().rows
    assert sum(b.spent for b in balances) == sum(row.cost for row in found)
    assert not any(b.held for b in balances)
    return found


@HOW
def test_streamed_costs_what_plain_costs(how: str) -> None:
    with OpenAIServer([Reply(TEXT), Reply(TEXT)]) as server, Rein(plugins=plugins()) as rein:
        with rein.session():
            assert text(read(rein, server, how)) == TEXT
            with openai.OpenAI(base_url=server.url, api_key="none") as client:

                def plain(model: str, **_: Any) -> Any:
                    return client.chat.completions.create(
                        model=model, messages=[{"role": "user", "content": "go"}]
                    )

                rein.model_call(plain, model="gpt-4o", messages=MESSAGES)
        streamed, whole = rows(rein)
    for name in ("cost", "input", "output", "state", "source", "name"):
        assert getattr(streamed, name) == getattr(whole, name)
    assert streamed.state == "reported"


@HOW
def test_no_report_reader_leaves_connection_breaks(how: str) -> None:
    replies = [Reply(TEXT, usage=False), Reply(TEXT), Reply(TEXT, cut_after=4)]
    with OpenAIServer(replies) as server, Rein(plugins=plugins()) as rein:
        with rein.session(on_error="keep"):
            assert text(read(rein, server, how)) == TEXT
            came = [TEXT, text(read(rein, server, how, stop=4))]
            # The SDK takes the end of the connection for that of the answer.
            assert 0 < len(text(read(rein, server, how))) < len(TEXT)
        counted, left, cut = rows(rein)
    assert {row.state for row in (counted, left, cut)} == {"estimated"}
    assert counted.output == text_tokens(TEXT)
    assert left.output == text_tokens(came[1])
    assert 0 < cut.output < counted.output


@HOW
def test_an_sdks_chunks_are_filtered(how: str) -> None:
    said = "Write to ann@example.org today."
    replies = [Reply(said, chunk=3), Reply(tool_calls=[ToolCall("mail", {"to": "ann"})], chunk=3)]
    with OpenAIServer(replies) as server, Rein(plugins=plugins(Redaction())) as rein:
        with rein.session() as session:
            out = read(rein, server, how)
            calls = read(rein, server, how)
        results = [e.view["result"] for e in rein.read(session.id).events() if e.kind == "outcome"]
        assert [row.state for row in rows(rein)] == ["reported", "reported"]
    assert text(out) == "Write to [EMAIL] today."
    assert "ann@example.org" not in str(out) + str(results)
    arguments = "".join(
        tool.function.arguments or ""
        for chunk in calls
        for choice in chunk.choices
        for tool in choice.delta.tool_calls or ()
    )
    assert arguments == '{"to": "ann"}'
    (part,) = results[1]["parts"]
    assert (part["type"], part["name"], part["arguments"]) == ("tool_call", "mail", {"to": "ann"})
