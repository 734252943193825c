"""What is plain data."""

from __future__ import annotations

from typing import Any

from checkrein.codec import SCALARS


def is_plain(value: Any) -> bool:
    """Whether it is JSON data of exact built-in types."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is list:
        return all(map(is_plain, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(is_plain, value.values()))
    return False
