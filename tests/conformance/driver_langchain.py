"""LangChain: `create_agent` with `CheckreinMiddleware`."""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolErrorMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from checkrein_integrations.langchain import CheckreinMiddleware, aresume, resume
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .observed import Ran
from .scenario import INPUT, MODEL, OUTPUT, Variant

VARIANTS = tuple(
    Variant(mode, form, streamed)
    for mode in ("sync", "async")
    for form in ("sequential", "parallel")
    for streamed in (False, True)
)
_LOCK = threading.RLock()
_THREAD = {"configurable": {"thread_id": "t1"}}


def scripted(turns: list[Any], prefix: str = "c") -> ScriptedChatModel:
    """A model that plays the turns."""
    script: list[Any] = []
    number = 0
    for turn in turns:
        if isinstance(turn, (str, Exception)):
            script.append(ai(turn) if isinstance(turn, str) else turn)
            continue
        calls = []
        for ask in turn:
            number += 1
            calls.append(call(ask.tool, f"{prefix}{number}", **ask.arguments))
        script.append(ai("", *calls))
    return ScriptedChatModel(
        script=script, model_name=MODEL, input_tokens=INPUT, output_tokens=OUTPUT
    )


def tool_of(name: str, fn: Callable[..., Any]) -> BaseTool:
    """A function as a LangChain tool."""
    if inspect.iscoroutinefunction(fn):
        return StructuredTool.from_function(coroutine=fn, name=name, description=fn.__doc__)
    return StructuredTool.from_function(fn, name=name, description=fn.__doc__)


class FileSaver(InMemorySaver):
    """Checkpoints in a file, written whole after each change."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            storage, writes, blobs = pickle.loads(path.read_bytes())
            for thread, spaces in storage.items():
                for space, kept in spaces.items():
                    self.storage[thread][space].update(kept)
            self.writes.update(writes)
            self.blobs.update(blobs)

    def _write(self) -> None:
        storage = {t: {s: dict(k) for s, k in spaces.items()} for t, spaces in self.storage.items()}
        whole = storage, {k: dict(v) for k, v in self.writes.items()}, dict(self.blobs)
        new = self._path.with_suffix(".new")
        new.write_bytes(pickle.dumps(whole))
        new.replace(self._path)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Keep a checkpoint."""
        with _LOCK:
            done = super().put(*args, **kwargs)
            self._write()
            return done

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        """Keep what a task has written."""
        with _LOCK:
            super().put_writes(*args, **kwargs)
            self._write()


class Run:
    """One run of a scenario."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.model = scripted(case.turns)
        tools = [tool_of(name, fn) for name, fn in case.functions.items()]
        if case.inner:
            tools.append(self._delegate(list(tools)))
        kept = case.scenario.decide is not None or case.folder is not None
        self.config: Any = _THREAD if kept else None
        saver = None
        if kept:
            saver = FileSaver(case.folder / "graph") if case.folder else InMemorySaver()
        self.agent = self._agent(self.model, tools, saver)
        self._text: dict[str, str] = {}

    def _agent(self, model: Any, tools: list[BaseTool], saver: Any = None) -> Any:
        middleware: list[Any] = [CheckreinMiddleware(self.case.rein)]
        if self.case.scenario.errors == "told":
            # Outside: a timeout of ours is an error of the tool like any other.
            middleware.insert(0, ToolErrorMiddleware(lambda error, request: str(error)))
        return create_agent(model, tools, middleware=middleware, checkpointer=saver)

    def _delegate(self, tools: list[BaseTool]) -> BaseTool:
        agent = self._agent(scripted(self.case.inner, "i"), tools)

        def delegate(input: str) -> str:
            """Hand a task to another agent."""
            return _last(agent.invoke({"messages": [("user", input)]})) or ""

        async def adelegate(input: str) -> str:
            return _last(await agent.ainvoke({"messages": [("user", input)]})) or ""

        return StructuredTool.from_function(
            delegate, coroutine=adelegate, name="delegate", description="Hand on a task."
        )

    def _given(self) -> Any:
        return {"messages": [("user", self.case.scenario.user)]}

    def start(self) -> Any:
        if not self.case.variant.streamed:
            return _last(self.agent.invoke(self._given(), self.config, **self._durably()))
        state = None
        for kind, item in self.agent.stream(
            self._given(), self.config, stream_mode=["messages", "values"]
        ):
            state = self._seen(kind, item, state)
        return _last(state)

    async def astart(self) -> Any:
        if not self.case.variant.streamed:
            return _last(await self.agent.ainvoke(self._given(), self.config, **self._durably()))
        state = None
        async for kind, item in self.agent.astream(
            self._given(), self.config, stream_mode=["messages", "values"]
        ):
            state = self._seen(kind, item, state)
        return _last(state)

    def _seen(self, kind: str, item: Any, state: Any) -> Any:
        if kind == "values":
            return item
        message = item[0]
        if isinstance(message, (AIMessageChunk, AIMessage)):
            id = message.id or ""
            self._text[id] = self._text.get(id, "") + str(message.content)
        return state

    def _durably(self) -> dict[str, Any]:
        """A checkpoint is written before the next step begins, where the process may die."""
        return {"durability": "sync"} if self.case.folder else {}

    def go_on(self) -> Any:
        with self.case.rein.session(id=self.case.session):
            return _last(self.agent.invoke(None, self.config))

    async def ago_on(self) -> Any:
        async with self.case.rein.session(id=self.case.session):
            return _last(await self.agent.ainvoke(None, self.config))

    def resume(self, token: str) -> Any:
        return _last(resume(self.case.rein, token, self.agent))

    async def aresume(self, token: str) -> Any:
        return _last(await aresume(self.case.rein, token, self.agent))

    def ran(self, value: Any, error: BaseException | None) -> Ran:
        seen = self.model.seen
        saw = [str(m.content) for m in (seen[-1] if seen else ()) if isinstance(m, ToolMessage)]
        streamed = None
        if self.case.variant.streamed and self.case.scenario.decide is None:
            streamed = list(self._text.values())[-1] if self._text else ""
        return Ran(value, error, saw, self.model.sent, streamed)


def _last(state: Any) -> str | None:
    """The agent's answer; None where the run is paused."""
    message = state["messages"][-1]
    done = isinstance(message, AIMessage) and not message.tool_calls
    return str(message.content) if done else None
