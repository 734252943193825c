"""Model calls of a crew: what a supervised model does when it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from checkrein.call import Usage
from checkrein.engine import Entry
from checkrein.errors import CheckreinError, ConfigError
from checkrein_integrations._shared import chat, requests
from checkrein_integrations._shared.model_tools import model_tool
from checkrein_integrations._shared.retracting import asked_again, blocked, replaced
from checkrein_integrations.crewai import answers
from checkrein_integrations.crewai.framework import (
    BaseLLM,
    UsageMetrics,
    call_stream_override,
)
from checkrein_integrations.crewai.instruments import same_class
from checkrein_integrations.crewai.retracting import retract
from checkrein_integrations.crewai.signals import ending, final
from checkrein_integrations.crewai.state import LABEL, LIVE, PLACE, SCOPE, place_of, task_of
from checkrein_integrations.crewai.streams import Delivery

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call

_NAMES = ("messages", "tools", "callbacks", "available_functions", "from_task", "from_agent",
          "response_model")  # fmt: skip
"""Parameters of `BaseLLM.call`, in order."""


def live(model: Any) -> ModelCall | None:
    """The supervised call of this very model that runs now."""
    call: ModelCall | None = LIVE.get()
    return call if call is not None and call.target is model else None


class ModelCall:
    """One call of a model on its way through the engine."""

    def __init__(
        self, rein: Rein, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.rein = rein
        self.model = model
        self.target = model
        """The model that answers: another one after a fallback."""
        self.given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
        scope = SCOPE.get()
        self.scope = scope if scope is not None and scope.rein is rein else None
        self.session = scope.session() if self.scope and scope else rein.current_session()
        task, agent = self.given.get("from_task"), self.given.get("from_agent")
        self.task = task_of(task)
        self.place = place_of(task, agent)
        messages = self.given.get("messages") or []
        self.messages: list[Any] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        )
        self.offered: list[Any] = list(self.given.get("tools") or ())
        told = [chat.told(m) for m in self.messages]
        # The system message leads; it stands apart in the one shape.
        self.leads = bool(told) and told[0]["role"] == "system"
        self.arguments: dict[str, Any] = {
            "system": told[0]["parts"] if self.leads else None,
            "messages": told[1:] if self.leads else told,
            "tools": [chat.tool_told(t) for t in self.offered],
        }
        self.usage: dict[str, Any] | None = None
        self.completed: list[tuple[Callable[..., None], str | None, dict[str, Any]]] = []
        """Events of the end of the call: held back until the answer is final."""
        self.delivery: Delivery | None = None
        self.stopped: BaseException | None = None
        """What a tool that the model itself ran wants the run to end with."""
        self.answer: Any = answers.NOTHING
        self.told: Any = None

    # -- into the engine

    def run(self, inner: Callable[..., Any]) -> Any:
        """Call the model under supervision. Raises what ends the run."""

        def run(call: Call, exact: dict[str, Any]) -> Any:
            body, changed, place, token = self._start(inner, "call", call, exact)
            try:
                with self._streaming():
                    answer = body(**changed)
                return self._received(answer)
            finally:
                self._stop(place, token)

        try:
            return self._given(self.rein.enter(self._entry(run, False)).value)
        except BaseException as error:
            failed = self._failed(error)
            if failed is error:
                raise
            raise failed from error

    async def arun(self, inner: Callable[..., Awaitable[Any]]) -> Any:
        """The async twin of `run`."""

        async def run(call: Call, exact: dict[str, Any]) -> Any:
            body, changed, place, token = self._start(inner, "acall", call, exact)
            try:
                with self._streaming():
                    answer = await body(**changed)
                return self._received(answer)
            finally:
                self._stop(place, token)

        try:
            return self._given((await self.rein.aenter(self._entry(run, True))).value)
        except BaseException as error:
            failed = self._failed(error)
            if failed is error:
                raise
            raise failed from error

    def _entry(self, run: Callable[..., Any], is_async: bool) -> Entry:
        name = str(self.model.model)
        key = ""
        if self.scope is not None:
            key = self.scope.key(self.session, "model", name, self.place, self.arguments)
        return Entry(
            tool=model_tool(name),
            arguments=dict(self.arguments),
            session=self.session,
            kind="model",
            name=name,
            run=run,
            is_async=is_async,
            only_reads=True,
            call_id=key,
            keyed=bool(key) and self.rein.journal.record == "all",
            task=self.task,
            labels={LABEL: self.place[1]} if self.scope is not None else {},
            dump=self._dump,
            load=self._load,
            usage=self._usage,
            paid=lambda: self._usage(None),
            said=self._said,
        )

    def _start(
        self, inner: Callable[..., Any], method: str, call: Call, exact: Mapping[str, Any]
    ) -> tuple[Callable[..., Any], dict[str, Any], Any, Any]:
        self.usage = None
        self.completed.clear()
        self.target, body = self.model, inner
        if call.name != str(self.model.model):
            self.target = self._other(call.name)
            if self.scope is not None:
                self.scope.instruments.use(self.target, change_model)
            body = getattr(self.target, method)
        if self.delivery is not None and self.delivery.shown:
            retract(self.target, asked_again(), answers.current_id())
        streams = self.scope.streams if self.scope is not None else "auto"
        self.delivery = Delivery(self.rein, call, streams)
        given = dict(self.given)
        if exact != self.arguments:
            given |= self._changes(exact)
        functions = given.get("available_functions")
        if functions:
            given["available_functions"] = self._guarded(functions)
        return body, given, PLACE.set(self.place), LIVE.set(self)

    def _stop(self, place: Any, token: Any) -> None:
        LIVE.reset(token)
        PLACE.reset(place)

    def _streaming(self) -> Any:
        """Let the model stream as it would, or hold its answer until it is complete."""
        delivery = self.delivery
        assert delivery is not None
        wants = bool(getattr(self.target, "_effective_stream", lambda: self.target.stream)())
        delivery.streams = wants
        return call_stream_override(self.target, wants and not delivery.holds(self.target))

    def _changes(self, exact: Mapping[str, Any]) -> dict[str, Any]:
        """What of the request is another one after the plugins."""
        before = self.arguments
        changes: dict[str, Any] = {}
        system, rest = (self.messages[:1], self.messages[1:]) if self.leads else ([], self.messages)
        if exact["system"] != before["system"]:
            old = {"role": "system", "parts": before["system"] or []}
            new = {"role": "system", "parts": exact["system"] or []}
            system = [chat.rebuilt(system[0], old, new) if system else chat.created(new)]
        rest = chat.history(rest, before["messages"], exact["messages"])
        changes["messages"] = [*system, *rest]
        if exact["tools"] != before["tools"]:
            changes["tools"] = (
                requests.offered(self.offered, before["tools"], exact["tools"]) or None
            )
        return changes

    def _guarded(self, functions: Mapping[str, Any]) -> dict[str, Any]:
        """Tools that the model itself runs, in a call outside an agent."""
        from checkrein_integrations.crewai.supervised import supervised_function

        return {name: supervised_function(self, name, fn) for name, fn in functions.items()}

    def _other(self, name: str) -> Any:
        models = self.scope.models if self.scope is not None else {}
        model = models.get(name)
        if model is None:
            known = ", ".join(models) or "none"
            raise ending(
                ConfigError(
                    f"a plugin chose model {name!r}, which is not in supervise(models={{...}}) "
                    f"(known: {known})"
                )
            )
        return model

    # -- the way back

    def _received(self, answer: Any) -> Any:
        delivery = self.delivery
        assert delivery is not None
        if self.stopped is not None:
            raise self.stopped
        delivery.end()
        self.answer = delivery.filtered(answer)
        self.told = answers.told(self.answer)
        return self.told

    def _said(self) -> str | None:
        """What came of a stream whose usage nobody reported."""
        came = self.delivery.came if self.delivery is not None else []
        return "".join(came) if came and not self.usage else None

    def _usage(self, value: Any) -> Usage | None:
        metrics = UsageMetrics.from_provider_dict(self.usage) if self.usage else None
        if metrics is None:
            return None
        return Usage(
            input_tokens=metrics.prompt_tokens,
            output_tokens=metrics.completion_tokens,
            cache_read_tokens=metrics.cached_prompt_tokens,
            cache_write_tokens=metrics.cache_creation_tokens,
            reasoning_tokens=metrics.reasoning_tokens,
            model=str(self.target.model),
            provider=str(getattr(self.target, "provider", "") or ""),
        )

    def _dump(self, value: Any) -> Any:
        return answers.dumped(self.answer if value is self.told else self._replaced(value))

    def _load(self, kept: Any) -> Any:
        self.answer = answers.loaded(kept, self.given.get("response_model"))
        self.told = answers.told(self.answer)
        return self.told

    def _replaced(self, value: Any) -> Any:
        """The answer after plugins replaced it, or parts of it."""
        return answers.replaced(self.answer, value, self.given.get("response_model"))

    def _given(self, value: Any) -> Any:
        """What the framework gets; the events of the call's end are told now."""
        answer = self.answer if value is self.told else self._replaced(value)
        delivery = self.delivery
        if delivery is not None:
            anew = delivery.shown and value is not self.told
            retract(self.target, replaced() if anew else None, self._told_id())
            with answers.call_id(self._told_id()):
                delivery.deliver(self.target, self, answer, anew=anew)
        for emit, id, fields in self.completed:
            with answers.call_id(id):
                emit(**{**fields, "response": answer})
        return answer

    def _told_id(self) -> str | None:
        """The id under which events of the model call were told."""
        return self.completed[0][1] if self.completed else answers.current_id()

    def _failed(self, error: BaseException) -> BaseException:
        delivery = self.delivery
        if delivery is not None and delivery.streams and isinstance(error, CheckreinError):
            retract(self.target, blocked(error, shown=delivery.shown), self._told_id())
        for _, id, fields in self.completed:
            about = {k: fields[k] for k in ("from_task", "from_agent") if k in fields}
            with answers.call_id(id):
                self.target._emit_call_failed_event(error="the answer was withheld", **about)  # noqa: SLF001 - the end of a call whose beginning was told
        self.completed.clear()
        return final(error)


def change_model(model: Any) -> Callable[[], None]:
    """Make a model's calls pass the engine; returns how to undo that."""
    before: Any = type(model)
    object.__setattr__(model, "__class__", supervised_class(before))
    return lambda: object.__setattr__(model, "__class__", before)


def rein_of(model: Any) -> Rein | None:
    """The Rein that decides on a call of this model here; None outside all supervision."""
    owner: Any = getattr(model, "checkrein_owner", None)
    if owner is not None:
        return cast("Rein", owner)
    scope = SCOPE.get()
    return scope.rein if scope is not None else None


@cache
def supervised_class(cls: type[BaseLLM]) -> type[BaseLLM]:
    """A class of model whose calls, and the events that tell of them, pass the engine."""
    methods: dict[str, Any] = {"call": _call_of(cls), "acall": _acall_of(cls)}
    for name in ("_emit_call_completed_event", "_handle_emit_call_events"):
        if hasattr(cls, name):
            methods[name] = _completed_of(getattr(cls, name))
    methods["_emit_stream_chunk_event"] = _chunk_of(cls, "_emit_stream_chunk_event", "text")
    methods["_emit_thinking_chunk_event"] = _chunk_of(
        cls, "_emit_thinking_chunk_event", "reasoning"
    )
    methods["_track_token_usage_internal"] = _usage_of(cls)
    return cast("type[BaseLLM]", same_class(cls, methods))


def _call_of(cls: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        rein = rein_of(self)
        if rein is None or live(self) is not None:
            return cls.call(self, *args, **kwargs)
        return ModelCall(rein, self, args, kwargs).run(lambda **given: cls.call(self, **given))

    return _repeated_inside(call)


def _repeated_inside(method: Any) -> Any:
    """Tell the framework that the inner method repeats already what is refused for its rate."""
    method._crewai_rate_limit_wrapped = True  # noqa: SLF001 - the framework's own mark
    return method


def _acall_of(cls: Any) -> Any:
    async def acall(self: Any, *args: Any, **kwargs: Any) -> Any:
        rein = rein_of(self)
        if rein is None or live(self) is not None:
            return await cls.acall(self, *args, **kwargs)
        job = ModelCall(rein, self, args, kwargs)
        return await job.arun(lambda **given: cls.acall(self, **given))

    return _repeated_inside(acall)


def _completed_of(inner: Any) -> Any:
    def emit(self: Any, response: Any, call_type: Any, *args: Any, **fields: Any) -> None:
        job = live(self)
        if job is None:
            inner(self, response, call_type, *args, **fields)
            return
        names = ("from_task", "from_agent", "messages", "usage", "finish_reason", "response_id")
        fields = {**dict(zip(names, args, strict=False)), **fields}
        if fields.get("usage"):
            job.usage = fields["usage"]
        fields["call_type"] = call_type
        job.completed.append((lambda **given: inner(self, **given), answers.current_id(), fields))

    return emit


def _chunk_of(cls: Any, name: str, channel: str) -> Any:
    inner = getattr(cls, name)

    def emit(self: Any, chunk: str, *args: Any, **fields: Any) -> None:
        job = live(self)
        if job is None or job.delivery is None:
            inner(self, chunk, *args, **fields)
            return
        fields = {**dict(zip(("from_task", "from_agent"), args, strict=False)), **fields}
        job.delivery.feed(channel, chunk, fields, lambda **given: inner(self, **given))

    return emit


def _usage_of(cls: Any) -> Any:
    inner = cls._track_token_usage_internal

    def track(self: Any, usage_data: dict[str, Any]) -> None:
        job = live(self)
        if job is not None and not job.usage:
            job.usage = dict(usage_data)
        inner(self, usage_data)

    return track
