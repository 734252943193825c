"""Categories of one's own: patterns and lists of words, on the same engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.detector import Check, Detector
from checkrein_plugins.redaction.findings import CATEGORIES, Finding
from checkrein_plugins.redaction.linear import ANCHOR, matcher, refusal

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_KEYS = ("pattern", "words", "ignore_case", "check")
MOST_WORDS = 10_000
"""Words in one list."""


def detectors(custom: Any) -> dict[str, Detector]:
    """Read `custom`: category to a table of `pattern` (RE2) or `words`, `ignore_case`, `check`.

    A pattern does not match over a line break. `check` is called with the matched text and says
    whether it counts.

    Raises:
        ConfigError: names the key, and what is wrong with it.
    """
    if custom is None:
        return {}
    if not isinstance(custom, Mapping):
        raise ConfigError("custom: give a table of category = {pattern = ...} or {words = [...]}")
    return {name: _detector(name, table) for name, table in custom.items()}


def _detector(name: Any, table: Any) -> Detector:
    key = f"custom.{name}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{key}: a name of small letters, digits and _ is needed")
    if name in CATEGORIES:
        raise ConfigError(f"{key}: is a built-in category")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{key}: give a table; known keys are {', '.join(_KEYS)}")
    for option in table:
        if option not in _KEYS:
            raise ConfigError(f"{key}.{option}: unknown key; known are {', '.join(_KEYS)}")
    if ("pattern" in table) == ("words" in table):
        raise ConfigError(f"{key}: give either pattern or words")
    check = table.get("check")
    if check is not None and not callable(check):
        raise ConfigError(f"{key}.check: is not callable")
    pattern = _pattern(key, table) if "pattern" in table else _words(key, table["words"])
    if table.get("ignore_case", "words" in table):
        pattern = b"(?i)" + pattern
    where = f"{key}.{'pattern' if 'pattern' in table else 'words'}"
    why = refusal(pattern)
    if why:
        raise ConfigError(f"{where}: {why}")
    if matcher(pattern)(ANCHOR, b"", 0, 0)[0][0] >= 0:
        raise ConfigError(f"{where}: matches the empty text")
    return Detector(
        key,
        frozenset({name}),
        pattern,
        (pattern,),
        _check(name, table.get("check")),
        retry=False,
        lines=True,
    )


def _pattern(key: str, table: Mapping[str, Any]) -> bytes:
    text = table["pattern"]
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{key}.pattern: give a string")
    return b"(?:" + _latin(f"{key}.pattern", text) + b")"


def _words(key: str, words: Any) -> bytes:
    if isinstance(words, str) or not isinstance(words, Sequence) or not words:
        raise ConfigError(f"{key}.words: give a list of words")
    if len(words) > MOST_WORDS:
        raise ConfigError(f"{key}.words: more than {MOST_WORDS}")
    parts = []
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ConfigError(f"{key}.words: each must be a word")
        # Longer ones first: the first alternative that fits is taken.
        parts.append(re.escape(_latin(f"{key}.words", word.strip())))
    parts.sort(key=len, reverse=True)
    return rb"(?:\b|^)(?:" + b"|".join(parts) + rb")(?:\b|$)"


def _latin(key: str, text: str) -> bytes:
    if "\n" in text:
        raise ConfigError(f"{key}: a value is found within a line only")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{key}: only characters of Latin-1 can be looked for") from error


def _check(name: str, wanted: Callable[[str], bool] | None) -> Check:
    def check(data: bytes, start: int, end: int) -> Finding | None:
        if wanted is not None and not wanted(data[start:end].decode("latin-1")):
            return None
        return Finding(start, end, name, "custom")

    return check
