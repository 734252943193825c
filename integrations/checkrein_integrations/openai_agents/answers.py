"""A model's answer: the SDK's `ModelResponse`, the one message shape, and plain data."""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from checkrein_integrations._shared.responses import Told
from checkrein_integrations.openai_agents.framework import ModelResponse, Usage

_MARK = "openai_agents"


@functools.cache
def _items() -> TypeAdapter[Any]:
    return TypeAdapter(list[ResponseOutputItem])


def told(response: ModelResponse) -> dict[str, Any]:
    """An answer as one assistant message."""
    messages = Told(response.output).messages
    parts = [part for message in messages for part in message["parts"]]
    return {"role": "assistant", "parts": parts}


def with_output(response: ModelResponse, output: Sequence[Any]) -> ModelResponse:
    """The answer with other items."""
    return dataclasses.replace(response, output=list(output))


def changed(response: ModelResponse, message: Mapping[str, Any]) -> ModelResponse:
    """The answer for a message that plugins changed; untouched items are the originals."""
    shape = Told(response.output)
    if len(shape.messages) != 1:
        return with_output(response, completed(created_items(message, response.output)))
    return with_output(response, completed(shape.changed([message])))


def created_items(message: Mapping[str, Any], items: Sequence[Any]) -> list[Any]:
    """New items for a message."""
    from checkrein_integrations._shared.responses import created

    return created(message, items)


def made(items: Sequence[Any]) -> ModelResponse:
    """An answer that no model gave."""
    return ModelResponse(output=completed(items), usage=Usage(), response_id=None)


def completed(items: Sequence[Any]) -> list[Any]:
    """Items as the SDK's own objects: those that are dicts get what an answer needs."""
    return [_object(item) if isinstance(item, Mapping) else item for item in items]


def _object(item: Mapping[str, Any]) -> Any:
    id = secrets.token_hex(8)
    if "role" in item:
        content = item["content"]
        blocks = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        blocks = [{"annotations": [], **block} for block in blocks]
        tree = {"type": "message", "id": f"msg_{id}", "status": "completed", **item}
        return _items().validate_python([{**tree, "content": blocks}])[0]
    return _items().validate_python([{"id": f"fc_{id}", **item}])[0]


def dumped(response: ModelResponse) -> Any:
    """Plain data by which `loaded` gives the SDK the same answer again."""
    items = [item.model_dump(mode="json", exclude_unset=True) for item in response.output]
    return {_MARK: {"output": items, "response_id": response.response_id}}


def loaded(kept: Any) -> ModelResponse:
    """What `dumped` kept. It has been paid for already: it reports no usage."""
    tree = kept[_MARK]
    return ModelResponse(
        output=_items().validate_python(tree["output"]), usage=Usage(),
        response_id=tree["response_id"],
    )  # fmt: skip
