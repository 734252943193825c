"""Connectors: what is known of an SDK's methods, as data.

A table says of each method what kind of operation it is, how it is undone, how the state before
it is read and where it takes an idempotency key. Installed packages offer tables under the
entry-point group `checkrein.connectors`: the name of the connector -> the path of a TOML file.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkrein.errors import ConfigError
from checkrein.locating import Chain, parse

if TYPE_CHECKING:
    from checkrein._connector_model import ConnectorTable, MethodTable
    from checkrein._wrapped import Root

GROUP = "checkrein.connectors"
PYTHON = "python:"
"""Before the name of a function, `module:function`, in a table."""


@dataclass(frozen=True)
class Connector:
    """A table that was read."""

    name: str
    table: ConnectorTable | None = None
    chains: Mapping[str, Chain] = field(default_factory=dict)
    """By class: how an object of it is found again."""

    def knows(self, client: object) -> bool:
        """Whether a client is of the class that the table is for, told by names: no import."""
        if self.table is None:
            return True
        module, _, name = self.table.client.partition(":")
        package = module.partition(".")[0]
        return any(
            cls.__name__ == name and cls.__module__.partition(".")[0] == package
            for cls in type(client).__mro__
        )

    def method(self, path: str) -> MethodTable | None:
        """What is known of a method; `Class.method` for those of objects."""
        return self.table.methods.get(path) if self.table is not None else None

    def cls(self, name: str) -> type | None:
        """A class of the client's objects, where the table names it."""
        if self.table is None or name not in self.table.classes:
            return None
        found: type = named(self.table.classes[name].type, f"connector {self.name}: {name}")
        return found


def named(text: str, where: str) -> Any:
    """What `module:name` names. Raises `ConfigError`."""
    module, _, path = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}: {text!r} cannot be imported: {error}") from None
    return found


def connector_of(name: str, table: Path | str | Mapping[str, Any] | None) -> Connector:
    """The connector `name`: as given, as an installed package offers it, or bare.

    Raises `ConfigError` for a table that is wrong.
    """
    if isinstance(table, Mapping):
        return _made(name, dict(table), f"connector {name}")
    if table is not None:
        return _read(name, Path(table))
    path = offered().get(name)
    return Connector(name) if path is None else _read(name, path)


@cache
def offered() -> dict[str, Path]:
    """Tables of installed packages, by connector."""
    from importlib.metadata import entry_points

    found: dict[str, Path] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, Path(entry.load()))
    return found


@cache
def _read(name: str, path: Path) -> Connector:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"connector {name}: {path} cannot be read: {error}") from None
    return _made(name, data, str(path))


def _made(name: str, data: dict[str, Any], where: str) -> Connector:
    from checkrein._connector_model import validate

    table = validate(data, where)
    chains = {
        cls: parse(about.locator, f"{where}: classes.{cls}")
        for cls, about in table.classes.items()
        if about.locator is not None
    }
    for path, method in table.methods.items():
        place = f"{where}: methods.{path}"
        if method.why and method.undo != "none":
            raise ConfigError(f"{place}: why is for undo = 'none'")
        if method.undo is None and method.operation != "read":
            raise ConfigError(f"{place}: say how it is undone, or undo = 'none'")
        head = path.partition(".")[0]
        if head[:1].isupper() and "." in path and head not in table.classes:
            raise ConfigError(f"{place}: classes has no {head}")
    return Connector(name, table, chains)


def settings_of(root: Root, path: str) -> dict[str, Any]:
    """What the table says of a method, as a declaration of the tool of that path."""
    method = root.connector.method(path)
    if method is None:
        return {}
    where = f"connector {root.connector.name}: {path}"
    head = path.partition(".")[0]
    on = head if head in root.connector.chains and "." in path else ""
    found: dict[str, Any] = {
        "settle_time": method.settle_time, "undo_safe_to_repeat": method.undo_safe_to_repeat,
    }  # fmt: skip
    if method.operation is not None:
        found["operation"] = method.operation
    if method.idempotent:
        found["idempotent"] = True
    if method.description:
        found["description"] = method.description
    if method.probe is not None:
        found["probe"] = _function(method.probe, root, on, where)
    if method.undo == "none":
        found["irreversible"] = method.why or "the connector knows no way back"
    elif method.undo is not None and method.undo.startswith(PYTHON):
        text, bracket, rest = method.undo.partition("(")
        fn = _function(text, root, on, where)
        found["undo"] = fn
        if bracket:
            found["undo"] = f"{root.helper(text.rpartition(':')[2], fn)}({rest}"
    elif method.undo is not None:
        found["undo"] = f"{root.prefix}.{method.undo}"
    if method.before is not None:
        found["before"] = _reader(method.before, root, on, where)
    return found


def _function(text: str, root: Root, on: str, where: str) -> Callable[..., Any]:
    """A function of a table, with the client given; or with its object, found by `self`."""
    import inspect

    fn: Callable[..., Any] = named(text.removeprefix(PYTHON), where)
    first, *rest = inspect.signature(fn).parameters.values()
    del first

    def now(**given: Any) -> Any:
        return fn(root.found(on, given.pop("self")) if on else root.client, **given)

    receiver = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if on else []
    taken = [*receiver, *rest]
    twin: Any = now
    twin.__name__, twin.__doc__ = fn.__name__, fn.__doc__
    twin.__signature__ = inspect.Signature(taken)
    return now


def _reader(text: str, root: Root, on: str, where: str) -> Callable[..., Any]:
    """A function that reads the state before, by names of the call's arguments."""
    import ast
    import inspect

    from checkrein.capturing import whole
    from checkrein.undo import parse_path, value_at

    client = root.client
    if text.startswith(PYTHON):
        fn = named(text.removeprefix(PYTHON), where)
        return whole(
            lambda given: plain(fn(root.found(on, given["self"]) if on else client, given))
        )
    name, _, rest = text.partition("(")
    try:
        node = ast.parse(f"_({rest}", mode="eval").body
    except SyntaxError:
        raise ConfigError(f"{where}: before {text!r} is not NAME(PATH, KEY=PATH)") from None
    if not isinstance(node, ast.Call):
        raise ConfigError(f"{where}: before {text!r} is not NAME(PATH, KEY=PATH)")
    args = [parse_path(ast.unparse(arg), where) for arg in node.args]
    kwargs = {k.arg: parse_path(ast.unparse(k.value), where) for k in node.keywords if k.arg}
    wanted = sorted({str(p[0]) for p in (*args, *kwargs.values()) if p[0] != "="})

    def read(**given: Any) -> Any:
        target = client
        for part in name.strip().split("."):
            target = getattr(target, part)
        value = target(
            *(value_at(path, given, None, None, name) for path in args),
            **{key: value_at(path, given, None, None, name) for key, path in kwargs.items()},
        )
        return plain(value)

    read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what it takes
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in wanted]
    )
    return read


def plain(value: Any) -> Any:
    """An SDK's object as plain data, where it has a way to say so."""
    for way in ("to_dict", "model_dump"):
        made = getattr(type(value), way, None)
        if callable(made):
            return plain(made(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
