"""Where the text stands in a chunk of a stream, whichever provider it came from.

Chunks are dicts or objects of an SDK: OpenAI's chat completions and Responses, Anthropic's
messages, Google's GenerateContent, or plain texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from checkrein.streams.fields import found, get

Channel = Literal["text", "reasoning", "tool"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text in a chunk."""

    channel: Channel
    number: Any
    """Which block of the answer, or which tool call, it belongs to."""
    path: tuple[str | int, ...]
    text: str
    name: str = ""
    """Of a tool call, in the chunk that tells it."""
    id: str = ""
    whole: bool = False
    """The arguments stand there as an object; `text` is their JSON."""


_ANTHROPIC = frozenset(
    ("message_start", "content_block_start", "content_block_delta", "content_block_stop",
     "message_delta", "message_stop", "ping", "error")
)  # fmt: skip
_DELTAS: Mapping[str, tuple[Channel, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "input_json_delta": ("tool", "partial_json"),
}
_CHAT: tuple[tuple[str, Channel], ...] = (
    ("content", "text"), ("refusal", "text"), ("reasoning_content", "reasoning"),
    ("reasoning", "reasoning"),
)  # fmt: skip


_ABOUT = frozenset(
    ("usage", "usageMetadata", "usage_metadata", "model", "modelVersion", "service_tier", "id",
     "object", "created", "type")
)  # fmt: skip
"""Keys of a chunk that tells about an answer, and has nothing of it."""


def is_response(chunk: Any) -> bool:
    """Whether it is an event of OpenAI's Responses."""
    kind = get(chunk, "type")
    return isinstance(kind, str) and kind.startswith("response.")


def pieces_of(chunk: Any) -> list[Piece] | None:
    """The texts of a chunk; None for a chunk of which nobody knows where its text stands."""
    if isinstance(chunk, str):
        return [Piece("text", 0, (), chunk)]
    if chunk is None:
        return []
    if is_response(chunk):
        return list(_response(chunk))
    kind = get(chunk, "type")
    if isinstance(kind, str) and kind in _ANTHROPIC:
        return _anthropic(chunk, kind)
    if isinstance(get(chunk, "choices"), (list, tuple)):
        return list(_chat(chunk))
    if isinstance(get(chunk, "candidates"), (list, tuple)):
        return list(_google(chunk))
    return [] if isinstance(chunk, Mapping) and chunk.keys() <= _ABOUT else None


def _index(item: Any, default: int = 0, key: str = "index") -> int:
    """A running number that an item names."""
    number = get(item, key)
    return number if isinstance(number, int) else default


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _chat(chunk: Any) -> Iterator[Piece]:
    for place, choice in enumerate(get(chunk, "choices")):
        answer = _index(choice)
        base = ("choices", place)
        text = get(choice, "text")
        if isinstance(text, str):
            yield Piece("text", answer, (*base, "text"), text)
        for part in ("delta", "message"):
            yield from _said(get(choice, part), answer, (*base, part))


def _said(delta: Any, answer: Any, base: tuple[str | int, ...]) -> Iterator[Piece]:
    for key, channel in _CHAT:
        text = get(delta, key)
        if isinstance(text, str):
            yield Piece(channel, answer, (*base, key), text)
    spoken = found(delta, ("audio", "transcript"))
    if isinstance(spoken, str):
        yield Piece("text", answer, (*base, "audio", "transcript"), spoken)
    for index, call in enumerate(_items(get(delta, "tool_calls"))):
        function = get(call, "function")
        given = get(function, "arguments")
        whole = isinstance(given, Mapping)
        yield Piece(
            "tool", (answer, _index(call, index)),
            (*base, "tool_calls", index, "function", "arguments"),
            _json(given) if whole else _text(given), _text(get(function, "name")),
            _text(get(call, "id")), whole,
        )  # fmt: skip


def _anthropic(chunk: Any, kind: str) -> list[Piece] | None:
    index = _index(chunk)
    if kind == "content_block_start":
        block = get(chunk, "content_block")
        if get(block, "type") in ("tool_use", "server_tool_use"):
            given = get(block, "input")
            return [Piece("tool", index, ("content_block", "input"),
                          _json(given) if given else "", _text(get(block, "name")),
                          _text(get(block, "id")), whole=True)]  # fmt: skip
        for key, channel in (("text", "text"), ("thinking", "reasoning")):
            text = get(block, key)
            if isinstance(text, str) and text:
                return [Piece(channel, index, ("content_block", key), text)]  # type: ignore[arg-type]  # two of the three
        return []
    if kind != "content_block_delta":
        return []
    delta = get(chunk, "delta")
    known = _DELTAS.get(str(get(delta, "type")))
    if known is None:
        return [] if get(delta, "type") == "signature_delta" else None
    channel, key = known
    return [Piece(channel, index, ("delta", key), _text(get(delta, key)))]


def _google(chunk: Any) -> Iterator[Piece]:
    for place, candidate in enumerate(get(chunk, "candidates")):
        for index, part in enumerate(_items(found(candidate, ("content", "parts")))):
            base = ("candidates", place, "content", "parts", index)
            text = get(part, "text")
            if isinstance(text, str):
                yield Piece("reasoning" if get(part, "thought") else "text", place,
                            (*base, "text"), text)  # fmt: skip
            for key in ("functionCall", "function_call"):
                call = get(part, key)
                if call is not None:
                    text, id = _json(get(call, "args") or {}), _text(get(call, "id"))
                    yield Piece("tool", (place, index, id or text), (*base, key, "args"), text,
                                _text(get(call, "name")), id, whole=True)  # fmt: skip


def _response(event: Any) -> Iterator[Piece]:
    kind = str(get(event, "type"))
    number = _index(event, key="output_index")
    text = get(event, "delta")
    if kind == "response.output_item.added":
        item = get(event, "item")
        if get(item, "type") in ("function_call", "custom_tool_call"):
            name, id = _text(get(item, "name")), _text(get(item, "call_id"))
            yield Piece("tool", number, (), "", name, id)
    elif not isinstance(text, str):
        return
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        yield Piece("text", number, ("delta",), text)
    elif kind.startswith("response.reasoning"):
        yield Piece("reasoning", number, ("delta",), text)
    elif kind.endswith(("arguments.delta", "input.delta")):
        yield Piece("tool", number, ("delta",), text)
