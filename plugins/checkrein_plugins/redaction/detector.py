"""One detector: where to look, what a candidate looks like, and who decides on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Hit: TypeAlias = tuple[int, int, str]
"""(start, end, subtype) of an accepted candidate, in the shadow's offsets."""

CONTEXT = 96
"""Bytes in front of a candidate that a decision may depend on. A stream keeps as many."""


@dataclass(frozen=True, slots=True)
class Detector:
    """Finds one kind of value.

    `pattern` and `triggers` are RE2 syntax over the shadow's bytes. A piece of text is searched
    for `pattern` only if one of `triggers` occurs in it or in the `CONTEXT` bytes in front of it:
    short, free of context, and part of every match or of the words in front of it. `check` gets
    (data, start, end) of a match and returns the hit, or None; it may look at `CONTEXT` bytes in
    front, and behind it as far as the next joint. A value must not reach over a joint (see `pieces`).
    """

    name: str
    category: str
    pattern: bytes
    triggers: Sequence[bytes]
    check: Callable[[bytes, int, int], Hit | None]
    retry: bool = True
    """A refused candidate may hide another that starts inside it: search on from its second
    byte. Only for patterns whose matches are short, or the time would grow with their square."""


def before(data: bytes, start: int, size: int = 64) -> bytes:
    """Lower-cased bytes in front of `start`, within the same value of a tree."""
    text = data[max(0, start - size) : start]
    cut = text.rfind(b"\0")
    return (text[cut + 1 :] if cut >= 0 else text).lower()


def mentions(context: bytes, words: Sequence[bytes]) -> bool:
    """Whether one of `words` occurs in a lower-cased context."""
    return any(word in context for word in words)


def digits_of(data: bytes, start: int, end: int) -> bytes:
    """The digits of a stretch, without whatever separates them."""
    return data[start:end].translate(None, b" .-/()+\t")


_JOINTS = re.compile(rb'[\n"\x00]')


def behind(data: bytes, end: int, size: int = 2) -> bytes:
    """Bytes behind `end`, up to the first joint: what is behind that may not have arrived yet."""
    text = data[end : end + size]
    cut = _JOINTS.search(text)
    return text[: cut.start()] if cut else text


def glued(data: bytes, start: int, end: int) -> bool:
    """Whether a number goes on: as a decimal, a longer dashed id, or part of a name."""
    if start:
        left = data[start - 1]
        if left in b"_\\" or left in b".-" and data[start - 2 : start - 1].isdigit():
            return True
    right = data[end : end + 1]
    return right == b"_" or right in (b".", b"-") and data[end + 1 : end + 2].isdigit()
