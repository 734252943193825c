"""A scripted CrewAI model: plays given answers, records every request, needs no key, no network.

model = ScriptedLLM(script=[[call("pay", amount=3)], "done"])
agent = Agent(role="cashier", goal="pay", backstory="-", llm=model, tools=[pay])
"""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import Any

# Before the import: CrewAI reports to its makers from then on.
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai.events.types.llm_events import LLMCallType
from crewai.llms.base_llm import BaseLLM, llm_call_context
from pydantic import BaseModel, Field, PrivateAttr

_numbers = itertools.count(1)


def call(name: str, id: str = "", **arguments: Any) -> dict[str, Any]:
    """A tool call for a scripted answer; ids are made up where none is given."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id or f"call-{next(_numbers)}", "type": "function", "function": function}


def action(tool: str, **arguments: Any) -> str:
    """A tool call as a model without native calls writes it (ReAct)."""
    return f"Thought: I use a tool\nAction: {tool}\nAction Input: {json.dumps(arguments)}\n"


def final(text: str) -> str:
    """A final answer as a model without native calls writes it (ReAct)."""
    return f"Thought: I now know the final answer\nFinal Answer: {text}"


class ScriptEnded(AssertionError):
    """The model was called more often than the script has answers."""


class ScriptedLLM(BaseLLM):
    """Plays `script` step by step: text, a list of `call(...)`, or an exception to raise.

    A function as a step gets the messages and returns one of these.
    """

    model: str = "scripted-1"
    native: bool = True
    """The model calls tools natively; False makes the agent use ReAct texts."""
    script: list[Any] = Field(default_factory=list)
    input_tokens: int = 10
    output_tokens: int = 5
    chunk_size: int = 0
    """Characters of one streamed chunk; 0 = word by word."""
    delay: float = 0.0
    """Seconds that each answer takes."""
    _seen: list[list[dict[str, Any]]] = PrivateAttr(default_factory=list)
    _offered: list[list[str]] = PrivateAttr(default_factory=list)

    def __init__(self, **fields: Any) -> None:
        # The base class wants the name among the arguments: a default is not enough for it.
        super().__init__(**{"model": "scripted-1", **fields})

    @property
    def seen(self) -> list[list[dict[str, Any]]]:
        """The messages of each request, oldest first."""
        return self._seen

    @property
    def offered(self) -> list[list[str]]:
        """Names of the tools that each request offered."""
        return self._offered

    @property
    def sent(self) -> str:
        """All text that was ever sent to the model: what must not hold private data."""
        return "\n".join(json.dumps(m) for request in self._seen for m in request)

    def supports_function_calling(self) -> bool:
        """Whether agents offer their tools natively."""
        return self.native

    def call(
        self,
        messages: Any,
        tools: Any = None,
        callbacks: Any = None,
        available_functions: Any = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        """Answer with the next step of the script."""
        about = {"from_task": from_task, "from_agent": from_agent}
        with llm_call_context():
            self._emit_call_started_event(messages=messages, tools=tools, **about)
            given = messages if isinstance(messages, list) else []
            self._invoke_before_llm_call_hooks(given, from_agent)
            step = self._next(messages, tools)
            if self.delay:
                time.sleep(self.delay)
            if isinstance(step, BaseException):
                self._emit_call_failed_event(error=str(step), **about)
                raise step
            usage = {
                "prompt_tokens": self.input_tokens,
                "completion_tokens": self.output_tokens,
                "total_tokens": self.input_tokens + self.output_tokens,
            }
            self._track_token_usage_internal(usage)
            if self._effective_stream():
                self._stream(step, about)
            if available_functions and isinstance(step, list):
                function = step[0]["function"]
                return self._handle_tool_execution(
                    function["name"], json.loads(function["arguments"]), available_functions,
                    **about,
                )  # fmt: skip
            answer = step
            if response_model is not None and isinstance(step, str):
                answer = response_model.model_validate_json(step)
            self._emit_call_completed_event(
                response=answer,
                call_type=LLMCallType.TOOL_CALL if isinstance(step, list) else LLMCallType.LLM_CALL,
                messages=messages,
                usage=usage,
                **about,
            )
            if isinstance(answer, str):
                answer = self._invoke_after_llm_call_hooks(given, answer, from_agent)
            return answer

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Answer with the next step of the script."""
        return self.call(*args, **kwargs)

    def get_input_tokens_count(self, messages: Any, *args: Any, **kwargs: Any) -> int:
        """Tokens of a request, for checks against the context window: `input_tokens`."""
        return self.input_tokens

    def _next(self, messages: Any, tools: Any) -> Any:
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        self._seen.append(json.loads(json.dumps(given, default=str)))
        self._offered.append([tool["function"]["name"] for tool in tools or ()])
        if not self.script:
            raise ScriptEnded(f"{self.model}: request {len(self._seen)} has no answer")
        step = self.script.pop(0)
        if callable(step) and not isinstance(step, (type, BaseModel)):
            step = step(given)
        return step

    def _stream(self, step: Any, about: dict[str, Any]) -> None:
        if isinstance(step, str):
            for piece in self._pieces(step):
                self._emit_stream_chunk_event(chunk=piece, call_type=LLMCallType.LLM_CALL, **about)
            return
        for index, each in enumerate(step):
            written = ""
            for piece in self._pieces(each["function"]["arguments"]):
                written += piece
                function = {"name": each["function"]["name"], "arguments": written}
                self._emit_stream_chunk_event(
                    chunk=piece,
                    tool_call={**each, "function": function, "index": index},
                    call_type=LLMCallType.TOOL_CALL,
                    **about,
                )

    def _pieces(self, text: str) -> list[str]:
        if self.chunk_size:
            return [text[i : i + self.chunk_size] for i in range(0, len(text), self.chunk_size)]
        words = text.split(" ")
        return [word + " " for word in words[:-1]] + words[-1:]
