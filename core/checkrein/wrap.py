"""SDK clients whose methods, at any depth, are supervised calls.

A method reached by attributes is the tool `connector.path.method`; one of an object that a call
gave (a `Repository`, a `Customer`) is `connector.ClassName.method`, whichever way the object
came. Plain values (of the built-in types, of the standard library, data classes, models) are
given as they are.

Not closed: `type(x) is Cls`, `Cls.method(x)`, functions written in C that look at the object
itself, and code that hunts for references. What acts by item assignment or in a property is
passed on and not recorded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from checkrein._io import finish
from checkrein._proxy import is_proxy, proxy_of, unwrapped
from checkrein.codec._classes import base_model
from checkrein.engine import Entry, seen
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Ask

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein.rein import Rein
    from checkrein.tool import Tool

_READS = frozenset(
    (
        "get", "list", "retrieve", "search", "read", "fetch", "find", "describe", "count",
        "exists", "head", "show", "view", "iter", "is", "has", "lookup", "peek",
    )
)  # fmt: skip
_WRITES = frozenset(
    (
        "create", "update", "delete", "set", "add", "remove", "put", "post", "patch", "send",
        "insert", "upsert", "write", "replace", "mark", "acknowledge", "ack", "lock", "acquire",
    )
)  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_CALLABLE = (
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType,
    functools.partial,
)  # fmt: skip
# What they yield may be an object of the client.
_CONTEXTS = (
    contextlib._GeneratorContextManager,  # noqa: SLF001 - it has no public name
    contextlib._AsyncGeneratorContextManager,  # noqa: SLF001 - as above
)
_DATA = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)


def wrap(
    rein: Rein,
    client: Any,
    connector: str,
    account: str | None,
    requires_approval: Sequence[str],
    retryable: Sequence[str],
) -> Any:
    """A supervised stand-in for `client`.

    `requires_approval` and `retryable` name methods by their path (`refunds.create`) or by a
    pattern for the whole path (`*.delete`). Raises `ConfigError` for an object that cannot be
    wrapped, a name that is taken, and methods that the client does not have.
    """
    for key, text in (("connector", connector), ("account", account)):
        if text is not None and not re.fullmatch(r"[\w@ .:+-]+", str(text)):
            raise ConfigError(f"wrap: {key} must be a name of letters, digits, and _ @ . : + -")
    prefix = connector if account is None else f"{connector}[{account}]"
    if is_proxy(client):
        raise ConfigError(f"wrap {prefix}: the object is wrapped already")
    if client is None or isinstance(client, (*_DATA, type, enum.Enum, *_CALLABLE)):
        raise ConfigError(
            f"wrap {prefix}: a {type(client).__name__} is no client; wrap the object whose methods "
            "act, or declare a function with rein.tool"
        )
    for key, names in (("requires_approval", requires_approval), ("retryable", retryable)):
        if isinstance(names, str):
            raise ConfigError(f"wrap {prefix}: {key} must be a list of names, not one string")
        for name in names:
            _must_have(client, name, f"wrap {prefix}: {key}")
    root = Root(rein, client, prefix, tuple(retryable))
    rein.tools.open_names(prefix, root.resolve)
    if requires_approval:
        rein.require_approval([f"{prefix}.{name}" for name in requires_approval])
    return root.proxy(client, "")


def _must_have(client: Any, name: str, where: str) -> None:
    """A name that matches nothing would be a guard that never runs."""
    if any(mark in name for mark in "*?[") or name[:1].isupper():
        return
    found = client
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(f"{where}: the client has no {name!r}") from None
    if not callable(found):
        raise ConfigError(f"{where}: {name!r} is no method")


class RequiresApproval(Plugin):
    """Asks a person before calls of the tools that were named when a client was wrapped."""

    name = "requires_approval"

    def __init__(self) -> None:
        self.patterns: list[str] = []

    def pre_call(self, call: Call) -> Ask | None:
        """Ask if the tool's name matches."""
        if call.kind == "tool" and any(matches(call.name, p) for p in self.patterns):
            return Ask(f"{call.name} requires approval", rule="requires_approval")
        return None


def matches(name: str, pattern: str) -> bool:
    """Whether a tool's whole name matches; the brackets of an account stand for themselves."""
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))


def effect_of_name(name: str) -> str:
    """`read` where the words of a method's name say so, else `write`."""
    words = [word.lower() for word in _WORD.findall(name)]
    if words and words[0] in _READS and not _WRITES.intersection(words):
        return "read"
    return "write"


class Root:
    """One wrapped client: its names and its proxies."""

    def __init__(self, rein: Rein, client: Any, prefix: str, retryable: tuple[str, ...]) -> None:
        self.rein = rein
        self.client = client
        self.prefix = prefix
        self.retryable = retryable
        is_module = isinstance(client, types.ModuleType)
        module = client.__name__ if is_module else type(client).__module__
        self.package = module.partition(".")[0]
        self._proxies: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()

    def proxy(self, target: Any, path: str) -> Any:
        """The stand-in for an object that is reached by `path`; always the same one."""
        key = (id(target), path)
        known = self._proxies.get(key)
        if known is None:
            known = self._proxies[key] = proxy_of(Node(self, target, path))
        return known

    def name(self, path: str) -> str:
        """Name of the tool with that path."""
        return f"{self.prefix}.{path}" if path else self.prefix

    def settings(self, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what holds unless it is declared otherwise, what holds always)."""
        repeat = any(path == p or fnmatchcase(path, p) for p in self.retryable)
        defaults = {"effect": effect_of_name(path.rpartition(".")[2]), "server": self.prefix}
        return defaults, {"idempotent": True} if repeat else {}

    def resolve(
        self, path: str
    ) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]] | None:
        """The method behind a tool's name, for undo and resume; None if there is none."""
        found: Any = self.client
        for part in path.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                return None
        return (found, *self.settings(path)) if callable(found) else None

    def is_own(self, value: Any) -> bool:
        """Whether a value is an object of the client's package that can act."""
        kind = type(value)
        if kind.__module__.partition(".")[0] != self.package:
            return False
        if isinstance(value, (type, enum.Enum)):
            return False
        model = base_model()
        return not (
            isinstance(value, (*_DATA, BaseException))
            or dataclasses.is_dataclass(kind)
            or (model is not None and isinstance(value, model))
        )


class Node:
    """An object of a wrapped client, behind its proxy."""

    __slots__ = ("_known", "path", "root", "target")

    def __init__(self, root: Root, target: Any, path: str) -> None:
        self.root = root
        self.target = target
        self.path = path
        self._known: dict[str, tuple[Any, Any]] = {}

    def attribute(self, name: str) -> Any:
        """An attribute: a supervised method, a proxied resource, or the plain value."""
        raw = getattr(self.target, name)
        callable_ = isinstance(raw, _CALLABLE)
        known = self._known.get(name)
        # Bound methods are new objects at every access.
        if known is not None and (known[0] is raw or (callable_ and known[0] == raw)):
            return known[1]
        path = f"{self.path}.{name}" if self.path else name
        if callable_:
            made = self._method(path, raw)
        elif raw is self.root.client:
            return self.root.proxy(raw, "")
        elif raw is None or isinstance(raw, (type, *_DATA)) or not self._may_act(raw):
            return raw
        else:
            made = self.root.proxy(raw, path)
        self._known[name] = (raw, made)
        return made

    def _may_act(self, value: Any) -> bool:
        if self.root.is_own(value):
            return True
        module = type(value).__module__.partition(".")[0]
        foreign = module not in sys.stdlib_module_names and module != self.root.package
        return foreign and not dataclasses.is_dataclass(value) and not isinstance(value, enum.Enum)

    def supervised_call(self) -> Callable[..., Any]:
        """The object itself, as a supervised function."""
        return self._method(self.path, self.target)

    def given(self, value: Any) -> Any:
        """A value that the client gave: own objects proxied, also in plain containers."""
        kind = type(value)
        if value is self.target:
            return self.root.proxy(value, self.path)
        if value is self.root.client:
            return self.root.proxy(value, "")
        if self.root.is_own(value):
            return self.root.proxy(value, kind.__name__)
        if kind in (list, tuple) and value:
            items = [self.given(item) for item in value]
            return kind(items) if any(map(is_proxy, items)) else value
        if kind is dict and value:
            fields = {key: self.given(item) for key, item in value.items()}
            return fields if any(map(is_proxy, fields.values())) else value
        if kind is types.GeneratorType:
            return (self.given(item) for item in value)
        if kind is types.AsyncGeneratorType:
            return self._later_items(value)
        if kind in _CONTEXTS:
            return self.root.proxy(value, self.path)
        return value

    async def _later_items(self, items: Any) -> Any:
        async for item in items:
            yield self.given(item)

    def twin(self, target: Any) -> Any:
        """A stand-in for a copy: its calls bear the same names."""
        return self.root.proxy(target, self.path)

    def _method(self, path: str, raw: Callable[..., Any]) -> Callable[..., Any]:
        """The supervised twin of a method: same signature, same coroutine kind."""
        root = self.root
        tool_of = _Bound(root, root.name(path), path, raw)

        async def later(*args: Any, **kwargs: Any) -> Any:
            tool, arguments = tool_of(args, kwargs)
            entry = Entry(tool, arguments, root.rein.current_session())
            outcome = await root.rein.engine.outcome(root.rein.async_io, entry)
            return self.given(seen(outcome).value)

        def now(*args: Any, **kwargs: Any) -> Any:
            tool, arguments = tool_of(args, kwargs)
            rein = root.rein
            entry = Entry(tool, arguments, rein.current_session())
            return self.given(seen(finish(rein.engine.outcome(rein.sync_io, entry))).value)

        twin: Any = later if _is_async(raw) else now
        functools.update_wrapper(twin, raw)
        # It would lead to the method that nobody supervises.
        vars(twin).pop("__wrapped__", None)
        with contextlib.suppress(TypeError, ValueError):
            twin.__signature__ = inspect.signature(raw)
        return twin  # type: ignore[no-any-return]  # one of the two functions above


class _Bound:
    """Finds the tool of one method, and its arguments, at every call: declarations may change."""

    def __init__(self, root: Root, name: str, path: str, raw: Callable[..., Any]) -> None:
        self.root = root
        self.name = name
        self.raw = raw
        self.at_root = root.resolve(path)
        self.defaults, self.forced = root.settings(path)

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tool, dict[str, Any]]:
        tools = self.root.rein.tools
        if self.at_root is not None and self.at_root[0] == self.raw:
            tool = tools.bind(self.name, self.raw, self.defaults, self.forced)
        else:
            # Of an object that only this process holds: not to be found by name.
            tool = tools.shape(self.name, self.raw, self.defaults, self.forced)
        args = tuple(map(unwrapped, args))
        if kwargs:
            kwargs = {name: unwrapped(value) for name, value in kwargs.items()}
        arguments = tool.bind(args, kwargs)
        own = tuple(n for n, value in arguments.items() if self.root.is_own(value))
        return (tool.passing(own) if own else tool), arguments


def _is_async(fn: Callable[..., Any]) -> bool:
    from checkrein.tool import is_async_callable

    if is_async_callable(fn):
        return True
    # A decorated coroutine function may only say so in its annotation.
    try:
        given = str(inspect.signature(fn).return_annotation)
    except (TypeError, ValueError):
        return False
    return re.match(r"(typing\.|collections\.abc\.)?(Awaitable|Coroutine)\[", given) is not None
