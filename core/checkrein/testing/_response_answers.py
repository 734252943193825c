"""What the loopback server answers in the form of the Responses API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from checkrein.testing._chat_answers import calls, pieces

if TYPE_CHECKING:
    from checkrein.testing.openai_server import Reply


def response(number: int, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """A whole answer."""
    cut = reply.finish_reason == "length"
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "incomplete" if cut else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "model": reply.model or body.get("model", ""),
        "output": _items(number, reply),
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(reply) if reply.usage else None,
    }


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def _items(number: int, reply: Reply) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        found.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary})
    if reply.text is not None:
        block = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        found.append(
            {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant",
             "content": [block]}
        )  # fmt: skip
    for index, call in enumerate(calls(number, reply)):
        found.append(
            {"id": f"fc_{number}_{index}", "type": "function_call", "status": "completed",
             "call_id": call["id"], **call["function"]}
        )  # fmt: skip
    return found


def events(number: int, body: Mapping[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer."""
    count = itertools.count()
    for event in _events(number, body, reply):
        yield {**event, "sequence_number": next(count)}


def _events(number: int, body: Mapping[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    whole = response(number, body, reply)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None,
             "incomplete_details": None}  # fmt: skip
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty = {"message": "content", "reasoning": "summary"}.get(item["type"])
        started = {**item, empty: []} if empty else {**item, "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        if item["type"] == "function_call":
            yield from _arguments(item, place, reply.chunk)
        else:
            yield from _text(item, place, reply.chunk)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _arguments(item: Mapping[str, Any], place: dict[str, Any], size: int) -> Iterator[Any]:
    kind = "response.function_call_arguments"
    for piece in pieces(item["arguments"], size):
        yield {"type": f"{kind}.delta", **place, "delta": piece}
    yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]}


def _text(item: Mapping[str, Any], place: dict[str, Any], size: int) -> Iterator[Any]:
    if item["type"] == "message":
        (part,), where, text = item["content"], {"content_index": 0}, "output_text"
        added = "content_part"
        more: dict[str, Any] = {"logprobs": []}
    else:
        (part,), where, text = item["summary"], {"summary_index": 0}, "reasoning_summary_text"
        added, more = "reasoning_summary_part", {}
    place = {**place, **where}
    yield {"type": f"response.{added}.added", **place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"], size):
        yield {"type": f"response.{text}.delta", **place, "delta": piece, **more}
    yield {"type": f"response.{text}.done", **place, "text": part["text"], **more}
    yield {"type": f"response.{added}.done", **place, "part": part}
