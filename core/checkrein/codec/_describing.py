"""Values for people: a bounded, readable tree that never fails and runs no code of theirs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from checkrein.codec._classes import Shape, shape_of, state_of
from checkrein.codec._encoding import readable_text
from checkrein.codec._paths import TAG
from checkrein.store import Tree

MAX_DEPTH = 8
MAX_ITEMS = 100
MAX_KEY = 100
"""Bounds of a view; what is left out is counted in its place."""

_TEXT = {str}
_WIDE = 1 << 128
"""Integers beyond this are no amounts or ids that people read."""


def describe(value: Any, limit: int = 4000) -> Tree:
    """A readable tree of a value, for views.

    `limit` bounds the characters of all texts together. Unknown objects are shown as
    `<type name>`: nothing of theirs is called. Redaction must have been applied before.
    Never raises: what cannot be shown is `[unviewable]`.
    """
    try:
        return _Describer(limit).any(value, 0)
    except Exception:  # noqa: BLE001 - a view must not fail the call that it describes
        return "[unviewable]"


def is_brief(value: object, limit: int = 4000) -> bool:
    """Whether a value is its own tree and its own view: nothing to encode, nothing to cut.

    `limit` as for `describe`. False where that would take longer to tell than to describe.
    """
    left = limit
    level: list[Any] = [value]
    for depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                left -= len(item)
                if not item.isascii():
                    return False
            elif kind is dict:
                if depth == MAX_DEPTH or TAG in item or not {*map(type, item)} <= _TEXT:
                    return False
                keys = "".join(item)
                left -= len(keys)
                if len(item) > MAX_ITEMS or len(keys) > MAX_KEY or not keys.isascii():
                    return False
                below += item.values()
            elif kind is list:
                left -= 2 * len(item)
                if depth == MAX_DEPTH or len(item) > MAX_ITEMS:
                    return False
                below += item
            elif kind is int or kind is float:
                left -= 8
                if not -_WIDE < item < _WIDE:
                    return False
            elif item is not None and kind is not bool:
                return False
        if left <= 0 or not below:
            return left > 0
        level = below
    return False


class _Describer:
    """One description; counts down the characters that are left."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def any(self, value: Any, depth: int) -> Tree:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if value is None or kind is bool:
            return value
        if (kind is int or kind is float) and -_WIDE < value < _WIDE:
            self.left -= 8
            return value
        if kind is dict:
            return self.mapping(value, depth)
        if kind is list or kind is tuple or kind is set or kind is frozenset:
            return self.items(value, len(value), kind.__name__, depth)
        try:
            return self.other(value, kind, depth)
        except Exception:  # noqa: BLE001 - one odd value must not hide the others
            return "[unviewable]"

    def text(self, value: str) -> str:
        size = len(value)
        if size > self.left:
            kept = value[: max(self.left, 0)]
            self.left = 0
            value = f"{kept}... [{size - len(kept)} more]"
        else:
            self.left -= size
        return value if value.isascii() else _shown(value)

    def number(self, value: float) -> Tree:
        """A number that may be too long to show, or no number at all."""
        self.left -= 8
        if -_WIDE < value < _WIDE:
            return value
        if type(value) is int:
            return f"<int of {value.bit_length()} bits>"
        return value if math.isfinite(value) else repr(value)

    def mapping(self, value: dict[Any, Any], depth: int) -> Tree:
        size = len(value)
        if depth >= MAX_DEPTH or (self.left <= 0 and size):
            return f"<dict {size}>"
        out: dict[str, Tree] = {}
        for key, item in [*dict.items(value)]:
            if len(out) >= MAX_ITEMS or self.left <= 0:
                out["..."] = f"{size - len(out)} more"
                break
            if type(key) is str and len(key) <= MAX_KEY and key.isascii():
                self.left -= len(key)
                name = key
            else:
                name = self.key(key)
            while name in out:  # 1 and "1" look the same
                name += "'"
            kind = type(item)
            if kind is str and len(item) <= self.left and item.isascii():
                self.left -= len(item)
                out[name] = item
            elif kind is dict:
                out[name] = self.mapping(item, depth + 1)
            else:
                out[name] = self.any(item, depth + 1)
        return out

    def key(self, key: Any) -> str:
        if type(key) is not str:
            shown = self.any(key, MAX_DEPTH)
            key = shown if type(shown) is str else repr(shown)
        if len(key) > MAX_KEY:
            key = f"{key[:MAX_KEY]}..."
        self.left -= len(key)
        return key if key.isascii() else _shown(key)

    def items(self, value: Iterable[Any], size: int, name: str, depth: int) -> Tree:
        if depth >= MAX_DEPTH or (self.left <= 0 and size):
            return f"<{name} {size}>"
        out: list[Tree] = []
        for item in [*value]:
            if len(out) >= MAX_ITEMS or self.left <= 0:
                out.append(f"... {size - len(out)} more")
                break
            self.left -= 2
            out.append(
                self.mapping(item, depth + 1) if type(item) is dict else self.any(item, depth + 1)
            )
        return out

    def other(self, value: Any, kind: type, depth: int) -> Tree:
        if kind is int or kind is float:
            return self.number(value)
        if kind is bytes or kind is bytearray:
            return f"<{kind.__name__} {len(value)}>"
        if kind is MappingProxyType:
            return self.mapping(dict(value), depth)
        text = readable_text(value)
        if text is not None:
            return self.text(text)
        shape = shape_of(kind)
        if shape is not None:
            if shape.kind in ("enum", "flag"):
                return self.text(f"{kind.__name__}.{value._name_}")
            if shape.kind == "namedtuple":
                return self.mapping(
                    dict(zip(value._fields, tuple.__iter__(value), strict=False)), depth
                )
            return self.mapping(_visible(value, kind, shape), depth)
        # The built-in types' own methods, so that a subclass's code is not run.
        if issubclass(kind, str):
            return self.text(str.__str__(value))
        if issubclass(kind, int):
            return self.number(int.__pos__(value))
        if issubclass(kind, float):
            return self.number(float.__pos__(value))
        if issubclass(kind, dict):
            return self.mapping(value, depth)
        if issubclass(kind, list):
            return self.items(list.__iter__(value), list.__len__(value), kind.__name__, depth)
        if issubclass(kind, tuple):
            return self.items(tuple.__iter__(value), tuple.__len__(value), kind.__name__, depth)
        return f"<{kind.__qualname__}>"


def _shown(text: str) -> str:
    """The text with lone surrogates made visible: a view must always be writable."""
    return text.encode("utf-8", "backslashreplace").decode()


def _visible(value: Any, kind: type, shape: Shape) -> dict[str, Any]:
    """Attributes of a dataclass or model; fields declared `repr=False` stay hidden."""
    state = state_of(value, shape)
    fields: Any = getattr(kind, "__dataclass_fields__", None) or getattr(
        kind, "__pydantic_fields__", {}
    )
    for key, declared in fields.items():
        if key in state and not declared.repr:
            state[key] = _HIDDEN
    return state


class _Hidden:
    __slots__ = ()


_Hidden.__qualname__ = "hidden"
_HIDDEN = _Hidden()
