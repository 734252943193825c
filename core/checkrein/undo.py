"""Undo plans: how the inverse of a call gets its arguments.

An undo is named, never stored as a closure, so that any process that declares the same tools
can run it. Its arguments come, by parameter name, from the call's arguments and from `result`;
`call` and `key` are supplied when it runs.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, get_type_hints, is_typeddict

from checkrein.call import ToolInfo
from checkrein.codec import encode, encode_arguments
from checkrein.errors import ConfigError, Unencodable

if TYPE_CHECKING:
    from checkrein.tool import Tool

INJECTED = frozenset({"result", "call", "key"})
"""Names that an undo or a probe may take and a tool may not."""

NONE = "none"
"""The undo of what cannot be undone: it is recorded, and left out by a rollback."""

MISSING = object()
"""Stands for a result that is not known."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Part of a path: of a value, what an argument names (`before[params]`)."""

    argument: str


Path: TypeAlias = tuple[Any, ...]
"""Where a value is found: an argument's name, `result` or `before`, then attributes, keys,
positions, picks. The constant `x` is `("=", x)`."""


class NotUndoable(Exception):
    """A plan cannot be completed; the text says why."""


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The undo of a tool, before a call gives it values."""

    name: str
    parameters: tuple[tuple[str, Path], ...]
    """(parameter of the undo, path): the path's first part is an argument's name or `result`."""
    inject: tuple[tuple[str, str], ...] = ()
    """(parameter of the undo, `call` or `key`): supplied when it runs."""
    optional: frozenset[str] = frozenset()
    """Parameters with a default of their own."""
    loose: bool = False
    """The undo is only known by name so far: all that is known of the call is kept for it."""
    restores: bool = False
    """`**before`: every other argument of the call gets what stood there before."""

    def bind(
        self, arguments: Mapping[str, Any], result: Any = MISSING, before: Any = MISSING
    ) -> dict[str, Any]:
        """The undo's arguments for one call. Raises `NotUndoable`."""
        bound: dict[str, Any] = {}
        for parameter, path in self.parameters:
            try:
                bound[parameter] = value_at(path, arguments, result, before, self.name)
            except _Lost as lost:
                if parameter not in self.optional:
                    raise NotUndoable(str(lost)) from None
        if self.restores:
            used = {path[0] for _, path in self.parameters}
            for name in arguments:
                if name not in used and name not in bound:
                    path = ("before", name)
                    bound[name] = value_at(path, arguments, result, before, self.name)
        return bound

    def stored(
        self, arguments: Mapping[str, Any], result: Any = MISSING, before: Any = MISSING
    ) -> dict[str, Any]:
        """The complete plan as it is recorded, for any process that knows the undo.

        Raises `NotUndoable` where a value is missing or cannot be recorded exactly.
        """
        if self.loose:
            try:
                given = _all_known(arguments, result, before)
            except Unencodable as error:
                raise NotUndoable(f"undo {self.name}: {error}") from error
            plan = {"undo": self.name, "arguments": given, "loose": True}
            return {**plan, "inject": dict(self.inject)} if self.inject else plan
        return encoded_plan(self.name, self.bind(arguments, result, before), dict(self.inject))


def encoded_plan(
    name: str, arguments: Mapping[str, Any], inject: Mapping[str, str]
) -> dict[str, Any]:
    """A complete plan as it is recorded. Raises `NotUndoable`."""
    try:
        plan: dict[str, Any] = {"undo": name, "arguments": encode_arguments(arguments)}
    except Unencodable as error:
        raise NotUndoable(f"undo {name}: {error}") from error
    if inject:
        plan["inject"] = dict(inject)
    return plan


class _Lost(NotUndoable):
    """What a path begins with is not there."""


def value_at(path: Path, arguments: Mapping[str, Any], result: Any, before: Any, name: str) -> Any:
    """The value that a path leads to. Raises `NotUndoable`."""
    if path[0] == "=":
        return path[1]
    if path[0] == "result":
        value, what = result, "result, which is lost"
    elif path[0] == "before":
        value, what = before, "state before it, which could not be read"
    else:
        value, what = arguments.get(str(path[0]), MISSING), ""
    if value is MISSING:
        if what:
            raise _Lost(f"undo {name} needs the call's {what}")
        raise _Lost(f"undo {name}: the call has no argument {path[0]!r}")
    for part in path[1:]:
        if isinstance(part, Pick):
            named = arguments.get(part.argument)
            keys = list(named) if isinstance(named, Mapping) else []
            value = {key: _step(value, key, name, path) for key in keys}
        else:
            value = _step(value, part, name, path)
    return value


def _all_known(arguments: Mapping[str, Any], result: Any, before: Any) -> dict[str, Any]:
    given = encode_arguments(dict(arguments))
    for key, value in (("result", result), ("before", before)):
        if value is not MISSING:
            with contextlib.suppress(Unencodable):
                # Perhaps the undo does not name it: if it does, it says so when it runs.
                given[key] = encode(value, key)
    return given


def _step(value: Any, part: Any, name: str, path: Path) -> Any:
    try:
        if isinstance(value, Mapping) or isinstance(part, int):
            return value[part]
        return getattr(value, part)
    except Exception:  # noqa: BLE001 - the property of a foreign object may raise anything
        where = ".".join(f"[{p.argument}]" if isinstance(p, Pick) else str(p) for p in path)
        raise NotUndoable(f"undo {name}: the call gave no {where}") from None


class Plan(Protocol):
    """How a tool is undone, before a call gives it values: an `UndoPlan` or an HTTP request."""

    @property
    def name(self) -> str:
        """Name of the tool that undoes."""
        ...

    @property
    def parameters(self) -> tuple[tuple[str, Path], ...]:
        """(parameter of the undo, where its value is found)."""
        ...

    def stored(
        self, arguments: Mapping[str, Any], result: Any = MISSING, before: Any = MISSING
    ) -> dict[str, Any]:
        """The complete plan of one call. Raises `NotUndoable`."""
        ...


def undo_of(undo: Any, tool: Tool, known: Callable[[str], Tool | None]) -> tuple[Plan, Tool | None]:
    """The plan of an `undo=` setting, and the tool to register for it (None if it is known).

    A callable takes by parameter name. A string is the name of a tool, or a template such as
    `"customers.delete(result.id, idempotency_key=key)"`. Raises `ConfigError` for misfits.
    """
    from checkrein import http_undo
    from checkrein.tool import Tool as ToolClass

    where = f"tool {tool.info.name}"
    if isinstance(undo, http_undo.HttpUndo):
        plan = http_undo.HttpPlan(undo, tool)
        return plan, None if known(http_undo.TOOL) is not None else http_undo.tool()
    if isinstance(undo, str):
        target = known(undo)
        if target is None and "(" in undo:
            return _template(undo, tool, known), None
        refuse_injected(tool)
        if target is None or not target.signature_known:
            return UndoPlan(undo, (), loose=True), None
        return _by_name(target, tool), None
    if not callable(undo):
        raise ConfigError(f"{where}: undo must be a function, a tool's name or a template")
    if is_generator(undo):
        raise ConfigError(f"{where}: its undo is a generator, which does nothing when called")
    refuse_injected(tool)
    declared = getattr(undo, "__checkrein_tool__", None)
    if isinstance(declared, ToolClass):
        new = known(declared.info.name) is not declared
        return _by_name(declared, tool), declared if new else None
    info = ToolInfo(
        f"{tool.info.name}.undo", (undo.__doc__ or "").strip(), timeout=tool.info.timeout
    )
    own = ToolClass(info, undo, thread_affine=tool.thread_affine)
    return _by_name(own, tool), own


def refuse_injected(tool: Tool) -> None:
    """Refuse parameters of the names that undos and probes are given."""
    clash = INJECTED.intersection(tool.parameters)
    if clash and tool.signature_known:
        raise ConfigError(
            f"tool {tool.info.name}: it has an undo or a probe, and a parameter named "
            f"{min(clash)!r}; result, call and key are what undos and probes are given: "
            "rename the parameter, or write the undo as a template"
        )


def is_generator(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a generator, so that nothing happens yet."""
    import inspect

    return inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)


def refuse_generator(fn: Callable[..., Any]) -> None:
    """Raise `ConfigError` for a function whose call would be recorded before it acts."""
    if is_generator(fn):
        raise ConfigError(
            f"tool {getattr(fn, '__name__', fn)}: a generator acts while it is consumed, which "
            "cannot be recorded as one call; return the whole result instead"
        )


def _by_name(undo: Tool, tool: Tool) -> UndoPlan:
    parameters: list[tuple[str, Path]] = []
    for name in undo.parameters:
        if name in ("call", "key"):
            continue
        captured = name == "before" and tool.before is not None
        if name == "result" or captured or name in tool.parameters or not tool.signature_known:
            refuse_opaque(tool, name, f"its undo {undo.info.name}")
            parameters.append((name, (name,)))
        elif name in undo.required:
            raise ConfigError(
                f"tool {tool.info.name}: its undo {undo.info.name} takes {name!r}, which is "
                f"neither one of the tool's parameters ({', '.join(tool.parameters) or 'none'}) "
                "nor result, before, call or key"
            )
    return UndoPlan(
        undo.info.name,
        tuple(parameters),
        tuple((n, n) for n in ("call", "key") if n in undo.parameters),
        frozenset(undo.parameters) - undo.required,
    )


def refuse_opaque(tool: Tool, name: str, what: str) -> None:
    """Refuse an undo or probe that needs what is never recorded."""
    if name in tool.opaque:
        raise ConfigError(
            f"tool {tool.info.name}: {what} takes {name!r}, which is opaque: it is not recorded, "
            "so it would be missing after a crash"
        )


def _template(text: str, tool: Tool, known: Callable[[str], Tool | None]) -> UndoPlan:
    where = f"tool {tool.info.name}: undo template {text!r}"
    name, _, rest = text.partition("(")
    name = name.strip()
    try:
        node = ast.parse(f"_({rest}", mode="eval").body
    except SyntaxError as error:
        raise ConfigError(f"{where}: not NAME(PATH, KEY=PATH) ({error.msg})") from None
    if not name or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ConfigError(f"{where}: not NAME(PATH, KEY=PATH)")
    target = known(name)
    given: dict[str, Path] = {}
    for index, arg in enumerate(node.args):
        _add(given, _place(target, index, where), _path(arg, where), where)
    restores = False
    for keyword in node.keywords:
        if keyword.arg is None:
            if _path(keyword.value, where) != ("before",) or tool.before is None:
                raise ConfigError(
                    f"{where}: ** is not allowed but for `before`, where the state before is read"
                )
            restores = True
            continue
        if target is not None and not target.takes(keyword.arg):
            raise ConfigError(f"{where}: {name} has no parameter {keyword.arg!r}")
        _add(given, keyword.arg, _path(keyword.value, where), where)
    if target is not None and target.signature_known and not restores:
        for parameter in sorted(target.required - given.keys()):
            raise ConfigError(f"{where}: {name} needs {parameter!r} too")
    inject: list[tuple[str, str]] = []
    for parameter, path in list(given.items()):
        _check_picks(path, tool, where)
        _check_result(path, tool, where)
        if path[0] == "=":
            continue
        if path[0] in tool.parameters or path[0] == "result":
            if path[0] == "result" and "result" in tool.parameters:
                raise ConfigError(f"{where}: `result` is a parameter of the tool as well")
            refuse_opaque(tool, str(path[0]), "its undo")
        elif path[0] == "before" and tool.before is not None:
            continue
        elif path in (("key",), ("call",)):
            inject.append((parameter, str(path[0])))
            del given[parameter]
        elif tool.signature_known:
            raise ConfigError(
                f"{where}: {path[0]!r} is neither `result`, `key` nor a parameter of the tool"
            )
    return UndoPlan(name, tuple(given.items()), tuple(inject), restores=restores)


def _check_result(path: Path, tool: Tool, where: str) -> None:
    """Refuse a field that the tool's declared result does not have, where it says what it gives."""
    if path[0] != "result" or len(path) < 2 or not isinstance(path[1], str) or tool.fn is None:
        return
    try:
        given = get_type_hints(tool.fn).get("return")
    except Exception:  # noqa: BLE001 - annotations are anybody's code, and may name what is absent
        return
    if not isinstance(given, type):
        return
    fields = getattr(given, "model_fields", None)
    if is_typeddict(given):
        fields = given.__annotations__
    elif dataclasses.is_dataclass(given):
        fields = [field.name for field in dataclasses.fields(given)]
    if fields is not None and path[1] not in fields and not hasattr(given, path[1]):
        raise ConfigError(f"{where}: a {given.__name__}, which the tool gives, has no {path[1]!r}")


def _check_picks(path: Path, tool: Tool, where: str) -> None:
    for part in path[1:]:
        if isinstance(part, Pick) and tool.signature_known:
            if part.argument not in tool.parameters:
                raise ConfigError(f"{where}: [{part.argument}] is no parameter of the tool")


def _place(target: Tool | None, index: int, where: str) -> str:
    """The parameter that takes the template's positional argument `index`."""
    if target is None or not target.signature_known:
        return f"${index}"
    if index >= len(target.positional):
        raise ConfigError(f"{where}: {target.info.name} takes {len(target.positional)} by position")
    return target.positional[index]


def _add(given: dict[str, Path], parameter: str, path: Path, where: str) -> None:
    if parameter in given:
        raise ConfigError(f"{where}: {parameter!r} is given twice")
    given[parameter] = path


def parse_path(text: str, where: str) -> Path:
    """A path as it is written: `result.id`, `before["name"]`. Raises `ConfigError`."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ConfigError(f"{where}: {text!r} is not a path such as result.id") from None
    return _path(node, where)


def _path(node: ast.expr, where: str) -> Path:
    if isinstance(node, ast.Constant) and isinstance(
        node.value, (str, int, float, bool, type(None))
    ):
        return ("=", node.value)
    if isinstance(node, ast.List) and not node.elts:
        return ("=", [])
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        base = _path(node.value, where)
        if base[0] == "before":
            return (*base, Pick(node.slice.id))
    if isinstance(node, ast.Attribute):
        return (*_path(node.value, where), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        part = node.slice.value
        if isinstance(part, str) or type(part) is int:
            return (*_path(node.value, where), part)
    raise ConfigError(f"{where}: {ast.unparse(node)!r} is not a path such as result.id")
