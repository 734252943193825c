"""Items of OpenAI's Responses form in the one message shape, and back.

The shape is OpenTelemetry's GenAI form (see `checkrein.call.Call.arguments`). Items are the
dicts that go into a request, or the objects that come out of an answer. What one model turn
said (texts, reasoning, tool calls) is one assistant message. Every item that no plugin changed
is the object that came in; images, audio and files are told as blobs, by reference only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from checkrein.errors import ConfigError
from checkrein.streams.fields import get, with_fields

Part = dict[str, Any]

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal",
          "summary_text": "text", "reasoning_text": "text"}  # fmt: skip
"""Types of content blocks that are text, and the key that holds it."""
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of items that are calls of the agent's own tools, and the key of what they pass."""
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_NAMES = frozenset({"id", "type", "status", "call_id", "role"})
"""Keys of an item that no plugin is shown: they name, they say nothing."""
_INPUT = "input"


class Place(NamedTuple):
    """Where a part stands: item, key of the item, index of a block, key of the block."""

    item: int
    key: str
    block: int = -1
    text: str = ""


class Told:
    """Items in the one shape, with the way back."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.messages: list[dict[str, Any]] = []
        self.places: list[list[Place]] = []
        for index, item in enumerate(items):
            role, parts, places = _told(item, index)
            if role == "assistant" and self.messages and self.messages[-1]["role"] == role:
                self.messages[-1]["parts"] += parts
                self.places[-1] += places
            else:
                self.messages.append({"role": role, "parts": parts})
                self.places.append(places)

    def changed(self, after: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The items for messages that plugins changed; untouched ones are the originals.

        Raises `ConfigError` for what an item cannot hold.
        """
        if list(after) == self.messages:
            return list(self.items)
        if len(after) == len(self.messages):
            pairs: list[int | None] = list(range(len(after)))
        else:
            pairs = self._aligned(after)
        out: list[Any] = []
        for new, index in zip(after, pairs, strict=True):
            out += created(new, self.items) if index is None else self._message(index, new)
        return out

    def _aligned(self, after: Sequence[Mapping[str, Any]]) -> list[int | None]:
        """For each message the original that it is equal to, in order."""
        found: list[int | None] = []
        start = 0
        for new in after:
            at = next(
                (i for i in range(start, len(self.messages)) if self.messages[i] == new), None
            )
            found.append(at)
            start = start if at is None else at + 1
        return found

    def _message(self, index: int, new: Mapping[str, Any]) -> list[Any]:
        old, places = self.messages[index], self.places[index]
        numbers = sorted({place.item for place in places})
        if old == new:
            return [self.items[n] for n in numbers]
        if [p["type"] for p in old["parts"]] != [p.get("type") for p in new["parts"]]:
            return created(new, self.items)
        items = {n: self.items[n] for n in numbers}
        for place, was, now in zip(places, old["parts"], new["parts"], strict=True):
            if was != now:
                items[place.item] = _put(items[place.item], place, was, now)
        return list(items.values())


def told_input(given: str | Sequence[Any]) -> Told:
    """The input of a request: a text, or items."""
    return Told([{"role": "user", "content": given}] if isinstance(given, str) else given)


def arguments_of(text: Any) -> Any:
    """What a tool call passes: an object where it is JSON of one, else the text."""
    try:
        given = json.loads(text) if text else {}
    except (TypeError, ValueError):
        return text
    return given if isinstance(given, dict) else text


def text_of(arguments: Any) -> str:
    """The JSON text of a tool call's arguments."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


# -- telling


def _told(item: Any, index: int) -> tuple[str, list[Part], list[Place]]:
    kind = get(item, "type") or "message"
    if kind == "message":
        role = str(get(item, "role") or "user")
        return role, *_blocks(get(item, "content"), index, "content")
    if kind in _CALLS:
        key = _CALLS[kind]
        given = get(item, key)
        part = {
            "type": "tool_call", "id": get(item, "call_id"), "name": get(item, "name") or "",
            "arguments": arguments_of(given) if key == "arguments" else {_INPUT: given},
        }  # fmt: skip
        return "assistant", [part], [Place(index, key)]
    if kind in _OUTPUTS:
        output = get(item, "output")
        response = output if isinstance(output, str) else _blocks(output, index, "output")[0]
        part = {"type": "tool_call_response", "id": get(item, "call_id"), "response": response}
        return "tool", [part], [Place(index, "output")]
    if kind == "reasoning":
        parts, places = _blocks(get(item, "summary"), index, "summary", "reasoning")
        more, there = _blocks(get(item, "content"), index, "content", "reasoning")
        if not parts and not more:
            return "assistant", [{"type": "blob", "modality": kind}], [Place(index, "")]
        return "assistant", parts + more, places + there
    # Whatever the provider's own tools asked for and gave: told as it is.
    part = {"type": str(kind), "content": _plain(item)}
    return "assistant", [part], [Place(index, "*")]


def _plain(item: Any) -> dict[str, Any]:
    tree = dict(item) if isinstance(item, Mapping) else item.model_dump(exclude_unset=True)
    return {key: value for key, value in tree.items() if key not in _NAMES}


def _blocks(
    content: Any, index: int, key: str, kind: str = "text"
) -> tuple[list[Part], list[Place]]:
    if content is None:
        return [], []
    if isinstance(content, str):
        if not content:
            return [], []
        return [{"type": kind, "content": content}], [Place(index, key)]
    parts: list[Part] = []
    places: list[Place] = []
    for number, block in enumerate(content):
        name = str(get(block, "type") or "")
        text = _TEXTS.get(name)
        value = get(block, text) if text is not None else None
        if text is not None and isinstance(value, str):
            parts.append({"type": kind, "content": value})
            places.append(Place(index, key, number, text))
        else:
            parts.append({"type": "blob", "modality": name, "item": index, "block": number})
            places.append(Place(index, key, number))
    return parts, places


# -- the way back


def _put(item: Any, place: Place, was: Part, now: Mapping[str, Any]) -> Any:
    """The item with one part changed. Raises `ConfigError` where it cannot hold the change."""
    kind = was["type"]
    if kind == "tool_call":
        if place.key == _INPUT:
            given = now["arguments"]
            if not isinstance(given, Mapping) or not isinstance(given.get(_INPUT), str):
                raise ConfigError("a plugin turned the text of a custom tool call into other data")
            return with_fields(item, name=now["name"], input=given[_INPUT])
        return with_fields(item, name=now["name"], arguments=text_of(now["arguments"]))
    if kind == "tool_call_response":
        return with_fields(item, output=_response(get(item, "output"), was, now["response"]))
    if kind == "blob":
        raise ConfigError("a plugin changed a blob of a message: blobs can only be removed")
    if place.key == "*":
        return with_fields(item, **now["content"])
    content = get(item, place.key)
    if place.block < 0:
        return with_fields(item, **{place.key: now["content"]})
    changes: dict[str, Any] = {place.key: _swapped(content, place, now["content"])}
    if kind == "reasoning" and get(item, "encrypted_content") is not None:
        # A sealed copy of the old text would go out beside the new one.
        changes["encrypted_content"] = None
    return with_fields(item, **changes)


def _swapped(content: Sequence[Any], place: Place, text: str) -> list[Any]:
    block = content[place.block]
    fields: dict[str, Any] = {place.text: text}
    if get(block, "annotations"):
        # Their positions belong to the old text.
        fields["annotations"] = []
    if get(block, "logprobs"):
        fields["logprobs"] = []
    blocks = list(content)
    blocks[place.block] = with_fields(block, **fields)
    return blocks


def _response(output: Any, was: Part, response: Any) -> Any:
    before = was["response"]
    if isinstance(response, str):
        return response
    if not isinstance(response, list) or isinstance(before, str):
        return text_of(response)
    blocks: list[Any] = list(output)
    if len(before) != len(response):
        return "".join(part.get("content", "") for part in response)
    for number, (old, new) in enumerate(zip(before, response, strict=True)):
        if old != new:
            text = _TEXTS.get(str(get(blocks[number], "type")), "text")
            place = Place(0, "output", number, text)
            blocks = _swapped(blocks, place, new["content"])
    return blocks


def created(message: Mapping[str, Any], items: Sequence[Any] = ()) -> list[Any]:
    """Items for a message that a plugin made; blobs are taken from the given items.

    Raises `ConfigError` for parts that no item can hold.
    """
    role = message["role"]
    content: list[Any] = []
    made: list[Any] = []
    block_type = "output_text" if role == "assistant" else "input_text"
    for part in message["parts"]:
        kind = part.get("type")
        if kind == "text":
            content.append({"type": block_type, "text": part["content"]})
        elif kind == "tool_call":
            made.append(
                {"type": "function_call", "call_id": part["id"], "name": part["name"],
                 "arguments": text_of(part["arguments"])}
            )  # fmt: skip
        elif kind == "tool_call_response":
            response = part["response"]
            made.append(
                {"type": "function_call_output", "call_id": part["id"],
                 "output": response if isinstance(response, str) else text_of(response)}
            )  # fmt: skip
        elif kind == "blob" and "item" in part:
            content.append(get(items[part["item"]], "content")[part["block"]])
        elif kind not in ("reasoning", "blob"):
            raise ConfigError(f"a plugin made a message part of type {kind!r}")
    if content:
        text = [block["text"] for block in content if isinstance(block, dict) and "text" in block]
        plain: Any = "".join(text) if len(text) == len(content) else content
        made.insert(0, {"role": role, "content": plain})
    return made
