"""What stands in place of a value: its category, a part of it, or a keyed digest."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

from checkrein_plugins.redaction.pieces import GUARD
from checkrein_plugins.redaction.shadow import shadow

Mark: TypeAlias = Callable[[str], str]
"""Gets the value as it stands in the text; returns what stands there instead."""
Marks: TypeAlias = Mapping[str, Mark]
"""By category; a category that is not named gets its placeholder."""

LONG = GUARD - 16
"""Characters from which on a value gets its placeholder whatever the action: a stream may see its
beginning only, and must deliver what is delivered for the whole text."""
WHOLE = frozenset({"pem", "password"})
"""Subtypes that get their placeholder whatever the action. Of a password in a URL nothing is shown:
its last letter and the host behind it would look like an address."""
MOST_VISIBLE = 6
"""Characters that a mask may leave visible. Six digits are part of no value that is found."""
SHORTEST_KEY = 16
"""Bytes of a key for hashes, at least."""
_LETTERS = bytes.maketrans(b"0123456789abcdef", b"ghjkmnpqrstvwxyz")
_SEPARATORS = frozenset(" -./:@+()")


@functools.lru_cache(maxsize=256)
def placeholder(category: str) -> str:
    """What stands in place of a value as a rule: `[EMAIL]`."""
    return f"[{category.upper()}]"


def mark_of(value: str, category: str, subtype: str, marks: Marks | None) -> str:
    """What stands in place of `value`."""
    if marks is not None:
        make = marks.get(category)
        if make is not None and (make is same or (subtype not in WHOLE and len(value) < LONG)):
            return make(value)
    return placeholder(category)


def same(value: str) -> str:
    """The mark of a value that is passed on, and told."""
    return value


def mask(first: int, last: int) -> Mark:
    """Leave so many letters and digits visible, and signs between them: `**** **** **** 4242`.

    A value with fewer than twice as many is masked whole. Masking twice is masking once.
    """

    def make(value: str) -> str:
        places = [
            index for index, char in enumerate(value) if char == "*" or char not in _SEPARATORS
        ]
        shown: set[int] = set()
        if len(places) >= 2 * (first + last):
            shown = {*places[:first], *places[len(places) - last :]}
        return "".join(
            char
            if char in _SEPARATORS or (index in shown and char.isascii() and char.isalnum())
            else "*"
            for index, char in enumerate(value)
        )

    return make


class Hashes:
    """Keyed digests of values: equal values of a category get equal marks."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or os.urandom(32)

    def mark(self, category: str) -> Mark:
        """Marks like `[EMAIL#kq3…]`: 16 letters for 64 bits, none of them a digit."""

        def make(value: str) -> str:
            plain = _plain(value, category).encode("utf-8", "surrogatepass")
            message = category.encode() + b"\0" + plain
            digest = hmac.digest(self.key, message, hashlib.sha256)[:8].hex()
            letters = digest.encode().translate(_LETTERS).decode()
            return f"[{category.upper()}#{letters}]"

        return make


_EXACT = frozenset({"secret", "crypto", "url"})


def _plain(value: str, category: str) -> str:
    """One form for all ways to write a value: what look-alikes mean, no grouping."""
    text = shadow(value).data.decode("latin-1")
    if category in _EXACT or (not value.isascii() and "\xd7" in text):
        return text if "\xd7" not in text else value
    if category == "email":
        return text.lower()
    return "".join(char for char in text if char.isalnum()).upper() or text
