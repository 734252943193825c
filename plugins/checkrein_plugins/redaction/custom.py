"""Categories of one's own: patterns, lists of words and functions, with the built-in guarantees.

What can be said in ASCII runs among the built-in detectors, on bytes. The rest runs as a finder
on the text itself, patterns on RE2 there too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.detector import LINE, TEXT, Check, Detector
from checkrein_plugins.redaction.finders import Find, Finder, matching
from checkrein_plugins.redaction.findings import CATEGORIES, Finding
from checkrein_plugins.redaction.linear import ANCHOR, matcher, refusal

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_KEYS = ("pattern", "words", "find", "check", "ignore_case", "multiline", "timeout", "on_failure")
_SOURCES = ("pattern", "words", "find")
_TEXTUAL = re.compile(r"\\[pPXAz]|\\x\{|(?<!\[)\^|\$|\[\[:\^?(?:alpha|alnum|word)")
"""What in a pattern speaks of letters beyond ASCII, or of the ends of a text."""
MOST_WORDS = 10_000
"""Words in one list."""


def detectors(custom: Any, reserved: Iterable[str] = ()) -> dict[str, Detector | Finder]:
    """Read `custom`: category to a table of settings; `reserved` names are taken.

    `pattern` (RE2), `words`, or `find`, called with a text, returning spans (start, end).
    `ignore_case`; `multiline`: values may hold line breaks; `check`, called with the matched
    text, says whether it counts. `timeout` in seconds and `on_failure` are for functions.

    Raises:
        ConfigError: names the key, and what is wrong with it.
    """
    if custom is None:
        return {}
    if not isinstance(custom, Mapping):
        raise ConfigError("custom: give a table of category = {pattern = ...} or {words = [...]}")
    taken = frozenset((*CATEGORIES, *reserved))
    return {name: _detector(name, table, taken) for name, table in custom.items()}


def _detector(name: Any, table: Any, taken: frozenset[str]) -> Detector | Finder:
    key = f"custom.{name}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{key}: a name of small letters, digits and _ is needed")
    if name in taken:
        raise ConfigError(f"{key}: is a built-in category")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{key}: give a table; known keys are {', '.join(_KEYS)}")
    for option in table:
        if option not in _KEYS:
            raise ConfigError(f"{key}.{option}: unknown key; known are {', '.join(_KEYS)}")
    sources = [source for source in _SOURCES if source in table]
    if len(sources) != 1:
        raise ConfigError(f"{key}: give either pattern, words or find")
    for option in ("find", "check"):
        if option in table and not callable(table[option]):
            raise ConfigError(f"{key}.{option}: is not callable")
    for option in ("ignore_case", "multiline"):
        if option in table and not isinstance(table[option], bool):
            raise ConfigError(f"{key}.{option}: give true or false")
    reach = TEXT if table.get("multiline") else LINE
    if sources == ["find"]:
        return _function(key, name, table, reach)
    text = _pattern(key, table) if sources == ["pattern"] else _words(key, table["words"])
    if table.get("ignore_case", sources == ["words"]):
        text = f"(?i){text}"
    where = f"{key}.{sources[0]}"
    bytewise = text.isascii() and not _TEXTUAL.search(text)
    pattern = text.encode("ascii" if bytewise else "utf-8")
    why = refusal(pattern, utf8=not bytewise)
    if why:
        raise ConfigError(f"{where}: {why}")
    if matcher(pattern, utf8=not bytewise)(ANCHOR, b"", 0, 0)[0][0] >= 0:
        raise ConfigError(f"{where}: matches the empty text")
    if "check" in table or not bytewise:
        match = matcher(pattern, lines=reach == LINE, utf8=True)
        return _finder(
            key, matching(match, name, table.get("check"), sources == ["words"]), table, reach
        )
    for option in ("timeout", "on_failure"):
        if option in table:
            raise ConfigError(f"{key}.{option}: is for functions; a pattern has no need of it")
    return Detector(
        key, frozenset({name}), pattern, (pattern,), _check(name), retry=False, reach=reach
    )


def _function(key: str, name: str, table: Mapping[str, Any], reach: int) -> Finder:
    for option in ("check", "ignore_case"):
        if option in table:
            raise ConfigError(f"{key}.{option}: is for pattern and words; `find` decides itself")
    function: Callable[[str], Iterable[Any]] = table["find"]

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for place in function(text):
            start, end = (place.start, place.end) if hasattr(place, "start") else place
            yield start, end, name

    return _finder(key, find, table, reach)


def _finder(key: str, find: Find, table: Mapping[str, Any], reach: int) -> Finder:
    timeout = table.get("timeout")
    if timeout is not None and not (type(timeout) in (int, float) and timeout > 0):
        raise ConfigError(f"{key}.timeout: give seconds, more than 0")
    failure = table.get("on_failure", "deny")
    if failure not in ("deny", "allow"):
        raise ConfigError(f"{key}.on_failure: give deny or allow, not {failure!r}")
    return Finder(key, find, reach, timeout, failure == "allow")


def _pattern(key: str, table: Mapping[str, Any]) -> str:
    text = table["pattern"]
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{key}.pattern: give a string")
    if "\n" in text and not table.get("multiline"):
        raise ConfigError(f"{key}.pattern: holds a line break: set multiline = true")
    return f"(?:{text})"


def _words(key: str, words: Any) -> str:
    if isinstance(words, str) or not isinstance(words, Sequence) or not words:
        raise ConfigError(f"{key}.words: give a list of words")
    if len(words) > MOST_WORDS:
        raise ConfigError(f"{key}.words: more than {MOST_WORDS}")
    forms: set[str] = set()
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ConfigError(f"{key}.words: each must be a word")
        if "\n" in word.strip():
            raise ConfigError(f"{key}.words: a word holds no line break; give a pattern")
        forms.update(_forms(word.strip()))
    # Longer ones first: the first alternative that fits is taken.
    return "|".join(map(_whole, sorted(forms, key=lambda form: (-len(form), form))))


def _forms(word: str) -> Iterator[str]:
    """How a word may stand in a text: composed, or with its marks left out (they are invisible)."""
    composed = unicodedata.normalize("NFC", word)
    yield composed
    parts = unicodedata.normalize("NFD", composed)
    bare = "".join(char for char in parts if not "\u0300" <= char <= "\u036f")
    if bare != composed:
        yield bare


def _whole(word: str) -> str:
    """A word where it is not part of a longer one; RE2 knows such borders for ASCII only."""
    left = r"\b" if word[0].isascii() and (word[0].isalnum() or word[0] == "_") else ""
    right = r"\b" if word[-1].isascii() and (word[-1].isalnum() or word[-1] == "_") else ""
    return left + re.escape(word) + right


def _check(name: str) -> Check:
    def check(_data: bytes, start: int, end: int) -> Finding | None:
        return Finding(start, end, name, "custom")

    return check
