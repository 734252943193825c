"""One detector: where to look, what a candidate looks like, and who decides on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from checkrein_plugins.redaction.findings import Finding

Check: TypeAlias = Callable[[bytes, int, int], Finding | None]
"""Gets the text and the span of a candidate; returns what it holds, or None."""

WORD, LINE, TEXT = 0, 1, 2
"""What a value may hold: nothing that is a joint (see `pieces`), words and quotes, line breaks."""

CONTEXT = 96
"""Bytes in front of a candidate that a decision may depend on. A stream keeps as many."""


@dataclass(frozen=True, slots=True)
class Detector:
    """Finds one kind of value.

    `pattern` and `triggers` are RE2 syntax over the shadow's bytes. A stretch of text is searched
    for `pattern` only if one of `triggers` occurs in it or in the `CONTEXT` bytes in front of it:
    short, and free of context. A value counts only if one occurs in it, in the `CONTEXT` bytes in
    front of it or in the word behind it: so what is found does not depend on what else is searched
    at the same time, nor on where a text is cut. `check` decides
    on a match; it may look at `CONTEXT` bytes in front, and behind it as far as the next joint.
    What it returns must not reach over a joint (see `pieces`).
    """

    name: str
    categories: frozenset[str]
    pattern: bytes
    triggers: Sequence[bytes]
    check: Check
    retry: bool = True
    """A refused candidate may hide another that starts inside it: search on from its second
    byte. Only for patterns whose matches are short, or the time would grow with their square."""
    exact: bool = False
    """Every value that `check` accepts contains a trigger: it need not be looked for again."""
    sure: Callable[[bytes, int, int], bool] | None = None
    """Whether a stretch holds a trigger, told by its form alone; False = a search must tell."""
    reach: int = WORD
    """What a value may hold: see `WORD`, `LINE`, `TEXT`. The widest counts for all detectors."""
    lookback: bool = False
    """A match may begin in front of the stretch: its value stands behind words in the pattern."""


def before(data: bytes, start: int, size: int = 64) -> bytes:
    """Lower-cased bytes in front of `start`, within the same value of a tree."""
    text = data[start - size if start > size else 0 : start]
    cut = text.rfind(b"\0")
    return (text[cut + 1 :] if cut >= 0 else text).lower()


_JOINTS = re.compile(rb'[\n"\x00]')


def behind(data: bytes, end: int, size: int = 2) -> bytes:
    """Bytes behind `end`, up to the first joint: what is behind that may not have arrived yet."""
    text = data[end : end + size]
    cut = _JOINTS.search(text)
    return text[: cut.start()] if cut else text


def digits_of(data: bytes, start: int, end: int) -> bytes:
    """The digits of a stretch, without whatever separates them."""
    return data[start:end].translate(None, b" .-/()+\t")


def glued(data: bytes, start: int, end: int) -> bool:
    """Whether a number goes on: as a decimal, a longer dashed id, or part of a name."""
    if start:
        left = data[start - 1]
        if left in b"_\\" or (left in (45, 46) and data[start - 2 : start - 1].isdigit()):
            return True
    right = data[end : end + 1]
    return right == b"_" or (right in (b".", b"-") and data[end + 1 : end + 2].isdigit())


def quiet(data: bytes, start: int, end: int) -> bool:
    """Whether a value stands alone: between spaces, quotes, or the marks of a table."""
    left, right = data[start - 1 : start] if start else b"", behind(data, end, 1)
    return (not left or left in b" \t\n\"':|,=\0\1(>") and (not right or right in b" \t',|;.?!)<-")


_HEX_GROUP = re.compile(rb"(?=[A-Fa-f]{0,3}[0-9])(?=[0-9]{0,3}[A-Fa-f])[0-9A-Fa-f]{4}")


def in_column(data: bytes, start: int, end: int) -> bool:
    """Whether groups of four digits stand beside hexadecimal ones: in a table, or a dump."""
    if data[start + 4] != 32:
        return False
    left = data[start - 5 : start - 1] if data[start - 1 : start] in (b" ", b"\n") else b""
    if left and _HEX_GROUP.fullmatch(left):
        return True
    return data[end : end + 1] == b" " and bool(_HEX_GROUP.match(behind(data, end, 5)[1:]))
