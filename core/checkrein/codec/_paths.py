"""Where in a value something was refused: built only when it is, on the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
        self.inside: list[object] = []

    def at(self, step: str, container: object) -> None:
        """Add a step; the container is kept, so that a loop shows when it comes again."""
        self.steps.append(step)
        self.inside.append(container)

    def path(self, start: str = "") -> str:
        """`start`, then the steps from the outside in."""
        steps = self.steps[::-1]
        loop = _loop(self.inside[::-1])
        if loop is not None:
            self.why = "it contains itself"
            steps = steps[:loop]
        elif len(steps) > 20:
            steps = [*steps[:20], "..."]
        return (start + "".join(steps)).lstrip(".")


def _loop(containers: Sequence[object]) -> int | None:
    """The first position at which a container comes back inside itself."""
    known: set[int] = set()
    for position, container in enumerate(containers):
        if id(container) in known:
            return position
        known.add(id(container))
    return None


def key_step(key: object, container: Iterable[object]) -> str:
    """A step by a dict's key. Keys that do not look like names are data: they are not shown."""
    if type(key) is str and _SHOWN.match(key):
        return "." + key
    position = next((n for n, one in enumerate(container) if one is key), 0)
    return f"{{key {position}}}"


def too_deep(kind: str) -> Refused:
    """The refusal of a value with too many levels."""
    return Refused(kind, f"nested more than {MAX_DEPTH} levels deep")
