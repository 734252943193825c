"""Whatever comes in chunks: filtered as the whole is, counted once, and never an odd error."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from checkrein.call import Call, ToolInfo, Usage
from checkrein.counting import counted, input_tokens, text_tokens
from checkrein.streams.chunks import pieces_of
from checkrein.streams.delivery import Delivery, text_of, with_whole
from checkrein.streams.fields import found, get, replaced
from checkrein.streams.filters import Channels
from checkrein.usage import check_usage, usage_of

CALL = Call("c", "s", "model", "m", {}, ToolInfo("m"))


class Shout:
    """Lets whole words through, in capitals."""

    holdback = 100

    def __init__(self) -> None:
        self.kept = ""

    def feed(self, text: str) -> str:
        self.kept += text
        whole, mark, self.kept = self.kept.rpartition(" ")
        return (whole + mark).upper()

    def flush(self) -> str:
        text, self.kept = self.kept, ""
        return text.upper()

    def abort(self) -> None:
        self.kept = ""


class Opener:
    plugin = "shout"

    def __call__(self, call: Call, channel: str) -> Any:
        return Shout()


def channels() -> Channels:
    return Channels(CALL, [Opener()], lambda denied: denied)  # type: ignore[list-item]  # as an Impl


def cut(text: str, places: list[int]) -> list[str]:
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(borders)]


class Chunk:
    """A chunk as an SDK has it: an object whose parts are objects."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def as_object(value: Any) -> Any:
    if isinstance(value, dict):
        return Chunk(**{key: as_object(part) for key, part in value.items()})
    return [as_object(part) for part in value] if isinstance(value, list) else value


def chat(text: str, channel: str) -> Any:
    key = "content" if channel == "text" else "reasoning_content"
    return {"choices": [{"index": 0, "delta": {key: text}}]}


def anthropic(text: str, channel: str) -> Any:
    kind, key = ("text_delta", "text") if channel == "text" else ("thinking_delta", "thinking")
    return {"type": "content_block_delta", "index": int(channel == "text"),
            "delta": {"type": kind, key: text}}  # fmt: skip


def google(text: str, channel: str) -> Any:
    return {"candidates": [{"content": {"parts": [{"text": text, "thought": channel != "text"}]}}]}


SHAPES = st.sampled_from([chat, anthropic, google])
TEXTS = st.text("abc é\n", max_size=40)


@given(SHAPES, TEXTS, TEXTS, st.lists(st.integers(0, 99), max_size=6), st.booleans(),
       st.booleans())  # fmt: skip
def test_however_it_is_cut_the_parts_are_the_filtered_whole(
    shape: Any, thought: str, text: str, places: list[int], objects: bool, filtered: bool
) -> None:
    chunks = [shape(part, "reasoning") for part in cut(thought, places) if part]
    chunks += [shape(part, "text") for part in cut(text, places) if part]
    if objects:
        chunks = [as_object(chunk) for chunk in chunks]
    delivery = Delivery(channels() if filtered else None)
    out = [piece for chunk in chunks for piece in delivery.feed(chunk)]
    out += delivery.end()
    for channel, whole in (("reasoning", thought), ("text", text)):
        got = "".join(
            p.text for chunk in out for p in pieces_of(chunk) or () if p.channel == channel
        )
        assert got == (whole.upper() if filtered else whole)
    assert delivery.said() == thought + text
    message = delivery.message()
    assert text_of(message) == (text.upper() if filtered else text)
    if not filtered:
        assert out == chunks


@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab c", max_size=8)), max_size=12))
def test_arguments_of_several_calls_at_once_keep_apart(pieces: list[tuple[int, str]]) -> None:
    """Their deltas may alternate; each call's arguments are filtered whole."""
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": number, "function": {"name": f"t{number}", "arguments": text}}]}}]}
        for number, text in pieces
    ]  # fmt: skip
    delivery = Delivery(channels())
    out = [piece for chunk in chunks for piece in delivery.feed(chunk)]
    out += delivery.end()
    for number in range(3):
        whole = "".join(text for index, text in pieces if index == number)
        got = "".join(
            p.text for chunk in out for p in pieces_of(chunk) or () if p.number == (0, number)
        )
        assert got == whole.upper()
    assert len(out) == len(chunks)


@given(st.lists(TEXTS, max_size=5), TEXTS, SHAPES)
def test_an_answer_in_place_of_another_keeps_its_chunks(
    texts: list[str], other: str, shape: Any
) -> None:
    chunks = [shape(text, "text") for text in texts]
    out = list(with_whole(chunks, other))
    got = "".join(p.text for chunk in out for p in pieces_of(chunk) or ())
    assert got == other
    assert len(out) <= len(chunks) + (not chunks)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "usage", "usage_metadata", "usageMetadata", "input_tokens", "output_tokens",
            "prompt_tokens", "completion_tokens", "promptTokenCount", "candidatesTokenCount",
            "cache_read_input_tokens", "cache_creation", "prompt_tokens_details", "cached_tokens",
            "input_token_details", "audio", "model", "message", "response", "service_tier",
            "promptTokensDetails", "modality", "tokenCount", "response_metadata", "total_tokens",
            "choices", "delta", "content", "type", "candidates", "parts", "text", "tool_calls",
        ]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@example([{"usage": "none"}], "")
@example([{"usage": []}, {"usage": 5}, {"usage": True}], "")
@example([{"usage": {"prompt_tokens": {}}}, {"usage": {"prompt_tokens": 1}}], "")
@example([{"usage": {"prompt_tokens": 1}}, {"usage": {"prompt_tokens": {}}}], "")
@example([{"usage": {"prompt_tokens": "1"}}, {"usage": {"prompt_tokens": 1}}], "")
@given(JSON, st.sampled_from(["", "openai", "anthropic", "google", "langchain"]))
def test_usage_out_of_anything_is_sound_or_refused(response: Any, provider: str) -> None:
    try:
        usage = usage_of(response, provider)
    except ValueError:
        return
    if usage is not None:
        counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens,
                  usage.cache_write_tokens, usage.cache_write_1h_tokens)  # fmt: skip
        assert all(type(count) is int and count >= 0 for count in counts)
        assert check_usage(usage) or max(counts) > 10**12


@given(JSON)
def test_chunks_of_any_form_give_pieces_or_none(chunk: Any) -> None:
    for piece in pieces_of(chunk) or ():
        assert isinstance(piece.text, str)
        if piece.path and not piece.whole:
            again = pieces_of(replaced(chunk, piece.path, "new")) or []
            assert any(p.path == piece.path and p.text == "new" for p in again)
            assert found(replaced(chunk, piece.path, "new"), piece.path) == "new"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), st.booleans())
def test_cumulative_counts_are_not_added_and_parts_are(counts: list[int], parts: bool) -> None:
    if parts:
        chunks: list[Any] = [
            {"usage": {"input_tokens": n, "output_tokens": n, "input_token_details": {}}}
            for n in counts
        ]
        wanted = sum(counts)
    else:
        counts = sorted(counts)
        chunks = [{"usage": {"prompt_tokens": n, "completion_tokens": n}} for n in counts]
        wanted = counts[-1]
    usage = usage_of(chunks)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (wanted, wanted)


@given(TEXTS, st.integers(0, 1000), st.integers(0, 1000))
def test_what_was_reported_is_never_lowered_by_counting(
    text: str, reported_in: int, reported_out: int
) -> None:
    arguments = {"messages": [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]}
    found_ = counted(arguments, text, Usage(reported_in, reported_out))
    assert found_.estimated
    assert found_.input_tokens == (reported_in or input_tokens(arguments))
    assert found_.output_tokens == max(reported_out, text_tokens(text))


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2)]
)
def test_four_bytes_are_a_token(text: str, tokens: int) -> None:
    assert text_tokens(text) == tokens


class Item(BaseModel):
    """Has everything by which an SDK's object can know a name."""

    model_config = ConfigDict(extra="allow")
    content: str | None = None
    kind: ClassVar[str] = "item"
    _hidden: str = PrivateAttr("hidden")

    @property
    def size(self) -> int:
        return len(self.content or "")


class Odd(Item):
    """Answers names that it does not know."""

    def __getattr__(self, name: str) -> str:
        return f"made {name}"


def test_a_field_is_what_the_object_itself_says_it_is() -> None:
    item = Item(content="abc", more="extra")  # type: ignore[call-arg]  # an extra field
    for one in (item, Item.model_construct(content="abc", more="extra"), Odd(content="abc")):
        for name in ("content", "kind", "size", "_hidden", "more", "none", "model_copy"):
            assert get(one, name) == getattr(one, name, None), name
    assert get(item, "more") == "extra"
    assert get(Odd(), "none") == "made none"
    assert get(Item(), "none") is None and get(None, "none") is None
    assert get({"a": 1}, "a") == get(MappingProxyType({"a": 1}), "a") == 1
    assert get({"a": 1}, "b") is None and get(object(), "b") is None
