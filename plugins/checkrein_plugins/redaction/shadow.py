"""The text as the patterns see it: one Latin-1 byte a character, with a way back.

Patterns run on bytes, so that offsets need no counting of UTF-8. A text in ASCII without a
backslash is its own shadow. Otherwise characters are folded to what they stand for (full-width
forms, Unicode digits, dashes and spaces, look-alikes of `@` and `.`), invisible characters and
combining marks are left out, and the escapes of JSON are read as what they mean. Where that
changes the length, `Shadow.ends` leads back to the original offsets.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

LETTER = "\xff"
"""Stands for a letter of a script with upper and lower case (Cyrillic, Greek)."""
OTHER = "\xd7"
"""Stands for every other character: it is in no pattern's classes."""

INVISIBLE_RUN = 32
"""Longest run of invisible characters that is looked through; one more is a line break. It bounds
what a stream has to keep back."""

_INVISIBLE = (
    "\xad\u034f\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\u3164\ufe00-\ufe0f\ufe20-\ufe2f\ufeff"
    "\uffa0\U000e0000-\U000e0fff"
)
_ESCAPE = r"""\\{1,8}(?:u[0-9A-Fa-f]{4}|["/bfnrt])"""
_ESCAPES_ONLY = re.compile(_ESCAPE)
_SHRINKS = re.compile(rf"[{_INVISIBLE}]{{1,{INVISIBLE_RUN + 1}}}|{_ESCAPE}")
_HAS_INVISIBLE = re.compile(f"[{_INVISIBLE}]")
_FOLDABLE = re.compile("[\x85\xa0\xb2-\xb4\xb7\xb9\u0100-\U0010ffff]{1,1024}")

_MEANINGS = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "/": "/", "b": "\n", "f": "\n"}

_LOOKALIKES = {
    "\u3002": ".", "\uff61": ".", "\u2024": ".", "\u00b7": ".", "\u30fb": ".", "\u0589": ":",
    "\ufe52": ".", "\u0701": ".", "\u0660": "0", "\ufe6b": "@", "\uff20": "@", "\u24d0": "a",
    "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u00b4": "'", "\u201c": '"', "\u201d": '"',
    "\u201e": '"', "\u2212": "-", "\u2043": "-", "\u02d7": "-", "\ufe63": "-", "\u2044": "/",
    "\u2215": "/", "\ua789": ":", "\u02d0": ":", "\u2236": ":", "\ufe55": ":",
    "\u0131": "i", "\u2028": "\n", "\u2029": "\n", "\x85": "\n",
}  # fmt: skip
"""Characters that look like a sign that addresses and numbers are made with, beyond what Unicode
itself calls compatible (UTS 39 lists them as confusable)."""


class _Fold(dict[int, str]):
    """Fold table for `str.translate`, filled as characters are met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = _LOOKALIKES.get(char) or _folded(char)
        if len(self) < 1 << 16:
            self[code] = folded
        return folded


def _folded(char: str) -> str:
    digit = unicodedata.digit(char, None)
    if digit is not None:
        return str(int(digit))
    compatible = unicodedata.normalize("NFKC", char)
    if compatible[0] < "\x80" and (len(compatible) == 1 or compatible.isalpha()):
        return compatible[0]
    category = unicodedata.category(char)
    if category == "Zs":
        return " "
    if category == "Pd":
        return "-"
    base = unicodedata.normalize("NFKD", char)[0]
    if base.isascii() and base.isalpha():
        return base
    if category in ("Lu", "Ll", "Lt"):
        return LETTER
    return char if char <= "\xff" else OTHER


_FOLD = _Fold()


class Shadow(NamedTuple):
    """A text as bytes for the patterns, and the way back to its own offsets."""

    data: bytes
    starts: list[int] | None = None
    """Offsets in `data` from which on the shift of the same index applies; None = the offsets
    are the text's own."""
    shifts: Sequence[int] = ()
    widths: Mapping[int, int] = MappingProxyType({})
    """Length in the text of what one byte stands for, where it is not 1."""

    def start(self, offset: int) -> int:
        """Offset in the text of the character that `data[offset]` stands for."""
        if self.starts is None:
            return offset
        return offset + self.shifts[bisect_right(self.starts, offset) - 1]

    def end(self, offset: int) -> int:
        """Offset in the text behind the character that `data[offset - 1]` stands for."""
        if self.starts is None or offset == 0:
            return offset
        return self.start(offset - 1) + self.widths.get(offset - 1, 1)


def shadow(text: str) -> Shadow:
    """Return the shadow of `text`.

    Never fails: lone surrogates and everything else outside the tables stand as `OTHER`.
    """
    if text.isascii():
        if "\\" not in text:
            return Shadow(text.encode("ascii"))
    elif not _FOLDABLE.search(text) and "\\" not in text and "\xad" not in text:
        return Shadow(text.encode("latin-1"))
    if "\\" in text or _HAS_INVISIBLE.search(text):
        return _shrunk(text)
    return Shadow(_fold(text).encode("latin-1"))


def plain(text: str, shade: Shadow) -> str:
    """`text` as one's own patterns see it: a character for each byte of its shadow.

    Invisible characters are left out and escapes read, as there; signs that mean one of ASCII
    (full-width forms, digits, look-alikes) stand as that, and everything else as it is.
    """
    if shade.starts is not None:
        text = "".join(_visible(text))
    return text if text.isascii() else _FOLDABLE.sub(_to_ascii, text)


def _to_ascii(match: re.Match[str]) -> str:
    return "".join(map(_ascii_of, match[0]))


def _ascii_of(char: str) -> str:
    folded = _FOLD[ord(char)]
    if folded >= "\x80":
        return char
    # A letter with a mark, or a sign made of letters, stays what it is.
    same = not folded.isalpha() or unicodedata.normalize("NFKC", char) == folded
    return folded if same else char


def _visible(text: str) -> Iterator[str]:
    """The pieces of a text of which something is left out or read as something else."""
    last = 0
    for match in (_ESCAPES_ONLY if text.isascii() else _SHRINKS).finditer(text):
        yield text[last : match.start()]
        yield _meant(match[0])
        last = match.end()
    yield text[last:]


def _meant(found: str) -> str:
    """What an escape or a run of invisible characters stands for."""
    if found[0] != "\\":
        return "" if len(found) <= INVISIBLE_RUN else "\n"
    code = found.lstrip("\\")
    char = chr(int(code[1:], 16)) if code[0] == "u" else _MEANINGS[code]
    return "" if _HAS_INVISIBLE.match(char) else char


def _fold(text: str) -> str:
    return _FOLDABLE.sub(_translate, text)


def _translate(match: re.Match[str]) -> str:
    return match[0].translate(_FOLD)


def _shrunk(text: str) -> Shadow:
    """Read escapes and drop invisible characters, noting where offsets move."""
    pieces: list[str] = []
    starts, shifts = [0], [0]
    widths: dict[int, int] = {}
    size = last = 0
    shrinks = _ESCAPES_ONLY if text.isascii() else _SHRINKS
    for match in shrinks.finditer(text):
        start, end = match.span()
        pieces.append(text[last:start])
        size += start - last
        char = _meant(match[0])
        if char:
            pieces.append(char)
            starts.append(size)
            shifts.append(start - size)
            widths[size] = end - start
            size += 1
        starts.append(size)
        shifts.append(end - size)
        last = end
    pieces.append(text[last:])
    return Shadow(_fold("".join(pieces)).encode("latin-1"), starts, shifts, widths)
