"""What readers of a stream get: of an answer that stands, and of one that is taken back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import tool

from checkrein import Deny, Plugin, Replace, Retry
from checkrein.errors import ConfigError, Denied
from checkrein_integrations.langchain import AnswerRetracted, CheckreinMiddleware
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, states
from .test_streams import SECRET, Hiding

PHRASE = "one two three press the red button four five six"


@tool
def pay(card: str) -> str:
    """Pay."""
    return f"paid with {card}"


def bad(c: Any, outcome: Any) -> Any:
    text = outcome.value["parts"][0]["content"] if outcome.value else ""
    return Deny("forbidden phrase", rule="words") if "red button" in text else None


def graph_of(r: Any, model: Any, **settings: Any) -> Any:
    return create_agent(model, [pay], middleware=[CheckreinMiddleware(r, **settings)])


class Went:
    """A stream as its reader sees it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.order: list[Any] = []
        self.events: list[AnswerRetracted] = []
        self.final: Any = None
        self.error: BaseException | None = None
        self.all: list[Any] = []
        """Everything that was streamed."""

    @property
    def text(self) -> str:
        return "".join(self.texts.values())

    def take(self, kind: str, item: Any) -> None:
        self.all.append((kind, item))
        if kind == "custom":
            self.events.append(item)
            self.order.append("retracted")
        elif kind == "values":
            self.final = item["messages"][-1]
        elif isinstance(item[0], (AIMessage, AIMessageChunk)) and item[0].content:
            self.say(item[0].id or "", item[0].content)

    def say(self, id: str, text: Any) -> None:
        self.texts[id] = self.texts.get(id, "") + str(text)
        self.order.append("text")


def streamed(graph: Any, how: str) -> Went:
    """Run the graph with its stream read in one of four ways."""
    went, given = Went(), {"messages": [("user", "go")]}
    modes = ["messages", "custom", "values"]

    async def by_events(version: str) -> None:
        async for event in graph.astream_events(given, version=version):
            went.all.append(event)
            if event["event"] == "on_chat_model_stream" and event["data"]["chunk"].content:
                went.say(event["run_id"], event["data"]["chunk"].content)
            elif event["event"] == "on_custom_event":
                went.events.append(event["data"])
                went.order.append("retracted")
            elif event["event"] == "on_chain_end" and not event["parent_ids"]:
                went.final = event["data"]["output"]["messages"][-1]

    async def by_modes() -> None:
        async for kind, item in graph.astream(given, stream_mode=modes):
            went.take(kind, item)

    try:
        if how == "sync":
            for kind, item in graph.stream(given, stream_mode=modes):
                went.take(kind, item)
        else:
            asyncio.run(by_modes() if how == "async" else by_events(how))
    except Denied as error:
        went.error = error
    return went


WAYS = ["sync", "async", "v2"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_the_joined_stream_is_the_answer_however_it_is_cut(rein: Any, how: str, size: int) -> None:
    said = f"card {SECRET} and 4111-11 end"
    whole = graph_of(rein(Hiding()), ScriptedChatModel(script=[ai(said)]))
    plain = whole.invoke({"messages": [("user", "go")]})["messages"][-1].content
    model = ScriptedChatModel(script=[ai(said)], chunk_size=size)
    went = streamed(graph_of(rein(Hiding()), model), how)
    assert went.text == plain == "card [CARD] and 4111-11 end"
    assert went.final.content == plain


@pytest.mark.parametrize("how", WAYS)
def test_no_event_of_the_stream_holds_what_is_hidden(rein: Any, how: str) -> None:
    model = ScriptedChatModel(
        script=[ai("now", call("pay", "c1", card=SECRET)), ai(f"paid {SECRET}")], chunk_size=2
    )
    went = streamed(graph_of(rein(Hiding()), model), how)
    assert went.final.content == "paid [CARD]"
    assert SECRET not in str(went.all)


def test_the_delay_of_a_stream_is_its_hold_back(rein: Any) -> None:
    said = f"{'x' * 20}{SECRET[:4]}{'y' * 20}"
    produced, kept_back = 0, []

    class Counted(ScriptedChatModel):
        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal produced
            for chunk in super()._stream(*args, **kwargs):
                produced += len(chunk.text)
                yield chunk

    class Reader(BaseCallbackHandler):
        delivered = 0

        def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
            self.delivered += len(token)
            kept_back.append(produced - self.delivered)

    hiding, reader = Hiding(), Reader()
    graph = graph_of(rein(hiding), Counted(script=[ai(said)], chunk_size=1))
    config: Any = {"callbacks": [reader]}
    list(graph.stream({"messages": [("user", "go")]}, config, stream_mode="messages"))
    assert reader.delivered == len(said)
    assert kept_back[0] == 0
    assert 0 < max(kept_back) <= hiding.opened[0][1].holdback


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("streams", ["auto", "hold"])
def test_hold_delivers_nothing_of_a_blocked_answer(rein: Any, how: str, streams: str) -> None:
    r = rein(Rules(post=bad, kind="model"))
    went = streamed(graph_of(r, ScriptedChatModel(script=[ai(PHRASE)]), streams=streams), how)
    assert isinstance(went.error, Denied)
    assert went.text == ""
    assert "red button" not in str(went.all)
    (event,) = went.events
    assert (event.reason, event.rule, event.shown) == ("forbidden phrase", "words", False)
    assert states(r) == [("FAILED", "rolled_back")]


@pytest.mark.parametrize("how", WAYS)
def test_pass_shows_it_and_takes_it_back(rein: Any, how: str) -> None:
    r = rein(Rules(post=bad, kind="model"))
    model = ScriptedChatModel(script=[ai(PHRASE)], chunk_size=4)
    went = streamed(graph_of(r, model, streams="pass"), how)
    assert isinstance(went.error, Denied)
    assert went.text == PHRASE
    assert went.order[-1] == "retracted"
    (event,) = went.events
    assert (event.shown, event.replaced, event.type) == (True, False, "checkrein.answer_retracted")


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_replaced_answer_is_retracted_and_streamed_anew(rein: Any, how: str) -> None:
    def calm(c: Any, outcome: Any) -> Any:
        return Replace("calm words")

    r = rein(Rules(post=calm, kind="model"))
    model = ScriptedChatModel(script=[ai(PHRASE)], chunk_size=4)
    went = streamed(graph_of(r, model, streams="pass"), how)
    assert went.final.content == "calm words"
    assert [event.replaced for event in went.events] == [True]
    assert went.text == PHRASE + "calm words"
    held = ScriptedChatModel(script=[ai(PHRASE)], chunk_size=4)
    went = streamed(graph_of(r, held), how)
    assert (went.text, went.events) == ("calm words", [])


@pytest.mark.parametrize("how", WAYS)
def test_a_filter_that_denies_takes_back_what_was_before(rein: Any, how: str) -> None:
    model = ScriptedChatModel(script=[ai(f"card {SECRET} end")], chunk_size=3)
    went = streamed(graph_of(rein(Hiding(deny=True)), model), how)
    assert isinstance(went.error, Denied)
    assert SECRET not in went.text
    assert "card".startswith(went.text.strip()) or went.text.strip() == "card"
    assert [event.shown for event in went.events] == [bool(went.text)]
    held = ScriptedChatModel(script=[ai(f"card {SECRET} end")], chunk_size=3)
    went = streamed(graph_of(rein(Hiding(deny=True)), held, streams="hold"), how)
    assert went.text == ""


@pytest.mark.parametrize("how", ["sync", "async"])
def test_what_was_shown_before_another_attempt_is_taken_back(rein: Any, how: str) -> None:
    class Again(Plugin):
        done = False

        def post_call(self, call: Any, outcome: Any) -> Any:
            if call.kind == "model" and not self.done:
                self.done = True
                return Retry()
            return None

    model = ScriptedChatModel(script=[ai("first try"), ai("second try")])
    went = streamed(graph_of(rein(Again()), model, streams="pass"), how)
    assert went.final.content == "second try"
    assert [event.reason for event in went.events] == ["asked again"]
    assert went.text == "first trysecond try"


def test_a_call_that_was_refused_before_the_model_retracts_nothing(rein: Any) -> None:
    r = rein(Rules(lambda c: Deny("no"), kind="model"))
    went = streamed(graph_of(r, ScriptedChatModel(script=[ai(PHRASE)]), streams="pass"), "sync")
    assert isinstance(went.error, Denied)
    assert went.events == []


def test_an_unknown_way_of_streaming_is_refused(rein: Any) -> None:
    with pytest.raises(ConfigError, match="none of 'auto', 'hold', 'pass'"):
        CheckreinMiddleware(rein(), streams="sometimes")  # type: ignore[arg-type]


class Quiet(Plugin):
    """Neither filters nor judges answers."""

    def pre_call(self, call: Any) -> None:
        return None


@pytest.mark.parametrize("how", WAYS)
def test_without_plugins_that_look_at_answers_nothing_is_swapped(rein: Any, how: str) -> None:
    model = ScriptedChatModel(script=[ai(PHRASE)], chunk_size=5)
    went = streamed(graph_of(rein(Quiet()), model), how)
    assert (went.text, went.final.content, went.events) == (PHRASE, PHRASE, [])
