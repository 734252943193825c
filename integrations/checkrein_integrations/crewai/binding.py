"""CrewAI tools as checkrein tools: what is declared of them, and how they run again later."""

from __future__ import annotations

import contextvars
import inspect
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from checkrein.call import ToolInfo
from checkrein.errors import ConfigError
from checkrein.tools import Tool as Declared
from checkrein.undo import undo_of
from checkrein_integrations.crewai.framework import (
    BaseTool,
    CrewStructuredTool,
    ToolFailure,
    sanitize_tool_name,
)

if TYPE_CHECKING:
    from checkrein import Rein

_UNKNOWN = object()
"""Stands for a default that is not plain data: the tool supplies it itself."""
_ANY = (("args", ("args",)), ("kwargs", ("kwargs",)))
"""Parameters of an undo plan between two tools of which only the names were known."""
_MOST_UNKNOWN = 256
"""Names of tools that do not exist, made up by a model, that are remembered."""

DIRECT: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "checkrein_crewai_direct", default=False
)
"""The engine itself runs a tool (an undo, `rein.resume`): it is not judged again."""


class NothingRan(Exception):
    """The framework answered in place of the tool: unknown name, a cached or repeated call."""


class Binder:
    """The CrewAI tools that one Rein has met."""

    def __init__(self, rein: Rein) -> None:
        self._tools = rein.tools
        self._bound: dict[str, tuple[Any, Declared]] = {}
        self._unknown: dict[str, Declared] = {}

    def name_of(self, tool: Any) -> str:
        """The name that policies see: the declared one, else the one that models see."""
        name = str(tool.name)
        return name if self._tools.get(name) is not None else str(sanitize_tool_name(name))

    def of(self, tool: Any) -> Declared:
        """What is declared of a tool. Raises `ConfigError` for what is no CrewAI tool."""
        if not isinstance(tool, (BaseTool, CrewStructuredTool)):
            raise ConfigError(
                f"{type(tool).__name__} is not a CrewAI tool: pass a BaseTool (@tool makes one)"
            )
        known = self._bound.get(tool.name)
        if known is not None and known[0] is tool:
            return known[1]
        declared = self._bind(tool)
        self._bound[tool.name] = (tool, declared)
        if declared.undo is not None and declared.undo.parameters == _ANY:
            # The plan was made before the tools' own parameters were known.
            declared.undo = undo_of(declared.undo.name, declared, self._tools.get)[0]
        return declared

    def unknown(self, name: str) -> Declared:
        """A tool that the agent does not have: policies still see the call."""
        declared = self._unknown.get(name)
        if declared is None:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            known = self._tools.get(name)
            info = known.info if known is not None else ToolInfo(name)
            declared = Declared(info, None, no_effect_on=(NothingRan,))
            self._unknown[name] = declared
        return declared

    def _bind(self, tool: Any) -> Declared:
        fn = getattr(tool, "func", None)
        twin = getattr(fn, "__checkrein_tool__", None)
        if isinstance(twin, Declared):
            declared = twin
        else:
            declared = self._tools.bind(self.name_of(tool), _runner(tool))
            declared.info = replace(
                declared.info,
                description=declared.info.description or tool.description,
                schema=declared.info.schema or _schema(tool),
            )
        if NothingRan not in declared.no_effect_on:
            declared.no_effect_on = (*declared.no_effect_on, NothingRan)
        return declared


_BINDERS: weakref.WeakKeyDictionary[Rein, Binder] = weakref.WeakKeyDictionary()


def binder_of(rein: Rein) -> Binder:
    """The binder that everything of one Rein shares."""
    binder = _BINDERS.get(rein)
    if binder is None:
        binder = _BINDERS[rein] = Binder(rein)
    return binder


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a twin of `@rein.tool`, which would enter the engine once more."""
    declared = getattr(fn, "__checkrein_tool__", None)
    if isinstance(declared, Declared) and declared.fn is not None:
        return declared.fn
    return fn


def _runner(tool: Any) -> Callable[..., Any]:
    """A function by which undo and `rein.resume` run the tool outside a crew."""
    tool = getattr(tool, "checkrein_inner", tool)

    def run(**arguments: Any) -> Any:
        token = DIRECT.set(True)
        try:
            if isinstance(tool, CrewStructuredTool):
                result = tool.invoke(arguments)
            else:
                result = tool.run(**arguments)
        finally:
            DIRECT.reset(token)
        if isinstance(result, ToolFailure):
            # Not a wrong type: the tool says so itself that it did not do what it was asked.
            raise RuntimeError(  # noqa: TRY004
                f"{tool.name} reported a failure ({result.reason.value})"
            )
        return result

    run.__name__ = run.__qualname__ = str(sanitize_tool_name(tool.name))
    run.__doc__ = tool.description
    signature = _signature(tool)
    if signature is not None:
        cast("Any", run).__signature__ = signature
    return run


def _fields(tool: Any) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(tool.args_schema, "model_fields", {}) or {}
    return fields


def _schema(tool: Any) -> Any:
    if not _fields(tool):
        return None
    return tool.args_schema.model_json_schema().get("properties")


def _signature(tool: Any) -> inspect.Signature | None:
    """Names and defaults of what a model may pass; None where they are no Python names."""
    fields = _fields(tool)
    if not fields:
        return None
    found: list[inspect.Parameter] = []
    try:
        for name, field in fields.items():
            default: Any = inspect.Parameter.empty
            if not field.is_required():
                default = _UNKNOWN if field.default_factory is not None else field.default
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
        return inspect.Signature(found)
    except ValueError:
        return None
