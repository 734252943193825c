"""`supervise_agent`: an agent, and all agents behind it, with every road under supervision."""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from checkrein.errors import ConfigError
from checkrein_integrations._shared.retracting import Streams, check_streams
from checkrein_integrations.openai_agents import handoffs
from checkrein_integrations.openai_agents.binding import (
    agent_body,
    binder_of,
    body_of,
    custom_body,
)
from checkrein_integrations.openai_agents.framework import (
    Agent,
    CustomTool,
    FunctionTool,
    Handoff,
    InputGuardrail,
    Model,
    ModelProvider,
    MultiProvider,
    RunConfig,
    check,
    handoff,
)
from checkrein_integrations.openai_agents.models import (
    PLACE,
    SupervisedModel,
    SupervisedProvider,
)
from checkrein_integrations.openai_agents.signals import ending
from checkrein_integrations.openai_agents.tools import Gate
from checkrein_integrations.openai_agents.unknown import Recording

if TYPE_CHECKING:
    from checkrein import Rein

A = TypeVar("A", bound=Agent[Any])
Ungated = Literal["refuse", "allow"]


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How one agent and those behind it are supervised."""

    ungated: Ungated = "refuse"
    streams: Streams = "auto"
    models: Mapping[str, Model] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise `ConfigError` for settings that cannot be used."""
        if self.ungated not in ("refuse", "allow"):
            raise ConfigError(f"ungated: {self.ungated!r} is neither 'refuse' nor 'allow'")
        check_streams(self.streams)
        for name, model in self.models.items():
            if not isinstance(model, Model):
                raise ConfigError(f"models: {name!r} is a {type(model).__name__}, not a Model")


def supervise_agent(
    rein: Rein,
    agent: A,
    *,
    ungated: Ungated = "refuse",
    streams: Streams = "auto",
    models: Mapping[str, Model] | None = None,
    model_provider: ModelProvider | None = None,
) -> A:
    """A copy of an agent whose tools, hand-offs, inner agents and models go through `rein`.

    Args:
        rein: The Rein whose plugins decide.
        agent: The agent; it is left as it is, and so are those that it hands off to.
        ungated: What to do about tools that the provider or the SDK runs where nothing here
            can stop a call: `refuse` them now, or `allow` and mark the model calls.
        streams: `auto` shows what the plugins' stream filters let through, and nothing of an
            answer that a plugin wants to see whole; `hold` never shows anything before the
            whole answer is judged; `pass` shows it and sends `AnswerRetracted` if it is blocked.
        models: Model objects by name, for plugins that choose another model.
        model_provider: Makes models from names; a `RunConfig` by `run_config(rein, ...)` names
            another one for its run.

    Raises `ConfigError` for what cannot be supervised, tools that cannot be stopped among it.
    """
    settings = Settings(ungated, streams, dict(models or {}))
    settings.check()
    owner = owner_of(agent)
    if owner is not None:
        if owner.rein is not rein:
            raise ConfigError(f"agent {agent.name} is supervised by another Rein already")
        return agent
    check()
    if not isinstance(agent, Agent):
        raise ConfigError(f"{type(agent).__name__} is no Agent of the OpenAI Agents SDK")
    supervision = Supervision(rein, settings, model_provider)
    made = supervision.agent(agent)
    supervision.binder.link()
    if supervision.named:
        rein.log.warning("not supervised, run by others: %s", ", ".join(supervision.named))
    return cast("A", made)


def owner_of(agent: Any) -> Supervision | None:
    """Who supervises an agent; None for a plain one."""
    owner = getattr(type(agent), "checkrein_supervision", None)
    return owner if isinstance(owner, Supervision) else None


class Supervision:
    """The agents that were supervised together."""

    def __init__(self, rein: Rein, settings: Settings, provider: ModelProvider | None) -> None:
        self.rein = rein
        self.settings = settings
        self.binder = binder_of(rein)
        self.provider = provider
        self.named: list[str] = []
        """Tools that nothing here can stop, allowed by `ungated`."""
        self._agents: dict[int, tuple[Any, Any]] = {}
        self._classes: dict[type, type] = {}
        self._tools: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._guards: dict[int, tuple[Any, Any]] = {}
        self._default: ModelProvider | None = None

    # -- agents

    def agent(self, agent: Any) -> Any:
        """The supervised copy of an agent; itself if it is one."""
        if owner_of(agent) is self:
            return agent
        if owner_of(agent) is not None:
            raise ending(ConfigError(f"agent {agent.name} is supervised elsewhere already"))
        known = self._agents.get(id(agent))
        if known is not None and known[0] is agent:
            return known[1]
        clone = copy.copy(agent)
        object.__setattr__(clone, "__class__", self._class(type(agent)))
        # Known before what lies behind it: hand-offs may lead back.
        self._agents[id(agent)] = (agent, clone)
        clone.model = self.model(agent.model)
        clone.input_guardrails = [self.guard(guard) for guard in agent.input_guardrails]
        clone.tools = [self.tool(tool, clone) for tool in agent.tools]
        clone.handoffs = [self.handoff(each, clone) for each in agent.handoffs]
        return clone

    def _class(self, cls: type) -> type:
        """A class of agents that supervise every tool they offer, MCP servers' among them."""
        made = self._classes.get(cls)
        if made is None:
            supervision = self

            async def get_all_tools(agent: Any, run_context: Any) -> list[Any]:
                tools = await cast("Any", cls).get_all_tools(agent, run_context)
                return [supervision.tool(tool, agent) for tool in tools]

            made = self._classes[cls] = type(
                cls.__name__,
                (cls,),
                {
                    "checkrein_supervision": supervision,
                    "get_all_tools": get_all_tools,
                    "__module__": cls.__module__,
                    "__qualname__": cls.__qualname__,
                    "__doc__": cls.__doc__,
                },
            )
        return made

    # -- what they have

    def model(self, model: Any) -> SupervisedModel:
        """A model, or the name of one, under supervision."""
        if isinstance(model, SupervisedModel):
            if model.checkrein_rein is not self.rein:
                raise ending(ConfigError("a model is supervised by another Rein already"))
            return model
        return SupervisedModel(self, model)

    def resolve(self, name: str | None) -> Model:
        """The model of a name, by the supervision's own provider."""
        if self.provider is None and self._default is None:
            self._default = MultiProvider()
        provider = self.provider or self._default
        assert provider is not None
        return provider.get_model(name)

    def guard(self, guard: Any) -> Any:
        """An input guardrail that is done before the first turn begins.

        Beside it, a tool could act before the guardrail has said no.
        """
        if not isinstance(guard, InputGuardrail) or not guard.run_in_parallel:
            return guard
        known = self._guards.get(id(guard))
        if known is None or known[0] is not guard:
            known = (guard, dataclasses.replace(guard, run_in_parallel=False))
            self._guards[id(guard)] = known
        return known[1]

    def tool(self, tool: Any, agent: Any) -> Any:
        """A tool under supervision. Raises `ConfigError` for one that cannot be."""
        gate = getattr(getattr(tool, "on_invoke_tool", None), "__self__", None)
        if isinstance(gate, Gate):
            if gate.rein is not self.rein:
                raise ending(ConfigError(f"tool {tool.name} is supervised by another Rein already"))
            return tool
        key = (id(tool), id(agent))
        known = self._tools.get(key)
        if known is not None and known[0] is tool:
            return known[1]
        made = self._supervised(tool, agent)
        if server_made(tool):
            # MCP servers make their tools anew in every turn.
            return made
        self._tools[key] = (tool, made)
        return made

    def _supervised(self, tool: Any, agent: Any) -> Any:
        if isinstance(tool, FunctionTool):
            body = body_of(tool)
            wrapped = tool
            if tool._is_agent_tool:  # noqa: SLF001 - the SDK's only mark of an agent as a tool
                inner = self.agent(tool._agent_instance)  # noqa: SLF001 - as above
                body = agent_body(tool, inner, lambda config: config_of(self, config))
                wrapped = copy.copy(tool)
                wrapped._agent_instance = inner  # noqa: SLF001 - as above
            declared = self.binder.function(tool, body)
            return Gate(self.rein, wrapped, agent.name, declared, body).supervised()
        if isinstance(tool, CustomTool):
            return self._custom(tool, agent)
        name = str(getattr(tool, "name", "") or type(tool).__name__)
        if self.settings.ungated == "refuse":
            raise ending(
                ConfigError(
                    f"agent {agent.name}: no call of {name} ({type(tool).__name__}) can be stopped "
                    "or recorded here; remove it, or accept that with ungated='allow'"
                )
            )
        if name not in self.named:
            self.named.append(name)
        return tool

    def _custom(self, tool: Any, agent: Any) -> Any:
        plain = FunctionTool(
            tool.name, tool.description, {"type": "object", "properties": {"input": {}}},
            custom_body(tool), strict_json_schema=False, needs_approval=tool.needs_approval,
        )  # fmt: skip
        declared = self.binder.named(tool.name, tool.description, tool)
        gate = Gate(self.rein, plain, agent.name, declared, plain.on_invoke_tool, custom=True)
        wrapped = copy.copy(tool)
        wrapped.on_invoke_tool = gate.invoke
        wrapped.needs_approval = False  # asked where the call is made, by the record
        return wrapped

    def handoff(self, given: Any, source: Any) -> Any:
        """A hand-off under supervision."""
        if isinstance(given, handoffs.SupervisedHandoff):
            return given
        if isinstance(given, Handoff):
            plain = given
            target = plain._agent_ref() if plain._agent_ref is not None else None  # noqa: SLF001 - the SDK's own way to the target
            if isinstance(target, Agent):
                # The SDK looks for the agents of a saved run behind this reference.
                plain = copy.copy(plain)
                plain._agent_ref = weakref.ref(self.agent(target))  # noqa: SLF001 - as above
        elif isinstance(given, Agent):
            plain = handoff(self.agent(given))
        else:
            raise ConfigError(
                f"agent {source.name}: {type(given).__name__} is neither an agent nor a hand-off"
            )
        declared = self.binder.named(plain.tool_name, plain.tool_description, given)
        return handoffs.supervised(self.rein, plain, source, declared, self.agent)


def server_made(tool: Any) -> bool:
    """Whether a tool is made by an MCP server."""
    return getattr(tool, "_mcp_tool_binding", None) is not None


def config_of(supervision: Supervision, base: RunConfig | None) -> RunConfig:
    """A run's configuration whose models go through `supervision`."""
    base = base or RunConfig()
    provider = base.model_provider
    if isinstance(provider, SupervisedProvider):
        return base
    watched = SupervisedProvider(supervision, provider)
    made = dataclasses.replace(
        base,
        model_provider=watched,
        trace_include_sensitive_data=False,
    )
    if base.model is not None:
        model = base.model if isinstance(base.model, Model) else provider.get_model(base.model)
        made.model = supervision.model(model)
    if base.input_guardrails:
        made.input_guardrails = [supervision.guard(guard) for guard in base.input_guardrails]
    made.tool_error_formatter = Recording(
        supervision.rein, base.tool_error_formatter, lambda: PLACE.get()[1]
    )
    made.call_model_input_filter = watched.filter(base.call_model_input_filter)
    return made


def run_config(
    rein: Rein,
    base: RunConfig | None = None,
    *,
    ungated: Ungated = "refuse",
    streams: Streams = "auto",
    models: Mapping[str, Model] | None = None,
) -> RunConfig:
    """A `RunConfig` whose models are supervised, for `Runner.run(agent, ...)`.

    It covers the model calls of all agents of the run, and of agents as tools; their tools and
    hand-offs are covered by `supervise_agent`. Traces get no texts. Settings as there.
    """
    check()
    settings = Settings(ungated, streams, dict(models or {}))
    settings.check()
    if base is not None and not isinstance(base, RunConfig):
        raise ConfigError(f"run_config: {type(base).__name__} is no RunConfig")
    return config_of(Supervision(rein, settings, None), base)
