"""Which tools a guard looks at, decided once per name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from checkrein.errors import ConfigError
from checkrein_plugins._patterns import fold_pattern, globs, names

T = TypeVar("T")

KEPT = 4096
"""Names that are remembered; then the memory starts afresh: a model can make names up."""


class PerName(Generic[T]):
    """What `find` gives for a name, asked once for each."""

    __slots__ = ("_find", "_known")

    def __init__(self, find: Callable[[str], T]) -> None:
        self._find = find
        self._known: dict[str, T] = {}

    def __call__(self, name: str) -> T:
        """What applies to `name`."""
        try:
            return self._known[name]
        except KeyError:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[name] = self._find(name)
            return found


def selected(
    tools: Sequence[str] | None, exempt: Sequence[str] | None, where: str
) -> PerName[bool]:
    """Whether a guard looks at a tool: one that `tools` matches folded and `exempt` not exactly.

    `tools=None`: every tool. Raises `ConfigError` for a pattern that names no tool, and for one
    that stands in both lists.
    """
    for key, patterns in (("tools", tools or ()), ("exempt", exempt or ())):
        for index, pattern in enumerate(patterns):
            if not fold_pattern(pattern):
                raise ConfigError(f"{where}.{key}[{index}]: {pattern!r} names no tool")
    both = set(tools or ()) & set(exempt or ())
    if both:
        raise ConfigError(f"{where}.exempt: {min(both)!r} stands in tools too")
    wanted = names(tools) if tools is not None else None
    spared = globs(exempt) if exempt else None

    def looks(name: str) -> bool:
        return (wanted is None or wanted(name)) and not (spared is not None and spared(name))

    return PerName(looks)


def first_match(values: Mapping[str, T], where: str) -> PerName[T | None]:
    """The value of the pattern that matches a name, folded: a name without wildcards first.

    Raises `ConfigError` for a pattern that names no tool.
    """
    for pattern in values:
        if not fold_pattern(pattern):
            raise ConfigError(f"{where}: {pattern!r} names no tool")
    order = sorted(values, key=lambda p: (("*" in p or "?" in p), -len(p)))
    matchers = [(names([pattern]), values[pattern]) for pattern in order]

    def find(name: str) -> T | None:
        for matches, value in matchers:
            if matches(name):
                return value
        return None

    return PerName(find)
