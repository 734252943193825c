"""Where in a value something was refused: built only when it is, on the way out."""

from __future__ import annotations

import re
from collections.abc import Sequence

TAG = "$cr"
"""The one reserved key of a tree."""

MAX_DEPTH = 200
"""Levels of containers in a tree; far above what tools use, far below Python's stack."""

_SHOWN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")


class Refused(Exception):
    """Internal: a value or tree is refused; every level adds its step while it unwinds."""

    def __init__(self, kind: str, why: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.why = why
        self.steps: list[str] = []
        self.seen: list[int] = []

    def path(self, start: str = "") -> str:
        """`start`, then the steps from the outside in."""
        steps = self.steps[::-1]
        loop = _loop(self.seen[::-1])
        if loop is not None:
            self.why = "it contains itself"
            steps = steps[:loop]
        elif len(steps) > 20:
            steps = steps[:20] + ["..."]
        return (start + "".join(steps)).lstrip(".")


def _loop(seen: Sequence[int]) -> int | None:
    """The first position at which a container comes back inside itself."""
    known: set[int] = set()
    for position, one in enumerate(seen):
        if one in known:
            return position
        known.add(one)
    return None


def key_step(key: object, position: int) -> str:
    """A step by a dict's key. Keys that do not look like names are data: they are not shown."""
    if type(key) is str and _SHOWN.match(key):
        return "." + key
    return f"{{key {position}}}"


def too_deep(kind: str) -> Refused:
    """The refusal of a value with too many levels."""
    return Refused(kind, f"nested more than {MAX_DEPTH} levels deep")
