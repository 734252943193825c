"""Tools of the SDK as checkrein tools: what is declared of them, and how they are run."""

from __future__ import annotations

import inspect
import json
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from checkrein.errors import ConfigError
from checkrein.tools import Tool
from checkrein.undo import undo_of
from checkrein_integrations.openai_agents.execution import (
    NothingRan,
    cell_of,
    tracked,
    with_cells,
)
from checkrein_integrations.openai_agents.framework import (
    CustomTool,
    FailureHandling,
    FunctionTool,
    ToolContext,
    moved,
)

if TYPE_CHECKING:
    from checkrein import Rein

Body = Callable[[Any, str], Awaitable[Any]]
"""Runs a tool: given the SDK's context and the arguments' text."""
_ANY = (("args", ("args",)), ("kwargs", ("kwargs",)))
"""Parameters of an undo plan between two tools of which only the names were known."""


class Binder:
    """The tools that one Rein has met, by name."""

    def __init__(self, rein: Rein) -> None:
        self._tools = rein.tools
        self._bound: dict[str, tuple[Any, Tool]] = {}

    def function(self, tool: FunctionTool, body: Body) -> Tool:
        """What is declared of a function tool; it can be run by name from now on."""
        known = self._bound.get(tool.name)
        if known is not None and known[0] is tool.on_invoke_tool:
            return known[1]
        twin = declared_twin(tool)
        if twin is not None:
            declared = twin
        else:
            declared = self._tools.bind(tool.name, _runner(tool, body))
            declared.info = replace(
                declared.info,
                description=declared.info.description or tool.description,
                schema=declared.info.schema or tool.params_json_schema.get("properties", {}),
                server=declared.info.server or server_of(tool),
            )
        self._keep(tool.name, tool.on_invoke_tool, declared)
        return declared

    def named(self, name: str, description: str, mark: Any) -> Tool:
        """What is declared of a tool of which only name and description are known."""
        known = self._bound.get(name)
        if known is not None and known[0] is mark:
            return known[1]
        declared = self._tools.get(name)
        if declared is None:
            declared = self._tools.declare(name, description=description)
        self._keep(name, mark, declared)
        return declared

    def _keep(self, name: str, mark: Any, declared: Tool) -> None:
        if NothingRan not in declared.no_effect_on:
            declared.no_effect_on = (*declared.no_effect_on, NothingRan)
        self._bound[name] = (mark, declared)

    def link(self) -> None:
        """Give undos their parameters that were declared before the tools' own were known."""
        for _, declared in self._bound.values():
            if declared.undo is not None and declared.undo.parameters == _ANY:
                declared.undo = undo_of(declared.undo.name, declared, self._tools.get)[0]


_BINDERS: weakref.WeakKeyDictionary[Rein, Binder] = weakref.WeakKeyDictionary()


def binder_of(rein: Rein) -> Binder:
    """The binder that all supervised agents of one Rein share."""
    binder = _BINDERS.get(rein)
    if binder is None:
        binder = _BINDERS[rein] = Binder(rein)
    return binder


def server_of(tool: FunctionTool) -> str:
    """Name of the MCP server behind a tool; empty for local ones."""
    binding = getattr(tool, "_mcp_tool_binding", None)
    return str(binding[0]) if binding else ""


def declared_twin(tool: FunctionTool) -> Tool | None:
    """The declaration where a tool's function is decorated by `@rein.tool`."""
    declared: object = getattr(getattr(tool, "__wrapped__", None), "__checkrein_tool__", None)
    return declared if isinstance(declared, Tool) else None


def body_of(tool: FunctionTool) -> Body:
    """The tool without its failure policy, so that errors are seen as what they are.

    A function made by `@function_tool` tells when it is started; one that `@rein.tool`
    decorated is run without its supervised twin, which would enter the engine a second time.
    """
    invoker = tool.on_invoke_tool
    if not isinstance(invoker, FailureHandling):
        return cast("Body", invoker)
    impl = getattr(invoker, "_invoke_tool_impl", None)
    if impl is None:
        raise moved("_invoke_tool_impl behind a tool")
    if getattr(tool, "__wrapped__", None) is None:
        return cast("Body", impl)
    fn: Any = cell_of(impl, "the_func")
    twin = declared_twin(tool)
    if twin is not None:
        plain = twin.fn
        if plain is None or getattr(fn, "__checkrein_tool__", None) is not twin:
            raise ConfigError(
                f"tool {tool.name} is made from a function that is decorated by @rein.tool in a "
                "way that cannot be unwrapped; give function_tool the plain function"
            )
        fn = plain
    return cast("Body", with_cells(impl, the_func=tracked(fn)))


def agent_body(tool: FunctionTool, agent: Any, run_config: Callable[[Any], Any]) -> Body:
    """The body of an agent as a tool, with another agent in it."""
    impl = getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)
    own = cell_of(impl, "run_config")
    config = None if own is None else run_config(own)
    return cast("Body", with_cells(impl, self=agent, run_config=config))


def tells_start(tool: FunctionTool) -> bool:
    """Whether the function behind a tool tells when it is started."""
    return (
        isinstance(tool.on_invoke_tool, FailureHandling)
        and getattr(tool, "__wrapped__", None) is not None
    )


def _runner(tool: FunctionTool, body: Body) -> Callable[..., Any]:
    """A function by which undo and `rein.resume` run the tool outside an agent."""

    async def run(**arguments: Any) -> Any:
        text = json.dumps(arguments)
        context: Any = ToolContext(
            context=None, tool_name=tool.name, tool_call_id="checkrein", tool_arguments=text
        )
        return await body(context, text)

    run.__name__ = run.__qualname__ = tool.name
    run.__doc__ = tool.description
    signature = _signature(tool)
    if signature is not None:
        cast("Any", run).__signature__ = signature
    return run


def _signature(tool: FunctionTool) -> inspect.Signature | None:
    """Names and defaults of what a model may pass; None where they are no Python names."""
    schema: Mapping[str, Any] = tool.params_json_schema
    given: dict[str, Any] = {}
    wrapped = getattr(tool, "__wrapped__", None)
    own = inspect.signature(wrapped).parameters if wrapped is not None else {}
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        parameter = own.get(name)
        if parameter is not None and is_data(parameter.default):
            given[name] = parameter.default
        elif "default" in field:
            given[name] = field["default"]
        else:
            given[name] = inspect.Parameter.empty if name in required else None
    try:
        return inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in given.items()
            ]
        )
    except ValueError:
        return None


def is_data(value: Any) -> bool:
    """Whether a default is plain data that a model could have passed."""
    if value is inspect.Parameter.empty:
        return False
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def custom_body(tool: CustomTool) -> Body:
    """The body of a custom tool, whose executor may be sync."""

    async def run(context: Any, text: str) -> Any:
        value = tool.on_invoke_tool(context, text)
        return await value if inspect.isawaitable(value) else value

    return run
