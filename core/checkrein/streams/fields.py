"""Fields of a provider's chunks and items, which are dicts or objects of an SDK."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def _is_mapping(cls: type) -> bool:
    return issubclass(cls, Mapping)


@lru_cache(maxsize=1024)
def _is_unknown(cls: Any, key: str) -> bool:
    """Whether a class is a pydantic model's, and does not know the name.

    Then only an extra field can have it: asking there costs a twentieth of the model's own no.
    """
    asked = getattr(getattr(cls, "__getattr__", None), "__module__", "")
    return asked == "pydantic.main" and not (
        key in cls.model_fields or key in cls.__private_attributes__ or hasattr(cls, key)
    )


def get(item: Any, key: str) -> Any:
    """A field of an item, dict or object; None where it has none."""
    if type(item) is dict:  # most are: asking an abstract class costs more than the answer
        return item.get(key)
    if item is None:
        return None
    cls = item.__class__
    if _is_mapping(cls):
        return item.get(key)
    if _is_unknown(cls, key):
        extra = item.__pydantic_extra__
        return extra.get(key) if extra else None
    return getattr(item, key, None)


def with_fields(item: Any, /, **fields: Any) -> Any:
    """A copy of an item with other fields."""
    if isinstance(item, Mapping):
        return {**item, **fields}
    return item.model_copy(update=fields)


def found(item: Any, path: Sequence[str | int]) -> Any:
    """What stands at `path`; None where there is nothing."""
    for key in path:
        if isinstance(key, int):
            item = item[key] if isinstance(item, Sequence) and key < len(item) else None
        else:
            item = get(item, key)
        if item is None:
            return None
    return item


def replaced(item: Any, path: Sequence[str | int], value: Any) -> Any:
    """A copy of `item` with `value` at `path`; nothing else changes."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        made = list(item)
        made[key] = replaced(item[key], rest, value)
        return made
    new = replaced(get(item, key), rest, value)
    if isinstance(item, Mapping) or hasattr(item, "model_copy"):
        return with_fields(item, **{key: new})
    made_ = copy.copy(item)
    setattr(made_, key, new)
    return made_
