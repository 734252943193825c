"""Chat-completions messages in the one message shape, and back.

Messages are dicts, or a client's own objects, with `role`, `content`, `tool_calls` and
`tool_call_id`; the shape is OpenTelemetry's GenAI form (see the LangChain adapter's `messages`).
A message that no plugin changed goes back as the object that came in, images and files included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from checkrein.errors import ConfigError
from checkrein.streams.fields import get, with_fields
from checkrein_integrations._shared import requests

Part = dict[str, Any]
Message = Mapping[str, Any]

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content blocks that are text, and the key that holds it."""
BESIDE = {"reasoning_content": "reasoning", "reasoning": "reasoning", "refusal": "text"}
"""Fields of a message that hold a text beside its content, and the type of its part."""
_RESULTS = ("tool", "function")


class _Place(NamedTuple):
    """Where a part stands: field of the message, and its number in it."""

    field: str
    number: int = -1


def content_parts(content: Any) -> list[Part]:
    """The parts of a message's content: a text, or a list of content blocks."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    return [_part(block, index) for index, block in enumerate(content or ())]


def _part(block: Any, index: int) -> Part:
    if isinstance(block, str):
        return {"type": "text", "content": block}
    kind = str(get(block, "type") or type(block).__name__)
    text = get(block, _TEXTS.get(kind, ""))
    if isinstance(text, str):
        return {"type": "text", "content": text}
    return {"type": "blob", "modality": kind, "mime_type": "", "block": index}


def parsed(arguments: Any) -> Any:
    """The arguments of a tool call as a mapping; text that is no JSON object stays as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def call_part(call: Any) -> Part:
    """The part for one tool call of an assistant message."""
    function, custom = get(call, "function") or {}, get(call, "custom")
    if custom is not None:
        return {
            "type": "tool_call", "id": get(call, "id"), "name": get(custom, "name") or "",
            "arguments": {"input": get(custom, "input")},
        }  # fmt: skip
    return {
        "type": "tool_call",
        "id": get(call, "id"),
        "name": get(function, "name") or "",
        "arguments": parsed(get(function, "arguments")),
    }


def told(message: Any) -> dict[str, Any]:
    """A message in the one shape."""
    role = str(get(message, "role") or "user")
    content = get(message, "content")
    if role in _RESULTS:
        response = content if isinstance(content, str) else content_parts(content)
        id = get(message, "tool_call_id")
        part = {"type": "tool_call_response", "id": id, "response": response}
        return {"role": "tool", "parts": [part]}
    return {"role": role, "parts": [part for _, part in _placed(message)]}


def _placed(message: Any) -> list[tuple[_Place, Part]]:
    """The parts of a message, each with its place."""
    content = get(message, "content")
    alone = isinstance(content, str)
    found = [
        (_Place("content", -1 if alone else index), part)
        for index, part in enumerate(content_parts(content))
    ]
    for field, kind in BESIDE.items():
        text = get(message, field)
        if isinstance(text, str) and text:
            found.append((_Place(field), {"type": kind, "content": text}))
    for index, call in enumerate(get(message, "tool_calls") or ()):
        found.append((_Place("tool_calls", index), call_part(call)))
    old = get(message, "function_call")
    if old is not None:
        found.append((_Place("function_call"), call_part({"id": None, "function": old})))
    return found


def tool_told(tool: Any) -> dict[str, Any]:
    """A tool that the model is offered."""
    kind = "custom" if get(tool, "type") == "custom" else "function"
    function = get(tool, kind)
    if function is not None:
        return {
            "type": kind,
            "name": get(function, "name") or "",
            "description": get(function, "description") or "",
        }
    return dict(tool) if isinstance(tool, Mapping) else {"type": type(tool).__name__}


# -- the way back


def rebuilt(message: Any, before: Message, after: Message) -> Any:
    """The message with the parts that changed; itself where none did.

    Raises `ConfigError` for a change that the message cannot hold.
    """
    if before == after:
        return message
    old, new = before["parts"], after["parts"]
    if [part["type"] for part in old] != [part.get("type") for part in new]:
        return created(after, message)
    if get(message, "role") in _RESULTS:
        return with_fields(message, content=_response(get(message, "content"), old[0], new[0]))
    changes: dict[str, Any] = {}
    for (place, _), was, now in zip(_placed(message), old, new, strict=True):
        if was == now:
            continue
        field = place.field
        given = changes.get(field, get(message, field))
        if field == "tool_calls":
            changes[field] = _swapped(given, place.number, _called(given[place.number], now))
        elif field == "function_call":
            changes[field] = get(_called({"function": given}, now), "function")
        elif place.number < 0:
            changes[field] = now["content"]
        else:
            block = _block(given[place.number], was, now)
            changes[field] = _swapped(given, place.number, block)
    made = with_fields(message, **changes)
    if "tool_calls" in changes and isinstance(made, dict):
        # A provider's own form of the calls would bring the old arguments back.
        made.pop("raw_tool_call_parts", None)
    return made


def _swapped(items: Sequence[Any], index: int, item: Any) -> list[Any]:
    return [item if number == index else each for number, each in enumerate(items)]


def _called(call: Any, part: Mapping[str, Any]) -> Any:
    """A tool call with what a part says."""
    custom, function = get(call, "custom"), get(call, "function")
    if custom is not None:
        given = part["arguments"]
        text = given.get("input") if isinstance(given, Mapping) else None
        if not isinstance(text, str):
            raise ConfigError("a plugin turned the text of a custom tool call into other data")
        return with_fields(call, custom=with_fields(custom, name=part["name"], input=text))
    if function is None:
        return call_dict(part)
    made = call_dict(part)["function"]
    return with_fields(call, function=with_fields(function, **made))


def call_dict(part: Mapping[str, Any]) -> dict[str, Any]:
    """The tool call of a chat message for a part of the one shape."""
    arguments = part["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": part["name"], "arguments": arguments}
    return {"id": part["id"], "type": "function", "function": function}


def _block(block: Any, old: Part, new: Part) -> Any:
    if old["type"] != "text":
        raise ConfigError("a plugin changed a blob of a message: blobs can only be removed")
    if isinstance(block, str):
        return new["content"]
    return with_fields(block, **{_TEXTS[str(get(block, "type"))]: new["content"]})


def _response(content: Any, old: Part, new: Part) -> Any:
    response = new["response"]
    if isinstance(response, str):
        return response
    before = old["response"]
    if isinstance(content, str) or not isinstance(response, list):
        raise ConfigError("a plugin turned the text of a tool's result into something else")
    if not isinstance(before, list) or len(before) != len(response):
        return "".join(str(part.get("content", "")) for part in response)
    return [
        block if was == now else _block(block, was, now)
        for block, was, now in zip(content, before, response, strict=True)
    ]


def created(shape: Message, like: Any = None) -> dict[str, Any]:
    """A new message from the one shape; blobs are taken from the message that it replaces."""
    content: list[Any] = []
    calls: list[Any] = []
    old = get(like, "content") if like is not None else None
    for part in shape["parts"]:
        kind = part.get("type")
        if kind == "text":
            content.append({"type": "text", "text": part["content"]})
        elif kind == "tool_call":
            calls.append(call_dict(part))
        elif kind == "tool_call_response":
            return {
                "role": "tool", "tool_call_id": part["id"], "content": str(part["response"]),
            }  # fmt: skip
        elif kind == "blob" and isinstance(old, (list, tuple)):
            content.append(old[part["block"]])
        elif kind != "reasoning":
            raise ConfigError(f"a plugin made a message part of type {kind!r}")
    texts = [b["text"] for b in content if isinstance(b, dict) and b.get("type") == "text"]
    plain: Any = "".join(texts) if len(texts) == len(content) else content
    made: dict[str, Any] = {"role": shape["role"], "content": plain}
    if calls:
        made["tool_calls"] = calls
        made["content"] = plain or None
    return made


def history(
    messages: Sequence[Any], before: Sequence[Message], after: Sequence[Message]
) -> list[Any]:
    """The messages of a request after plugins changed them; untouched ones are the originals."""
    return requests.history(messages, before, after, rebuilt, created)
