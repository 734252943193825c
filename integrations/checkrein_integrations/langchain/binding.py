"""LangChain tools as checkrein tools: what is declared of them, and how they run again later."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from langchain_core.tools import BaseTool

from checkrein.call import Effect, ToolInfo
from checkrein.errors import ConfigError
from checkrein.tools import Tool
from checkrein.undo import undo_of
from checkrein_integrations.langchain.execution import RUNNING, NothingRan

if TYPE_CHECKING:
    from checkrein import Rein

_UNKNOWN = object()
"""Stands for a default that is not plain data: the tool supplies it itself."""
_ANY = (("args", ("args",)), ("kwargs", ("kwargs",)))
"""Parameters of an undo plan between two tools of which only the names were known."""
_MOST_UNKNOWN = 256
"""Names of tools that do not exist, made up by a model, that are remembered."""


class Bound(NamedTuple):
    """A LangChain tool, ready to be supervised."""

    watched: BaseTool | None
    """A copy that tells the running `Execution` of each start; None for an unknown tool."""
    declared: Tool


def plain_of(tool: BaseTool) -> BaseTool:
    """The tool behind `supervise_tool(rein, tool)`; other tools are returned as they are."""
    return cast("BaseTool", getattr(tool, "checkrein_inner", tool))


class Binder:
    """The LangChain tools that one Rein has met."""

    def __init__(self, rein: Rein) -> None:
        self._tools = rein.tools
        self._bound: dict[str, tuple[BaseTool, Bound]] = {}
        self._unknown: dict[str, Bound] = {}
        self._named: dict[str, Tool] = {}

    def of(self, tool: BaseTool, others: Iterable[Any] = ()) -> Bound:
        """The bound form of a tool. Raises `ConfigError` for what is no LangChain tool.

        `others` are the tools beside it: one of them may be its undo.
        """
        known = self._bound.get(getattr(tool, "name", ""))
        if known is not None and known[0] is tool:
            return known[1]
        if not isinstance(tool, BaseTool):
            raise ConfigError(
                f"{type(tool).__name__} is not a LangChain tool: pass a BaseTool (@tool makes one)"
            )
        new = [t for t in (tool, *others) if isinstance(t, BaseTool) and not self._knows(t)]
        for each in new:
            self._bound[each.name] = (each, self._bind(each))
        for each in new:
            self._undo_by_name(self._bound[each.name][1].declared)
        return self._bound[tool.name][1]

    def _knows(self, tool: BaseTool) -> bool:
        known = self._bound.get(tool.name)
        return known is not None and known[0] is tool

    def _undo_by_name(self, declared: Tool) -> None:
        """Give a plan its parameters that was declared before the tools' own were known."""
        if declared.undo is not None and declared.undo.parameters == _ANY:
            declared.undo = undo_of(declared.undo.name, declared, self._tools.get)[0]

    def unknown(self, name: str) -> Bound:
        """A tool that the agent does not have: policies still see the call."""
        bound = self._unknown.get(name)
        if bound is None:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            known = self._tools.get(name)
            info = known.info if known is not None else ToolInfo(name)
            bound = Bound(None, Tool(info, None, no_effect_on=(NothingRan,)))
            self._unknown[name] = bound
        return bound

    def named(self, name: str, description: str, effect: Effect = "write") -> Tool:
        """What is declared of a tool of which only the name is known here."""
        known = self._tools.get(name)
        if known is None:
            known = self._named.get(name)
        if known is None:
            if len(self._named) >= _MOST_UNKNOWN:
                self._named.clear()
            known = self._named[name] = Tool(ToolInfo(name, description, effect=effect), None)
        if NothingRan not in known.no_effect_on:
            known.no_effect_on = (*known.no_effect_on, NothingRan)
        return known

    def _bind(self, tool: BaseTool) -> Bound:
        plain = plain_of(tool)
        twin = _declared_twin(plain)
        if twin is not None:
            declared, plain = twin
        else:
            declared = self._tools.bind(plain.name, _runner(plain))
            declared.info = replace(
                declared.info,
                description=declared.info.description or plain.description,
                schema=declared.info.schema or plain.args,
            )
        if NothingRan not in declared.no_effect_on:
            declared.no_effect_on = (*declared.no_effect_on, NothingRan)
        return Bound(watched(tool if twin is None else plain), declared)


_BINDERS: weakref.WeakKeyDictionary[Rein, Binder] = weakref.WeakKeyDictionary()


def binder_of(rein: Rein) -> Binder:
    """The binder that all adapters of one Rein share."""
    binder = _BINDERS.get(rein)
    if binder is None:
        binder = _BINDERS[rein] = Binder(rein)
    return binder


def _declared_twin(tool: BaseTool) -> tuple[Tool, BaseTool] | None:
    """(declaration, tool without the twin) where the function is decorated by `@rein.tool`.

    The twin would enter the engine a second time for the same call.
    """
    for field in ("func", "coroutine"):
        declared = getattr(getattr(tool, field, None), "__checkrein_tool__", None)
        if isinstance(declared, Tool):
            return declared, tool.model_copy(update={field: declared.fn})
    return None


def _runner(tool: BaseTool) -> Callable[..., Any]:
    """A function by which undo and `rein.resume` run the tool outside an agent.

    It goes through the tool's own validation, because recorded arguments are what the model
    wrote, not what the validated function received.
    """
    run: Any
    if getattr(tool, "coroutine", None) is not None and getattr(tool, "func", None) is None:

        async def later(**arguments: Any) -> Any:
            return await tool.ainvoke(arguments)

        run = later
    else:

        def now(**arguments: Any) -> Any:
            return tool.invoke(arguments)

        run = now
    run.__name__ = run.__qualname__ = tool.name
    run.__doc__ = tool.description
    signature = _signature(tool)
    if signature is not None:
        run.__signature__ = signature
    return cast("Callable[..., Any]", run)


def _signature(tool: BaseTool) -> inspect.Signature | None:
    """Names and defaults of what a model may pass; None where they are no Python names."""
    schema = tool.tool_call_schema
    found: dict[str, Any] = {}
    if tool.args_schema is None:
        for name, field in tool.args.items():
            found[name] = field.get("default", inspect.Parameter.empty)
    elif isinstance(schema, dict):
        required = set(schema.get("required", ()))
        for name, field in schema.get("properties", {}).items():
            found[name] = inspect.Parameter.empty
            if name not in required:
                found[name] = field.get("default", _UNKNOWN)
    else:
        fields: dict[str, Any] = getattr(schema, "model_fields", {})
        for name, field in fields.items():
            if field.is_required():
                found[name] = inspect.Parameter.empty
            else:
                found[name] = _UNKNOWN if field.default_factory is not None else field.default
    try:
        return inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in found.items()
            ]
        )
    except ValueError:
        return None


@cache
def _watched_class(cls: type[BaseTool]) -> type[BaseTool]:
    run, arun = cls._run, cls._arun

    @functools.wraps(run)
    def _run(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        execution = RUNNING.get()
        if execution is None or execution.inside or execution.name != self.name:
            return run(self, *args, **kwargs)
        return execution.run(lambda: run(self, *args, **kwargs))

    @functools.wraps(arun)
    async def _arun(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        execution = RUNNING.get()
        if execution is None or execution.inside or execution.name != self.name:
            return await arun(self, *args, **kwargs)
        return await execution.arun(lambda: arun(self, *args, **kwargs))

    return type(
        cls.__name__,
        (cls,),
        {"_run": _run, "_arun": _arun, "__module__": cls.__module__, "__doc__": cls.__doc__},
    )


def watched(tool: BaseTool) -> BaseTool:
    """A copy of the tool that tells the running `Execution` of each start."""
    copy = tool.model_copy()
    object.__setattr__(copy, "__class__", _watched_class(type(tool)))
    return copy
