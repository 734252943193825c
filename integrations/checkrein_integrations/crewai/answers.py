"""A model's answer: text, structured output or tool calls, in the one shape and back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from checkrein.errors import ConfigError, Unencodable
from checkrein_integrations._shared import chat
from checkrein_integrations._shared.plain import is_plain
from checkrein_integrations.crewai.framework import current_call_id, extract_tool_call_info
from checkrein_integrations.crewai.signals import ending

NOTHING = object()
_MARK = "crewai"


def told(answer: Any) -> Any:
    """An answer in the one shape; what is neither text nor tool calls stays what it is."""
    if isinstance(answer, str):
        return {"role": "assistant", "parts": [{"type": "text", "content": answer}]}
    if isinstance(answer, BaseModel):
        text = answer.model_dump_json()
        return {"role": "assistant", "parts": [{"type": "text", "content": text}]}
    if isinstance(answer, list):
        parts = []
        for item in answer:
            info = extract_tool_call_info(item)
            if info is None:
                return answer
            id, name, arguments = info
            parts.append({"type": "tool_call", "id": id, "name": name,
                          "arguments": chat.parsed(arguments)})  # fmt: skip
        return {"role": "assistant", "parts": parts}
    return answer


def replaced(answer: Any, value: Any, response_model: Any) -> Any:
    """The answer that a plugin wants in place of `answer`.

    Raises `ConfigError` for a value that is neither text nor a message of the one shape.
    """
    if isinstance(value, str):
        return _text(value, answer, response_model)
    parts = value.get("parts") if isinstance(value, dict) else None
    if not isinstance(parts, list):
        raise ending(
            ConfigError(
                "a plugin replaced a model's answer by something that is neither text nor a "
                "message {'role', 'parts'}"
            )
        )
    calls = [part for part in parts if part.get("type") == "tool_call"]
    if not calls:
        texts = [str(part["content"]) for part in parts if part.get("type") == "text"]
        return _text("".join(texts), answer, response_model)
    before = told(answer)
    old = before["parts"] if isinstance(before, dict) else []
    if isinstance(answer, list) and len(old) == len(calls):
        # A call that no plugin changed keeps its provider's own form.
        return [
            item if was == part else chat.call_dict(part)
            for item, was, part in zip(answer, old, calls, strict=True)
        ]
    return [chat.call_dict(part) for part in calls]


def _text(text: str, answer: Any, response_model: Any) -> Any:
    if isinstance(answer, BaseModel):
        return type(answer).model_validate_json(text)
    if response_model is not None and answer is NOTHING:
        return response_model.model_validate_json(text)
    return text


def dumped(answer: Any) -> Any:
    """Plain data by which `loaded` makes the same answer. Raises `Unencodable`."""
    if isinstance(answer, str):
        return {_MARK: {"text": answer}}
    if isinstance(answer, BaseModel):
        return {_MARK: {"model": answer.model_dump_json()}}
    shape = told(answer)
    if isinstance(answer, list) and isinstance(shape, dict):
        calls = [chat.call_dict(part) for part in shape["parts"]]
        return {_MARK: {"calls": calls}}
    if is_plain(answer):
        return {_MARK: {"data": answer}}
    raise Unencodable("result", type(answer).__name__)


def loaded(kept: Any, response_model: Any) -> Any:
    """An answer from what `dumped` made of it."""
    about = kept[_MARK]
    if "model" in about:
        if response_model is None:
            return about["model"]
        return response_model.model_validate_json(about["model"])
    for key in ("text", "calls", "data"):
        if key in about:
            return about[key]
    raise ConfigError(f"a recorded answer has an unknown form: {', '.join(about)}")


def arguments_text(call: Any) -> str:
    """The arguments of a tool call as JSON text."""
    info = extract_tool_call_info(call)
    if info is None:
        return ""
    arguments = info[2]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def current_id() -> str | None:
    """The id under which events of the running model call are told."""
    id: str | None = current_call_id().get()
    return id


@contextlib.contextmanager
def call_id(id: str | None) -> Iterator[None]:
    """Tell events as events of that model call."""
    variable = current_call_id()
    token = variable.set(id)
    try:
        yield
    finally:
        variable.reset(token)
