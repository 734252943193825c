"""Model calls of an agent: `wrap_model_call` in terms of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.config import get_config

from checkrein._io import finish
from checkrein.call import ToolInfo, Usage
from checkrein.engine import Entry
from checkrein.errors import ApprovalPending, CheckreinError, ConfigError, Unencodable
from checkrein.tools import Tool
from checkrein_integrations._shared import requests
from checkrein_integrations._shared.retracting import (
    AnswerRetracted,
    Streams,
    asked_again,
    blocked,
    replaced,
)
from checkrein_integrations.langchain import messages as shape
from checkrein_integrations.langchain.answers import (
    answer_in,
    loaded,
    messages_in,
    name_of,
    swapped,
    usage_of,
)
from checkrein_integrations.langchain.channels import Channels
from checkrein_integrations.langchain.execution import RUNNING, Execution, first
from checkrein_integrations.langchain.gate import Gate
from checkrein_integrations.langchain.keys import call_key, place_of
from checkrein_integrations.langchain.results import Stored, kept_of
from checkrein_integrations.langchain.retracting import aretract, retract
from checkrein_integrations.langchain.sessions import Runs
from checkrein_integrations.langchain.signals import SIGNALS, ending
from checkrein_integrations.langchain.streams import filtering, written

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call, Outcome

_OWN_TOOLS = ("function", "custom")
"""Types of tool definitions whose calls come back to the agent."""


class ModelCalls(Gate):
    """Supervises the model calls of an agent."""

    kind = "model"

    def __init__(
        self,
        rein: Rein,
        runs: Runs,
        models: dict[str, Any],
        ungated: str = "refuse",
        streams: Streams = "auto",
    ) -> None:
        super().__init__(rein, runs)
        self.models = models
        self.ungated = ungated
        self.openers = rein.plugins.chains["open_stream"]
        streaming = {impl.plugin for impl in self.openers}
        self.holding = [
            impl.plugin for impl in rein.plugins.chains["post_call"] if impl.plugin not in streaming
        ]
        self.hold = streams == "hold" or (streams == "auto" and bool(self.holding))
        self.filters = bool(self.openers) or self.hold or streams == "pass"
        """Whether models have to be swapped for ones that filter what they stream."""
        if streams == "auto" and self.holding and self.openers:
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
                result = job.given(self.run(job.session, job.entry(handler)))
                retract(request.runtime, job.taken_back)
                return result
            except ApprovalPending as pending:
                if not job.waits(pending):
                    raise ending(pending)  # noqa: B904 - the same error
                self.pause(job.session, pending, "")
            except BaseException as error:
                final = self.final(error)
                retract(request.runtime, job.blocked(final))
                finish(self.failed(self.rein.sync_io, job, final))
                if final is error:
                    raise
                raise final from error

    async def awrap(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The async twin of `wrap`."""
        job = _Job(self, request)
        while True:
            try:
                result = job.given(await self.arun(job.session, job.aentry(handler)))
                await aretract(request.runtime, job.taken_back)
                return result
            except ApprovalPending as pending:
                if not job.waits(pending):
                    raise ending(pending)  # noqa: B904 - the same error
                self.pause(job.session, pending, "")
            except BaseException as error:
                final = self.final(error)
                await aretract(request.runtime, job.blocked(final))
                await self.failed(self.rein.async_io, job, final)
                if final is error:
                    raise
                raise final from error


class _Job:
    """One model call on its way."""

    __slots__ = (
        "answer",
        "arguments",
        "asked",
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
        "shown",
        "spent",
        "suspends",
        "taken_back",
        "told",
    )  # fmt: skip

    def __init__(self, gate: ModelCalls, request: Any) -> None:
        self.gate = gate
        self.request = request
        first(gate.rein, "", request.state, "model")
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
        self.asked = self.shown = False
        """Whether the model was asked, and something of its answer was delivered."""
        self.taken_back: AnswerRetracted | None = None

    def entry(self, handler: Callable[[Any], Any]) -> Entry:
        """The entry of a sync call."""

        def run(call: Call, exact: dict[str, Any]) -> Any:
            request = self._changed(call, exact)
            retract(request.runtime, self._again())
            token = RUNNING.set(self._execution(call))
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
            await aretract(request.runtime, self._again())
            token = RUNNING.set(self._execution(call))
            try:
                result = await handler(request)
            finally:
                RUNNING.reset(token)
            return self._received(result)

        return self._entry(run, True)

    def _execution(self, call: Call) -> Execution:
        return Execution(self.gate.rein, call.name, "model", state=self.request.state)

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
            load=loaded if keyed else None,
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
        if self.gate.filters:
            openers = self.gate.openers
            changes["model"] = filtering(
                model, lambda: Channels(call, openers), self.gate.hold, self._reported, self._shows
            )
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
        self.answer = answer_in(result)
        self.told = None if self.answer is None else shape.told(self.answer)
        return self.told

    def _again(self) -> AnswerRetracted | None:
        """The model is asked: what an earlier attempt has shown is taken back."""
        shown, self.asked, self.shown = self.shown, True, False
        return asked_again() if shown else None

    def blocked(self, error: BaseException) -> AnswerRetracted | None:
        """What tells that nothing of the answer stands."""
        if not self.asked or not isinstance(error, CheckreinError):
            return None
        return blocked(error, shown=self.shown)

    def _shows(self) -> None:
        self.shown = True

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
        others = messages_in(self.result)
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
        if self.shown and message is not None:
            # Another message for the graph's streams: they leave out what they have shown.
            message = message.model_copy(update={"id": None})
            self.taken_back = replaced()
        return swapped(self.result, self.answer, message)

    def waits(self, pending: ApprovalPending) -> bool:
        """Whether it is this very call that waits."""
        if pending.call_id != self.key or not self.suspends:
            return False
        self.session.waiting.add(self.key)
        return True
