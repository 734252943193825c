"""Streamed model calls in loops of one's own: sync and async, filtered, counted, given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from checkrein import Rein
from checkrein.call import Call, Usage
from checkrein.counting import input_tokens, text_tokens
from checkrein.entry import CURRENT
from checkrein.errors import BudgetExceeded, ConfigError, Denied, WouldBlock
from checkrein.hooks import Plugin
from checkrein.streams.chunks import pieces_of
from checkrein.verdicts import Answer, Deny, Replace, Retry
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

PRICES = {"mine": {"input": 1, "output": 10}}
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "tell me a story"}]}]
TEXT = "Once upon a time there was a very long answer. "
ASKED = input_tokens({"system": None, "messages": MESSAGES, "tools": []})

USAGE = {"prompt_tokens": 1000, "completion_tokens": 50}


def chat(usage: Any = USAGE, pieces: int = 5) -> list[Any]:
    found: list[Any] = [
        {"model": "mine", "choices": [{"index": 0, "delta": {"content": TEXT}}]}
        for _ in range(pieces)
    ]
    found.append({"model": "mine", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if usage is not None:
        found.append({"model": "mine", "choices": [], "usage": usage})
    return found


def anthropic(usage: bool = True) -> list[Any]:
    start: Any = {"model": "mine", "usage": {"input_tokens": 1000, "output_tokens": 1}}
    found: list[Any] = [
        {"type": "message_start", "message": start if usage else {"model": "mine"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
          for _ in range(5)),
        {"type": "content_block_stop", "index": 0},
    ]  # fmt: skip
    if usage:
        found.append({"type": "message_delta", "usage": {"output_tokens": 50}})
    return [*found, {"type": "message_stop"}]


def google(usage: bool = True) -> list[Any]:
    counts = {"promptTokenCount": 1000, "candidatesTokenCount": 10}
    found: list[Any] = [
        {"candidates": [{"content": {"parts": [{"text": TEXT}]}}],
         **({"usageMetadata": {**counts, "candidatesTokenCount": 10 * (n + 1)}} if usage else {})}
        for n in range(5)
    ]  # fmt: skip
    return found


def responses(usage: bool = True) -> list[Any]:
    whole: Any = {"model": "mine", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": TEXT * 5}]}
    ]}  # fmt: skip
    if usage:
        whole["usage"] = {"input_tokens": 1000, "output_tokens": 50}
    return [
        *({"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
           "delta": TEXT} for _ in range(5)),
        {"type": "response.completed", "response": whole},
    ]  # fmt: skip


class Provider:
    """Gives chunks one by one, and knows how many were taken and whether it was closed."""

    def __init__(self, chunks: list[Any]) -> None:
        self.chunks = chunks
        self.sent = 0
        self.closed = False
        self.calls = 0

    def sync(self, **request: Any) -> Iterator[Any]:
        self.calls += 1

        def stream() -> Iterator[Any]:
            try:
                for chunk in self.chunks:
                    self.sent += 1
                    if isinstance(chunk, Exception):
                        raise chunk
                    yield chunk
            finally:
                self.closed = True

        return stream()

    async def later(self, **request: Any) -> AsyncIterator[Any]:
        self.calls += 1

        async def stream() -> AsyncIterator[Any]:
            try:
                for chunk in self.chunks:
                    await asyncio.sleep(0)
                    self.sent += 1
                    if isinstance(chunk, Exception):
                        raise chunk
                    yield chunk
            finally:
                self.closed = True

        return stream()


HOW = pytest.mark.parametrize("how", ["sync", "async"])


def read(rein: Rein, provider: Provider, how: str, stop: int | None = None) -> list[Any]:
    """The chunks of one streamed call; `stop`: give it up after so many."""
    found: list[Any] = []
    if how == "sync":
        with rein.model_stream(provider.sync, model="mine", messages=MESSAGES) as stream:
            for chunk in stream:
                found.append(chunk)
                if len(found) == stop:
                    break
        return found

    async def main() -> None:
        async with rein.amodel_stream(provider.later, model="mine", messages=MESSAGES) as stream:
            async for chunk in stream:
                found.append(chunk)
                if len(found) == stop:
                    break

    asyncio.run(main())
    return found


def row(rein: Rein) -> Any:
    (found,) = rein.store.costs().rows
    return found


SHAPES = pytest.mark.parametrize("shape", [chat, anthropic, google, responses])


@HOW
@SHAPES
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_streamed_costs_what_plain_costs(how: str, shape: Any, store: str, tmp_path: Any) -> None:
    url = store if store == "memory:" else f"sqlite:///{tmp_path}/s.db"
    provider = Provider(shape())
    with Rein(plugins=[Cost(overlay=PRICES)], store=url) as rein, rein.session() as session:
        assert read(rein, provider, how) == provider.chunks
        streamed = row(rein)
        plain = {"model": "mine", "usage": {"input_tokens": 1000, "output_tokens": 50}}
        rein.model_call(lambda **_: plain, model="mine", messages=MESSAGES)
        other = rein.store.costs().rows[1]
        assert session.spend().nano_usd == 3_000_000
        events = [e for e in rein.read(session.id).events() if e.kind == "outcome"]
        result = events[0].view["result"]
    assert (streamed.cost, streamed.input, streamed.output, streamed.state) == (
        other.cost, other.input, other.output, "reported"
    )  # fmt: skip
    assert result == {"role": "assistant", "parts": [{"type": "text", "content": TEXT * 5}]}
    assert provider.closed


@HOW
@SHAPES
def test_without_a_report_the_tokens_are_counted(how: str, shape: Any) -> None:
    chunks = shape(None) if shape is chat else shape(False)
    with (
        Rein(plugins=[Cost(overlay=PRICES), Budget(usd=1, prices=PRICES)]) as rein,
        rein.session() as session,
    ):
        read(rein, Provider(chunks), how)
        found = row(rein)
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
    assert (found.input, found.output) == (ASKED, text_tokens(TEXT * 5))
    assert found.state == "estimated"
    assert found.cost == (ASKED + 10 * text_tokens(TEXT * 5)) * 1000
    assert balance is not None
    assert (balance.spent, balance.held) == (found.cost, 0)


@HOW
@SHAPES
def test_a_stream_that_is_given_up_is_paid_for_as_far_as_it_came(how: str, shape: Any) -> None:
    provider = Provider(shape())
    before = 2 if shape is anthropic else 0  # chunks without text
    with (
        Rein(plugins=[Cost(overlay=PRICES), Budget(usd=1, prices=PRICES)]) as rein,
        rein.session(on_error="keep") as session,
    ):
        assert len(read(rein, provider, how, stop=3 + before)) == 3 + before
        found = row(rein)
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
        (outcome,) = [e for e in rein.read(session.id).events() if e.kind == "outcome"]
    assert provider.sent == 3 + before, "nothing more was asked of the provider"
    assert provider.closed
    assert found.state == "estimated"
    assert found.output == max(text_tokens(TEXT * 3), 30 if shape is google else 0)
    assert found.input == (1000 if shape in (anthropic, google) else ASKED)
    assert balance is not None
    assert (balance.spent, balance.held) == (found.cost, 0)
    assert outcome.view["state"] == "unknown"


@HOW
def test_a_provider_that_breaks_off_is_paid_for_as_far_as_it_came(how: str) -> None:
    provider = Provider([*chat(None)[:2], ConnectionResetError("gone")])
    with (
        Rein(plugins=[Cost(overlay=PRICES), Budget(usd=1, prices=PRICES)]) as rein,
        rein.session(on_error="keep"),
    ):
        with pytest.raises(ConnectionResetError):
            read(rein, provider, how)
        found = row(rein)
    assert (found.state, found.output) == ("estimated", text_tokens(TEXT * 2))


@HOW
def test_one_that_never_began_is_charged_its_hold(how: str) -> None:
    provider = Provider([ConnectionResetError("gone")])
    budget = Budget(usd=1, prices=PRICES, estimate_usd=0.25)
    with Rein(plugins=[Cost(overlay=PRICES), budget]) as rein, rein.session(on_error="keep"):
        with pytest.raises(ConnectionResetError):
            read(rein, provider, how)
        assert (row(rein).cost, row(rein).state) == (250_000_000, "estimated")


@HOW
def test_invalid_usage_is_charged_at_the_hold(how: str) -> None:
    provider = Provider(chat({"prompt_tokens": -5, "completion_tokens": 1}))
    budget = Budget(usd=1, prices=PRICES, estimate_usd=0.25)
    with Rein(plugins=[Cost(overlay=PRICES), budget]) as rein, rein.session() as session:
        assert read(rein, provider, how) == provider.chunks
        assert (row(rein).cost, row(rein).state) == (250_000_000, "unpriced")
        (outcome,) = [e for e in rein.read(session.id).events() if e.kind == "outcome"]
        assert outcome.view["usage_unreadable"] is True


@HOW
def test_a_refused_stream_never_reaches_the_provider(how: str) -> None:
    provider = Provider(chat())
    with (
        Rein(plugins=[Budget(usd=0.0001, prices=PRICES)]) as rein,
        rein.session(on_error="keep"),
        pytest.raises(BudgetExceeded),
    ):
        read(rein, provider, how)
    assert provider.calls == 0


@HOW
def test_twenty_streams_at_once_fit_twice(how: str) -> None:
    """Cap 1.00, each holds 0.45 and costs 0.40: two run, whoever reads them."""
    budget = Budget(usd=1, prices={"mine": {"input": 1, "output": 0}}, estimate_usd=0.45)
    usage = {"prompt_tokens": 400_000, "completion_tokens": 0}
    providers = [Provider(chat(usage)) for _ in range(20)]
    refused = 0
    prices = {"mine": {"input": 1, "output": 0}}
    with (
        Rein(plugins=[budget, Cost(overlay=prices)]) as rein,
        rein.session(on_error="keep") as session,
    ):
        if how == "sync":
            streams: list[Any] = [
                rein.model_stream(p.sync, model="mine", messages=MESSAGES) for p in providers
            ]
            running = []
            for stream in streams:
                try:
                    next(stream)
                except BudgetExceeded:
                    refused += 1
                else:
                    running.append(stream)
            for stream in running:
                list(stream)
        else:

            async def one(provider: Provider) -> None:
                stream = rein.amodel_stream(provider.later, model="mine", messages=MESSAGES)
                async for _ in stream:
                    await asyncio.sleep(0)

            async def main() -> list[Any]:
                return await asyncio.gather(*map(one, providers), return_exceptions=True)

            refused = sum(isinstance(e, BudgetExceeded) for e in asyncio.run(main()))
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
    assert refused == 18
    assert sum(p.calls for p in providers) == 2
    assert balance is not None
    assert (balance.spent, balance.held) == (800_000_000, 0)


def test_a_task_that_is_cancelled_settles_what_it_held() -> None:
    provider = Provider(chat(pieces=1000))

    async def main(rein: Rein) -> None:
        started = asyncio.Event()

        async def agent() -> None:
            async with rein.amodel_stream(
                provider.later, model="mine", messages=MESSAGES
            ) as stream:
                async for _ in stream:
                    started.set()

        task = asyncio.create_task(agent())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with (
        Rein(plugins=[Budget(usd=1, prices=PRICES), Cost(overlay=PRICES)]) as rein,
        rein.session() as session,
    ):
        asyncio.run(main(rein))
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
        assert balance is not None
        assert (balance.spent, balance.held) == (row(rein).cost, 0)
    assert provider.closed
    assert provider.sent < 1000


def test_a_stream_whose_closing_has_to_wait_is_closed_and_recorded() -> None:
    closed: list[str] = []

    class Slow:
        """As HTTP clients do, it waits for the connection when it is closed."""

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            return "piece "

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            closed.append("closed")

    async def main(rein: Rein) -> None:
        stream = rein.amodel_stream(lambda **_: Slow(), model="mine", messages=MESSAGES)
        await anext(stream)
        await stream.aclose()

    with Rein() as rein, rein.session():
        asyncio.run(main(rein))
        (outcome,) = rein.store.events(kinds=("outcome",))
    assert closed == ["closed"]
    assert outcome.view["error"]["type"] == "CancelledError"


def test_a_stream_that_is_dropped_is_recorded() -> None:
    """Without a `with`: a sync generator that nobody holds any more is closed at once."""
    provider = Provider(chat())
    with Rein(plugins=[Cost(overlay=PRICES)]) as rein, rein.session():
        for _ in rein.model_stream(provider.sync, model="mine", messages=MESSAGES):
            break
        assert provider.closed
        assert row(rein).state == "estimated"


@HOW
def test_a_run_that_fails_does_not_wait_for_an_open_stream(how: str) -> None:
    provider = Provider(chat())
    with Rein(plugins=[Budget(usd=1, prices=PRICES), Cost(overlay=PRICES)]) as rein:
        session = rein.session(drain=30)
        open_: list[Any] = []

        def agent() -> None:
            with session:
                open_.append(rein.model_stream(provider.sync, model="mine", messages=MESSAGES))
                next(open_[0])
                raise ValueError

        async def later() -> None:
            async with session:
                open_.append(rein.amodel_stream(provider.later, model="mine", messages=MESSAGES))
                await anext(open_[0])
                raise ValueError

        async def main() -> None:
            with pytest.raises(ValueError):
                await later()
            found = rein.store.session(session.id)
            assert found is not None
            assert found.rollback == "rolled_back"
            await open_[0].aclose()

        if how == "sync":
            with pytest.raises(ValueError):
                agent()
            found = rein.store.session(session.id)
            assert found is not None
            assert found.rollback == "rolled_back"
            open_[0].close()
        else:
            asyncio.run(main())
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
        assert balance is not None
        assert (balance.spent, balance.held) == (row(rein).cost, 0)
    assert provider.closed


@HOW
def test_a_stream_that_nobody_reads_is_no_call(how: str) -> None:
    provider = Provider(chat())
    with Rein(plugins=[Budget(calls=1)]) as rein, rein.session() as session:
        if how == "sync":
            with rein.model_stream(provider.sync, model="mine", messages=MESSAGES):
                pass
        else:

            async def main() -> None:
                async with rein.amodel_stream(provider.later, model="mine", messages=MESSAGES):
                    pass

            asyncio.run(main())
        assert session.spend().calls == 0
    assert provider.calls == 0


@HOW
def test_the_reader_is_not_inside_the_call(how: str) -> None:
    """What it does between two chunks is its own, not the model call's."""
    seen: list[Any] = []
    provider = Provider(chat())
    with Rein() as rein, rein.session() as session:
        if how == "sync":
            for _ in rein.model_stream(provider.sync, model="mine", messages=MESSAGES):
                seen.append(CURRENT.get())
                rein.call(len, "tool between chunks")
        else:

            async def main() -> None:
                async for _ in rein.amodel_stream(provider.later, model="mine", messages=MESSAGES):
                    seen.append(CURRENT.get())
                    await rein.acall(len, "tool between chunks")

            asyncio.run(main())
        intents = [e for e in rein.read(session.id).events() if e.kind == "intent"]
    assert set(seen) == {None}
    assert len(intents) == 1 + len(provider.chunks)
    assert not any("parent" in e.view for e in intents)


def test_an_async_stream_needs_the_async_twin() -> None:
    with (
        Rein() as rein,
        rein.session(on_error="keep"),
        pytest.raises(WouldBlock, match="amodel_stream"),
    ):
        read(rein, SimpleNamespace(sync=Provider(chat()).later), "sync")  # type: ignore[arg-type]


def test_a_sync_stream_in_async_code() -> None:
    provider = Provider(chat())

    async def main(rein: Rein) -> list[Any]:
        stream = rein.amodel_stream(provider.sync, model="mine", messages=MESSAGES)
        return [chunk async for chunk in stream]

    with Rein() as rein, rein.session():
        assert asyncio.run(main(rein)) == provider.chunks


@HOW
def test_a_timeout_is_the_providers_not_the_readers(how: str) -> None:
    async def slow(**request: Any) -> AsyncIterator[Any]:
        async def stream() -> AsyncIterator[Any]:
            yield TEXT
            await asyncio.sleep(5)
            yield TEXT

        return stream()

    def slow_sync(**request: Any) -> Iterator[Any]:
        yield TEXT
        time.sleep(0.15)
        yield TEXT

    with Rein(plugins=[Cost(overlay=PRICES)]) as rein, rein.session(on_error="keep"):
        with rein.options(timeout=0.1), pytest.raises(TimeoutError):
            read(rein, SimpleNamespace(sync=slow_sync, later=slow), how)  # type: ignore[arg-type]
        assert row(rein).state == "estimated"


# Filters


class Upper(Plugin):
    """Changes text on its way, and keeps one character back."""

    def open_stream(self, call: Call, channel: str) -> Any:
        class Filter:
            holdback = 1
            kept = ""

            def feed(self, text: str) -> str:
                text = self.kept + text
                self.kept = text[-1:]
                return text[:-1].upper()

            def flush(self) -> str:
                text, self.kept = self.kept, ""
                return text.upper()

            def abort(self) -> None:
                self.kept = ""

        return Filter()


def texts(chunks: list[Any]) -> str:
    return "".join(p.text for c in chunks for p in pieces_of(c) or () if p.channel == "text")


@HOW
@SHAPES
def test_filters_change_what_is_delivered_and_recorded(how: str, shape: Any) -> None:
    provider = Provider(shape())
    with Rein(plugins=[Upper(), Cost(overlay=PRICES)]) as rein, rein.session() as session:
        out = read(rein, provider, how)
        (outcome,) = [e for e in rein.read(session.id).events() if e.kind == "outcome"]
        assert row(rein).state == "reported"
    assert texts(out) == (TEXT * 5).upper()
    assert TEXT not in str(out)
    assert outcome.view["result"]["parts"] == [{"type": "text", "content": (TEXT * 5).upper()}]


@HOW
def test_plain_texts_are_chunks_too(how: str) -> None:
    with Rein(plugins=[Upper()]) as rein, rein.session():
        assert "".join(read(rein, Provider(["ab", "cd", "ef"]), how)) == "ABCDEF"


@HOW
def test_arguments_of_tool_calls_are_filtered_whole(how: str) -> None:
    def piece(text: str, **more: Any) -> Any:
        call = {"index": 0, **more, "function": {"arguments": text}}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}

    chunks = [
        {"choices": [{"index": 0, "delta": {"content": "ok"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "pay", "arguments": ""}}]}}]},
        piece('{"to": "a'), piece('nn"}'),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]  # fmt: skip
    with Rein(plugins=[Upper()]) as rein, rein.session() as session:
        out = read(rein, Provider(chunks), how)
        (outcome,) = [e for e in rein.read(session.id).events() if e.kind == "outcome"]
    assert out[-1] == chunks[-1], "what ends the answer comes last"
    assert outcome.view["result"]["parts"] == [
        {"type": "text", "content": "OK"},
        {"type": "tool_call", "name": "pay", "id": "c1", "arguments": {"TO": "ANN"}},
    ]


@HOW
def test_a_chunk_of_unknown_form_is_not_delivered_unfiltered(how: str) -> None:
    with (
        Rein(plugins=[Upper()]) as rein,
        rein.session(on_error="keep"),
        pytest.raises(ConfigError, match="cannot be filtered"),
    ):
        read(rein, Provider([{"secret": "text"}]), how)
    with Rein() as rein, rein.session():
        assert read(rein, Provider([{"secret": "text"}]), how) == [{"secret": "text"}]


class Judges(Plugin):
    """Looks at the whole answer."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked = 0

    def post_call(self, call: Call, outcome: Any) -> Any:
        self.asked += 1
        return self.verdict if self.asked == 1 else None


@HOW
def test_a_plugin_that_judges_the_whole_sees_it_before_anybody(how: str) -> None:
    with Rein(plugins=[Judges(Deny("no"))]) as rein, rein.session(on_error="keep"):
        found: list[Any] = []
        with pytest.raises(Denied):
            found = read(rein, Provider(chat()), how)
        assert not found
    with Rein(plugins=[Judges(Replace("other"))]) as rein, rein.session():
        out = read(rein, Provider(chat()), how)
        assert texts(out) == "other"
        assert len(out) == len(chat())
    provider = Provider(chat())
    with Rein(plugins=[Judges(Retry())]) as rein, rein.session():
        assert read(rein, provider, how) == provider.chunks
    assert provider.calls == 2
    with Rein(plugins=[Judges(None)]) as rein, rein.session():
        assert read(rein, Provider(chat()), how) == chat()


@HOW
def test_what_was_delivered_is_not_asked_for_again(how: str) -> None:
    class Both(Upper, Judges):
        def __init__(self) -> None:
            Judges.__init__(self, Retry())

    provider = Provider(chat())
    with Rein(plugins=[Both()]) as rein, rein.session():
        assert texts(read(rein, provider, how)) == (TEXT * 5).upper()
    assert provider.calls == 1


@HOW
def test_an_answer_in_its_place_is_a_text(how: str) -> None:
    class Cached(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Answer("from the cache", saved=Usage(10, 5))

    provider = Provider(chat())
    with Rein(plugins=[Cached(), Cost(overlay=PRICES)]) as rein, rein.session():
        assert read(rein, provider, how) == ["from the cache"]
        assert (row(rein).cost, row(rein).saved, row(rein).state) == (0, 15, "reported")
    assert provider.calls == 0


class Stubborn(Upper):
    """Tries again what failed, and looks at text as it comes."""

    def post_call(self, call: Call, outcome: Any) -> Any:
        return Retry() if outcome.error is not None else None


@HOW
@pytest.mark.parametrize("came", [0, 2])
def test_only_what_nobody_has_seen_is_tried_again(how: str, came: int) -> None:
    """A stream that breaks before its first chunk is asked for once more, with a row for each."""
    broken = Provider([*chat()[:came], ConnectionResetError("gone")])
    whole = Provider(chat())
    turns = [broken, whole]

    def pick() -> Provider:
        return turns.pop(0)

    both = SimpleNamespace(sync=lambda **r: pick().sync(**r), later=lambda **r: pick().later(**r))
    plugins = [Stubborn(), Budget(usd=1, prices=PRICES, estimate_usd=0.1), Cost(overlay=PRICES)]
    with Rein(plugins=plugins) as rein, rein.session(on_error="keep") as session:
        if came:
            with pytest.raises(ConnectionResetError):
                read(rein, both, how)  # type: ignore[arg-type]
        else:
            assert texts(read(rein, both, how)) == (TEXT * 5).upper()  # type: ignore[arg-type]
        rows = rein.store.costs().rows
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
    assert whole.calls == (0 if came else 1)
    assert [r.role for r in rows] == ([""] if came else ["", "retry"])
    assert rows[0].state == "estimated"
    assert balance is not None
    assert (balance.spent, balance.held) == (sum(r.cost for r in rows), 0)


def test_observed_streams_pass() -> None:
    """In mode observe nothing is refused, and what would have been is recorded."""
    provider = Provider(chat())
    with (
        Rein(plugins=[Budget(usd=0, prices=PRICES)], mode="observe") as rein,
        rein.session() as session,
    ):
        assert read(rein, provider, "sync") == provider.chunks
        (intent,) = [e for e in rein.read(session.id).events() if e.kind == "intent"]
    assert any(verdict[1] != "hold" for verdict in intent.view["verdicts"])
