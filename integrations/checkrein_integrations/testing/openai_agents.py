"""A scripted model for the OpenAI Agents SDK: no key, no network, every request is recorded.

model = ScriptedModel([ask(call("pay", amount=3)), "done"])
agent = Agent(name="billing", model=model, tools=[pay])
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseContentPartAddedEvent,
    ResponseContentPartDoneEvent,
    ResponseCreatedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)

_numbers = itertools.count(1)


def call(name: str, id: str = "", /, **arguments: Any) -> ResponseFunctionToolCall:
    """A tool call for a scripted answer; ids are made up where none is given."""
    return raw_call(name, json.dumps(arguments), id)


def raw_call(name: str, arguments: str, id: str = "") -> ResponseFunctionToolCall:
    """A tool call with this text for arguments, be it JSON or not."""
    number = next(_numbers)
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=arguments, call_id=id or f"call-{number}",
        id=f"fc-{number}", status="completed",
    )  # fmt: skip


def say(text: str) -> ResponseOutputMessage:
    """A text for a scripted answer."""
    block = ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id=f"msg-{next(_numbers)}", type="message", role="assistant", status="completed",
        content=[block],
    )  # fmt: skip


def ask(*calls: ResponseFunctionToolCall, text: str = "") -> list[Any]:
    """A scripted answer that asks for tool calls."""
    return [*([say(text)] if text else []), *calls]


class ScriptEnded(AssertionError):
    """The model was called more often than the script has answers."""


class ScriptedModel(Model):
    """Plays its script: a text, items of an answer, or an exception that is raised.

    Streams come in pieces of `chunk_size` characters; 0 = word by word.
    """

    def __init__(
        self,
        script: Sequence[Any],
        *,
        model: str = "scripted-1",
        input_tokens: int = 10,
        output_tokens: int = 5,
        chunk_size: int = 0,
    ) -> None:
        self.script = list(script)
        self.model = model
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.chunk_size = chunk_size
        self.seen: list[list[Any]] = []
        """The input of each request, oldest first."""
        self.systems: list[str | None] = []
        """The instructions of each request."""
        self.offered: list[list[str]] = []
        """Names of the tools and hand-offs that each request offered."""

    @property
    def sent(self) -> str:
        """All text that was ever sent to the model: what must not hold private data."""
        return "\n".join(
            json.dumps([system, items], ensure_ascii=False, default=str)
            for system, items in zip(self.systems, self.seen, strict=True)
        )

    def _next(self, system: Any, given: Any, tools: Any, handoffs: Any) -> list[Any]:
        self.seen.append([{"role": "user", "content": given}] if isinstance(given, str) else given)
        self.systems.append(system)
        names = [getattr(tool, "name", type(tool).__name__) for tool in tools]
        self.offered.append([*names, *(handoff.tool_name for handoff in handoffs)])
        if not self.script:
            raise ScriptEnded(f"{self.model}: request {len(self.seen)} has no answer")
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        items = [say(step)] if isinstance(step, str) else list(step)
        return [item.model_copy(deep=True) for item in items]

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **_: Any,
    ) -> ModelResponse:
        items = self._next(system_instructions, input, tools, handoffs)
        usage = Usage(
            requests=1, input_tokens=self.input_tokens, output_tokens=self.output_tokens,
            total_tokens=self.input_tokens + self.output_tokens,
        )  # fmt: skip
        return ModelResponse(output=items, usage=usage, response_id=f"resp-{len(self.seen)}")

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **_: Any,
    ) -> AsyncIterator[Any]:
        items = self._next(system_instructions, input, tools, handoffs)
        for number, event in enumerate(self._events(items)):
            yield event.model_copy(update={"sequence_number": number})

    def _events(self, items: list[Any]) -> Iterator[Any]:
        yield ResponseCreatedEvent(
            type="response.created", response=self._response([], "in_progress"), sequence_number=0
        )
        for index, item in enumerate(items):
            if isinstance(item, ResponseFunctionToolCall):
                yield from self._call(item, index)
            else:
                yield from self._message(item, index)
        yield ResponseCompletedEvent(
            type="response.completed", response=self._response(items, "completed"),
            sequence_number=0,
        )  # fmt: skip

    def _call(self, item: ResponseFunctionToolCall, index: int) -> Iterator[Any]:
        about: dict[str, Any] = {"output_index": index, "sequence_number": 0}
        begun = item.model_copy(update={"arguments": "", "status": "in_progress"})
        yield ResponseOutputItemAddedEvent(type="response.output_item.added", item=begun, **about)
        id = item.id or ""
        for piece in self._pieces(item.arguments):
            yield ResponseFunctionCallArgumentsDeltaEvent(
                type="response.function_call_arguments.delta", delta=piece, item_id=id, **about
            )
        yield ResponseFunctionCallArgumentsDoneEvent(
            type="response.function_call_arguments.done", arguments=item.arguments, item_id=id,
            **about,
        )  # fmt: skip
        yield ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, **about)

    def _message(self, item: ResponseOutputMessage, index: int) -> Iterator[Any]:
        whole: dict[str, Any] = {"output_index": index, "sequence_number": 0}
        begun = item.model_copy(update={"content": [], "status": "in_progress"})
        yield ResponseOutputItemAddedEvent(type="response.output_item.added", item=begun, **whole)
        for place, block in enumerate(item.content):
            assert isinstance(block, ResponseOutputText)
            about = {**whole, "content_index": place, "item_id": item.id}
            empty = block.model_copy(update={"text": ""})
            yield ResponseContentPartAddedEvent(
                type="response.content_part.added", part=empty, **about
            )
            for piece in self._pieces(block.text):
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta", delta=piece, logprobs=[], **about
                )
            yield ResponseTextDoneEvent(
                type="response.output_text.done", text=block.text, logprobs=[], **about
            )
            yield ResponseContentPartDoneEvent(
                type="response.content_part.done", part=block, **about
            )
        yield ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, **whole)

    def _response(self, items: list[Any], status: Any) -> Response:
        used = {
            "input_tokens": self.input_tokens, "output_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip
        tree: dict[str, Any] = {
            "id": f"resp-{len(self.seen)}", "created_at": 0.0, "model": self.model,
            "object": "response", "output": items, "tool_choice": "auto", "tools": [],
            "parallel_tool_calls": True, "status": status,
            "usage": used if status == "completed" else None,
        }  # fmt: skip
        return Response.model_validate(tree)

    def _pieces(self, text: str) -> list[str]:
        if self.chunk_size:
            return [text[i : i + self.chunk_size] for i in range(0, len(text), self.chunk_size)]
        words = text.split(" ")
        return [word + " " for word in words[:-1]] + words[-1:] if text else []
