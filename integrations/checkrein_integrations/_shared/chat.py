"""Chat-completions messages in the one message shape, and back.

What comes in are dicts with `role`, `content`, `tool_calls` and `tool_call_id`; the shape is
OpenTelemetry's GenAI form (see the LangChain adapter's `messages`). A message that no plugin
changed goes back as the object that came in, images and files included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from checkrein.errors import ConfigError
from checkrein_integrations._shared import requests

Part = dict[str, Any]
Message = Mapping[str, Any]


def content_parts(content: Any) -> list[Part]:
    """The parts of a message's content: a text, or a list of content blocks."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    return [_part(block, index) for index, block in enumerate(content or ())]


def _part(block: Any, index: int) -> Part:
    if isinstance(block, str):
        return {"type": "text", "content": block}
    kind = str(block.get("type", "")) if isinstance(block, Mapping) else type(block).__name__
    if kind in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
        return {"type": "text", "content": block["text"]}
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
    function = call.get("function") or {}
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": function.get("name", ""),
        "arguments": parsed(function.get("arguments")),
    }


def told(message: Message) -> dict[str, Any]:
    """A message in the one shape."""
    role = str(message.get("role", "user"))
    parts = content_parts(message.get("content"))
    if role == "tool":
        response = message.get("content")
        return {
            "role": role,
            "parts": [
                {
                    "type": "tool_call_response",
                    "id": message.get("tool_call_id"),
                    "response": response if isinstance(response, str) else parts,
                }
            ],
        }
    parts += [call_part(call) for call in message.get("tool_calls") or ()]
    return {"role": role, "parts": parts}


def tool_told(tool: Any) -> dict[str, Any]:
    """A tool that the model is offered."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if isinstance(function, Mapping):
        return {
            "type": "function",
            "name": function.get("name", ""),
            "description": function.get("description", ""),
        }
    return dict(tool) if isinstance(tool, Mapping) else {"type": type(tool).__name__}


# -- the way back


def rebuilt(message: Message, before: Message, after: Message) -> Any:
    """The message with the parts that changed; itself where none did.

    Raises `ConfigError` for a change that the message cannot hold.
    """
    if before == after:
        return message
    old, new = before["parts"], after["parts"]
    if [part["type"] for part in old] != [part.get("type") for part in new]:
        return created(after, message)
    if message.get("role") == "tool":
        return {**message, "content": _response(message.get("content"), old[0], new[0])}
    pairs = list(zip(old, new, strict=True))
    texts = [pair for pair in pairs if pair[0]["type"] != "tool_call"]
    changed = {**message, "content": _content(message.get("content"), texts)}
    calls = [pair for pair in pairs if pair[0]["type"] == "tool_call"]
    if any(o != n for o, n in calls):
        changed["tool_calls"] = [
            call if o == n else call_dict(n)
            for call, (o, n) in zip(message.get("tool_calls") or (), calls, strict=True)
        ]
        # A provider's own form of the calls would bring the old arguments back.
        changed.pop("raw_tool_call_parts", None)
    return changed


def call_dict(part: Mapping[str, Any]) -> dict[str, Any]:
    """The tool call of a chat message for a part of the one shape."""
    arguments = part["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": part["name"], "arguments": arguments}
    return {"id": part["id"], "type": "function", "function": function}


def _content(content: Any, pairs: Sequence[tuple[Part, Part]]) -> Any:
    if not isinstance(content, (list, tuple)):
        return pairs[0][1]["content"] if pairs else content
    blocks: list[Any] = []
    for block, (old, new) in zip(content, pairs, strict=True):
        if old == new:
            blocks.append(block)
        elif old["type"] != "text":
            raise ConfigError("a plugin changed a blob of a message: blobs can only be removed")
        else:
            blocks.append(new["content"] if isinstance(block, str) else
                          {**block, "text": new["content"]})  # fmt: skip
    return blocks


def _response(content: Any, old: Part, new: Part) -> Any:
    response = new["response"]
    if isinstance(response, str):
        return response
    before = old["response"]
    if isinstance(content, str) or not isinstance(response, list):
        raise ConfigError("a plugin turned the text of a tool's result into something else")
    if not isinstance(before, list) or len(before) != len(response):
        return "".join(str(part.get("content", "")) for part in response)
    return _content(content, list(zip(before, response, strict=True)))


def created(shape: Message, like: Message | None = None) -> dict[str, Any]:
    """A new message from the one shape; blobs are taken from the message that it replaces."""
    content: list[Any] = []
    calls: list[Any] = []
    old = like.get("content") if like is not None else None
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
    messages: Sequence[Message], before: Sequence[Message], after: Sequence[Message]
) -> list[Any]:
    """The messages of a request after plugins changed them; untouched ones are the originals."""
    return requests.history(messages, before, after, rebuilt, created)
