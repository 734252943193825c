"""The reference: a loop of one's own over `rein.model_call` and `rein.call`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from checkrein.call import Usage
from checkrein.errors import ApprovalPending, Denied

from .observed import Ran
from .scenario import INPUT, MODEL, OUTPUT, Variant

VARIANTS = tuple(
    Variant(mode, form) for mode in ("sync", "async") for form in ("sequential", "parallel")
)


class NoSuchTool(Exception):
    """The model asked for a tool that the loop does not have."""


class Model:
    """A scripted model in the GenAI form."""

    def __init__(self, turns: list[Any]) -> None:
        self.turns = list(turns)
        self.requests: list[Any] = []
        self._number = 0

    def __call__(self, *, model: str, messages: Any, system: Any, tools: Any) -> Any:
        self.requests.append((system, list(messages)))
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        parts: list[dict[str, Any]] = []
        if isinstance(turn, str):
            parts.append({"type": "text", "content": turn})
        else:
            for ask in turn:
                self._number += 1
                parts.append({
                    "type": "tool_call", "id": f"c{self._number}", "name": ask.tool,
                    "arguments": dict(ask.arguments),
                })  # fmt: skip
        return {"role": "assistant", "parts": parts}


def text_of(message: Any) -> str:
    """The text of an answer; a policy may have put a plain text in its place."""
    return "".join(p["content"] for p in message["parts"] if p["type"] == "text")


class Loop:
    """One agent."""

    def __init__(self, case: Any, turns: list[Any], tools: dict[str, Callable[..., Any]]) -> None:
        self.case = case
        self.rein = case.rein
        self.tools = tools
        self.model = Model(turns)
        self.messages: list[Any] = []
        self.waiting: dict[str, tuple[str, str]] = {}
        """Token -> (id of the tool call, its name)."""
        self.answers: dict[str, str] = {}
        self.order: list[str] = []

    def begin(self, text: str) -> None:
        self.messages.append({"role": "user", "parts": [{"type": "text", "content": text}]})

    def request(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "messages": list(self.messages),
            "tools": [{"name": name} for name in self.tools],
            "usage": lambda value: Usage(INPUT, OUTPUT, model=MODEL),
        }

    def asked(self, answer: Any) -> list[Any]:
        if isinstance(answer, str):
            answer = {"role": "assistant", "parts": [{"type": "text", "content": answer}]}
        self.messages.append(answer)
        calls = [p for p in answer["parts"] if p["type"] == "tool_call"]
        self.order = [c["id"] for c in calls]
        self.answers = {}
        return calls

    def function(self, name: str) -> Callable[..., Any]:
        if name in self.tools:
            return self.tools[name]

        def unknown(**arguments: Any) -> Any:
            raise NoSuchTool(f"{name} is not a valid tool")

        unknown.__name__ = unknown.__qualname__ = name
        self.rein.declare(name, unknown, no_effect_on=(NoSuchTool,))
        return unknown

    def told(self, call: Any, error: Exception) -> str:
        """What the model reads of an error. Raises what ends the run."""
        if isinstance(error, ApprovalPending):
            self.waiting[error.token] = (call["id"], call["name"])
            return ""
        if isinstance(error, Denied):
            if error.halt:
                raise error
            return error.refusal()
        if self.case.scenario.errors == "raised" or not isinstance(error, (Exception,)):
            raise error
        if type(error).__module__.startswith("checkrein."):
            raise error
        return f"{type(error).__name__}: {error}"

    def close_turn(self) -> None:
        parts = [
            {"type": "tool_call_response", "id": id, "response": self.answers[id]}
            for id in self.order
        ]
        self.messages.append({"role": "user", "parts": parts})

    # -- sync

    def ask(self) -> Any:
        return self.rein.model_call(self.model, **self.request())

    def one(self, call: Any) -> None:
        try:
            value = self.rein.call(self.function(call["name"]), **call["arguments"])
        except Exception as error:
            value = self.told(call, error)
        self.answers[call["id"]] = str(value)

    def run(self) -> str:
        while True:
            calls = self.asked(self.ask())
            if not calls:
                return text_of(self.messages[-1])
            if len(calls) == 1:
                self.one(calls[0])
            else:
                one = self.rein.current_session().bind(self.one)
                with ThreadPoolExecutor(len(calls)) as pool:
                    done = [pool.submit(one, call) for call in calls]
                for future in done:
                    future.result()
            if self.waiting:
                raise ApprovalPending(next(iter(self.waiting)))
            self.close_turn()

    def go_on(self, token: str) -> str:
        id, name = self.waiting.pop(token)
        try:
            self.answers[id] = str(self.rein.resume(token))
        except Exception as error:
            self.answers[id] = self.told({"id": id, "name": name}, error)
        if self.waiting:
            raise ApprovalPending(next(iter(self.waiting)))
        self.close_turn()
        return self.run()

    # -- async

    async def aask(self) -> Any:
        return await self.rein.amodel_call(self.model, **self.request())

    async def aone(self, call: Any) -> None:
        try:
            value = await self.rein.acall(self.function(call["name"]), **call["arguments"])
        except Exception as error:
            value = self.told(call, error)
        self.answers[call["id"]] = str(value)

    async def arun(self) -> str:
        while True:
            calls = self.asked(await self.aask())
            if not calls:
                return text_of(self.messages[-1])
            done = await asyncio.gather(*map(self.aone, calls), return_exceptions=True)
            for error in done:
                if error is not None:
                    raise error
            if self.waiting:
                raise ApprovalPending(next(iter(self.waiting)))
            self.close_turn()

    async def ago_on(self, token: str) -> str:
        id, name = self.waiting.pop(token)
        try:
            self.answers[id] = str(await self.rein.aresume(token))
        except Exception as error:
            self.answers[id] = self.told({"id": id, "name": name}, error)
        if self.waiting:
            raise ApprovalPending(next(iter(self.waiting)))
        self.close_turn()
        return await self.arun()


def _threaded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A tool that waits, off the loop, as frameworks do it."""

    @functools.wraps(fn)
    async def run(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(fn, *args, **kwargs)

    return run


class Run:
    """One run of a scenario."""

    def __init__(self, case: Any) -> None:
        self.case = case
        tools = dict(case.functions)
        if case.variant.mode == "async" and "steady" in tools:
            tools["steady"] = _threaded(tools["steady"])
        if case.inner:
            tools["delegate"] = self._delegate()
        self.loop = self.loop_of(case.turns, tools)

    def loop_of(self, turns: list[Any], tools: dict[str, Callable[..., Any]]) -> Loop:
        return Loop(self.case, turns, tools)

    def _delegate(self) -> Callable[..., Any]:
        def inner() -> Loop:
            return self.loop_of(self.case.inner, self.case.functions)

        if self.case.variant.mode == "sync":

            def delegate(input: str) -> str:
                loop = inner()
                loop.begin(input)
                return loop.run()

            return delegate

        async def adelegate(input: str) -> str:
            loop = inner()
            loop.begin(input)
            return await loop.arun()

        adelegate.__name__ = "delegate"
        return adelegate

    def start(self) -> Any:
        self.loop.begin(self.case.scenario.user)
        return self.loop.run()

    async def astart(self) -> Any:
        self.loop.begin(self.case.scenario.user)
        return await self.loop.arun()

    def resume(self, token: str) -> Any:
        with self.case.rein.session(id=self.case.session):
            return self.loop.go_on(token)

    async def aresume(self, token: str) -> Any:
        async with self.case.rein.session(id=self.case.session):
            return await self.loop.ago_on(token)

    def ran(self, value: Any, error: BaseException | None) -> Ran:
        requests = self.loop.model.requests
        saw = [
            str(part["response"])
            for message in (requests[-1][1] if requests else ())
            for part in message["parts"]
            if part["type"] == "tool_call_response"
        ]
        return Ran(value, error, saw, str(requests))
