"""What a tool call gives back to the graph, and the plain value that plugins see of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langgraph.types import Command

from checkrein.errors import Unencodable
from checkrein_integrations._shared.plain import is_plain
from checkrein_integrations.langchain.execution import NOTHING

_MARK = "langchain"
_BLOCKS = frozenset(
    {"text", "image_url", "image", "json", "search_result", "custom_tool_call_output", "document",
     "file"}
)  # fmt: skip
"""Types of content blocks that LangChain passes on in a tool message as they are."""


@dataclass(slots=True)
class Stored:
    """A result that was read from the journal."""

    result: Any


def content_of(value: Any) -> Any:
    """The message content that LangChain makes of a tool's return value."""
    if type(value) is str:
        return value
    if isinstance(value, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type") in _BLOCKS)
        for part in value
    ):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


def answer(value: Any, call: Mapping[str, Any], status: str = "success") -> ToolMessage:
    """The tool message for a value that did not come from the tool itself."""
    return ToolMessage(
        content=content_of(value),
        name=call["name"],
        tool_call_id=call["id"] or "",
        status=cast("Any", status),
    )


def message_in(result: Any, tool_call_id: str) -> ToolMessage | None:
    """The answer to this call, alone or inside a command's update."""
    if isinstance(result, ToolMessage):
        return result
    if isinstance(result, Command):
        for _, messages in _message_lists(result):
            for message in messages:
                if isinstance(message, ToolMessage) and message.tool_call_id == tool_call_id:
                    return message
    if isinstance(result, list):
        for item in result:
            found = message_in(item, tool_call_id)
            if found is not None:
                return found
    return None


def _message_lists(command: Command[Any]) -> list[tuple[str | None, list[Any]]]:
    update = command.update
    if isinstance(update, list):
        return [(None, update)]
    if isinstance(update, dict):
        return [(key, value) for key, value in update.items() if isinstance(value, list)]
    return []


def value_in(message: ToolMessage | None, raw: Any) -> Any:
    """What plugins see: the tool's own value, unless somebody between us and it changed the text.

    A plugin that replaces a value must never bring back what another middleware took out.
    """
    if message is None:
        return None
    if raw is not NOTHING and not isinstance(raw, (BaseMessage, Command)):
        if message.content == content_of(raw):
            return raw
    return message.content


def replaced(result: Any, value: Any, call: Mapping[str, Any]) -> Any:
    """The result with another value in place of the answer to this call."""
    old = message_in(result, call["id"])
    if old is None:
        return answer(value, call)
    new = old.model_copy(update={"content": content_of(value), "artifact": None})
    return _swap(result, old, new)


def _swap(result: Any, old: ToolMessage, new: ToolMessage) -> Any:
    if result is old:
        return new
    if isinstance(result, list):
        return [_swap(item, old, new) for item in result]
    if not isinstance(result, Command):
        return result
    update: Any = result.update
    for key, messages in _message_lists(result):
        changed = [new if m is old else m for m in messages]
        update = changed if key is None else {**update, key: changed}
    return replace(result, update=update)


def dumped(value: Any, result: Any) -> Any:
    """Plain data by which `loaded` gives the graph the same result again.

    Raises `Unencodable` for commands that hold more than messages and plain data.
    """
    if isinstance(result, ToolMessage) and is_plain(value) and result.artifact is None:
        if result.content == content_of(value) and result.status == "success":
            return value
    return {_MARK: _dump(result)}


def _dump(result: Any) -> Any:
    if isinstance(result, BaseMessage):
        return {"message": message_to_dict(result)}
    if isinstance(result, list):
        return [_dump(item) for item in result]
    if isinstance(result, Command):
        parts = {"goto": result.goto, "graph": result.graph, "resume": result.resume}
        if not is_plain(parts) and not (isinstance(result.goto, tuple) and not result.goto):
            raise Unencodable("result", "Command", "it holds more than names and messages")
        parts["goto"] = list(result.goto) if isinstance(result.goto, tuple) else result.goto
        return {"command": {**parts, "update": _dump_value(result.update)}}
    raise Unencodable("result", type(result).__name__)


def _dump_value(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {"message": message_to_dict(value)}
    if isinstance(value, list):
        return {"list": [_dump_value(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": {k: _dump_value(v) for k, v in value.items()}}
    if not is_plain(value):
        raise Unencodable("result.update", type(value).__name__)
    return {"plain": value}


def kept_of(message: BaseMessage) -> dict[str, Any]:
    """A message as plain data, for `loaded_message`."""
    if type(message) is AIMessage and not message.__pydantic_extra__:
        # A third of the price of `message_to_dict`, and a third of its size.
        return {"ai": {k: v for k, v in message.__dict__.items() if v and k != "type"}}
    return message_to_dict(message)


def loaded_message(kept: Mapping[str, Any]) -> BaseMessage:
    """The message that `kept_of` kept."""
    if "ai" in kept:
        return AIMessage(**{"content": "", **kept["ai"]})
    return messages_from_dict([dict(kept)])[0]


def loaded(value: Any) -> Any:
    """What `dumped` kept: a `Stored` result, or the tool's own value."""
    if type(value) is dict and value.keys() == {_MARK}:
        return Stored(_load(value[_MARK]))
    return value


def _load(kept: Any) -> Any:
    if isinstance(kept, list):
        return [_load(item) for item in kept]
    if "message" in kept:
        return messages_from_dict([kept["message"]])[0]
    command = kept["command"]
    return Command(
        graph=command["graph"],
        update=_load_value(command["update"]),
        resume=command["resume"],
        goto=command["goto"],
    )


def _load_value(kept: Any) -> Any:
    if "message" in kept:
        return messages_from_dict([kept["message"]])[0]
    if "list" in kept:
        return [_load_value(v) for v in kept["list"]]
    if "dict" in kept:
        return {k: _load_value(v) for k, v in kept["dict"].items()}
    return kept["plain"]
