"""The chunks of one answer on their way out: filtered, and added up to a message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.errors import ConfigError
from checkrein.streams import responses
from checkrein.streams.chunks import Piece, is_response, pieces_of
from checkrein.streams.fields import get, replaced
from checkrein.usage import usage_of

if TYPE_CHECKING:
    from checkrein.call import Usage
    from checkrein.streams.filters import Channels


class Delivery:
    """One answer. `channels`: what filters it; None where nothing does.

    Text is delivered as the filters let it go, the arguments of tool calls once they are
    complete. A chunk without text that follows held text waits for it.
    """

    def __init__(self, channels: Channels | None) -> None:
        self._channels = channels
        self.begun = False
        """Whether anything came."""
        self._said: list[str] = []
        self._reports: list[Any] = []
        self._message = Message()
        self._response: responses.Delivery | None = None
        self._open: tuple[Any, Piece] | None = None
        """The last chunk with text, and where it stands in it."""
        self._waiting: list[tuple[Any, list[Piece]]] = []
        self._calls: dict[Any, str] = {}

    # -- what came

    def said(self) -> str:
        """Everything that the model wrote so far, before it was filtered."""
        return "".join(self._said)

    def usage(self) -> Usage | None:
        """What its chunks report. Raises `ValueError` for counts that are none."""
        return usage_of(self._reports)

    def message(self) -> dict[str, Any]:
        """What was delivered, as one message in the GenAI form."""
        return self._message.value()

    # -- on the way

    def feed(self, chunk: Any) -> Iterator[Any]:
        """What may be delivered of a chunk. Raises `Denied` and `ConfigError`."""
        pieces = pieces_of(chunk)
        self._said.extend(piece.text for piece in pieces or ())
        self.begun = True
        if not isinstance(chunk, str) and (report := _report(chunk)):
            self._reports.append(report)
        for out in self._filtered(chunk, pieces):
            self._message.take(out)
            yield out

    def end(self) -> Iterator[Any]:
        """The answer is complete: the rest."""
        for out in self._rest():
            self._message.take(out)
            yield out

    def abort(self) -> None:
        """The answer broke off: what is held back is forgotten."""
        if self._channels is not None:
            self._channels.abort()

    def _filtered(self, chunk: Any, pieces: list[Piece] | None) -> Iterator[Any]:
        if self._channels is None:
            yield chunk
            return
        if self._response is None and is_response(chunk):
            self._response = responses.Delivery(self._channels)
        if self._response is not None:
            yield from self._response.feed(chunk)
            return
        if pieces is None:
            raise ConfigError(
                f"a chunk of type {type(chunk).__name__} is of no known form, so it cannot be "
                "filtered: let the model's function yield texts, or chunks as OpenAI, Anthropic "
                "or Google send them"
            )
        tools = [piece for piece in pieces if piece.channel == "tool"]
        texts = [piece for piece in pieces if piece.channel != "tool"]
        for piece in texts:
            yield from self._before(piece)
            new = self._channels.channel(piece.channel).feed(piece.text)
            chunk = replaced(chunk, piece.path, new)
            self._open = (chunk, piece)
        for piece in tools:
            self._calls[piece.number] = self._calls.get(piece.number, "") + piece.text
        if tools or (self._open is not None and not texts):
            self._waiting.append((chunk, tools))
        else:
            yield chunk

    def _before(self, piece: Piece) -> Iterator[Any]:
        """What has to go out before a piece of text."""
        if self._open is not None:
            last = self._open[1]
            if (last.channel, last.number) != (piece.channel, piece.number):
                yield from self._tail()
        if not self._calls:
            yield from (chunk for chunk, _ in self._waiting)
            self._waiting.clear()

    def _tail(self) -> Iterator[Any]:
        """What the filters kept back of the text that ends."""
        assert self._open is not None
        assert self._channels is not None
        chunk, piece = self._open
        self._open = None
        text = self._channels.close(piece.channel)
        if text:
            yield replaced(chunk, piece.path, text)

    def _rest(self) -> Iterator[Any]:
        if self._channels is None:
            return
        if self._response is not None:
            yield from self._response.end()
            return
        if self._open is not None:
            yield from self._tail()
        changed: dict[Any, str] = {}
        for index, (number, text) in enumerate(self._calls.items()):
            new = self._channels.arguments(index, text) if text else text
            if new != text:
                changed[number] = new
        for chunk, tools in self._waiting:
            out = chunk
            for piece in tools:
                if piece.number in changed:
                    # All of it stands in the first piece, nothing in the others.
                    text, changed[piece.number] = changed[piece.number], ""
                    out = replaced(out, piece.path, _parsed(text) if piece.whole else text)
            yield out
        self._waiting.clear()


def _parsed(text: str) -> Any:
    return json.loads(text) if text else {}


_TELLS = ("usage", "usage_metadata", "usageMetadata", "message", "response", "service_tier")
_NAMES = ("model", "model_version", "modelVersion")


def _report(chunk: Any) -> dict[str, Any]:
    """What of a chunk tells its usage: the rest is not kept."""
    kept = {key: value for key in _TELLS if (value := get(chunk, key)) is not None}
    if kept:
        kept |= {key: value for key in _NAMES if (value := get(chunk, key)) is not None}
    return kept


class Message:
    """An assistant's message, added up from chunks."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, Any], dict[str, Any]] = {}

    def take(self, chunk: Any) -> None:
        """Add a chunk as it was delivered."""
        for piece in pieces_of(chunk) or ():
            if piece.channel == "tool":
                call = self._parts.setdefault(
                    ("tool", piece.number), {"type": "tool_call", "name": "", "arguments": ""}
                )
                call["name"] = call["name"] or piece.name
                if piece.id:
                    call["id"] = piece.id
                call["arguments"] += piece.text
            elif piece.text:
                part = self._parts.setdefault(
                    (piece.channel, piece.number), {"type": piece.channel, "content": ""}
                )
                part["content"] += piece.text

    def value(self) -> dict[str, Any]:
        """`{"role": "assistant", "parts": [...]}`."""
        return {"role": "assistant", "parts": [_told(part) for part in self._parts.values()]}


def _told(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] != "tool_call":
        return dict(part)
    try:
        given = json.loads(part["arguments"]) if part["arguments"] else {}
    except ValueError:
        given = part["arguments"]
    return {**part, "arguments": given}


def text_of(value: Any) -> str | None:
    """The text of an answer: a text, or a message in the GenAI form."""
    if isinstance(value, str):
        return value
    parts = value.get("parts") if isinstance(value, dict) else None
    if not isinstance(parts, list):
        return None
    texts = [part.get("content") for part in parts
             if isinstance(part, dict) and part.get("type") == "text"]  # fmt: skip
    return "".join(text for text in texts if isinstance(text, str))


def with_whole(chunks: Sequence[Any], text: str) -> Iterator[Any]:
    """Chunks that were kept back, with another text: all of it in the first that has some."""
    left: str | None = text
    for chunk in chunks:
        out = chunk
        for piece in pieces_of(chunk) or ():
            if piece.channel == "text" and piece.path is not None:
                out = replaced(out, piece.path, left or "")
                left = None
        yield out
    if left:
        yield left
