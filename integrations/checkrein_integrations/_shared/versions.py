"""Versions of frameworks, to compare them."""

from __future__ import annotations

import itertools
from functools import cache


@cache
def numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version; of a pre-release, those of what it leads to."""
    found = []
    for part in text.split("."):
        digits = "".join(itertools.takewhile(str.isdigit, part))
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)
