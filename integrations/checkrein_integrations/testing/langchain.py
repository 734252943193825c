"""A scripted chat model: plays given answers, records every request, needs no key and no network.

model = ScriptedChatModel(script=[ai("", call("pay", amount=3)), ai("done")])
agent = create_agent(model, [pay], middleware=[CheckreinMiddleware(rein)])
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field, PrivateAttr

_numbers = itertools.count(1)


def call(name: str, id: str = "", **arguments: Any) -> ToolCall:
    """A tool call for a scripted answer; ids are made up where none is given."""
    return ToolCall(name=name, args=arguments, id=id or f"call-{next(_numbers)}", type="tool_call")


def ai(text: str = "", *calls: ToolCall, **fields: Any) -> AIMessage:
    """A scripted answer: text, and the tool calls that it asks for."""
    return AIMessage(content=text, tool_calls=list(calls), **fields)


class ScriptEnded(AssertionError):
    """The model was called more often than the script has answers."""


class ScriptedChatModel(BaseChatModel):
    """Plays `script` step by step: an `AIMessage` is answered, an exception is raised."""

    script: list[Any] = Field(default_factory=list)
    model_name: str = "scripted-1"
    input_tokens: int = 10
    output_tokens: int = 5
    chunk_size: int = 0
    """Characters of one streamed chunk; 0 = word by word."""
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _offered: list[list[str]] = PrivateAttr(default_factory=list)

    @property
    def seen(self) -> list[list[BaseMessage]]:
        """The messages of each request, oldest first."""
        return self._seen

    @property
    def offered(self) -> list[list[str]]:
        """Names of the tools that each request offered."""
        return self._offered

    @property
    def sent(self) -> str:
        """All text that was ever sent to the model: what must not hold private data."""
        return "\n".join(m.model_dump_json() for request in self._seen for m in request)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Offer tools."""
        return self.bind(tools=[_tool_name(t) for t in tools], **kwargs)

    def _next(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AIMessage:
        self._seen.append(list(messages))
        self._offered.append(list(kwargs.get("tools", ())))
        if not self.script:
            raise ScriptEnded(f"{self.model_name}: request {len(self._seen)} has no answer")
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        message: AIMessage = step.model_copy()
        message.usage_metadata = message.usage_metadata or UsageMetadata(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            total_tokens=self.input_tokens + self.output_tokens,
        )
        message.response_metadata = {"model_name": self.model_name, **message.response_metadata}
        return message

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages, kwargs)
        for piece in self._pieces(str(message.content)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager is not None:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        calls: list[Any] = [
            {"name": c["name"], "args": json.dumps(c["args"]), "id": c["id"], "index": index,
             "type": "tool_call_chunk"}
            for index, c in enumerate(message.tool_calls)
        ]  # fmt: skip
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=calls,
                usage_metadata=message.usage_metadata,
                response_metadata=message.response_metadata,
                chunk_position="last",
            )
        )

    def _pieces(self, text: str) -> list[str]:
        if self.chunk_size:
            return [text[i : i + self.chunk_size] for i in range(0, len(text), self.chunk_size)]
        words = text.split(" ")
        return [word + " " for word in words[:-1]] + words[-1:] if text else []


def _tool_name(tool: Any) -> str:
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("type"))
    return str(getattr(tool, "name", tool))
