"""Detectors of passports: a number beside the word, and the zone that machines read."""

from __future__ import annotations

import re

from checkrein_plugins.redaction.detector import Detector, glued
from checkrein_plugins.redaction.findings import Finding

_PASSPORT_VALUE = re.compile(
    rb"\b(?:[A-Z]{0,3} ?\d{6,9}[A-Z]?|\d\d[A-Z]{2}\d{5}|[A-Z][A-Z0-9]{7,8}|[a-z]{1,2}\d{6,8})\b",
    re.ASCII,
)
_PASSPORT_WORDS = (
    rb"passport|travel document"
    rb"|reisepass|passeport|pasaporte|passaporto|passaporte|paspoort|paszport|passnummer"
    rb"|\bpass[ -]?(?:no|nr|num)\b|\bpas[ -]nr"
)


def _passport(data: bytes, start: int, end: int) -> Finding | None:
    """The first number behind the word: up to three letters and digits, or a German mixture."""
    for match in _PASSPORT_VALUE.finditer(data, start + 7, end):
        first, last = match.span()
        raw = match[0]
        if last == end and data[end : end + 1].isalnum():
            break
        if sum(48 <= char <= 57 for char in raw) >= 2 and not glued(data, first, last):
            return Finding(first + len(raw) - len(raw.lstrip()), last, "passport")
    return None


_PASSPORT_FIRST = re.compile(rb"[A-Z]{0,2}\d{6,9}")


def _passport_first(data: bytes, start: int, end: int) -> Finding | None:
    """A number right in front of the word: `X1234567 (passport)`, `... is my passport number`."""
    match = _PASSPORT_FIRST.match(data, start, end)
    if match is None or glued(data, start, match.end()):
        return None
    return Finding(start, match.end(), "passport")


_MRZ_WEIGHTS = (7, 3, 1)


def _mrz(data: bytes, start: int, end: int) -> Finding | None:
    """The second line of a passport's machine-readable zone (ICAO 9303-4): three check digits."""
    line = data[start:end].decode("ascii")
    for first, last in ((0, 9), (13, 19), (21, 27)):
        total = sum(
            (int(char, 36) if char != "<" else 0) * _MRZ_WEIGHTS[index % 3]
            for index, char in enumerate(line[first:last])
        )
        if str(total % 10) != line[last]:
            return None
    return Finding(start, end, "passport", "mrz")


DETECTORS = (
    Detector(
        "passport", frozenset({"passport"}),
        rb"(?i)(?:" + _PASSPORT_WORDS + rb")[^\n\x00]{0,48}",
        (rb"(?i)" + _PASSPORT_WORDS,),
        _passport,
        lookback=True,
    ),
    Detector(
        "passport_first", frozenset({"passport"}),
        rb"\b[A-Z]{0,2}\d{6,9}(?: is my| is a|,| -)? ?\(?(?i:passport)",
        (rb"\d{4}(?: is my| is a|,| -)? ?\(?(?i:passport)",),
        _passport_first,
        exact=True,
    ),
    Detector(
        "passport_zone", frozenset({"passport"}),
        rb"\b[A-Z0-9][A-Z0-9<]{8}\d[A-Z]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{14}[0-9<]\d\b",
        (rb"\d{7}[MFX<]\d{7}",),
        _mrz,
        exact=True,
    ),
)  # fmt: skip
