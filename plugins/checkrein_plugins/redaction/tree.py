r"""Redaction of nested values: one search over all leaves, a rebuild only along the changed paths.

All strings of a value are laid side by side in one text, so that a clean value costs one search.
A NUL ends each leaf and no finding reaches over it; a key and its string stand around a
`\\x01`, so that the key's name counts as context of the value.

Looked into: dict and other mappings (keys and values), list, tuple, namedtuple, set, frozenset,
deque, dataclass and pydantic instances, bytes and bytearray as UTF-8, whole numbers of nine digits
or more. Left as they are: enum members, other numbers, and objects of any other class.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.faults import Unredactable
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.text import _DEFAULT, engine_for, known, located, replaced

DEEPEST = 200
"""Levels of nesting that are looked into."""
MOST = 2_000_000
"""Leaves of one value that are looked at; more is an error, so that shared parts cannot explode."""
_TRACKED = 8
"""Depth from which on the ancestors are remembered, to find a cycle."""
_LEAST_INT = 100_000_000

BINARY = ("refuse", "keep")
"""What to do with bytes that are not UTF-8."""
_END, _KEY = "\0", "\1"


class Leaves:
    """The strings of a value, in the order of a walk, each followed by its separator."""

    def __init__(self, binary: str, skipped: frozenset[str] = frozenset()) -> None:
        self.parts: list[str] = []
        self.binary = binary
        self.skipped = skipped
        self._above: set[int] = set()

    def add(self, value: Any, depth: int = 0) -> None:
        """Append the leaves of `value`.

        Raises:
            Unredactable: cyclic, too deep, too many leaves, or bytes that are not UTF-8.
        """
        kind = type(value)
        if kind is str:
            self.parts += (value, _END)
        elif kind is dict:
            self._mapping(value, depth)
        elif kind is list or kind is tuple:
            self._items(value, depth)
        elif kind is int:
            if value >= _LEAST_INT:
                self.parts += (str(value), _END)
        elif value is None or kind is bool or kind is float:
            return
        else:
            self._other(value, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> None:
        if self.skipped and value.get("type") in self.skipped:
            return
        if depth >= _TRACKED:
            self._enter(value, depth)
        parts = self.parts
        for key, item in value.items():
            if type(key) is str:
                if type(item) is str:
                    parts += (key, _KEY, item, _END)
                    continue
                parts += (key, _KEY if type(item) is int and item >= _LEAST_INT else _END)
            else:
                self.add(key, depth + 1)
            self.add(item, depth + 1)
        if depth >= _TRACKED:
            self._above.discard(id(value))

    def _items(self, value: Iterable[Any], depth: int) -> None:
        if depth >= _TRACKED:
            self._enter(value, depth)
        parts = self.parts
        for item in value:
            if type(item) is str:
                parts += (item, _END)
            else:
                self.add(item, depth + 1)
        if depth >= _TRACKED:
            self._above.discard(id(value))

    def _enter(self, value: Any, depth: int) -> None:
        if id(value) in self._above:
            raise Unredactable("", "it contains itself")
        if depth > DEEPEST:
            raise Unredactable("", f"nested deeper than {DEEPEST} levels")
        if len(self.parts) > 2 * MOST:
            raise Unredactable("", f"more than {MOST} strings")
        self._above.add(id(value))

    def _other(self, value: Any, depth: int) -> None:
        if isinstance(value, Enum):
            return
        if isinstance(value, str):
            self.parts += (str.__str__(value), _END)
        elif isinstance(value, (bytes, bytearray)):
            self._bytes(value)
        elif isinstance(value, Mapping):
            self._mapping(value, depth)
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            self._items(value, depth)
        elif isinstance(value, int) and not isinstance(value, bool):
            if value >= _LEAST_INT:
                self.parts += (str(int(value)), _END)
        else:
            fields = fields_of(value)
            if fields is not None:
                if depth >= _TRACKED:
                    self._enter(value, depth)
                self._mapping(fields, depth + 1)
                if depth >= _TRACKED:
                    self._above.discard(id(value))

    def _bytes(self, value: bytes | bytearray) -> None:
        text = decoded(value)
        if text is not None:
            self.parts += (text, _END)
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


class Rebuild:
    """Builds a value anew from replaced leaves; unchanged parts are the original objects."""

    def __init__(self, leaves: Iterator[str], binary: str, skipped: frozenset[str]) -> None:
        self._next = leaves.__next__
        self._binary = binary
        self._skipped = skipped

    def of(self, value: Any, path: str) -> Any:
        """Return `value` with the next leaves in it, itself if none of them has changed."""
        kind = type(value)
        if kind is str:
            return self._next()
        if kind is dict:
            return self._mapping(value, path, dict)
        if kind is list:
            items = self._items(value, path)
            return value if items is None else items
        if kind is tuple:
            items = self._items(value, path)
            return value if items is None else tuple(items)
        if kind is int:
            return self._whole(value) if value >= _LEAST_INT else value
        if value is None or kind is bool or kind is float:
            return value
        return self._other(value, path)

    def _whole(self, value: int) -> Any:
        text = self._next()
        return value if text == str(int(value)) else text

    def _mapping(self, value: Mapping[Any, Any], path: str, build: Any) -> Any:
        if self._skipped and value.get("type") in self._skipped:
            return value
        made: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key = self._next() if type(key) is str else self.of(key, path)
            new = self.of(item, f"{path}.{key}" if new_key is key else f"{path}.{new_key}")
            changed = changed or new is not item or new_key is not key
            made[key if new_key is key else _unused(new_key, made, value)] = new
        return build(made) if changed else value

    def _items(self, value: Iterable[Any], path: str) -> list[Any] | None:
        made = []
        changed = False
        for index, item in enumerate(value):
            new = self.of(item, f"{path}[{index}]")
            changed = changed or new is not item
            made.append(new)
        return made if changed else None

    def _other(self, value: Any, path: str) -> Any:
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            text = self._next()
            return value if text == str.__str__(value) else text
        if isinstance(value, (bytes, bytearray)):
            return self._bytes(value)
        if isinstance(value, Mapping):
            return self._mapping(value, path, lambda made: _like(value, made, path))
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            items = self._items(value, path)
            return value if items is None else _sequence_like(value, items, path)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._whole(value) if value >= _LEAST_INT else value
        fields = fields_of(value)
        if fields is None:
            return value
        made = self._mapping(fields, path, dict)
        return value if made is fields else _instance_like(value, fields, made, path)

    def _bytes(self, value: bytes | bytearray) -> Any:
        text = decoded(value)
        if text is None:
            return value
        new = self._next()
        if new == text:
            return value
        made = new.encode("utf-8")
        return made if isinstance(value, bytes) else bytearray(made)


def _unused(key: Any, made: Mapping[Any, Any], old: Mapping[Any, Any]) -> Any:
    """Number a replaced key, so that two keys do not become one."""
    chosen, number = key, 1
    while chosen in made or chosen in old:
        number += 1
        chosen = f"{key}#{number}"
    return chosen


def _like(value: Mapping[Any, Any], made: dict[Any, Any], path: str) -> Any:
    if isinstance(value, MappingProxyType):
        return MappingProxyType(made)
    if isinstance(value, dict):
        try:
            new = copy.copy(value)
            new.clear()
            new.update(made)
        except Exception as error:  # a subclass may do anything in these methods
            raise Unredactable(path, f"a {type(value).__name__} cannot be rebuilt") from error
        return new
    return made


def _sequence_like(value: Any, items: list[Any], path: str) -> Any:
    try:
        if isinstance(value, tuple):
            return tuple.__new__(type(value), items)
        if isinstance(value, deque):
            return deque(items, value.maxlen)
        if type(value) in (set, frozenset):
            return type(value)(items)
        new = copy.copy(value)
        if isinstance(value, list):
            new[:] = items
            return new
        return type(value)(items)
    except Exception as error:  # a subclass may do anything in these methods
        raise Unredactable(path, f"a {type(value).__name__} cannot be rebuilt") from error


def _instance_like(value: Any, old: dict[str, Any], made: dict[str, Any], path: str) -> Any:
    changes = {name: made[name] for name in made if made[name] is not old.get(name)}
    if set(made) != set(old):
        raise Unredactable(path, f"the name of a field of a {type(value).__name__} is private data")
    try:
        if hasattr(type(value), "__pydantic_fields__"):
            return value.model_copy(update=changes)
        new = copy.copy(value)
        for name, item in changes.items():
            object.__setattr__(new, name, item)
    except Exception as error:  # a class may do anything when it is copied
        raise Unredactable(path, f"a {type(value).__name__} cannot be rebuilt") from error
    return new


def _by_leaf(found: list[Finding], parts: list[str]) -> dict[int, list[Finding]]:
    """Findings in the joined text by number of the leaf, in the offsets of the leaf."""
    by_leaf: dict[int, list[Finding]] = {}
    index, start = 0, 0
    end = len(parts[0])
    for first, last, category, subtype in found:
        while first > end:
            start = end + 1
            index += 2
            end = start + len(parts[index])
        here = Finding(first - start, min(last, end) - start, category, subtype)
        if index in by_leaf:
            by_leaf[index].append(here)
        else:
            by_leaf[index] = [here]
    return by_leaf


def redacted(
    value: Any,
    engine: Engine,
    kept: Collection[str] = (),
    binary: str = "refuse",
    skipped: frozenset[str] = frozenset(),
) -> tuple[Any, dict[int, list[Finding]]]:
    """Return (`value` with its findings replaced, findings by leaf).

    The very `value` and no findings if it is clean.
    """
    leaves = Leaves(binary, skipped)
    leaves.add(value)
    parts = leaves.parts
    found = located("".join(parts), engine, kept)
    if not found:
        return value, {}
    by_leaf = _by_leaf(found, parts)
    for index, here in by_leaf.items():
        parts[index] = replaced(parts[index], here)
    new = Rebuild(iter(parts[::2]), binary, skipped).of(value, "")
    return new, {index // 2: here for index, here in by_leaf.items()}


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
            if item >= _LEAST_INT:
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


def redact_tree(
    value: Any, categories: Iterable[str] | None = None, *, binary: str = "refuse"
) -> Any:
    """Return `value` with every finding in it replaced; the same object if there is none.

    Types are kept, and so are all parts that hold nothing. A whole number that is a finding
    becomes its placeholder. Keys that become equal are numbered. `binary="keep"` passes bytes that
    are not UTF-8 unchecked.

    Raises:
        ConfigError: an unknown category.
        DetectorFailed: a detector failed.
        Unredactable: cyclic, too deep, not UTF-8, or a class that cannot be rebuilt; `.path`.
    """
    if binary not in BINARY:
        raise ConfigError(f"binary: {binary!r} is none of {', '.join(BINARY)}")
    engine = engine_for(known(categories) if categories is not None else _DEFAULT)
    return redacted(value, engine, binary=binary)[0]
