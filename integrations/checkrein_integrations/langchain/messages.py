"""Model requests and answers in the one message shape, and back.

The shape is OpenTelemetry's GenAI form: a message is `{"role", "parts"}`, a part is
`{"type": "text", "content"}`, `{"type": "reasoning", "content"}`, `{"type": "tool_call", "id",
"name", "arguments"}`, `{"type": "tool_call_response", "id", "response"}` or `{"type": "blob",
...}`. Blobs (images, audio, files, whatever is not text) carry a reference only: on the way back
every block, message and tool that no plugin changed is the object that came in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool

from checkrein.errors import ConfigError
from checkrein_integrations._shared import requests

Part = dict[str, Any]

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_CALLS = frozenset({"tool_use", "tool_call", "function_call", "input_json_delta"})
"""Content blocks that repeat the tool calls of a message in the provider's own form."""
_REASONING = {"thinking": "thinking", "reasoning": "reasoning"}
"""Content blocks of reasoning, and the key of their text."""


def role_of(message: BaseMessage) -> str:
    """The GenAI role of a message."""
    role = _ROLES.get(message.type)
    if role is None:
        kind = message.type.removesuffix("MessageChunk").lower()
        role = _ROLES.get(kind, kind)
    return role


def block_parts(content: Any) -> list[Part]:
    """The parts of a message's content; blocks of tool calls are left out."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    parts: list[Part] = []
    for index, block in enumerate(content):
        part = block_part(block, index)
        if part is not None:
            parts.append(part)
    return parts


def block_part(block: Any, index: int) -> Part | None:
    """The part for one content block; None for a provider's form of a tool call."""
    if isinstance(block, str):
        return {"type": "text", "content": block}
    kind = str(block.get("type", ""))
    if kind in _CALLS:
        return None
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "content": block["text"]}
    key = _REASONING.get(kind)
    if key is not None and isinstance(block.get(key), str):
        return {"type": "reasoning", "content": block[key]}
    mime = block.get("mime_type")
    return {
        "type": "blob",
        "modality": kind,
        "mime_type": mime if isinstance(mime, str) else "",
        "block": index,
    }


def parts_of(message: BaseMessage) -> list[Part]:
    """All parts of a message."""
    parts = block_parts(message.content)
    if isinstance(message, ToolMessage):
        only = parts[0]["content"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
        response = message.content if isinstance(message.content, str) else only
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": response}]
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            parts.append(
                {"type": "tool_call", "id": call["id"], "name": call["name"],
                 "arguments": call["args"]}
            )  # fmt: skip
        for bad in message.invalid_tool_calls:
            parts.append(
                {"type": "tool_call", "id": bad["id"], "name": bad["name"] or "",
                 "arguments": bad["args"]}
            )  # fmt: skip
    return parts


def told(message: BaseMessage) -> dict[str, Any]:
    """A message in the one shape."""
    return {"role": role_of(message), "parts": parts_of(message)}


def tool_told(tool: Any) -> dict[str, Any]:
    """A tool that the model is offered."""
    if isinstance(tool, BaseTool):
        return {"type": "function", "name": tool.name, "description": tool.description}
    return dict(tool)


# -- the way back


def rebuilt(message: BaseMessage, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """The message with the parts that changed; itself where none did.

    Raises `ConfigError` for a change that the message cannot hold.
    """
    if before == after:
        return message
    old, new = before["parts"], after["parts"]
    if [part["type"] for part in old] != [part.get("type") for part in new]:
        return created(after, message)
    if isinstance(message, ToolMessage):
        return message.model_copy(
            update={"content": _response(message.content, old[0], new[0]), "artifact": None}
        )
    changes = [(o, n) for o, n in zip(old, new, strict=True)]
    update: dict[str, Any] = {"content": _content(message.content, changes)}
    if isinstance(message, AIMessage):
        update |= _calls(message, changes)
    return message.model_copy(update=update)


def _content(content: Any, changes: list[tuple[Part, Part]]) -> Any:
    texts = [pair for pair in changes if pair[0]["type"] != "tool_call"]
    if isinstance(content, str):
        return texts[0][1]["content"] if texts else content
    arguments = {n["id"]: n["arguments"] for o, n in changes if o["type"] == "tool_call" and o != n}
    blocks: list[Any] = []
    remaining = iter(texts)
    for index, block in enumerate(content):
        if block_part(block, index) is None:
            changed = block.get("id") in arguments or block.get("call_id") in arguments
            # The provider's own form of a changed call is dropped: `tool_calls` says it anew.
            if not changed and not (arguments and block.get("type") == "input_json_delta"):
                blocks.append(block)
            continue
        old, new = next(remaining)
        if old == new:
            blocks.append(block)
        elif isinstance(block, str):
            blocks.append(new["content"])
        elif old["type"] == "text":
            kept = {k: v for k, v in block.items() if k != "annotations"}
            blocks.append({**kept, "text": new["content"]})
        elif old["type"] == "reasoning":
            # A signature over the old text does not fit the new one.
            kept = {k: v for k, v in block.items() if k != "signature"}
            blocks.append({**kept, _REASONING[block["type"]]: new["content"]})
        else:
            raise ConfigError("a plugin changed a blob of a message: blobs can only be removed")
    return blocks


def _calls(message: AIMessage, changes: list[tuple[Part, Part]]) -> dict[str, Any]:
    pairs = [(o, n) for o, n in changes if o["type"] == "tool_call"]
    if all(o == n for o, n in pairs):
        return {}
    good = len(message.tool_calls)
    calls = [
        {**call, "name": new["name"], "args": new["arguments"]}
        for call, (_, new) in zip(message.tool_calls, pairs[:good], strict=True)
    ]
    bad = [
        {**call, "name": new["name"], "args": new["arguments"]}
        for call, (_, new) in zip(message.invalid_tool_calls, pairs[good:], strict=True)
    ]
    raw = {"tool_calls", "function_call"}
    extra = {k: v for k, v in message.additional_kwargs.items() if k not in raw}
    return {"tool_calls": calls, "invalid_tool_calls": bad, "additional_kwargs": extra}


def _response(content: Any, old: Part, new: Part) -> Any:
    response = new["response"]
    if isinstance(response, str):
        return response
    if isinstance(content, str) or not isinstance(response, list):
        raise ConfigError("a plugin turned the text of a tool's result into something else")
    before = old["response"]
    if not isinstance(before, list) or len(before) != len(response):
        return "".join(p.get("content", "") for p in response)
    return _content(content, list(zip(before, response, strict=True)))


def created(told: Mapping[str, Any], like: BaseMessage | None = None) -> BaseMessage:
    """A new message from the one shape; blobs are taken from the message that it replaces."""
    role = told["role"]
    content: list[Any] = []
    calls: list[Any] = []
    for part in told["parts"]:
        kind = part.get("type")
        if kind == "text":
            content.append({"type": "text", "text": part["content"]})
        elif kind == "tool_call":
            arguments = part["arguments"] if isinstance(part["arguments"], dict) else {}
            calls.append({"name": part["name"], "args": arguments, "id": part["id"],
                          "type": "tool_call"})  # fmt: skip
        elif kind == "tool_call_response":
            return ToolMessage(content=str(part["response"]), tool_call_id=part["id"])
        elif kind == "blob" and like is not None and isinstance(like.content, list):
            content.append(like.content[part["block"]])
        elif kind != "reasoning":
            raise ConfigError(f"a plugin made a message part of type {kind!r}")
    text = [b["text"] for b in content if b.get("type") == "text"]
    plain: Any = "".join(text) if len(text) == len(content) else content
    if role == "assistant":
        if isinstance(like, AIMessage):
            raw = {"tool_calls", "function_call"}
            extra = {k: v for k, v in like.additional_kwargs.items() if k not in raw}
            update = {"content": plain, "tool_calls": calls, "invalid_tool_calls": []}
            return like.model_copy(update={**update, "additional_kwargs": extra})
        return AIMessage(content=plain, tool_calls=calls)
    if role == "system":
        return SystemMessage(content=plain)
    if role == "user":
        return HumanMessage(content=plain)
    raise ConfigError(f"a plugin made a message of role {role!r}")


def history(
    messages: Sequence[BaseMessage],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
) -> list[BaseMessage]:
    """The messages of a request after plugins changed them; untouched ones are the originals."""
    return requests.history(messages, before, after, rebuilt, created)
