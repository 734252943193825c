"""Model calls of an agent in terms of the engine."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.call import Usage
from checkrein.engine import Entry
from checkrein.errors import CheckreinError, ConfigError
from checkrein.streams.fields import get
from checkrein.streams.filters import Channels
from checkrein.streams.responses import Answer
from checkrein_integrations._shared.model_tools import model_tool
from checkrein_integrations._shared.responses import created, told_input
from checkrein_integrations.openai_agents import answers
from checkrein_integrations.openai_agents.framework import (
    CallModelData,
    CustomTool,
    FunctionTool,
    Model,
    ModelInputData,
    ModelProvider,
    ModelResponse,
    get_default_model,
)
from checkrein_integrations.openai_agents.results import Stored
from checkrein_integrations.openai_agents.runs import acting, run_of
from checkrein_integrations.openai_agents.signals import SIGNALS, ending, final
from checkrein_integrations.openai_agents.streams import Streamed

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call, Outcome
    from checkrein_integrations.openai_agents.supervision import Supervision

PLACE: contextvars.ContextVar[tuple[ModelProvider | None, str]] = contextvars.ContextVar(
    "checkrein_openai_agents_place", default=(None, "")
)
"""The run's own provider of models, and the agent whose turn it is."""
_OWN = (FunctionTool, CustomTool)


class SupervisedProvider(ModelProvider):
    """A provider whose models are supervised."""

    def __init__(self, supervision: Supervision, inner: ModelProvider) -> None:
        self._supervision = supervision
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        return self._supervision.model(self._inner.get_model(model_name))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def filter(self, own: Any) -> Callable[[CallModelData[Any]], Any]:
        """A `call_model_input_filter` that tells the model whose turn it is."""

        async def place(data: CallModelData[Any]) -> ModelInputData:
            PLACE.set((self._inner, data.agent.name))
            if own is None:
                return data.model_data
            given: Any = own(data)
            made: ModelInputData = await given if hasattr(given, "__await__") else given
            return made

        return place


class SupervisedModel(Model):
    """A model whose every call goes through the hooks of a Rein."""

    def __init__(self, supervision: Supervision, model: Model | str | None) -> None:
        self._supervision = supervision
        self._given = model
        self._inner: Model | None = model if isinstance(model, Model) else None
        self._provider: ModelProvider | None = None
        """Where the name was looked up last."""

    @property
    def checkrein_rein(self) -> Rein:
        """The Rein whose plugins decide."""
        return self._supervision.rein

    @property
    def checkrein_settings(self) -> Any:
        """How the agents of this model are supervised."""
        return self._supervision.settings

    def _supports_default_prompt_cache_key(self) -> bool:
        """Whether the SDK may add a cache key of its own; asked by that name."""
        own = getattr(self.resolved(), "_supports_default_prompt_cache_key", None)
        return bool(own()) if callable(own) else False

    def resolved(self) -> Model:
        """The model behind it; a name is looked up where the run says so."""
        if isinstance(self._given, Model):
            return self._given
        provider = PLACE.get()[0]
        if self._inner is None or provider is not self._provider:
            if provider is None:
                model = self._supervision.resolve(self._given)
            else:
                model = provider.get_model(self._given)
            self._provider = provider
            self._inner = model.resolved() if isinstance(model, SupervisedModel) else model
        return self._inner

    def named(self) -> str:
        """The name under which it is known to policies and prices."""
        if isinstance(self._given, str):
            return self._given
        return name_of(self._inner) if self._inner is not None else get_default_model()

    def other(self, name: str) -> Model:
        """The model that a plugin chose instead. Raises `ConfigError` for an unknown one."""
        model = self._supervision.settings.models.get(name)
        if model is None:
            known = ", ".join(self._supervision.settings.models) or "none"
            raise ending(
                ConfigError(
                    f"a plugin chose model {name!r}, which is not in "
                    f"supervise_agent(models={{...}}) (known: {known})"
                )
            )
        return model.resolved() if isinstance(model, SupervisedModel) else model

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._inner is not None:
            await self._inner._cleanup_on_run_end(owner)  # noqa: SLF001 - the SDK's own protocol

    async def close(self) -> None:
        if self._inner is not None:
            await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self.resolved().get_retry_advice(request)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        job = ModelJob(self, _request(args, kwargs))
        try:
            outcome = await job.rein.aenter(job.entry(job.respond))
            return job.given(outcome)
        except CheckreinError as error:
            raise final(error) from None

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        streamed = Streamed(ModelJob(self, _request(args, kwargs)))
        try:
            async for event in streamed.events():
                yield event
        finally:
            await streamed.close()


_ORDER = (
    "system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs",
    "tracing",
)  # fmt: skip


def _request(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(_ORDER, args, strict=False)), **kwargs}


def split(request: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """A request as the SDK passes it: a model may have other names for its first parameters."""
    rest = {key: value for key, value in request.items() if key not in _ORDER}
    return [request[name] for name in _ORDER], rest


def name_of(model: Any) -> str:
    """The name under which a model object is known to policies and prices."""
    for field in ("model", "model_name"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def usage_of(response: ModelResponse, model: str) -> Usage | None:
    """What an answer reports of its tokens; None if it reports nothing."""
    used = response.usage
    if not used.input_tokens and not used.output_tokens:
        return None
    given, made = used.input_tokens_details, used.output_tokens_details
    return Usage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=get(given, "cached_tokens") or 0,
        cache_write_tokens=get(given, "cache_write_tokens") or 0,
        reasoning_tokens=get(made, "reasoning_tokens") or 0,
        model=model,
    )


class ModelJob:
    """One model call on its way."""

    def __init__(self, model: SupervisedModel, request: dict[str, Any]) -> None:
        self.model = model
        self.rein = model.checkrein_rein
        self.settings = model.checkrein_settings
        self.request = request
        self.name = model.named()
        chains = self.rein.plugins.chains
        self.openers = chains["open_stream"]
        filtering = {impl.plugin for impl in self.openers}
        self.whole = [impl.plugin for impl in chains["post_call"] if impl.plugin not in filtering]
        """Plugins that look at an answer only when it is complete."""
        self.offered = [*request["tools"], *request["handoffs"]]
        self.told = told_input(request["input"])
        system = request["system_instructions"]
        self.arguments: dict[str, Any] = {
            "system": None if system is None else [{"type": "text", "content": system}],
            "messages": self.told.messages,
            "tools": [_tool_told(tool) for tool in self.offered],
        }
        self.labels = self._labels()
        run = run_of(self.rein)
        self.session = run.session if run is not None else self.rein.current_session()
        agent = PLACE.get()[1]
        self.agent = agent or self.session.agent
        self.key = ""
        if run is not None:
            mark, self.key = run.key("model", self.arguments, self.name, agent)
            run.counts[mark] += 1
        self.received: ModelResponse | None = None
        self.message: Any = None
        self.spent: Usage | None = None
        self.came: list[str] = []
        """What the model wrote in a stream, before it was filtered."""

    def _labels(self) -> dict[str, str]:
        outside = [
            str(getattr(tool, "name", "") or type(tool).__name__)
            for tool in self.request["tools"]
            if not isinstance(tool, _OWN)
        ]
        if not outside:
            return {}
        if self.settings.ungated == "refuse":
            raise ending(
                ConfigError(
                    f"{', '.join(outside)}: no call of these tools can be stopped or recorded "
                    "here; remove them, or accept that with ungated='allow'"
                )
            )
        return {"ungated": ", ".join(outside)}

    def entry(self, run: Callable[[Call, dict[str, Any]], Any]) -> Entry:
        """The engine's entry; `run` makes the call."""
        return Entry(
            model_tool(self.name),
            dict(self.arguments),
            self.session,
            kind="model",
            name=self.name,
            run=run,
            is_async=True,
            agent=self.agent,
            call_id=self.key,
            keyed=bool(self.key) and self.rein.journal.record == "all",
            labels=self.labels | acting(self.session, self.agent),
            only_reads=True,
            wait="block",
            signals=SIGNALS,
            dump=self._dump,
            load=lambda kept: Stored(answers.loaded(kept)),
            usage=lambda value: self.spent,
            paid=lambda: self.spent,
            said=lambda: "".join(self.came) if self.came and self.spent is None else None,
        )

    def channels(self, call: Call) -> Channels:
        """The stream filters of one answer."""
        return Channels(call, self.openers, ending)

    def changed(self, call: Call, exact: Mapping[str, Any]) -> tuple[Model, dict[str, Any]]:
        """The model and the request for the call that the plugins left."""
        self.received = self.message = self.spent = None
        self.came = []
        before, request = self.arguments, self.request
        changes: dict[str, Any] = {}
        if exact["messages"] != before["messages"]:
            items = self.told.changed(exact["messages"])
            given = request["input"]
            alone = len(items) == 1 and isinstance(get(items[0], "content"), str)
            changes["input"] = items[0]["content"] if isinstance(given, str) and alone else items
        if exact["system"] != before["system"]:
            parts = exact["system"] or []
            changes["system_instructions"] = "".join(p["content"] for p in parts) or None
        if exact["tools"] != before["tools"]:
            kept = _kept(self.offered, before["tools"], exact["tools"])
            for field in ("tools", "handoffs"):
                changes[field] = [t for t in request[field] if any(t is k for k in kept)]
        model = self.model.resolved() if call.name == self.name else self.model.other(call.name)
        return model, {**request, **changes}

    async def respond(self, call: Call, exact: dict[str, Any]) -> Any:
        """Call the model; its filtered answer in the one shape."""
        model, request = self.changed(call, exact)
        args, kwargs = split(request)
        response = await model.get_response(*args, **kwargs)
        self.spent = usage_of(response, call.name)
        if self.openers:
            items = Answer(self.channels(call)).items(response.output)
            if any(n is not o for n, o in zip(items, response.output, strict=True)):
                response = answers.with_output(response, items)
        return self.take(response)

    def take(self, response: ModelResponse) -> Any:
        """Keep an answer; the value that plugins see."""
        self.received = response
        self.message = answers.told(response)
        return self.message

    def _dump(self, value: Any) -> Any:
        return answers.dumped(self._answer(value))

    def _answer(self, value: Any) -> ModelResponse:
        """The answer after plugins replaced it, or parts of it."""
        if self.received is not None and value is self.message:
            return self.received
        if isinstance(value, str):
            value = {"role": "assistant", "parts": [{"type": "text", "content": value}]}
        if not isinstance(value, dict) or not isinstance(value.get("parts"), list):
            raise ending(
                ConfigError(
                    "a plugin replaced a model's answer by something that is neither text nor a "
                    "message {'role', 'parts'}"
                )
            )
        value = {**value, "role": "assistant"}
        if self.received is None:
            return answers.made(created(value))
        return answers.changed(self.received, value)

    def given(self, outcome: Outcome) -> ModelResponse:
        """What the SDK gets for an outcome."""
        if isinstance(outcome.value, Stored):
            response: ModelResponse = outcome.value.result
            return response
        return self._answer(outcome.value)


def _tool_told(tool: Any) -> dict[str, Any]:
    name = getattr(tool, "name", None) or getattr(tool, "tool_name", None) or type(tool).__name__
    text = getattr(tool, "description", None) or getattr(tool, "tool_description", None) or ""
    kind = "function" if isinstance(tool, _OWN) or hasattr(tool, "tool_name") else "provider"
    return {"type": kind, "name": str(name), "description": str(text)}


def _kept(tools: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for new in after:
        if new not in before:
            raise ending(
                ConfigError("a plugin changed a tool's definition: tools can only be taken out")
            )
        kept.append(tools[list(before).index(new)])
    return kept
