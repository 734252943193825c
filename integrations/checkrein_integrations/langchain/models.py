"""Model calls of an agent: `wrap_model_call` in terms of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.config import get_config

from checkrein._io import finish
from checkrein.call import ToolInfo, Usage
from checkrein.engine import Entry
from checkrein.errors import ApprovalPending, ConfigError, Unencodable
from checkrein.tools import Tool
from checkrein_integrations._shared import requests
from checkrein_integrations.langchain import messages as shape
from checkrein_integrations.langchain.channels import Channels
from checkrein_integrations.langchain.execution import RUNNING, Execution
from checkrein_integrations.langchain.gate import Gate
from checkrein_integrations.langchain.keys import call_key, place_of
from checkrein_integrations.langchain.results import Stored, kept_of, loaded_message
from checkrein_integrations.langchain.sessions import Runs
from checkrein_integrations.langchain.signals import SIGNALS, ending
from checkrein_integrations.langchain.streams import filtering, written

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call, Outcome

_OWN_TOOLS = ("function", "custom")
"""Types of tool definitions whose calls come back to the agent."""


def name_of(model: Any) -> str:
    """The name under which a model object is known to policies and prices."""
    for field in ("model_name", "model", "model_id"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def usage_of(message: AIMessage) -> Usage | None:
    """What an answer reports of its tokens; None if it reports nothing."""
    used = message.usage_metadata
    if not used:
        return None
    given: Mapping[str, Any] = used.get("input_token_details") or {}
    made: Mapping[str, Any] = used.get("output_token_details") or {}
    about = message.response_metadata
    return Usage(
        input_tokens=used["input_tokens"],
        output_tokens=used["output_tokens"],
        cache_read_tokens=given.get("cache_read") or 0,
        cache_write_tokens=given.get("cache_creation") or 0,
        reasoning_tokens=made.get("reasoning") or 0,
        input_audio_tokens=given.get("audio") or 0,
        output_audio_tokens=made.get("audio") or 0,
        model=str(about.get("model_name") or about.get("model") or ""),
        provider=str(about.get("model_provider") or ""),
    )


class ModelCalls(Gate):
    """Supervises the model calls of an agent."""

    def __init__(
        self, rein: Rein, runs: Runs, models: dict[str, Any], ungated: str = "refuse"
    ) -> None:
        super().__init__(rein, runs)
        self.models = models
        self.ungated = ungated
        self.openers = rein.plugins.chains["open_stream"]
        streaming = {impl.plugin for impl in self.openers}
        self.holding = [
            impl.plugin for impl in rein.plugins.chains["post_call"] if impl.plugin not in streaming
        ]
        if self.holding and self.openers:
            rein.log.info(
                "answers are not streamed: %s look at them only when they are complete",
                ", ".join(self.holding),
            )
        self._named: set[str] = set()
        self._tools: dict[str, Tool] = {}

    def tool(self, name: str) -> Tool:
        """What stands for a model where the engine wants a tool."""
        tool = self._tools.get(name)
        if tool is None:
            tool = self._tools[name] = Tool(ToolInfo(name, effect="read"), None)
        return tool

    def outside(self, tools: list[Any]) -> list[str]:
        """Names of tools that the provider runs itself. Raises `ConfigError` if refused."""
        found = [
            str(tool.get("name") or tool["type"])
            for tool in tools
            if isinstance(tool, dict) and tool.get("type") and tool["type"] not in _OWN_TOOLS
        ]
        if not found:
            return found
        if self.ungated == "refuse":
            raise ending(
                ConfigError(
                    f"{', '.join(found)}: the provider runs these tools itself, so no call of "
                    "them can be stopped or recorded; remove them, or accept that with "
                    "CheckreinMiddleware(ungated='allow')"
                )
            )
        new = [name for name in found if name not in self._named]
        if new:
            self._named.update(new)
            self.rein.log.warning("not supervised, run by the provider: %s", ", ".join(new))
        return found

    def wrap(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run one model call under supervision; its response."""
        job = _Job(self, request)
        while True:
            try:
                return job.given(self.run(job.session, job.entry(handler)))
            except ApprovalPending as pending:
                if not job.waits(pending):
                    raise ending(pending)  # noqa: B904 - the same error
                self.pause(job.session, pending, "")
            except BaseException as error:
                final = self.final(error)
                finish(self.runs.failed(self.rein.sync_io, job.session, final))
                if final is error:
                    raise
                raise final from error

    async def awrap(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The async twin of `wrap`."""
        job = _Job(self, request)
        while True:
            try:
                return job.given(await self.arun(job.session, job.aentry(handler)))
            except ApprovalPending as pending:
                if not job.waits(pending):
                    raise ending(pending)  # noqa: B904 - the same error
                self.pause(job.session, pending, "")
            except BaseException as error:
                final = self.final(error)
                await self.runs.failed(self.rein.async_io, job.session, final)
                if final is error:
                    raise
                raise final from error


class _Job:
    """One model call on its way."""

    __slots__ = (
        "answer",
        "arguments",
        "came",
        "gate",
        "key",
        "keyed",
        "labels",
        "model",
        "outside",
        "place",
        "request",
        "result",
        "session",
        "spent",
        "suspends",
        "told",
    )  # fmt: skip

    def __init__(self, gate: ModelCalls, request: Any) -> None:
        self.gate = gate
        self.request = request
        self.model = name_of(request.model)
        self.place = place_of(get_config() if request.runtime is not None else None)
        self.session = gate.runs.session(request.state)
        self.suspends = gate.may_suspend(self.session, self.place)
        self.outside = gate.outside(request.tools)
        self.labels = gate.labels(self.place)
        if self.outside:
            self.labels["ungated"] = ", ".join(self.outside)
        system = request.system_message
        self.arguments: dict[str, Any] = {
            "system": None if system is None else shape.block_parts(system.content),
            "messages": [shape.told(m) for m in request.messages],
            "tools": [shape.tool_told(t) for t in request.tools],
        }
        # A stored answer takes the place of a second call only where a run can be taken up
        # again, and where all of the answer is stored.
        self.keyed = bool(self.place.thread) and request.response_format is None
        last = request.messages[-1].id if request.messages else ""
        self.key = (
            call_key(
                gate.rein.store.key, self.arguments, self.place.thread, self.session.id, "model",
                self.model, str(len(request.messages)), last,
            )
            if self.place.thread
            else ""
        )  # fmt: skip
        self.result: Any = None
        self.answer: AIMessage | None = None
        self.told: Any = None
        self.spent: Usage | None = None
        self.came: list[str] = []

    def entry(self, handler: Callable[[Any], Any]) -> Entry:
        """The entry of a sync call."""

        def run(call: Call, exact: dict[str, Any]) -> Any:
            request = self._changed(call, exact)
            token = RUNNING.set(Execution(self.gate.rein, call.name, "model"))
            try:
                result = handler(request)
            finally:
                RUNNING.reset(token)
            return self._received(result)

        return self._entry(run, False)

    def aentry(self, handler: Callable[[Any], Awaitable[Any]]) -> Entry:
        """The entry of an async call."""

        async def run(call: Call, exact: dict[str, Any]) -> Any:
            request = self._changed(call, exact)
            token = RUNNING.set(Execution(self.gate.rein, call.name, "model"))
            try:
                result = await handler(request)
            finally:
                RUNNING.reset(token)
            return self._received(result)

        return self._entry(run, True)

    def _entry(self, run: Callable[..., Any], is_async: bool) -> Entry:
        self.result = self.answer = self.told = self.spent = None
        self.came = []
        keyed = self.keyed and self.gate.rein.journal.record == "all"
        return Entry(
            tool=self.gate.tool(self.model),
            arguments=dict(self.arguments),
            session=self.session,
            kind="model",
            name=self.model,
            run=run,
            is_async=is_async,
            only_reads=True,
            call_id=self.key,
            keyed=keyed,
            labels=self.labels,
            can_suspend=self.suspends,
            signals=SIGNALS,
            # Of a call that no later run can meet again, the one shape is enough.
            dump=self._dump if keyed else None,
            load=_loaded if keyed else None,
            usage=self._usage,
            paid=lambda: self.spent,
            said=self._said,
        )

    def _changed(self, call: Call, exact: Mapping[str, Any]) -> Any:
        """The request for the call that the plugins left."""
        request, before = self.request, self.arguments
        changes: dict[str, Any] = {}
        if exact["messages"] != before["messages"]:
            changes["messages"] = shape.history(
                request.messages, before["messages"], exact["messages"]
            )
        if exact["system"] != before["system"]:
            changes["system_message"] = shape.rebuilt(
                request.system_message,
                {"role": "system", "parts": before["system"]},
                {"role": "system", "parts": exact["system"] or []},
            )
        if exact["tools"] != before["tools"]:
            changes["tools"] = requests.offered(request.tools, before["tools"], exact["tools"])
        model = request.model
        if call.name != self.model:
            model = changes["model"] = self._other(call.name)
        openers = self.gate.openers
        if openers:
            changes["model"] = filtering(
                model, lambda: Channels(call, openers), bool(self.gate.holding), self._reported
            )
        elif self.gate.holding:
            changes["model"] = filtering(model, lambda: Channels(call, ()), True)
        return request.override(**changes) if changes else request

    def _other(self, name: str) -> Any:
        model = self.gate.models.get(name)
        if model is None:
            known = ", ".join(self.gate.models) or "none"
            raise ending(
                ConfigError(
                    f"a plugin chose model {name!r}, which is not in "
                    f"CheckreinMiddleware(models={{...}}) (known: {known})"
                )
            )
        return model

    def _received(self, result: Any) -> Any:
        """The answer in the one shape."""
        self.result = result
        self.answer = _answer_in(result)
        self.told = None if self.answer is None else shape.told(self.answer)
        return self.told

    def _reported(self, message: Any) -> None:
        """A whole answer, or a piece of one, that has not been filtered yet."""
        self.spent = usage_of(message) or self.spent
        self.came += written(message)

    def _said(self) -> str | None:
        """What came of an answer that was broken off before it told its usage."""
        told = self.answer is not None or self.spent is not None
        return None if told or not self.came else "".join(self.came)

    def _usage(self, value: Any) -> Usage | None:
        return None if self.answer is None else usage_of(self.answer)

    def _dump(self, value: Any) -> Any:
        message = self._answer(value)
        others = _messages_in(self.result)
        if message is None or len(others) > 1 or isinstance(self.result, ExtendedModelResponse):
            raise Unencodable("result", type(self.result).__name__)
        return {"langchain": kept_of(message)}

    def _answer(self, value: Any) -> AIMessage | None:
        """The answer after plugins replaced it, or parts of it."""
        if value is self.told and self.result is not None:
            return self.answer
        if isinstance(value, AIMessage):
            return value
        if isinstance(value, str):
            value = {"role": "assistant", "parts": [{"type": "text", "content": value}]}
        if not isinstance(value, dict) or not isinstance(value.get("parts"), list):
            raise ending(
                ConfigError(
                    "a plugin replaced a model's answer by something that is neither text nor a "
                    "message {'role', 'parts'}"
                )
            )
        if self.answer is None:
            made = shape.created({**value, "role": "assistant"})
            return made if isinstance(made, AIMessage) else None
        changed = shape.rebuilt(self.answer, self.told, {**value, "role": "assistant"})
        return changed if isinstance(changed, AIMessage) else None

    def given(self, outcome: Outcome) -> Any:
        """What the graph gets for an outcome."""
        self.session.waiting.discard(self.key)
        value = outcome.value
        if isinstance(value, Stored):
            return ModelResponse(result=[value.result])
        if value is self.told and self.result is not None:
            return self.result
        message = self._answer(value)
        if self.result is None or self.answer is None:
            return ModelResponse(result=[message] if message is not None else [])
        return _swapped(self.result, self.answer, message)

    def waits(self, pending: ApprovalPending) -> bool:
        """Whether it is this very call that waits."""
        if pending.call_id != self.key or not self.suspends:
            return False
        self.session.waiting.add(self.key)
        return True


def _messages_in(result: Any) -> list[Any]:
    if isinstance(result, ExtendedModelResponse):
        result = result.model_response
    if isinstance(result, AIMessage):
        return [result]
    return list(getattr(result, "result", ()))


def _answer_in(result: Any) -> AIMessage | None:
    for message in _messages_in(result):
        if isinstance(message, AIMessage):
            return message
    return None


def _swapped(result: Any, old: AIMessage, new: Any) -> Any:
    if result is old:
        return new
    if isinstance(result, ExtendedModelResponse):
        return replace(result, model_response=_swapped(result.model_response, old, new))
    return replace(result, result=[new if m is old else m for m in result.result])


def _loaded(kept: Any) -> Any:
    return Stored(loaded_message(kept["langchain"]))
