"""What the loopback server answers in the form of chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.testing.openai_server import Reply


def _head(number: int, body: Mapping[str, Any], reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": reply.model or body.get("model", ""),
    }


def _finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
    }


def calls(number: int, reply: Reply) -> list[dict[str, Any]]:
    """The tool calls of an answer."""
    return [
        {
            "id": call.id or f"call_{number}_{index}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments
                if isinstance(call.arguments, str)
                else json.dumps(dict(call.arguments)),
            },
        }
        for index, call in enumerate(reply.tool_calls)
    ]


def completion(number: int, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """A whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = calls(number, reply)
    choice = {"message": message, "logprobs": None, "finish_reason": _finish(reply)}
    choices = [{"index": index, **choice} for index in range(body.get("n") or 1)]
    tree = {**_head(number, body, reply, "chat.completion"), "choices": choices}
    if reply.usage:
        tree["usage"] = _usage(reply)
    return tree


def pieces(text: str, size: int) -> Iterator[str]:
    """A text in pieces of `size` characters."""
    for start in range(0, len(text), max(1, size)):
        yield text[start : start + max(1, size)]


def _deltas(number: int, reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in pieces(reply.reasoning or "", reply.chunk):
        yield {"reasoning_content": piece}
    for piece in pieces(reply.text or "", reply.chunk):
        yield {"content": piece}
    for index, call in enumerate(calls(number, reply)):
        function = call["function"]
        begun = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": begun}]}
        for piece in pieces(function["arguments"], reply.chunk):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def chunks(number: int, body: Mapping[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed answer."""
    head = _head(number, body, reply, "chat.completion.chunk")

    ends: list[tuple[dict[str, Any], str | None]] = [({}, _finish(reply))]
    for delta, finish in [*((delta, None) for delta in _deltas(number, reply)), *ends]:
        for index in range(body.get("n") or 1):
            choice = {"index": index, "delta": delta, "finish_reason": finish}
            yield {**head, "choices": [choice]}
    if reply.usage and (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(reply)}
