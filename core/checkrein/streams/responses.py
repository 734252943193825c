"""Answers in OpenAI's Responses form on their way out: filtered whole, or event by event.

Texts and reasoning are delivered as the filters let them go; the arguments of a tool call once
they are complete, because an escape hides in pieces of JSON. The items at the end of a stream
hold what was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.streams.fields import get, with_fields

if TYPE_CHECKING:
    from checkrein.streams.filters import Channels

_DELTAS = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("text", "content_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary_index"),
}
"""Events with a piece of text: channel, and the field that tells the part."""
_DONE = {
    "response.output_text.done": ("text", "content_index"),
    "response.refusal.done": ("refusal", "content_index"),
    "response.reasoning_text.done": ("text", "content_index"),
    "response.reasoning_summary_text.done": ("text", "summary_index"),
}
"""Events with a whole text: the field that holds it, and the one that tells the part."""
_PARTS = {
    "response.content_part.done": "content_index",
    "response.reasoning_summary_part.done": "summary_index",
}
_CALLS = {"response.function_call_arguments": "arguments",
          "response.custom_tool_call_input": "input"}  # fmt: skip
_CALL_KEYS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of items that are tool calls, and the key of what they pass."""
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_TEXT_KEYS = ("text", "refusal")


class Answer:
    """The items of one answer, each filtered once."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._calls: dict[int, int] = {}
        """Index of an item -> running number of its tool call."""
        self.delivered: dict[tuple[int, str, int], str] = {}
        """(index of an item, its key, index of a block) -> the text that was delivered."""
        self.passed: dict[int, str] = {}
        """Index of an item -> the arguments that were delivered."""

    def number(self, index: int) -> int:
        """Running number of a tool call."""
        return self._calls.setdefault(index, len(self._calls))

    def arguments(self, index: int, text: str) -> str:
        """The complete arguments of a tool call, filtered."""
        if index not in self.passed:
            self.passed[index] = self._channels.arguments(self.number(index), text)
        return self.passed[index]

    def items(self, items: Sequence[Any]) -> list[Any]:
        """All items, filtered; those that did not change are the originals."""
        return [self.item(item, index) for index, item in enumerate(items)]

    def item(self, item: Any, index: int) -> Any:
        """One item, filtered."""
        kind = get(item, "type")
        if kind == "message":
            return self._blocks(item, index, "content", "text")
        if kind == "reasoning":
            item = self._blocks(item, index, "summary", "reasoning")
            return self._blocks(item, index, "content", "reasoning")
        for key in ("arguments", "input"):
            if kind == ("function_call" if key == "arguments" else "custom_tool_call"):
                given = get(item, key) or ""
                text = self.arguments(index, given)
                return item if text == given else with_fields(item, **{key: text})
        return item

    def _blocks(self, item: Any, index: int, key: str, channel: str) -> Any:
        blocks = get(item, key)
        if not isinstance(blocks, list):
            return item
        made = [self.block(block, (index, key, n), channel) for n, block in enumerate(blocks)]
        if all(new is old for new, old in zip(made, blocks, strict=True)):
            return item
        return with_fields(item, **{key: made})

    def block(self, block: Any, place: tuple[int, str, int], channel: str) -> Any:
        """One content block, filtered."""
        for name in _TEXT_KEYS:
            given = get(block, name)
            if isinstance(given, str):
                text = self.delivered.get(place)
                if text is None:
                    text = self._channels.whole(channel, given) if given else ""
                    self.delivered[place] = text
                if text == given:
                    return block
                changes: dict[str, Any] = {name: text}
                # Positions and probabilities belong to the old text.
                changes |= {k: [] for k in ("annotations", "logprobs") if get(block, k)}
                return with_fields(block, **changes)
        return block


class Delivery:
    """The events of one streamed answer on their way out."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self.answer = Answer(channels)
        self._open: tuple[str, tuple[int, str, int], Any] | None = None
        """Channel, place and last event of the text that is being delivered."""
        self._held: dict[int, Any] = {}
        """Index of an item -> an event with a piece of its arguments."""

    def feed(self, event: Any) -> Iterator[Any]:
        """What may be delivered of an event."""
        kind = str(get(event, "type"))
        if kind in _DELTAS:
            channel, field = _DELTAS[kind]
            place = self._place(event, field, kind)
            if self._open is not None and self._open[1] != place:
                yield from self._flush()
            self._open = (channel, place, event)
            text = self._channels.channel(channel).feed(get(event, "delta"))
            if text:
                yield self._delta(event, place, text)
            return
        base, _, end = kind.rpartition(".")
        if base in _CALLS and end == "delta":
            self._held[get(event, "output_index")] = event
            return
        if self._open is not None and kind != "response.content_part.added":
            yield from self._flush()
        if base in _CALLS:
            key = _CALLS[base]
            index = get(event, "output_index")
            text = self.answer.arguments(index, get(event, key) or "")
            held = self._held.pop(index, None)
            if held is not None and text:
                yield with_fields(held, delta=text)
            yield event if text == get(event, key) else with_fields(event, **{key: text})
        elif kind in _DONE:
            key, field = _DONE[kind]
            text = self.answer.delivered.get(self._place(event, field, kind), "")
            yield event if text == get(event, key) else with_fields(event, **{key: text})
        elif kind in _PARTS:
            place = self._place(event, _PARTS[kind], kind)
            part = get(event, "part")
            new = self.answer.block(part, place, "text" if place[1] == "content" else "reasoning")
            yield event if new is part else with_fields(event, part=new)
        elif kind == "response.output_item.done":
            yield from self._item(event)
        elif kind in _ENDS:
            response = get(event, "response")
            items = self.answer.items(get(response, "output") or [])
            if any(n is not o for n, o in zip(items, get(response, "output") or [], strict=True)):
                event = with_fields(event, response=with_fields(response, output=items))
            yield event
        elif kind.endswith(".delta") and self._channels.channel("text"):
            return  # a text of the provider's own tools: nobody has looked at it
        else:
            yield event

    def _item(self, event: Any) -> Iterator[Any]:
        index, item = get(event, "output_index"), get(event, "item")
        new = self.answer.item(item, index)
        held = self._held.pop(index, None)
        if held is not None and self.answer.passed.get(index):
            yield with_fields(held, delta=self.answer.passed[index])
        yield event if new is item else with_fields(event, item=new)

    def _place(self, event: Any, field: str, kind: str) -> tuple[int, str, int]:
        key = "summary" if "summary" in kind else "content"
        return get(event, "output_index") or 0, key, get(event, field) or 0

    def _delta(self, event: Any, place: tuple[int, str, int], text: str) -> Any:
        self.answer.delivered[place] = self.answer.delivered.get(place, "") + text
        if text == get(event, "delta"):
            return event
        changes: dict[str, Any] = {"delta": text}
        if get(event, "logprobs"):
            changes["logprobs"] = []
        return with_fields(event, **changes)

    def _flush(self) -> Iterator[Any]:
        """What the filters kept back of the text that ends."""
        assert self._open is not None
        channel, place, event = self._open
        self._open = None
        text = self._channels.close(channel)
        self.answer.delivered.setdefault(place, "")
        if text:
            yield self._delta(event, place, text)

    def end(self) -> Iterator[Any]:
        """The stream ended without saying so: the rest."""
        if self._open is not None:
            yield from self._flush()


def shows(event: Any) -> bool:
    """Whether a person sees something of the answer by this event."""
    return get(event, "type") in _DELTAS


def adjusted(kept: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> list[Any] | None:
    """Events that were kept back, when only tool calls have changed since; None if texts have.

    `before` and `after` are the items of the answer. The event at the end is not adjusted.
    """
    if len(before) != len(after):
        return None
    pairs = zip(before, after, strict=True)
    if any(old is not new and get(old, "type") not in _CALL_KEYS for old, new in pairs):
        return None
    made: list[Any] = []
    told: set[int] = set()
    for event in kept:
        kind = str(get(event, "type"))
        index = get(event, "output_index")
        base, _, end = kind.rpartition(".")
        if index is None or index >= len(after) or after[index] is before[index]:
            made.append(event)
        elif kind == "response.output_item.done":
            made.append(with_fields(event, item=after[index]))
        elif base in _CALLS:
            text = get(after[index], _CALL_KEYS[get(after[index], "type")])
            if end == "done":
                made.append(with_fields(event, **{_CALLS[base]: text}))
            elif index not in told:
                told.add(index)
                made.append(with_fields(event, delta=text))
        else:
            made.append(event)
    return made
