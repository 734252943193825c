"""Stand-ins for foreign objects: they behave as the original, and show it to nobody.

One proxy class is made for each class of target, with those special methods that the target's
class has: so `len(proxy)` works where `len(target)` does, and only there. The target is kept in
a slot whose descriptor is taken off the class, so that no attribute leads to it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from checkrein.errors import ConfigError


class Behind(Protocol):
    """What stands behind a proxy."""

    target: Any

    def attribute(self, name: str) -> Any:
        """An attribute of the target as users may have it."""
        ...

    def supervised_call(self) -> Callable[..., Any]:
        """The target itself as a supervised function."""
        ...

    def given(self, value: Any) -> Any:
        """A value that the target gave, as users may have it."""
        ...

    def reference(self) -> tuple[str, str, str]:
        """What a pickled stand-in is. Raises `ConfigError` where it cannot be found again."""
        ...

    def twin(self, target: Any) -> Any:
        """A proxy of a copy of the target."""
        ...


class Proxy:
    """Base of all proxy classes."""

    __slots__ = ("__weakref__", "_behind")

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return type(behind(self).target)
        if name[:2] == "__" and name[-2:] == "__":
            return _special(self, name)
        return behind(self).attribute(name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(behind(self).target, name, unwrapped(value))

    def __delattr__(self, name: str) -> None:
        delattr(behind(self).target, name)

    def __dir__(self) -> list[str]:
        return dir(behind(self).target)

    def __copy__(self) -> Any:
        mine = behind(self)
        return mine.twin(copy.copy(mine.target))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        mine = behind(self)
        return mine.twin(copy.deepcopy(mine.target, memo))

    def __reduce_ex__(self, *args: Any) -> Any:
        from checkrein._wrapped import rebound

        # A reference: where the same client is wrapped it is that stand-in, and elsewhere nothing.
        return rebound, behind(self).reference()

    __reduce__: Any = __reduce_ex__

    def __getstate__(self) -> Any:
        raise ConfigError("a wrapped client gives nobody its state")


_slot: Any = vars(Proxy)["_behind"]
delattr(Proxy, "_behind")
_HIDDEN = frozenset(("__wrapped__", "__self__", "__func__", "__closure__"))
_TYPES: WeakKeyDictionary[type, type[Proxy]] = WeakKeyDictionary()


def behind(proxy: Any) -> Any:
    """What stands behind a proxy. For this package only."""
    return _slot.__get__(proxy, Proxy)


def is_proxy(value: Any) -> bool:
    """Whether `value` is a stand-in; `isinstance` is told the target's class."""
    return issubclass(type(value), Proxy)


def unwrapped(value: Any) -> Any:
    """A value as the target may have it: proxies in it, also in plain containers, opened."""
    if is_proxy(value):
        return behind(value).target
    kind = type(value)
    if kind in (list, tuple, set) and value:
        opened = [unwrapped(item) for item in value]
        changed = any(a is not b for a, b in zip(opened, value, strict=True))
        return kind(opened) if changed else value
    if kind is dict and value:
        fields = {key: unwrapped(item) for key, item in value.items()}
        return fields if any(fields[key] is not value[key] for key in value) else value
    return value


def proxy_of(mine: Behind) -> Any:
    """A new proxy for what `mine` stands for."""
    kind = type(mine.target)
    made = _TYPES.get(kind)
    if made is None:
        made = _TYPES[kind] = _make(kind)
    proxy = object.__new__(made)
    _slot.__set__(proxy, mine)
    return proxy


def _special(proxy: Any, name: str) -> Any:
    """An attribute with two underscores: what tells about the target, never the target."""
    if name in _HIDDEN:
        raise AttributeError(f"a wrapped client has no attribute {name!r}")
    target = behind(proxy).target
    if name == "__dict__":
        return {key: behind(proxy).attribute(key) for key in vars(target)}
    if hasattr(type(proxy), name) and name not in ("__doc__", "__module__"):
        return object.__getattribute__(proxy, name)
    return behind(proxy).given(getattr(target, name))


def _make(kind: type) -> type[Proxy]:
    scope: dict[str, Any] = {"__slots__": ()}
    scope["__doc__"], scope["__module__"] = kind.__doc__, kind.__module__
    for name in _FORWARDED:
        if getattr(kind, name, None) is not None:
            scope[name] = _SPECIAL.get(name) or _forward(name)
    if getattr(kind, "__hash__", None) is None:
        scope["__hash__"] = None
    return type(kind.__name__, (Proxy,), scope)


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        mine = behind(self)
        special = getattr(type(mine.target), name)
        return mine.given(special(mine.target, *map(unwrapped, args)))

    method.__name__ = method.__qualname__ = name
    return method


def _iter(self: Any) -> Any:
    mine = behind(self)
    found = iter(mine.target)
    return self if found is mine.target else map(mine.given, found)


def _aiter(self: Any) -> Any:
    mine = behind(self)
    found = aiter(mine.target)
    if found is mine.target:
        return self

    async def items() -> Any:
        async for item in found:
            yield mine.given(item)

    return items()


def _await(self: Any) -> Any:
    mine = behind(self)
    result = yield from mine.target.__await__()
    return mine.given(result)


async def _anext(self: Any) -> Any:
    mine = behind(self)
    return mine.given(await type(mine.target).__anext__(mine.target))


async def _aenter(self: Any) -> Any:
    mine = behind(self)
    return mine.given(await type(mine.target).__aenter__(mine.target))


async def _aexit(self: Any, *error: Any) -> Any:
    mine = behind(self)
    return await type(mine.target).__aexit__(mine.target, *error)


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return behind(self).supervised_call()(*args, **kwargs)


_SPECIAL: dict[str, Callable[..., Any]] = {
    "__iter__": _iter, "__aiter__": _aiter, "__await__": _await, "__anext__": _anext,
    "__aenter__": _aenter, "__aexit__": _aexit, "__call__": _call,
}  # fmt: skip
_ARITHMETIC = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift",
    "rshift", "and", "xor", "or",
)  # fmt: skip
_FORWARDED = (
    *_SPECIAL, "__len__", "__bool__", "__str__", "__repr__", "__bytes__", "__format__", "__int__",
    "__float__", "__complex__", "__index__", "__neg__", "__pos__", "__abs__", "__invert__",
    "__round__", "__trunc__", "__floor__", "__ceil__", "__fspath__", "__length_hint__",
    "__hash__", "__next__", "__reversed__", "__enter__", "__exit__", "__contains__",
    "__getitem__", "__setitem__", "__delitem__", "__eq__", "__ne__", "__lt__", "__le__",
    "__gt__", "__ge__",
    *(f"__{kind}{name}__" for name in _ARITHMETIC for kind in ("", "r", "i")),
)  # fmt: skip
