"""How unusual a call is beside the session's earlier ones: plain statistics, no model.

Each trait gives a score from 0 to 1, and they are taken together as independent reasons:
`1 - (1 - a)(1 - b)...`. Numbers and lengths are compared with the median, in median absolute
deviations (x 1.4826: the standard deviation, if they were normally distributed), which a few
outliers do not move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

LEAST = 5
"""Earlier values of an argument without which its next one is not judged."""

USUAL = 3.0
"""Deviations that nobody wonders about; from there on 1 - exp(-(z - 3) / 3)."""

NEW_TOOL = 0.6
"""A tool that the session has not used in `LEAST` calls or more."""

NEW_VALUE = 0.7
"""A new text where there were at most two different ones in `2 * LEAST` calls."""

OTHER_KIND = 0.9
"""A text where there were only numbers, or the other way round."""

LEAVES = 200
"""Values of a call that are looked at."""


def unusual(
    name: str, arguments: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]
) -> tuple[float, list[str]]:
    """(score, what is unusual, by name of the argument) of a call beside `earlier` intents."""
    alike = [view for view in earlier if view.get("name") == name]
    traits: list[tuple[float, str]] = []
    if len(earlier) >= LEAST and not alike:
        traits.append((NEW_TOOL, f"{name} has not been used before"))
    before: dict[str, list[Any]] = {}
    for view in alike:
        known = view.get("arguments")
        for path, value in _leaves(known if isinstance(known, Mapping) else {}, ""):
            before.setdefault(path, []).append(value)
    for path, value in _leaves(arguments, ""):
        found = _traits(value, before.get(path, ()))
        traits += [(score, f"{path} {why}") for score, why in found if score]
    left = 1.0
    for score, _ in traits:
        left *= 1 - score
    traits.sort(reverse=True)
    return 1 - left, [why for _, why in traits]


def _traits(value: Any, before: Sequence[Any]) -> list[tuple[float, str]]:
    """One value beside earlier ones in the same place."""
    text = isinstance(value, str)
    if len(before) >= LEAST and not any(isinstance(v, str) is text for v in before):
        return [(OTHER_KIND, "is of another kind than its earlier values")]
    if not text:
        numbers = [float(v) for v in before if type(v) in (int, float)]
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        return [(_far(number, numbers, 0.0), "is unusually far from its earlier values")]
    texts = [v for v in before if isinstance(v, str)]
    few = len(texts) >= 2 * LEAST and len(set(texts)) <= 2
    length = _far(math.log2(len(value) + 1), [math.log2(len(t) + 1) for t in texts], 0.5)
    return [
        (NEW_VALUE if few and value not in texts else 0.0, "has a value that it never had"),
        (length, "is of an unusual length"),
    ]


def _far(value: float, before: Sequence[float], least: float) -> float:
    """The score of a number; `least`: spread below which nothing is unusual."""
    if len(before) < LEAST:
        return 0.0
    if not math.isfinite(value):
        return 1.0
    middle = median(before)
    spread = 1.4826 * median(abs(v - middle) for v in before)
    # Equal values have no spread: a twentieth of them is none to wonder about.
    z = abs(value - middle) / max(spread, abs(middle) / 20, least, 1e-9)
    return 0.0 if z <= USUAL else 1 - math.exp((USUAL - z) / 3)


def _leaves(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(path, text or number) of all that lies inside; items of a list have one path."""
    count = 0
    todo: list[tuple[str, Any, int]] = [(path, value, depth)]
    while todo and count < LEAVES:
        path, value, depth = todo.pop()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            count += 1
            yield path, value
        elif depth < 16 and isinstance(value, Mapping):
            below = [(f"{path}.{k}" if path else str(k), v, depth + 1) for k, v in value.items()]
            todo.extend(reversed(below))
        elif depth < 16 and isinstance(value, (list, tuple)):
            todo.extend((f"{path}[]", item, depth + 1) for item in reversed(value))
