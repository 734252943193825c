"""A nested value with some of its leaves replaced: copies along the changed paths only."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

from checkrein_plugins.redaction.faults import Unredactable
from checkrein_plugins.redaction.leaves import LEAST_INT, decoded, fields_of

_Path: TypeAlias = Any
"""Where a value stands: "" at the top, else a pair of the path around it and what follows."""


class Rebuild:
    """Builds a value anew from the texts of its leaves, None for one that has not changed."""

    def __init__(self, leaves: Iterator[str | None], binary: str, skipped: frozenset[str]) -> None:
        self._next = leaves.__next__
        self._binary = binary
        self._skipped = skipped

    def of(self, value: Any, path: _Path) -> Any:
        """Return `value` with the next leaves in it, itself if none of them has changed."""
        kind = type(value)
        if kind is str:
            text = self._next()
            return value if text is None else text
        if kind is dict:
            return self._mapping(value, path, dict)
        if kind is MappingProxyType:
            return self._mapping(value, path, MappingProxyType)
        if kind is list:
            items = self._items(value, path)
            return value if items is None else items
        if kind is tuple:
            items = self._items(value, path)
            return value if items is None else tuple(items)
        if kind is int:
            return self._whole(value) if value >= LEAST_INT else value
        if value is None or kind is bool or kind is float:
            return value
        return self._other(value, path)

    def _whole(self, value: int) -> Any:
        text = self._next()
        return value if text is None else text

    def _mapping(self, value: Mapping[Any, Any], path: _Path, build: Any) -> Any:
        if self._skipped and value.get("type") in self._skipped:
            return value
        following = self._next
        changes: dict[Any, Any] = {}
        names: dict[Any, Any] = {}
        for key, item in value.items():
            if type(key) is str:
                text = following()
                new_key = key if text is None else text
            else:
                new_key = self.of(key, path)
            if type(item) is str:
                text = following()
                if text is not None:
                    changes[key] = text
            elif item is not None and item is not True and item is not False:
                new = self.of(item, (path, ".", new_key))
                if new is not item:
                    changes[key] = new
            if new_key is not key:
                names[key] = new_key
        if not changes and not names:
            return value
        if not names:
            return {**value, **changes} if build is dict else build({**value, **changes})
        made: dict[Any, Any] = {}
        for key, item in value.items():
            new_key = names.get(key, key)
            made[key if new_key is key else _unused(new_key, made, value)] = changes.get(key, item)
        return build(made)

    def _items(self, value: Iterable[Any], path: _Path) -> list[Any] | None:
        following = self._next
        made = []
        changed = False
        for index, item in enumerate(value):
            if type(item) is str:
                new = following()
                if new is None:
                    new = item
                else:
                    changed = True
            else:
                new = self.of(item, (path, "[", index))
                changed = changed or new is not item
            made.append(new)
        return made if changed else None

    def _other(self, value: Any, path: _Path) -> Any:
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            text = self._next()
            return value if text is None else text
        if isinstance(value, (bytes, bytearray)):
            return self._bytes(value)
        if isinstance(value, Mapping):
            return self._mapping(value, path, lambda made: _like(value, made, path))
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            items = self._items(value, path)
            return value if items is None else _sequence_like(value, items, path)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._whole(value) if value >= LEAST_INT else value
        fields = fields_of(value)
        if fields is None:
            return value
        made = self._mapping(fields, path, dict)
        return value if made is fields else _instance_like(value, fields, made, path)

    def _bytes(self, value: bytes | bytearray) -> Any:
        if decoded(value) is None:
            return value
        new = self._next()
        if new is None:
            return value
        made = new.encode("utf-8")
        return made if isinstance(value, bytes) else bytearray(made)


def _told(path: _Path) -> str:
    """A path as messages show it: `.a[0].b`."""
    steps: list[str] = []
    while path != "":
        path, mark, step = path
        steps.append(f"[{step}]" if mark == "[" else f".{step}")
    return "".join(reversed(steps))


def _unused(key: Any, made: Mapping[Any, Any], old: Mapping[Any, Any]) -> Any:
    """Number a replaced key, so that two keys do not become one."""
    chosen, number = key, 1
    while chosen in made or chosen in old:
        number += 1
        chosen = f"{key}#{number}"
    return chosen


def _like(value: Mapping[Any, Any], made: dict[Any, Any], path: _Path) -> Any:
    if isinstance(value, dict):
        try:
            new = copy.copy(value)
            new.clear()
            new.update(made)
        except Exception as error:  # a subclass may do anything in these methods
            raise Unredactable(
                _told(path), f"a {type(value).__name__} cannot be rebuilt"
            ) from error
        return new
    return made


def _sequence_like(value: Any, items: list[Any], path: _Path) -> Any:
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
        raise Unredactable(_told(path), f"a {type(value).__name__} cannot be rebuilt") from error


def _instance_like(value: Any, old: dict[str, Any], made: dict[str, Any], path: _Path) -> Any:
    changes = {name: made[name] for name in made if made[name] is not old.get(name)}
    if set(made) != set(old):
        raise Unredactable(
            _told(path), f"the name of a field of a {type(value).__name__} is private data"
        )
    try:
        if hasattr(type(value), "__pydantic_fields__"):
            return value.model_copy(update=changes)
        new = copy.copy(value)
        for name, item in changes.items():
            object.__setattr__(new, name, item)
    except Exception as error:  # a class may do anything when it is copied
        raise Unredactable(_told(path), f"a {type(value).__name__} cannot be rebuilt") from error
    return new
