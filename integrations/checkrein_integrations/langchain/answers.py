"""A model's answer as the graph holds it: found, swapped, and what it reports of its usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage

from checkrein.call import Usage
from checkrein_integrations.langchain.results import Stored, loaded_message


def name_of(model: Any) -> str:
    """The name under which a model object is known to policies and prices."""
    for field in ("model_name", "model", "model_id"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def usage_of(message: AIMessage) -> Usage | None:
    """What an answer reports of its tokens; None if it reports nothing."""
    used = message.usage_metadata
    if not used:
        return None
    given: Mapping[str, Any] = used.get("input_token_details") or {}
    made: Mapping[str, Any] = used.get("output_token_details") or {}
    about = message.response_metadata
    return Usage(
        input_tokens=used["input_tokens"],
        output_tokens=used["output_tokens"],
        cache_read_tokens=given.get("cache_read") or 0,
        cache_write_tokens=given.get("cache_creation") or 0,
        reasoning_tokens=made.get("reasoning") or 0,
        input_audio_tokens=given.get("audio") or 0,
        output_audio_tokens=made.get("audio") or 0,
        model=str(about.get("model_name") or about.get("model") or ""),
        provider=str(about.get("model_provider") or ""),
    )


def messages_in(result: Any) -> list[Any]:
    """The messages of a model node's result."""
    if isinstance(result, ExtendedModelResponse):
        result = result.model_response
    if isinstance(result, AIMessage):
        return [result]
    return list(getattr(result, "result", ()))


def answer_in(result: Any) -> AIMessage | None:
    """The answer among them."""
    for message in messages_in(result):
        if isinstance(message, AIMessage):
            return message
    return None


def swapped(result: Any, old: AIMessage, new: Any) -> Any:
    """The result with another answer in it."""
    if result is old:
        return new
    if isinstance(result, ExtendedModelResponse):
        return replace(result, model_response=swapped(result.model_response, old, new))
    return replace(result, result=[new if m is old else m for m in result.result])


def loaded(kept: Any) -> Any:
    """An answer that was read from the journal."""
    return Stored(loaded_message(kept["langchain"]))
