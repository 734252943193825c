"""Tools and models that are supervised wherever they are called, inside a crew or not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from checkrein.errors import ConfigError
from checkrein.tool import ToolSettings
from checkrein_integrations.crewai.binding import binder_of, plain_function
from checkrein_integrations.crewai.calls import ToolCall, refusal, taken
from checkrein_integrations.crewai.framework import (
    Agent,
    BaseLLM,
    BaseTool,
    Crew,
    Tool,
    check,
    make_tool,
)
from checkrein_integrations.crewai.instruments import same_class
from checkrein_integrations.crewai.models import supervised_class
from checkrein_integrations.crewai.signals import final
from checkrein_integrations.crewai.state import RUNNING

if TYPE_CHECKING:
    from typing import Unpack

    from checkrein import Rein
    from checkrein_integrations.crewai.models import ModelCall

T = TypeVar("T", bound=BaseTool)
L = TypeVar("L", bound=BaseLLM)


class _Owner:
    """What a supervised tool knows of its Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein


@overload
def supervised_tool(rein: Rein, tool: T, /) -> T: ...


@overload
def supervised_tool(
    rein: Rein, tool: Callable[..., Any], /, *, name: str | None = None,
    **settings: Unpack[ToolSettings],
) -> BaseTool: ...  # fmt: skip


@overload
def supervised_tool(
    rein: Rein, /, *, name: str | None = None, **settings: Unpack[ToolSettings]
) -> Callable[[Any], BaseTool]: ...


def supervised_tool(
    rein: Rein, tool: Any = None, /, *, name: str | None = None, **settings: Any
) -> Any:
    """A CrewAI tool whose every call goes through the hooks of `rein`, `tool.run` included.

    `@supervised_tool(rein, undo=...)` makes it of a function with a docstring and annotated
    parameters, declared with the settings of `rein.tool`; `supervised_tool(rein, tool)` makes a
    copy of an existing `BaseTool`. Inside a `supervise` block a call is decided once.

    Raises `ConfigError` for what can be no tool, or a tool of another Rein.
    """
    check()
    if tool is None:
        return lambda tool: supervised_tool(rein, tool, name=name, **settings)
    if not isinstance(tool, BaseTool):
        tool = _made(tool, name)
    elif name is not None:
        raise ConfigError(f"tool {tool.name} has a name already")
    if settings:
        rein.declare(binder_of(rein).name_of(tool), **settings)
    return _copy(rein, tool)


def _made(fn: Any, name: str | None) -> BaseTool:
    if not inspect.isroutine(fn):
        raise ConfigError(f"{type(fn).__name__} is neither a CrewAI tool nor a function")
    try:
        return cast("BaseTool", make_tool(name or fn.__name__)(fn))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{fn.__name__} can be no CrewAI tool: {error}") from error


@overload
def supervise_tools(rein: Rein, target: Iterable[BaseTool]) -> list[BaseTool]: ...


@overload
def supervise_tools(rein: Rein, target: Any) -> Any: ...


def supervise_tools(rein: Rein, target: Any) -> Any:
    """Supervise existing tools: those of a list (a new list is returned), an agent or a crew.

    An agent's, and a crew's agents' and tasks' tools are replaced in place. Raises `ConfigError`
    for anything else, before anything is changed.
    """
    check()
    if isinstance(target, Crew):
        owners: list[Any] = [*target.agents, *target.tasks]
        if target.manager_agent is not None:
            owners.append(target.manager_agent)
        made = [(owner, _copies(rein, owner.tools or ())) for owner in owners]
        for owner, tools in made:
            owner.tools = tools
        return target
    if isinstance(target, Agent):
        target.tools = _copies(rein, target.tools or ())
        return target
    if isinstance(target, (list, tuple)):
        return _copies(rein, target)
    raise ConfigError(f"{type(target).__name__}: pass a list of CrewAI tools, an Agent or a Crew")


def _copies(rein: Rein, tools: Iterable[Any]) -> list[Any]:
    return [_copy(rein, tool) for tool in tools]


def _copy(rein: Rein, tool: Any) -> Any:
    if not isinstance(tool, BaseTool):
        raise ConfigError(
            f"{type(tool).__name__} is not a CrewAI tool: pass a BaseTool (@tool makes one)"
        )
    owner = getattr(tool, "checkrein_owner", None)
    if owner is not None:
        if owner.rein is rein:
            return tool
        raise ConfigError(f"tool {tool.name} is supervised by another Rein already")
    copy: Any = tool.model_copy()
    given: Any = tool
    if isinstance(copy, Tool):
        object.__setattr__(copy, "func", _marking(plain_function(given.func)))
    kind: Any = type(tool)
    object.__setattr__(copy, "__class__", _supervised_class(kind))
    # Not fields: the tool's own schema and its comparison stay as they are.
    object.__setattr__(copy, "checkrein_inner", tool)
    object.__setattr__(copy, "checkrein_owner", _Owner(rein))
    binder_of(rein).of(copy)
    return copy


def _marking(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a supervised tool: from here on, what is called is a call of its own."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        running = RUNNING.get()
        if running is not None:
            running.inside = True
        return fn(*args, **kwargs)

    return run


@cache
def _supervised_class(cls: type[BaseTool]) -> type[BaseTool]:
    def through(name: str, validates: bool) -> Any:
        inner = getattr(cls, name)

        @functools.wraps(inner)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            rein = self.checkrein_owner.rein
            body = functools.partial(inner, self)
            if taken(rein, self):
                return _passed(body, args, kwargs, not validates)
            if validates and not args:
                kwargs = self._validate_kwargs(kwargs)
            return ToolCall(rein, self, args, kwargs).run(body, inside=not validates)

        return run

    def athrough(name: str, validates: bool) -> Any:
        inner = getattr(cls, name)

        @functools.wraps(inner)
        async def arun(self: Any, *args: Any, **kwargs: Any) -> Any:
            rein = self.checkrein_owner.rein
            body = functools.partial(inner, self)
            if taken(rein, self):
                return await _passed(body, args, kwargs, not validates)
            if validates and not args:
                kwargs = self._validate_kwargs(kwargs)
            return await ToolCall(rein, self, args, kwargs).arun(body, inside=not validates)

        return arun

    made: type[BaseTool] = same_class(
        cls,
        {
            "run": through("run", validates=True),
            "_run": through("_run", validates=False),
            "arun": athrough("arun", validates=True),
            "_arun": athrough("_arun", validates=False),
        },
    )
    return made


def _passed(
    body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], inside: bool
) -> Any:
    """Call on, in a call that was judged further out."""
    running = RUNNING.get()
    if running is not None and inside:
        running.inside = True
    return body(*args, **kwargs)


def supervised_function(job: ModelCall, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a model runs itself, for `available_functions` of its call.

    The model takes what it raises for an error of its own; a refusal is its result instead, and
    what ends the run is kept for the end of the model call.
    """
    rein = job.rein
    tool = getattr(fn, "__self__", None)

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            if isinstance(tool, BaseTool):
                if getattr(tool, "checkrein_owner", None) is not None:
                    return fn(*args, **kwargs)
                return ToolCall(rein, tool, args, kwargs).run(fn, inside=False)
            return rein.call(fn, *args, **kwargs)
        except Exception as error:
            text = refusal(error, name)
            if text is not None:
                return text
            ended = final(error)
            if ended is error and not hasattr(error, "source"):
                raise
            job.stopped = ended
            return "[stopped] The run is being ended."

    return run


def supervise_model(rein: Rein, model: L) -> L:
    """A copy of a CrewAI LLM whose every call goes through the hooks of `rein`.

    For models that are called directly, in flows and scripts: those of agents are supervised by
    the `supervise` block anyway. Raises `ConfigError` for what is no LLM, or one of another Rein.
    """
    check()
    if not isinstance(model, BaseLLM):
        raise ConfigError(f"{type(model).__name__} is not a CrewAI LLM (BaseLLM)")
    owner = getattr(model, "checkrein_owner", None)
    if owner is not None:
        if owner is rein:
            return model
        raise ConfigError(f"model {model.model} is supervised by another Rein already")
    copy: Any = model.model_copy()
    kind: Any = type(model)
    object.__setattr__(copy, "__class__", supervised_class(kind))
    object.__setattr__(copy, "checkrein_owner", rein)
    return cast("L", copy)
