"""OpenAI's own clients: the reference loop, its model asked through a supervised client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai import AsyncOpenAI, OpenAI

from checkrein.testing import Failure, OpenAIServer, Reply, ToolCall
from checkrein_integrations.openai import supervise_client

from . import driver_plain
from .observed import Ran
from .scenario import INPUT, MODEL, OUTPUT, Variant

VARIANTS = tuple(
    Variant(mode, form, streamed, style)
    # How calls run in parallel is the loop's affair: once is enough.
    for style, forms in (("chat", ("sequential", "parallel")), ("responses", ("sequential",)))
    for mode in ("sync", "async")
    for form in forms
    for streamed in (False, True)
)


def replies(turns: list[Any], prefix: str) -> list[Any]:
    """What the server says, turn by turn."""
    found: list[Any] = []
    number = 0
    for turn in turns:
        if isinstance(turn, Exception):
            found.append(Failure(500, str(turn)))
            continue
        if isinstance(turn, str):
            found.append(Reply(turn, input_tokens=INPUT, output_tokens=OUTPUT))
            continue
        calls = []
        for ask in turn:
            number += 1
            calls.append(ToolCall(ask.tool, dict(ask.arguments), f"{prefix}{number}"))
        found.append(Reply(None, calls, input_tokens=INPUT, output_tokens=OUTPUT))
    return found


class Loop(driver_plain.Loop):
    """The loop, with the client's own messages beside those of the one shape."""

    def __init__(self, case: Any, turns: list[Any], tools: Any, server: OpenAIServer) -> None:
        super().__init__(case, [], tools)
        self.server = server
        server.say(*replies(turns, "c"))
        self.kind: Any = OpenAI if case.variant.mode == "sync" else AsyncOpenAI
        self.chat = case.variant.style == "chat"
        self.items: list[Any] = []
        self.pieces: list[str] = []
        """The text of the last answer, as it was delivered."""

    def begin(self, text: str) -> None:
        self.items.append({"role": "user", "content": text})

    def body(self) -> dict[str, Any]:
        flat = [{"name": name, "parameters": {"type": "object"}} for name in self.tools]
        tools = [
            {"type": "function", "function": f} if self.chat else {"type": "function", **f}
            for f in flat
        ]
        body: dict[str, Any] = {"model": MODEL, "tools": tools}
        body["messages" if self.chat else "input"] = self.items
        if self.case.variant.streamed:
            body["stream"] = True
        return body

    def client(self) -> Any:
        plain = self.kind(base_url=self.server.url, api_key="none", max_retries=0)
        return supervise_client(self.rein, plain)

    def create(self, client: Any) -> Any:
        self.pieces.clear()
        chat, responses = client.chat.completions.create, client.responses.create
        return (chat if self.chat else responses)(**self.body())

    def ask(self) -> Any:
        with self.client() as client:
            answer = self.create(client)
            return self.read(list(answer) if self.case.variant.streamed else answer)

    async def aask(self) -> Any:
        async with self.client() as client:
            answer = await self.create(client)
            if self.case.variant.streamed:
                answer = [event async for event in answer]
            return self.read(answer)

    def read(self, answer: Any) -> Any:
        """An answer in the one shape; the client's own form is kept for the next request."""
        if isinstance(answer, list):
            text, calls = self._events(answer)
        elif self.chat:
            message = answer.choices[0].message
            text = message.content or ""
            calls = [(c.id, c.function.name, c.function.arguments)
                     for c in message.tool_calls or ()]  # fmt: skip
        else:
            text = answer.output_text
            calls = [(i.call_id, i.name, i.arguments) for i in answer.output
                     if i.type == "function_call"]  # fmt: skip
        self._keep(text, calls)
        parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
        for id, name, arguments in calls:
            parts.append({"type": "tool_call", "id": id, "name": name,
                          "arguments": json.loads(arguments)})  # fmt: skip
        return {"role": "assistant", "parts": parts}

    def _events(self, events: list[Any]) -> tuple[str, list[tuple[str, str, str]]]:
        calls: list[Any] = []
        for event in events:
            if not self.chat:
                if event.type == "response.output_text.delta":
                    self.pieces.append(event.delta)
                elif event.type == "response.output_item.done":
                    if event.item.type == "function_call":
                        calls.append((event.item.call_id, event.item.name, event.item.arguments))
                continue
            for choice in event.choices:
                self.pieces.append(choice.delta.content or "")
                for piece in choice.delta.tool_calls or ():
                    if piece.index == len(calls):
                        calls.append([piece.id, piece.function.name, ""])
                    calls[piece.index][2] += piece.function.arguments or ""
        return "".join(self.pieces), [tuple(call) for call in calls]

    def _keep(self, text: str, calls: Any) -> None:
        if self.chat:
            made = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
            message: dict[str, Any] = {"role": "assistant", "content": text or None}
            self.items.append(message | ({"tool_calls": made} if made else {}))
            return
        if text:
            self.items.append({"role": "assistant", "content": text})
        self.items += [
            {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}
            for id, name, arguments in calls
        ]

    def close_turn(self) -> None:
        for id in self.order:
            text = self.answers[id]
            self.items.append(
                {"role": "tool", "tool_call_id": id, "content": text}
                if self.chat
                else {"type": "function_call_output", "call_id": id, "output": text}
            )


class Run(driver_plain.Run):
    """One run of a scenario."""

    def __init__(self, case: Any) -> None:
        self.servers: list[OpenAIServer] = []
        super().__init__(case)

    def loop_of(self, turns: list[Any], tools: dict[str, Callable[..., Any]]) -> Any:
        self.servers.append(OpenAIServer())
        return Loop(self.case, turns, tools, self.servers[-1])

    def ran(self, value: Any, error: BaseException | None) -> Ran:
        requests = self.servers[0].requests
        last = requests[-1] if requests else {}
        saw = [
            str(item.get("content") or item.get("output"))
            for item in last.get("messages") or last.get("input") or ()
            if item.get("role") == "tool" or item.get("type") == "function_call_output"
        ]
        for server in self.servers:
            server.close()
        streamed = None
        if self.case.variant.streamed and self.case.scenario.decide is None:
            streamed = "".join(self.loop.pieces)
        return Ran(value, error, saw, str(requests), streamed)
