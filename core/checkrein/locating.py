"""Locators: how an object that a client gave is found again, by any process.

A connector's table says it per class: `get_repo(full_name)`. Of an object that makes the text
`get_repo('ada/engine')`, which stands in the record as the method's `self`.
"""

from __future__ import annotations

import ast
from typing import Any

from checkrein.errors import ConfigError, Conflict

Chain = tuple[tuple[str, tuple[Any, ...]], ...]
"""(method, arguments), one after the other, from the client on."""


def parse(text: str, where: str) -> Chain:
    """A locator of a table: arguments are paths on the object. Raises `ConfigError`."""
    return _chain(text, where, constants=False)


def _chain(text: str, where: str, *, constants: bool) -> Chain:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ConfigError(f"{where}: {text!r} is no locator such as get_repo(full_name)") from None
    found: list[tuple[str, tuple[Any, ...]]] = []
    while True:
        name = ""
        given: tuple[Any, ...] | None = None
        if isinstance(node, ast.Call) and not node.keywords:
            read = _constant if constants else _path
            given = tuple(read(arg, text, where) for arg in node.args)
            node = node.func
        if isinstance(node, ast.Attribute):
            name, rest = node.attr, node.value
        elif isinstance(node, ast.Name):
            name, rest = node.id, None
        else:
            raise ConfigError(f"{where}: {text!r} is no locator such as get_repo(full_name)")
        if name.startswith("_"):
            raise ConfigError(f"{where}: {text!r} goes through what is private")
        found.insert(0, (name, ("=",) if given is None else given))
        if rest is None:
            return tuple(found)
        node = rest


def _path(node: ast.expr, text: str, where: str) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (*_path(node.value, text, where), node.attr)
    raise ConfigError(f"{where}: {text!r}: {ast.unparse(node)} is no path on the object")


def _constant(node: ast.expr, text: str, where: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int)):
        return node.value
    raise ConfigError(f"{where}: {text!r} is no locator")


def located(chain: Chain, target: Any) -> str:
    """The locator of one object. Raises what its attributes raise; `ValueError` for no text."""
    parts: list[str] = []
    for name, paths in chain:
        if paths == ("=",):
            parts.append(name)
            continue
        values: list[Any] = []
        for path in paths:
            value = target
            for part in path:
                value = getattr(value, part)
            if type(value) not in (str, int):
                raise ValueError(f"{'.'.join(path)} of a {type(target).__name__} is no text")
            values.append(value)
        parts.append(f"{name}({', '.join(map(repr, values))})")
    return ".".join(parts)


def found(client: Any, text: str, chain: Chain) -> Any:
    """The object of a locator. Raises `Conflict` for one that is not of this table."""
    try:
        steps = _chain(text, "locator", constants=True)
    except ConfigError as error:
        raise Conflict(str(error)) from None
    if [name for name, _ in steps] != [name for name, _ in chain]:
        # What is stored must lead nowhere but where the table leads.
        raise Conflict(f"locator {text!r} is not one of its class")
    current = client
    for name, given in steps:
        current = getattr(current, name)
        if given != ("=",):
            current = current(*given)
    return current
