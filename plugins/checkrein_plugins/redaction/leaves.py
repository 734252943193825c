r"""The strings of a nested value, in the order of one walk.

All strings of a value are laid side by side in one text, so that a clean value costs one search.
A NUL ends each leaf and no finding reaches over it; a key and its string stand around a
`\x01`, so that the key's name counts as context of the value.

Looked into: dict and other mappings (keys and values), list, tuple, namedtuple, set, frozenset,
deque, dataclass and pydantic instances, bytes and bytearray as UTF-8, whole numbers of nine digits
or more. Left as they are: enum members, other numbers, and objects of any other class.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from checkrein_plugins.redaction.faults import Unredactable

DEEPEST = 200
"""Levels of nesting that are looked into."""
MOST = 2_000_000
"""Values inside the containers of one value; more is an error. What stands in several places
counts in each of them, so that shared parts cannot explode."""
_TRACKED = 8
"""Depth from which on the ancestors are remembered, to find a cycle."""
LEAST_INT = 100_000_000

BINARY = ("refuse", "keep")
"""What to do with bytes that are not UTF-8."""
END, KEY = "\0", "\1"


class Leaves:
    """The strings of a value, in the order of a walk, each followed by its separator."""

    __slots__ = ("_above", "_left", "binary", "parts", "skipped")

    def __init__(self, binary: str, skipped: frozenset[str] = frozenset()) -> None:
        self.parts: list[str] = []
        self.binary = binary
        self.skipped = skipped
        self._above: set[int] | None = None
        self._left = MOST

    def add(self, value: Any, depth: int = 0) -> None:
        """Append the leaves of `value`.

        Raises:
            Unredactable: cyclic, too deep, too many leaves, or bytes that are not UTF-8.
        """
        kind = type(value)
        if kind is str:
            self.parts += (value, END)
        elif kind is dict or kind is MappingProxyType:
            self._mapping(value, depth)
        elif kind is list or kind is tuple:
            self._items(value, depth)
        elif kind is int:
            if value >= LEAST_INT:
                self.parts += (str(value), END)
        elif value is None or kind is bool or kind is float:
            return
        else:
            self._other(value, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> None:
        if self.skipped and value.get("type") in self.skipped:
            return
        self._left -= len(value)
        if depth >= _TRACKED or self._left < 0:
            self._enter(value, depth)
        parts = self.parts
        for key, item in value.items():
            if type(key) is str:
                if type(item) is str:
                    parts += (key, KEY, item, END)
                    continue
                parts += (key, KEY if type(item) is int and item >= LEAST_INT else END)
                if item is None or item is True or item is False:
                    continue
            else:
                self.add(key, depth + 1)
            self.add(item, depth + 1)
        if depth >= _TRACKED:
            self._leave(value)

    def _items(self, value: Collection[Any], depth: int) -> None:
        self._left -= len(value)
        if depth >= _TRACKED or self._left < 0:
            self._enter(value, depth)
        parts = self.parts
        for item in value:
            if type(item) is str:
                parts += (item, END)
            else:
                self.add(item, depth + 1)
        if depth >= _TRACKED:
            self._leave(value)

    def _leave(self, value: Any) -> None:
        if self._above is not None:
            self._above.discard(id(value))

    def _enter(self, value: Any, depth: int) -> None:
        if self._above is None:
            self._above = set()
        if id(value) in self._above:
            raise Unredactable("", "it contains itself")
        if depth > DEEPEST:
            raise Unredactable("", f"nested deeper than {DEEPEST} levels")
        if self._left < 0:
            raise Unredactable("", f"more than {MOST} values")
        self._above.add(id(value))

    def _other(self, value: Any, depth: int) -> None:
        if isinstance(value, Enum):
            return
        if isinstance(value, str):
            self.parts += (str.__str__(value), END)
        elif isinstance(value, (bytes, bytearray)):
            self._bytes(value)
        elif isinstance(value, Mapping):
            self._mapping(value, depth)
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            self._items(value, depth)
        elif isinstance(value, int) and not isinstance(value, bool):
            if value >= LEAST_INT:
                self.parts += (str(int(value)), END)
        else:
            fields = fields_of(value)
            if fields is not None:
                if depth >= _TRACKED:
                    self._enter(value, depth)
                self._mapping(fields, depth + 1)
                if depth >= _TRACKED:
                    self._leave(value)

    def _bytes(self, value: bytes | bytearray) -> None:
        text = decoded(value)
        if text is not None:
            self.parts += (text, END)
        elif self.binary == "refuse":
            raise Unredactable("", "bytes that are not UTF-8 cannot be checked")


def decoded(value: bytes | bytearray) -> str | None:
    """`value` as UTF-8 text, or None."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def fields_of(value: Any) -> dict[str, Any] | None:
    """Fields of a dataclass or pydantic instance; None for anything else."""
    kind = type(value)
    if hasattr(kind, "__pydantic_fields__"):
        extra = getattr(value, "__pydantic_extra__", None)
        return {**value.__dict__, **extra} if extra else dict(value.__dict__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if hasattr(value, field.name)
        }
    return None


def leaf_paths(value: Any, skipped: frozenset[str] = frozenset()) -> list[str]:
    """Where each leaf of `value` stands, for messages; keys are named by place, not by text."""
    found: list[str] = []

    def walk(item: Any, path: str) -> None:
        if isinstance(item, Enum):
            return
        if isinstance(item, (str, bytes, bytearray)):
            if isinstance(item, str) or decoded(item) is not None:
                found.append(path)
        elif isinstance(item, bool):
            return
        elif isinstance(item, int):
            if item >= LEAST_INT:
                found.append(path)
        elif isinstance(item, Mapping):
            if skipped and item.get("type") in skipped:
                return
            for number, (key, inner) in enumerate(item.items()):
                walk(key, f"{path}<key {number}>")
                name = key if isinstance(key, str) and key.isidentifier() else f"<{number}>"
                walk(inner, f"{path}.{name}" if path else name)
        elif isinstance(item, (list, tuple, set, frozenset, deque)):
            for number, inner in enumerate(item):
                walk(inner, f"{path}[{number}]")
        else:
            fields = fields_of(item)
            if fields is not None:
                walk(fields, path)

    walk(value, "")
    return found
