"""A model's answer as the graph holds it: found, swapped, and what it reports of its usage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage

from checkrein import usage
from checkrein.call import Usage
from checkrein_integrations.langchain.results import Stored, loaded_message


def name_of(model: Any) -> str:
    """The name under which a model object is known to policies and prices."""
    for field in ("model_name", "model", "model_id"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


_UNREADABLE = Usage(input_tokens=-1)
"""No use at all: the engine charges the call at its hold, and marks it."""


def usage_of(message: AIMessage) -> Usage | None:
    """What an answer reports of its tokens; None if it reports nothing."""
    used, about = message.usage_metadata, message.response_metadata
    if not used:
        return None
    try:
        # As a mapping: a message is slow to say that it has no such field.
        told = {"usage_metadata": used, "response_metadata": about}
        found = usage.usage_of(told, "langchain")
    except ValueError:
        return _UNREADABLE
    provider = about.get("model_provider")
    return replace(found, provider=str(provider)) if found is not None and provider else found


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
