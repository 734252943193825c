"""Streamed answers: nobody sees what a filter holds back."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool

from checkrein import Deny, Plugin, Rein, Replace
from checkrein.errors import ConfigError, Denied
from checkrein_integrations.langchain import CheckreinMiddleware
from checkrein_integrations.langchain.channels import Channels, filtered
from checkrein_integrations.langchain.streams import FilteredChatModel
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

SECRET = "4111-1111"


class Hide:
    """Replaces the secret, holding back what may be its beginning."""

    holdback = len(SECRET) - 1

    def __init__(self, deny: bool = False) -> None:
        self.kept = ""
        self.deny = deny
        self.aborted = False

    def feed(self, text: str) -> Any:
        self.kept += text
        if self.deny and SECRET in self.kept:
            return Deny("a card number")
        self.kept = self.kept.replace(SECRET, "[CARD]")
        size = next((n for n in range(self.holdback, 0, -1) if self.kept.endswith(SECRET[:n])), 0)
        out = self.kept[: len(self.kept) - size]
        self.kept = self.kept[len(self.kept) - size :]
        return out

    def flush(self) -> Any:
        out, self.kept = self.kept, ""
        return out

    def abort(self) -> None:
        self.aborted = True
        self.kept = ""


class Hiding(Plugin):
    def __init__(self, deny: bool = False) -> None:
        self.deny = deny
        self.opened: list[tuple[str, Hide]] = []

    def open_stream(self, call: Any, channel: str) -> Any:
        made = Hide(self.deny)
        self.opened.append((channel, made))
        return made


@tool
def pay(card: str) -> str:
    """Pay."""
    return f"paid with {card}"


def streamed(graph: Any, mode: str) -> tuple[str, list[Any]]:
    """(all text that was streamed, final messages)."""
    text = ""
    final: list[Any] = []
    given: Any = {"messages": [("user", "go")]}

    def take(kind: str, item: Any) -> None:
        nonlocal text, final
        if kind == "messages":
            content = item[0].content
            if isinstance(item[0], AIMessage):
                text += content if isinstance(content, str) else str(content)
                pieces = getattr(item[0], "tool_call_chunks", None)
                text += str([c["args"] for c in pieces]) if pieces else ""
        else:
            final = item["messages"]

    if mode == "sync":
        for kind, item in graph.stream(given, stream_mode=["messages", "values"]):
            take(kind, item)
        return text, final

    async def run() -> None:
        async for kind, item in graph.astream(given, stream_mode=["messages", "values"]):
            take(kind, item)

    asyncio.run(run())
    return text, final


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_streamed_text_is_the_filtered_text(rein: Any, mode: str, size: int) -> None:
    model = ScriptedChatModel(script=[ai(f"card {SECRET} and 4111-11 end")], chunk_size=size)
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(rein(Hiding()))])
    text, final = streamed(graph, mode)
    assert text == "card [CARD] and 4111-11 end"
    assert final[-1].content == text


def test_invoke_gives_the_same_text(agent: Any, rein: Any) -> None:
    model = ScriptedChatModel(script=[ai(f"card {SECRET} and 4111-11 end")])
    texts = agent(model, [pay], CheckreinMiddleware(rein(Hiding()))).texts()
    assert texts[-1] == "card [CARD] and 4111-11 end"


def test_tool_arguments_are_filtered_whole(rein: Any, mode: str) -> None:
    model = ScriptedChatModel(
        script=[ai("now", call("pay", "c1", card=SECRET)), ai("done")], chunk_size=2
    )
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(rein(Hiding()))])
    text, final = streamed(graph, mode)
    assert SECRET not in text
    assert final[1].tool_calls[0]["args"] == {"card": "[CARD]"}
    assert final[2].content == "paid with [CARD]"


def test_a_blocked_stream_ends_the_run(rein: Any, mode: str) -> None:
    hiding = Hiding(deny=True)
    model = ScriptedChatModel(script=[ai(f"card {SECRET} end")], chunk_size=3)
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(rein(hiding))])
    with pytest.raises(Denied, match="a card number"):
        streamed(graph, mode)
    assert hiding.opened[0][1].aborted


class Late(Plugin):
    """Looks at complete answers only."""

    def post_call(self, call: Any, outcome: Any) -> Any:
        if call.kind == "model" and outcome.value is not None:
            text = outcome.value["parts"][0]["content"]
            return Replace(text.replace(SECRET, "[CARD]"))
        return None


def test_plugin_without_a_filter_holds_the_answer(rein: Any, mode: str) -> None:
    model = ScriptedChatModel(script=[ai(f"card {SECRET} end")], chunk_size=3)
    graph = create_agent(model, [pay], middleware=[CheckreinMiddleware(rein(Late()))])
    text, final = streamed(graph, mode)
    assert text == "card [CARD] end"
    assert final[-1].content == text


def test_closing_a_stream_early_aborts_the_filters(rein: Any) -> None:
    hiding = Hiding()
    model = ScriptedChatModel(script=[ai(f"card {SECRET} end")], chunk_size=1)
    r = rein(hiding)
    wrapped = FilteredChatModel(
        inner=model, openers=lambda: Channels(_call(), r.plugins.chains["open_stream"])
    )
    stream = wrapped._stream([])
    next(stream)
    stream.close()
    assert hiding.opened[0][1].aborted


def _call() -> Any:
    from checkrein import Call, ToolInfo

    return Call("c", "s", "model", "m", {}, ToolInfo("m"))


class Impl:
    plugin = "hide"

    def __call__(self, call: Any, channel: str) -> Any:
        return Hide()


IMPLS: Any = [Impl()]


class Blocks(BaseChatModel):
    """Streams content blocks: text, reasoning and a tool call in the provider's form."""

    pieces: list[Any]

    @property
    def _llm_type(self) -> str:
        return "blocks"

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kw: Any) -> Any:
        for piece in self.pieces:
            yield ChatGenerationChunk(message=AIMessageChunk(**piece))


def joined(model: BaseChatModel) -> Any:
    total: Any = None
    wrapped = FilteredChatModel(inner=model, openers=lambda: Channels(_call(), IMPLS))
    for chunk in wrapped._stream([]):
        total = chunk.message if total is None else total + chunk.message
    return total


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="4-1 a", max_size=30), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_any_chunking_gives_the_text_of_the_whole(text: str, cuts: list[int]) -> None:
    text = f"x{SECRET}{text}"
    edges = sorted({0, len(text), *[c for c in cuts if c < len(text)]})
    parts = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = filtered(AIMessage(text), Channels(_call(), IMPLS))
    plain = joined(Blocks(pieces=[{"content": p} for p in parts]))
    assert plain.content == whole.content
    blocks = joined(
        Blocks(pieces=[{"content": [{"type": "text", "text": p, "index": 0}]} for p in parts])
    )
    assert "".join(b["text"] for b in blocks.content) == whole.content


def test_blocks_keep_their_order_and_channels() -> None:
    def block(kind: str, key: str, text: str, index: int) -> dict[str, Any]:
        return {"content": [{"type": kind, key: text, "index": index}]}

    def use(kind: str, block: Any, name: Any, args: str, id: Any) -> dict[str, Any]:
        return {
            "content": [{"type": kind, **block, "index": 2}],
            "tool_call_chunks": [{"name": name, "args": args, "id": id, "index": 2}],
        }

    total = joined(
        Blocks(
            pieces=[
                block("thinking", "thinking", "use 4111", 0),
                block("thinking", "thinking", "-1111 4111-1", 0),
                block("text", "text", "is 4111-", 1),
                block("text", "text", "1111", 1),
                use("tool_use", {"id": "c1", "name": "pay", "input": {}}, "pay", '{"card": ', "c1"),
                use("input_json_delta", {"partial_json": SECRET}, None, f'"{SECRET}"}}', None),
            ]
        )
    )
    by_type = {b["type"]: b for b in total.content}
    assert by_type["thinking"]["thinking"] == "use [CARD] 4111-1"
    assert by_type["text"]["text"] == "is [CARD]"
    assert total.tool_calls[0]["args"] == {"card": "[CARD]"}
    assert SECRET not in str(total.content)


def test_escapes_in_arguments_do_not_hide_anything() -> None:
    args = '{"card": "\\u0034111-1111"}'
    channels = Channels(_call(), IMPLS)
    assert channels.arguments(0, args) == '{"card": "[CARD]"}'


def test_what_is_no_chat_model_cannot_be_filtered() -> None:
    from checkrein_integrations.langchain.streams import filtering

    with pytest.raises(ConfigError, match="BaseChatModel"):
        filtering(object(), lambda: Channels(_call(), ()), False)


class Itself(GenericFakeChatModel):
    """A stand-in, as many tests have one: it needs no tools bound."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def test_a_model_that_binds_tools_to_itself_is_filtered() -> None:
    model = Itself(messages=iter([AIMessage(f"card {SECRET}")]))
    with Rein(plugins=[Hiding()], store="memory:") as rein:
        agent = create_agent(model, [noop], middleware=[CheckreinMiddleware(rein)])
        pieces = [
            piece.content
            for piece, _ in agent.stream({"messages": [("user", "hi")]}, stream_mode="messages")
        ]
    assert "".join(pieces) == "card [CARD]"


@tool
def noop() -> str:
    """Nothing."""
    return "ok"
