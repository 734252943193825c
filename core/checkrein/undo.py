"""Undo plans: how the inverse of a call gets its arguments.

An undo is named, never stored as a closure, so that any process that declares the same tools
can run it. Its arguments come, by parameter name, from the call's arguments and from `result`;
`call` and `key` are supplied when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein.call import ToolInfo
from checkrein.errors import ConfigError

if TYPE_CHECKING:
    from checkrein.tools import Tool

INJECTED = frozenset({"result", "call", "key"})
"""Names that an undo or a probe may take and a tool may not."""

_MISSING = object()


class NotUndoable(Exception):  # noqa: N818 - a finding, reported and never raised to users
    """A plan cannot be completed; the text says why."""


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The undo of a tool, before a call gives it values."""

    name: str
    parameters: tuple[tuple[str, tuple[str | int, ...]], ...]
    """(parameter of the undo, path): the path's first part is an argument's name or `result`."""
    inject: tuple[str, ...] = ()
    """Which of `call` and `key` it takes."""
    optional: frozenset[str] = frozenset()
    """Parameters with a default of their own."""

    @property
    def needs_result(self) -> bool:
        """Whether the call's result is part of the plan."""
        return any(path[0] == "result" for _, path in self.parameters)

    def bind(self, arguments: Mapping[str, Any], result: Any = _MISSING) -> dict[str, Any]:
        """The undo's arguments for one call. Raises `NotUndoable`."""
        bound: dict[str, Any] = {}
        for parameter, path in self.parameters:
            if path[0] == "result":
                if result is _MISSING:
                    raise NotUndoable(f"undo {self.name} needs the call's result, which is lost")
                value = result
            else:
                value = arguments.get(str(path[0]), _MISSING)
                if value is _MISSING:
                    if parameter in self.optional:
                        continue
                    raise NotUndoable(f"undo {self.name}: the call has no argument {path[0]!r}")
            for part in path[1:]:
                value = _step(value, part, self.name, path)
            bound[parameter] = value
        return bound


def _step(value: Any, part: str | int, name: str, path: tuple[str | int, ...]) -> Any:
    try:
        if isinstance(value, Mapping) or isinstance(part, int):
            return value[part]
        return getattr(value, part)
    except (AttributeError, KeyError, IndexError, TypeError):
        where = ".".join(str(p) for p in path)
        raise NotUndoable(f"undo {name}: the call gave no {where}") from None


def undo_of(
    undo: Callable[..., Any] | str, tool: Tool, known: Callable[[str], Tool | None]
) -> tuple[UndoPlan, Tool | None]:
    """The plan of an `undo=` setting, and the tool to register for it (None if it is known).

    A callable takes by parameter name. A string is the name of a tool, or a template such as
    `"customers.delete(result.id)"`. Raises `ConfigError` if parameters do not fit.
    """
    from checkrein.tools import Tool as ToolClass

    clash = INJECTED.intersection(tool.parameters)
    if clash:
        raise ConfigError(
            f"tool {tool.info.name}: it has an undo and a parameter named "
            f"{sorted(clash)[0]!r}; result, call and key are what undos and probes are given: "
            "rename the parameter"
        )
    if isinstance(undo, str):
        if "(" in undo:
            return _template(undo, tool, known), None
        target = known(undo)
        if target is None or not target.signature_known:
            # Declared by name before its function is here: it takes the call's arguments.
            return UndoPlan(undo, tuple((p, (p,)) for p in tool.parameters)), None
        return _by_name(target, tool), None
    declared = getattr(undo, "__checkrein_tool__", None)
    if isinstance(declared, ToolClass):
        return _by_name(declared, tool), None
    own = ToolClass(
        ToolInfo(f"{tool.info.name}.undo", (undo.__doc__ or "").strip(), effect="write"), undo
    )
    return _by_name(own, tool), own


def _by_name(undo: Tool, tool: Tool) -> UndoPlan:
    parameters: list[tuple[str, tuple[str | int, ...]]] = []
    for name in undo.parameters:
        if name in ("call", "key"):
            continue
        if name == "result" or name in tool.parameters or not tool.signature_known:
            parameters.append((name, (name,)))
        elif name in undo.required:
            raise ConfigError(
                f"tool {tool.info.name}: its undo {undo.info.name} takes {name!r}, which is "
                f"neither one of the tool's parameters ({', '.join(tool.parameters) or 'none'}) "
                "nor result, call or key"
            )
    return UndoPlan(
        undo.info.name,
        tuple(parameters),
        tuple(n for n in ("call", "key") if n in undo.parameters),
        frozenset(undo.parameters) - undo.required,
    )


def _template(text: str, tool: Tool, known: Callable[[str], Tool | None]) -> UndoPlan:
    where = f"tool {tool.info.name}: undo template {text!r}"
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ConfigError(f"{where}: column {error.offset}: not NAME(PATH, KEY=PATH)") from None
    if not isinstance(node, ast.Call):
        raise ConfigError(f"{where}: not NAME(PATH, KEY=PATH)")
    name = text[: text.index("(")].strip()
    target = known(name)
    order = [p for p in target.parameters if p not in ("call", "key")] if target else []
    parameters: list[tuple[str, tuple[str | int, ...]]] = []
    for index, arg in enumerate(node.args):
        if target is not None and target.signature_known:
            if index >= len(order):
                raise ConfigError(f"{where}: {name} takes {len(order)} arguments")
            parameters.append((order[index], _path(arg, where)))
        else:
            parameters.append((f"${index}", _path(arg, where)))
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ConfigError(f"{where}: ** is not allowed")
        if target is not None and target.signature_known and keyword.arg not in target.parameters:
            raise ConfigError(f"{where}: {name} has no parameter {keyword.arg!r}")
        parameters.append((keyword.arg, _path(keyword.value, where)))
    for _, path in parameters:
        if path[0] != "result" and tool.signature_known and path[0] not in tool.parameters:
            raise ConfigError(
                f"{where}: {path[0]!r} is neither `result` nor a parameter of the tool"
            )
    return UndoPlan(name, tuple(parameters))


def _path(node: ast.expr, where: str) -> tuple[str | int, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (*_path(node.value, where), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        part = node.slice.value
        if isinstance(part, (str, int)):
            return (*_path(node.value, where), part)
    raise ConfigError(f"{where}: {ast.unparse(node)!r} is not a path such as result.id")
