"""Streams of supervised clients: filtered, held, taken back, left early."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI, AsyncStream, OpenAI, Stream

from checkrein import Deny, Plugin, Rein, Retry
from checkrein.errors import BudgetExceeded, Denied
from checkrein.testing import Failure, OpenAIServer, Reply, ToolCall
from checkrein_integrations.openai import AnswerRetracted, RetractedChunk, supervise_client
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.redaction import Redaction

from .conftest import MODEL, ROADS, Road, Rules, Watch, spent, views

STREAMED = [road for road in ROADS if road.streamed]


class Stars(Plugin):
    """Replaces a word in every channel, by a filter that keeps its beginnings back."""

    def __init__(self, word: str = "secret") -> None:
        self.word = word

    def open_stream(self, call: Any, channel: str) -> Any:
        return _Stars(self.word)


class _Stars:
    def __init__(self, word: str) -> None:
        self.word = word
        self.holdback = len(word) - 1
        self.kept = ""

    def feed(self, text: str) -> str:
        text = (self.kept + text).replace(self.word, "*")
        cut = len(text)
        for size in range(min(self.holdback, len(text)), 0, -1):
            if self.word.startswith(text[-size:]):
                cut = len(text) - size
                break
        self.kept = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        kept, self.kept = self.kept, ""
        return kept

    def abort(self) -> None:
        self.kept = ""


class Stops(Plugin):
    """Denies by a stream filter as soon as a phrase is whole."""

    def __init__(self, phrase: str) -> None:
        self.phrase = phrase

    def open_stream(self, call: Any, channel: str) -> Any:
        phrase = self.phrase

        class Filter(_Stars):
            def feed(self, text: str) -> Any:
                out = super().feed(text)
                return Deny("a phrase", rule="phrase") if "*" in out else out

        return Filter(phrase)


@settings(max_examples=25)
@given(
    text=st.text("secrt *é", max_size=24),
    reasoning=st.none() | st.text("secrt ", max_size=12),
    argument=st.none() | st.text('secrt\n"', max_size=12),
    chunk=st.integers(1, 5),
    which=st.integers(0, 3),
)
def test_every_chunking_gives_what_the_plain_call_gives(text, reasoning, argument, chunk, which):
    road = STREAMED[which]
    plain = Road(road.form, road.mode, streamed=False)
    calls = () if argument is None else (ToolCall("note", {"text": argument}),)
    reply = Reply(text, calls, reasoning=reasoning, chunk=chunk)
    watch = Watch()
    with OpenAIServer([reply, reply]) as server, Rein([Stars(), watch]) as rein:
        whole, pieces = plain.ask(rein, server), road.ask(rein, server)
    assert (pieces.text, pieces.calls) == (whole.text, whole.calls)
    assert pieces.text == text.replace("secret", "*")
    by_type = [sorted(v["parts"], key=lambda part: part["type"]) for v in watch.values]
    strip = [[{**part, "id": ""} for part in parts] for parts in by_type]
    assert strip[0] == strip[1]


def test_the_first_character_is_held_no_longer_than_needed(streamed, rein, server):
    server.say(Reply("a plain text", chunk=1))
    said = streamed.ask(rein(Stars()), server)
    deltas = [e.delta for e in said.events if getattr(e, "type", "").endswith("text.delta")] or [
        e.choices[0].delta.content for e in said.events if e.choices[0].delta.content
    ]
    assert deltas[0] == "a"
    assert len(deltas) == len("a plain text")


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_arguments_come_once_they_are_complete(streamed, rein, server, chunk):
    # An escape hides in the pieces: only the parsed text shows it.
    server.say(Reply(None, [ToolCall("note", '{"text": "s\\u0065cret"}')], chunk=chunk))
    said = streamed.ask(rein(Stars()), server)
    assert said.calls == [("note", {"text": "*"})]
    pieces = [e.delta for e in said.events
              if getattr(e, "type", "") == "response.function_call_arguments.delta"]  # fmt: skip
    assert pieces in ([], ['{"text": "*"}'])


def test_hold_delivers_nothing_of_a_blocked_answer(streamed, rein, server):
    server.say(Reply("all of this is blocked", chunk=2))
    r = rein(Rules(post=lambda call, outcome: Deny("no", rule="r1")))
    (said,) = streamed.went(r, server, [streamed.request()], streams="hold")
    assert isinstance(said.error, Denied)
    assert said.text == ""
    (event,) = said.events
    retracted = event if streamed.form == "responses" else event.retracted
    assert retracted == AnswerRetracted("no", "r1", shown=False)


def test_pass_shows_it_and_takes_it_back(streamed, rein, server):
    server.say(Reply("all of this", [ToolCall("pay", {"to": "x"})], chunk=2))
    r = rein(Rules(post=lambda call, outcome: Deny("no", rule="r1")))
    (said,) = streamed.went(r, server, [streamed.request()], streams="pass")
    assert isinstance(said.error, Denied)
    assert said.text == "all of this"
    assert said.calls == [], "what a program acts upon waits for the judgement"
    last = said.events[-1]
    if streamed.form == "responses":
        assert last == AnswerRetracted("no", "r1", shown=True)
    else:
        assert isinstance(last, RetractedChunk)
        assert last.choices == []
        assert last.retracted == AnswerRetracted("no", "r1", shown=True)


def test_a_filter_stops_a_stream_before_the_phrase(streamed, rein, server):
    server.say(Reply("0123456789 the forbidden phrase and more", chunk=4))
    r = rein(Stops("forbidden phrase"), Cost(), Budget(usd=1, tokens=20_000))
    (said,) = streamed.went(r, server, [streamed.request()])
    assert isinstance(said.error, Denied)
    assert said.text == "0123456789 the "
    assert spent(r).estimated == 1
    assert "forbidden" not in json.dumps(views(r, "outcome"))


def test_an_answer_that_is_asked_again_is_taken_back_first(streamed, rein, server):
    server.say(Reply("half of", cut_after=None, chunk=2), Reply("the whole", chunk=4))
    again = [Retry(0), None]
    r = rein(Rules(post=lambda call, outcome: again.pop(0)))
    said = streamed.ask(r, server, streams="pass")
    assert said.text == "half ofthe whole"
    assert said.kinds.count("checkrein.answer_retracted") == 1


def test_a_budget_and_a_refusal_of_the_provider_are_raised_where_the_stream_is_asked_for(
    rein, server
):
    r = rein(Budget(tokens=1))
    with supervise_client(r, OpenAI(base_url=server.url, api_key="x")) as client:
        with pytest.raises(BudgetExceeded):
            client.responses.create(model=MODEL, input="hi", stream=True)
        server.say(Failure(400))
    r = rein()
    made = supervise_client(r, OpenAI(base_url=server.url, api_key="x"))
    with made as client, pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="hi", stream=True)


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize("how", ["close", "with", "forget", "error"])
def test_a_sync_stream_that_is_left_early_is_given_up_and_paid(rein, server, form, how):
    server.say(Reply("one two three four", chunk=2))
    r = rein(Cost(), Budget(usd=1, tokens=20_000))
    road = Road(form, "sync", streamed=True)
    with road.client(r, server) as client, r.session(on_error="keep") as session:
        stream = road.create(client)(**road.request())
        assert isinstance(stream, Stream)
        if how == "with":
            with stream:
                next(stream)
        elif how == "error":
            with pytest.raises(ZeroDivisionError):
                sum(1 / 0 for _ in stream)
            stream.close()
        else:
            next(stream)
            if how == "close":
                stream.close()
                assert list(stream) == []
        del stream
        gc.collect()
    (outcome,) = views(r, "outcome")
    assert (outcome["state"], outcome["error"]["type"]) == ("unknown", "GeneratorExit")
    assert session.spend().estimated == 1
    assert session.spend().tokens < 100, "what had come is counted"


def test_a_failed_session_does_not_wait_for_a_stream_that_nobody_reads(rein, server):
    server.say(Reply("one two three four", chunk=2))
    r = rein(drain=30)
    road = Road("chat", "sync", streamed=True)
    with road.client(r, server) as client:
        read: list[Any] = []

        def fail() -> None:
            with r.session():
                read.append(road.create(client)(**road.request()))
                next(read[0])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        # It would still be waiting here, and say so, if the stream counted as running.
        (row,) = r.store.sessions().rows
        assert (row.state, row.rollback) == ("FAILED", "rolled_back")
        read[0].close()


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize("how", ["close", "cancel", "break"])
def test_an_async_stream_that_is_left_early_is_given_up_and_paid(rein, server, form, how):
    server.say(Reply("one two three four", chunk=2))
    r = rein(Cost(), Budget(usd=1, tokens=20_000))
    road = Road(form, "async", streamed=True)

    async def go() -> None:
        async with road.client(r, server) as client, r.session():
            stream = await road.create(client)(**road.request())
            assert isinstance(stream, AsyncStream)
            if how == "cancel":
                reading = asyncio.Event()
                read = asyncio.ensure_future(_read(stream, reading))
                await reading.wait()
                read.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await read
                await stream.close()
            else:
                async for _ in stream:
                    break
                await stream.close()

    asyncio.run(go())
    (outcome,) = views(r, "outcome")
    assert (outcome["state"], outcome["error"]["type"]) == ("unknown", "CancelledError")
    assert spent(r).estimated == 1


async def _read(stream: Any, reading: asyncio.Event) -> None:
    async for _ in stream:
        reading.set()
        await asyncio.sleep(3600)


def test_a_connection_that_breaks_is_an_estimate(streamed, rein, server):
    server.say(Reply("one two three four", chunk=2, cut_after=8))
    r = rein(Cost(), Budget(usd=1, tokens=20_000))
    said = streamed.ask(r, server)
    assert said.text.startswith("one t")
    assert spent(r).estimated == 1, "its usage never came: what had come is counted"


def test_what_runs_between_two_pieces_is_not_inside_the_call(rein, server):
    server.say(Reply("one two", chunk=3))
    r = rein()
    road = Road("chat", "sync", streamed=True)
    with road.client(r, server) as client, r.session():
        for _ in road.create(client)(**road.request()):
            r.call(len, "x")
    intents = views(r, "intent")
    assert [view.get("parent", "") for view in intents] == [""] * len(intents)


def test_a_limit_of_time_holds_for_a_stream_as_a_whole(rein, server):
    server.say(Reply("a" * 4000, chunk=1))
    r = rein()
    road = Road("chat", "sync", streamed=True)
    with road.client(r, server) as client, r.session(on_error="keep"), r.options(timeout=0.05):
        stream = road.create(client)(**road.request())
        with pytest.raises(TimeoutError):
            all(time.sleep(0.01) is None for _ in stream)
    (outcome,) = views(r, "outcome")
    assert outcome["state"] == "unknown"


@pytest.mark.parametrize("form", ["chat", "responses"])
def test_the_clients_own_stream_helpers_work(rein, server, form):
    server.say(*[Reply("mail ann@example.org", [ToolCall("note", {"to": "bob@example.org"})])] * 2)
    r = rein(Redaction(), Cost())

    def request(client: Any) -> Any:
        if form == "chat":
            messages: Any = [{"role": "user", "content": "hi"}]
            return client.chat.completions.stream(model=MODEL, messages=messages)
        return client.responses.stream(model=MODEL, input="hi")

    def check(events: list[Any], final: Any) -> None:
        assert "ann@example.org" not in repr((events, final))
        assert "bob@example.org" not in repr((events, final))
        message = final.choices[0].message if form == "chat" else final
        assert (message.content if form == "chat" else message.output_text) == "mail [EMAIL]"

    made = supervise_client(r, OpenAI(base_url=server.url, api_key="x"))
    with made as client, r.session(), request(client) as stream:
        events = list(stream)
        last = stream.get_final_completion if form == "chat" else stream.get_final_response
        check(events, last())

    async def go() -> None:
        made = supervise_client(r, AsyncOpenAI(base_url=server.url, api_key="x"))
        async with made as client, r.session(), request(client) as stream:
            events = [event async for event in stream]
            last = stream.get_final_completion if form == "chat" else stream.get_final_response
            check(events, await last())

    asyncio.run(go())
