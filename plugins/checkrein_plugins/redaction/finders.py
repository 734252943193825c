"""Finders: whoever looks for categories of one's own in the text as people read it.

A detector of the engine sees bytes, and finds what can be written with them. A finder gets
strings: patterns with letters of any script, functions, models of language. It is asked about
one line at a time (or about the whole text, if its values hold line breaks), however the text
arrives, so that what it finds does not depend on where a stream was cut.

A finder may fail. That is an error, never "nothing found", unless its rule says that it may be
missed: then it is named in `Reading.missed`, and what the others find counts.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from checkrein_plugins.redaction.detector import LINE, TEXT
from checkrein_plugins.redaction.faults import DetectorFailed
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import ANCHOR

Find: TypeAlias = Callable[[str], Iterable[tuple[int, int, str]]]
"""Gets a text; yields (start, end, category) of what it finds in it."""

MOST_BUSY = 8
"""Calls of one finder that may hang; the next ones fail at once, or threads would pile up."""
_BREAKS = {LINE: re.compile("[\n\0\1]"), TEXT: re.compile("[\0\1]")}


@dataclass(frozen=True, slots=True)
class Finder:
    """One finder and what holds for it."""

    name: str
    """As messages and the journal call it."""
    find: Find
    reach: int = LINE
    timeout: float | None = None
    """Seconds that one text may take. With one it runs on a thread of its own."""
    may_miss: bool = False
    """If it fails, the text passes as far as it is concerned, marked `unchecked`."""


class Reading:
    """One text as finders see it: a character for each byte of the shadow.

    `shift` characters of context stand in front of it in the engine's bytes. `missed` gets the
    names of finders that failed and may; None = none may.
    """

    __slots__ = ("_finders", "_missed", "_shift", "_text")

    def __init__(
        self, finders: tuple[Finder, ...], text: str, shift: int, missed: set[str] | None
    ) -> None:
        self._finders = finders
        self._text = text
        self._shift = shift
        self._missed = missed

    def between(self, start: int, end: int) -> list[Finding]:
        """What is found in `[start, end)`, in the engine's offsets.

        Raises:
            DetectorFailed: a finder failed that may not be missed.
        """
        found: list[Finding] = []
        for finder in self._finders:
            try:
                for first, text in self._units(start - self._shift, end - self._shift, finder):
                    offset = first + self._shift
                    for low, high, category in _asked(finder, text):
                        found.append(Finding(low + offset, high + offset, category, "custom"))
            except DetectorFailed:
                if self._missed is None or not finder.may_miss:
                    raise
                self._missed.add(finder.name)
        return found

    def _units(self, start: int, end: int, finder: Finder) -> Iterator[tuple[int, str]]:
        for match in _BREAKS[finder.reach].finditer(self._text, start, end):
            if match.start() > start:
                yield start, self._text[start : match.start()]
            start = match.end()
        if end > start:
            yield start, self._text[start:end]


def _asked(finder: Finder, text: str) -> list[tuple[int, int, str]]:
    """What a finder says, checked. Raises `DetectorFailed`."""
    try:
        if finder.timeout is None:
            found = list(finder.find(text))
        else:
            found = _in_time(finder, text, finder.timeout)
    except DetectorFailed:
        raise
    except Exception as error:
        # Its message may hold the text, so only the type is told.
        raise DetectorFailed(f"{finder.name} ({type(error).__name__})") from error
    for row in found:
        if not _sound(row, len(text)):
            raise DetectorFailed(f"{finder.name} (it answered with something that is no place)")
    return found


def _sound(row: Any, size: int) -> bool:
    if type(row) is not tuple or len(row) != 3 or type(row[2]) is not str:
        return False
    start, end, _ = row
    return type(start) is int and type(end) is int and 0 <= start < end <= size


_busy: dict[int, int] = {}
"""Threads that run a function, by the function: one that hangs does not stop another's namesake."""
_lock = threading.Lock()


def _in_time(finder: Finder, text: str, timeout: float) -> list[tuple[int, int, str]]:
    """Run a finder on a thread: a call that hangs is left behind, what it says is dropped."""
    result: list[Any] = []
    done = threading.Event()
    asked = id(finder.find)  # alive as long as one of its threads

    def run() -> None:
        try:
            result.append(list(finder.find(text)))
        except Exception as error:  # noqa: BLE001 - handed over to the caller's thread
            result.append(error)
        finally:
            with _lock:
                _busy[asked] -= 1
                if not _busy[asked]:
                    del _busy[asked]
            done.set()

    with _lock:
        if _busy.get(asked, 0) >= MOST_BUSY:
            raise DetectorFailed(f"{finder.name} (it hangs)")
        _busy[asked] = _busy.get(asked, 0) + 1
    threading.Thread(target=run, name=f"checkrein {finder.name}", daemon=True).start()
    if not done.wait(timeout):
        raise DetectorFailed(f"{finder.name} (no answer in {timeout:g} s)")
    if isinstance(result[0], Exception):
        raise result[0]
    return list(result[0])


def matching(
    match: Any, name: str, wanted: Callable[[str], bool] | None = None, whole: bool = False
) -> Find:
    """A pattern over the text itself: spans of RE2, in characters. `whole`: words only."""

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        data = text.encode("utf-8", "replace")  # a lone surrogate is one byte as `?`
        plain = len(data) == len(text)
        at, counted, chars = 0, 0, 0
        while True:
            first, last = match(ANCHOR, data, at, len(data))[0]
            if first < 0:
                return
            if plain:
                start, end = first, last
            else:
                start = chars + len(data[counted:first].decode("utf-8", "replace"))
                end = start + len(data[first:last].decode("utf-8", "replace"))
                counted, chars = last, end
            if whole and not _stands_alone(text, start, end):
                counted, chars, at = first, start, first + 1
                continue
            if last > first and (wanted is None or wanted(text[start:end])):
                yield start, end, name
            at = max(last, first + 1)

    return find


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether a word is no part of a longer one, where its script sets words apart."""
    inside = start and _joins(text[start]) and _joins(text[start - 1])
    return not inside and not (end < len(text) and _joins(text[end - 1]) and _joins(text[end]))


def _joins(char: str) -> bool:
    return char.isdecimal() or unicodedata.category(char) in ("Lu", "Ll", "Lt")
