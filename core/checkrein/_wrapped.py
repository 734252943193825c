"""One wrapped client: its names, the objects behind its proxies, and their supervised methods."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import sys
import types
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from checkrein import _consumed, locating
from checkrein._bound import Bound, is_async, opened
from checkrein._io import finish
from checkrein._proxy import is_proxy, proxy_of, unwrapped
from checkrein.codec._classes import base_model
from checkrein.connectors import Connector, settings_of
from checkrein.engine import seen
from checkrein.operations import effect_of, operation_of

if TYPE_CHECKING:
    from checkrein.rein import Rein

CALLABLE = (
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType,
    functools.partial,
)  # fmt: skip
DATA = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)
# What they yield may be an object of the client.
_CONTEXTS = (
    contextlib._GeneratorContextManager,  # noqa: SLF001 - it has no public name
    contextlib._AsyncGeneratorContextManager,  # noqa: SLF001 - as above
)

ROOTS: WeakValueDictionary[tuple[int, str], Root] = WeakValueDictionary()
"""Wrapped clients of this process, by Rein and name: where pickled references are bound again."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How one client is wrapped."""

    retryable: tuple[str, ...] = ()
    record_reads: bool = False
    on_capture: str = "refuse"


class Located:
    """A result for an undo plan: its attributes, and how it is found again."""

    def __init__(self, root: Root, value: Any) -> None:
        self._root = root
        self._value = value

    def __getattr__(self, name: str) -> Any:
        if name == "locator":
            found = self._root.locator(self._value)
            if not found:
                raise AttributeError("this object cannot be found again")
            return found
        return getattr(self._value, name)


class Root:
    """One wrapped client: its names and its proxies."""

    def __init__(
        self, rein: Rein, client: Any, prefix: str, connector: Connector, settings: Settings
    ) -> None:
        self.rein = rein
        self.client = client
        self.prefix = prefix
        self.connector = connector
        self.options = settings
        is_module = isinstance(client, types.ModuleType)
        module = client.__name__ if is_module else type(client).__module__
        self.package = module.partition(".")[0]
        self._of_located: dict[tuple[str, str], Callable[..., Any]] = {}
        self._proxies: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()
        ROOTS[id(rein), prefix] = self

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
        repeat = any(path == p or fnmatchcase(path, p) for p in self.options.retryable)
        defaults: dict[str, Any] = {"operation": operation_of(path.rpartition(".")[2])}
        defaults |= settings_of(self, path)
        defaults |= {"effect": effect_of(defaults["operation"]), "server": self.prefix}
        if "before" in defaults:
            defaults["on_capture"] = self.options.on_capture
        return defaults, {"idempotent": True} if repeat else {}

    def resolve(
        self, path: str
    ) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]] | None:
        """The method behind a tool's name, for undo and resume; None if there is none."""
        head, _, method = path.partition(".")
        if head in self.connector.chains and method and "." not in method:
            cls = self.connector.cls(head)
            made = getattr(cls, method, None)
            return (self.of_located(head, method, made), *self.settings(path)) if made else None
        found: Any = self.client
        for part in path.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                return None
        return (found, *self.settings(path)) if callable(found) else None

    def of_located(self, head: str, method: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """`Class.method` as a function of a locator, `self`, and the method's own arguments."""
        known = self._of_located.get((head, method))
        if known is None:
            known = self._of_located[head, method] = self._located(head, method, made)
        return known

    def _located(self, head: str, method: str, made: Callable[..., Any]) -> Callable[..., Any]:
        def on(self_: str) -> Callable[..., Any]:
            found: Callable[..., Any] = getattr(self.found(head, self_), method)
            return found

        def now(self: str, *args: Any, **kwargs: Any) -> Any:
            return on(self)(*args, **kwargs)

        async def later(self: str, *args: Any, **kwargs: Any) -> Any:
            return await on(self)(*args, **kwargs)

        twin: Any = later if inspect.iscoroutinefunction(made) else now
        twin.__name__ = twin.__qualname__ = f"{head}.{method}"
        twin.__doc__ = made.__doc__
        with contextlib.suppress(TypeError, ValueError):
            twin.__signature__ = inspect.signature(made)
        return twin  # type: ignore[no-any-return]  # one of the two

    def locator(self, target: Any) -> str:
        """How an object is found again; empty if its class has no locator, or it has no id."""
        chain = self.connector.chains.get(type(target).__name__)
        if chain is None:
            return ""
        try:
            return locating.located(chain, target)
        except Exception as error:  # noqa: BLE001 - attributes of a foreign object may do anything
            self.rein.log.debug("%s: %s", type(target).__name__, error)
            return ""

    def found(self, cls: str, locator: str) -> Any:
        """The object of a class that a locator names. Raises `Conflict`."""
        return locating.found(self.client, locator, self.connector.chains[cls])

    def helper(self, name: str, fn: Callable[..., Any]) -> str:
        """The name of the tool for a function that a table's undo calls with arguments."""
        known = f"{self.prefix}.{name}"
        if self.rein.tools.get(known) is None:
            self.rein.tools.declare(known, fn, server=self.prefix)
        return known

    def raw(self, value: Any) -> Any:
        """A result as undo plans see it."""
        return Located(self, value) if self.is_own(value) else value

    def is_own(self, value: Any) -> bool:
        """Whether a value is an object of the client's package that can act."""
        kind = type(value)
        if kind.__module__.partition(".")[0] != self.package:
            return False
        if isinstance(value, (type, enum.Enum)):
            return False
        model = base_model()
        return not (
            isinstance(value, (*DATA, BaseException))
            or dataclasses.is_dataclass(kind)
            or (model is not None and isinstance(value, model))
        )


class Node:
    """An object of a wrapped client, behind its proxy."""

    __slots__ = ("_known", "_locator", "path", "root", "target")

    def __init__(self, root: Root, target: Any, path: str) -> None:
        self.root = root
        self.target = target
        self.path = path
        self._known: dict[str, tuple[Any, Any]] = {}
        self._locator: str | None = None

    def locator(self) -> str:
        """How the object is found again; looked for when somebody needs it, and once."""
        if self._locator is None:
            self._locator = self.root.locator(self.target)
        return self._locator

    def reference(self) -> tuple[str, str, str]:
        """(wrapped client, path, locator): what a pickled stand-in is. Raises `ConfigError`."""
        from checkrein.errors import ConfigError

        if self.target is self.root.client:
            return self.root.prefix, "", ""
        if self.path == type(self.target).__name__ and self.locator():
            return self.root.prefix, self.path, self.locator()
        found = self.root.client
        for part in self.path.split("."):
            found = getattr(found, part, None)
        if found is not self.target:
            raise ConfigError(
                f"a {type(self.target).__name__} of {self.root.prefix} cannot be pickled: nothing "
                "says how another process finds it; pickle its id"
            )
        return self.root.prefix, self.path, ""

    def attribute(self, name: str) -> Any:
        """An attribute: a supervised method, a proxied resource, or the plain value."""
        raw = getattr(self.target, name)
        callable_ = isinstance(raw, CALLABLE)
        known = self._known.get(name)
        # Bound methods are new objects at every access.
        if known is not None and (known[0] is raw or (callable_ and known[0] == raw)):
            return known[1]
        path = f"{self.path}.{name}" if self.path else name
        if callable_:
            made = self._method(path, raw)
        elif raw is self.root.client:
            return self.root.proxy(raw, "")
        elif raw is None or isinstance(raw, (type, *DATA)) or not self._may_act(raw):
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
        bound = Bound(self, root.name(path), path, raw)

        async def later(*args: Any, **kwargs: Any) -> Any:
            entry = bound(args, kwargs)
            if entry is None:
                return self.given(await raw(*map(unwrapped, args), **opened(kwargs)))
            outcome = await root.rein.engine.outcome(root.rein.async_io, entry)
            return self.given(seen(outcome).value)

        def now(*args: Any, **kwargs: Any) -> Any:
            entry = bound(args, kwargs)
            if entry is None:
                return self.given(raw(*map(unwrapped, args), **opened(kwargs)))
            rein = root.rein
            return self.given(seen(finish(rein.engine.outcome(rein.sync_io, entry))).value)

        twin: Any
        if inspect.isgeneratorfunction(raw):
            twin = _consumed.items(self, bound, raw)
        elif inspect.isasyncgenfunction(raw):
            twin = _consumed.later_items(self, bound, raw)
        else:
            twin = later if is_async(raw) else now
        functools.update_wrapper(twin, raw)
        # It would lead to the method that nobody supervises.
        vars(twin).pop("__wrapped__", None)
        with contextlib.suppress(TypeError, ValueError):
            twin.__signature__ = inspect.signature(raw)
        return twin  # type: ignore[no-any-return]  # one of the functions above


def rebound(prefix: str, path: str, locator: str) -> Any:
    """The stand-in that a pickled reference names. Raises `ConfigError` where it is not wrapped."""
    from checkrein.errors import ConfigError
    from checkrein.session import ACTIVE

    here = [r for (_, name), r in list(ROOTS.items()) if name == prefix and not r.rein.closed]
    session = ACTIVE.get()
    if len(here) > 1 and session is not None:
        here = [root for root in here if root.rein is session.rein] or here
    if len(here) != 1:
        how = "no client" if not here else "more than one client"
        raise ConfigError(
            f"{how} is wrapped as {prefix} in this process: a pickled reference to it is bound "
            f"where exactly one is; call rein.wrap(..., connector={prefix.partition('[')[0]!r})"
        )
    root = here[0]
    if locator:
        return root.proxy(root.found(path, locator), path)
    found = root.client
    for part in path.split(".") if path else ():
        found = getattr(found, part)
    return root.proxy(found, path)
