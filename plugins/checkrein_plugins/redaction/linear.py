"""RE2 as it is used here: Latin-1 bytes, no captures, spans only; time linear in the text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import re2  # type: ignore[import-untyped]  # ships no types

MEMORY = 64 << 20
"""Bytes that one RE2 automaton may take. At RE2's own 8 MB a set of triggers is rebuilt all the
time on random text (seconds for a megabyte)."""


def options(*, lines: bool = False, utf8: bool = False) -> re2.Options:
    """RE2 options of all patterns here: Latin-1 bytes, no captures, enough memory.

    `lines`: a match does not reach over a line break. `utf8`: the bytes are UTF-8.
    """
    chosen = re2.Options()
    encoding = re2.Options.Encoding
    chosen.encoding = encoding.UTF8 if utf8 else encoding.LATIN1
    chosen.max_mem = MEMORY
    chosen.log_errors = False
    chosen.never_capture = True
    chosen.never_nl = lines
    return chosen


ANCHOR: Any = getattr(getattr(getattr(re2, "_re2", None), "RE2", None), "Anchor", None)
"""First argument of what `matcher` returns."""
if ANCHOR is not None:
    ANCHOR = ANCHOR.UNANCHORED


def matcher(
    pattern: bytes, *, lines: bool = False, utf8: bool = False
) -> Callable[[Any, bytes, int, int], Sequence[tuple[int, int]]]:
    """Compile `pattern` to a function (ANCHOR, data, start, end) -> spans, the match's own first.

    The span is (-1, -1) if there is no match.

    Raises:
        re2.error: RE2 refuses the pattern.
    """
    compiled = re2.compile(pattern, options(lines=lines, utf8=utf8))
    raw = getattr(getattr(compiled, "_regexp", None), "Match", None)
    if raw is None or ANCHOR is None:
        return functools.partial(_match, compiled)
    # What `search` itself calls, without a generator and a match object: 0.8 us instead of 1.2.
    return raw  # type: ignore[no-any-return]  # re2 has no types


def refusal(pattern: bytes, *, utf8: bool = False) -> str:
    """Why RE2 does not take `pattern`; "" if it does."""
    try:
        re2.compile(pattern, options(utf8=utf8))
        if not utf8:
            Triggers((pattern,))
    except re2.error as error:
        return f"RE2 refuses the pattern: {_told(error)}"
    return ""


def _told(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return told.decode("latin-1") if isinstance(told, bytes) else str(told)


def prefix(pattern: bytes) -> Callable[[bytes, int], int]:
    """Compile `pattern` to a function (data, start) -> end of the match that begins at `start`.

    The end is `start` if there is none.
    """
    match = re2.compile(pattern, options()).match

    def end_of(data: bytes, start: int) -> int:
        found = match(data, start)
        return int(found.end()) if found else start

    return end_of


class Triggers:
    """A set of patterns: which of them occur in a text. Compiled when it is made."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        chosen = re2.Set.SearchSet(options())
        self.canary = -1
        for pattern in (*patterns, rb"\z"):
            self.canary = chosen.Add(pattern)
        chosen.Compile()
        # What `Match` itself calls for bytes.
        raw = getattr(getattr(chosen, "_set", None), "Match", None)
        self.match: Callable[[bytes], list[int] | None] = raw or chosen.Match
        """Indexes of the patterns that occur. `canary` is always one of them: an answer without
        it means that RE2 has failed (out of memory), which it reports as "no match"."""


def _match(
    compiled: Any, _anchor: Any, data: bytes, start: int, end: int
) -> Sequence[tuple[int, int]]:
    """Stand in for RE2's own function, with its arguments."""
    match = compiled.search(data, start, end)
    return (match.span(),) if match else ((-1, -1),)


class Words:
    """Words that speak for a candidate when one of them stands in front of it."""

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern
        self._match: Callable[[Any, bytes, int, int], Sequence[tuple[int, int]]] | None = None

    def before(self, data: bytes, start: int, size: int = 64) -> bool:
        """Whether one occurs in the `size` bytes in front of `start`, within the same value."""
        low = start - size if start > size else 0
        cut = data.rfind(b"\0", low, start)
        return self.within(data, cut + 1 if cut >= 0 else low, start)

    def within(self, data: bytes, start: int, end: int) -> bool:
        """Whether one occurs in `data[start:end]`."""
        if self._match is None:
            self._match = matcher(b"(?i)" + self.pattern)
        return self._match(ANCHOR, data, start, end)[0][0] >= 0
