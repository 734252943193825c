"""Pages: a cursor is the number of the last row of the page before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from checkrein.errors import ConfigError
from checkrein.store import Page


def place_of(after: str | None) -> int | None:
    """The number that `after` stands for. Raises `ConfigError` for anything but a page's `next`."""
    if after is None:
        return None
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise ConfigError("after: not the `next` of an earlier page")
    return int(after)


def page_of(
    rows: Sequence[tuple[Any, ...]], limit: int, make: Callable[[tuple[Any, ...]], Any]
) -> Page:
    """A page of `limit` rows out of up to one more. Each row begins with its number."""
    found = [make(row) for row in rows[:limit]]
    return Page(found, str(rows[limit - 1][0]) if len(rows) > limit > 0 else None)
