"""`scan` and `redact` for one text, and the catalogue that they share."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.detector import Detector
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.finders import Finder, Reading
from checkrein_plugins.redaction.findings import (
    CATEGORIES,
    DEFAULT_CATEGORIES,
    Finding,
    resolve,
)
from checkrein_plugins.redaction.marks import Marks, mark_of, placeholder
from checkrein_plugins.redaction.shadow import Shadow, plain, shadow


@functools.lru_cache(maxsize=64)
def engine_for(categories: frozenset[str]) -> Engine:
    """The engine for a set of categories; one for all who ask for the same."""
    from checkrein_plugins.redaction import (
        addresses,
        iban,
        identities,
        numbers,
        passports,
        secrets,
    )

    modules = (numbers, iban, addresses, secrets, identities, passports)
    return Engine((row for module in modules for row in module.DETECTORS), categories)


def engine_with(
    categories: frozenset[str],
    own: Mapping[str, Detector | Finder],
    finders: Iterable[Finder] = (),
) -> Engine:
    """The engine for `categories`, own detectors by the name of their category, and finders."""
    finders = (*(row for row in own.values() if isinstance(row, Finder)), *finders)
    if not own and not finders:
        return engine_for(categories)
    rows = (row for row in own.values() if isinstance(row, Detector))
    return Engine((*engine_for(categories).detectors, *rows), categories | own.keys(), finders)


def known(
    categories: Iterable[str] | None,
    default: Collection[str] = CATEGORIES,
    more: Collection[str] = (),
) -> frozenset[str]:
    """Check names of categories, which are those of `CATEGORIES` and `more`.

    Raises:
        ConfigError: a name is not one of `CATEGORIES`, or a single string was given.
    """
    if categories is None:
        return frozenset((*default, *more))
    if isinstance(categories, str):
        raise ConfigError(f"categories: give a list, not the string {categories!r}")
    chosen = frozenset(categories)
    names = (*CATEGORIES, *more)
    unknown = sorted(str(name) for name in chosen - frozenset(names))
    if unknown:
        hint = "" if more or not _NEED_NLP & set(unknown) else " (some need the setting nlp)"
        raise ConfigError(
            f"categories: unknown {', '.join(unknown)}; known are {', '.join(names)}{hint}"
        )
    return chosen


_NEED_NLP = frozenset({"person", "location", "organisation", "address"})


def scan(text: str, categories: Iterable[str] | None = None) -> tuple[Finding, ...]:
    """Find private data and secrets in `text`: findings in order, not overlapping.

    Offsets are those of `text` itself, whatever folding it took to see the value. All
    `CATEGORIES` are looked for unless some are named.

    Raises:
        ConfigError: an unknown category.
        DetectorFailed: a detector failed; the text was not checked.
    """
    engine = engine_for(known(categories) if categories is not None else _ALL)
    return tuple(located(text, engine))


_ALL = frozenset(CATEGORIES)
DEFAULT = frozenset(DEFAULT_CATEGORIES)


def located(
    text: str,
    engine: Engine,
    kept: Collection[str] = (),
    passed: Collection[str] = (),
    missed: set[str] | None = None,
) -> list[Finding]:
    """Resolved findings of `engine` in the offsets of `text`; see `findings.resolve`.

    `missed` gets the names of finders that failed and may; None = none may.
    """
    shade = shadow(text)
    if engine.finders:
        reading = Reading(engine.finders, plain(text, shade), 0, missed)
        found = engine.findings(shade.data, reading)
    else:
        found = engine.findings(shade.data)
    return settled(found, shade, kept, passed) if found else found


def settled(
    found: list[Finding], shade: Shadow, kept: Collection[str], passed: Collection[str]
) -> list[Finding]:
    """Findings in a shadow, resolved, in the offsets of the text."""
    if not found:
        return found
    found = resolve(found, kept, passed)
    if shade.starts is None:
        return found
    return [
        Finding(shade.start(first), shade.end(last), category, subtype)
        for first, last, category, subtype in found
    ]


_ESCAPE = re.compile(r"\\.", re.DOTALL)


class Writer:
    """Puts placeholders into a text, so that JSON stays JSON.

    In a text that begins with a brace or a bracket, the placeholder of a bare number is quoted.
    What it does at a place depends on nothing behind it, so a stream may be written piece by piece.
    """

    def __init__(self, marks: Marks | None = None) -> None:
        self._marks = marks
        self._json: bool | None = None
        self._inside = False
        self._last = ""

    def text(self, text: str) -> str:
        """Note text that is passed on as it is, and return it."""
        if self._json is None:
            begin = text.lstrip()
            if begin:
                self._json = begin[0] in "{["
        if self._json:
            plain = _ESCAPE.sub("", text) if "\\" in text else text
            self._inside ^= plain.count('"') % 2 == 1
            self._last = (self._last + text[-64:].rstrip())[-2:]
        return text

    def value(self, value: str, category: str, subtype: str) -> str:
        """Return what stands in place of `value`."""
        mark = mark_of(value, category, subtype, self._marks)
        if mark == value:
            return self.text(value)
        if self._json is None:
            self._json = False
        if self._json and not self._inside and value.isdigit():
            last = self._last[-1:]
            if last in "[," or self._last == '":':
                mark = f'"{mark}"'
        self._last = "]"
        return mark


_OPENS = frozenset("{[ \t\r\n\f\v")


def replaced(text: str, found: Collection[Finding], marks: Marks | None = None) -> str:
    """`text` with findings (in order, not overlapping) replaced; itself if there are none."""
    if not found:
        return text
    parts: list[str] = []
    last = 0
    if text[0] in _OPENS and text.lstrip()[:1] in ("{", "["):
        writer = Writer(marks)
        for start, end, category, subtype in found:
            parts.append(writer.text(text[last:start]))
            parts.append(writer.value(text[start:end], category, subtype))
            last = end
    else:
        for start, end, category, subtype in found:
            parts.append(text[last:start])
            parts.append(
                placeholder(category)
                if marks is None
                else mark_of(text[start:end], category, subtype, marks)
            )
            last = end
    parts.append(text[last:])
    return "".join(parts)


def redact(text: str, categories: Iterable[str] | None = None) -> str:
    """Return `text` with every finding replaced by its category, like `[EMAIL]`.

    `DEFAULT_CATEGORIES` unless some are named. Returns `text` itself if nothing is found.

    Raises:
        ConfigError: an unknown category.
        DetectorFailed: a detector failed; the text was not checked.
    """
    engine = engine_for(known(categories) if categories is not None else DEFAULT)
    return replaced(text, located(text, engine))
