"""Detectors of phone numbers: North America, international form, national forms."""

from __future__ import annotations

import re

from checkrein_plugins.redaction.detector import (
    Detector,
    Hit,
    before,
    behind,
    digits_of,
    glued,
    mentions,
)

_WORDS = (
    b"phone", b"call", b"tel", b"mobile", b"cell", b"fax", b"sms", b"whatsapp", b"dial", b"text me",
    b"contact", b"handy", b"movil", b"reach", b"number is", b"registered", b"answer", b"message",
    b"office", b"desk", b"hotline", b"voicemail", b"rufnummer", b"numero",
)  # fmt: skip
_NO_WORDS = (
    b"order", b"invoice", b"isbn", b"sku", b"ticket", b"tracking", b"serial", b"version", b"offset",
    b"build", b"lat=", b"lon=", b"issn", b"doi", b"total", b"amount", b"price", b"zip", b"postal",
)  # fmt: skip
_LINE_BEHIND = re.compile(rb"[ \t]{0,2}[-(]?(?i:office|fax|mobile|cell|home|work|tel|phone|desk)\b")
_EXTENSION = rb"(?: ?(?:x|ext\.? ?)\d{1,6})?"


def _worded(data: bytes, start: int, end: int) -> bool:
    """Whether a word for a phone stands in front of a number, or right behind it."""
    context = before(data, start, 48)
    if mentions(context[-20:], _NO_WORDS):
        return False
    return mentions(context, _WORDS) or bool(_LINE_BEHIND.match(behind(data, end, 12)))


def _number(data: bytes, start: int, end: int) -> bytes:
    """Digits of a number without its extension."""
    raw = data[start:end].lower()
    for mark in (b"x", b"e"):
        at = raw.find(mark)
        if at > 0:
            raw = raw[:at]
    return digits_of(raw, 0, len(raw))


def _us_phone(data: bytes, start: int, end: int) -> Hit | None:
    """NANP: area and exchange do not start with 0 or 1."""
    while start and data[start - 1] in b"(+":
        start -= 1
    if glued(data, start, end):
        return None
    digits = _number(data, start, end)
    digits = digits[-10:]
    if digits[0] in b"01" or digits[3] in b"01":
        if not _worded(data, start, end):
            return None
    if data[start:end].count(b".") == 2 and data[start] not in b"(+":
        # 212.555.0143 is also how versions and amounts are written.
        if not _worded(data, start, end) and not quiet(data, start, end):
            return None
    return start, end, "US"


def quiet(data: bytes, start: int, end: int) -> bool:
    """Whether a value stands alone: between spaces, quotes, or the marks of a table."""
    left, right = data[start - 1 : start] if start else b"", behind(data, end, 1)
    return (not left or left in b" \t\n\"':|,=\0\1(>") and (not right or right in b" \t',|;.?!)<-")


_LENGTHS = {
    "1": (10, 10), "7": (10, 10), "20": (8, 10), "27": (9, 9), "30": (10, 10), "31": (9, 9),
    "32": (8, 9), "33": (9, 9), "34": (9, 9), "36": (8, 9), "39": (6, 11), "40": (9, 9),
    "41": (9, 9), "43": (4, 13), "44": (9, 10), "45": (8, 8), "46": (7, 10), "47": (8, 8),
    "48": (9, 9), "49": (5, 12), "51": (8, 9), "52": (10, 10), "54": (10, 11), "55": (10, 11),
    "56": (9, 9), "57": (10, 10), "60": (7, 10), "61": (9, 9), "62": (8, 12), "63": (8, 10),
    "64": (8, 10), "65": (8, 8), "66": (8, 9), "81": (9, 10), "82": (8, 11), "84": (8, 10),
    "86": (8, 11), "90": (10, 10), "91": (10, 10), "92": (9, 10), "94": (9, 9), "98": (10, 10),
}  # fmt: skip
"""Digits of a national number by country code, fewest and most (ITU-T E.164, national plans);
other codes: 8 to 15 altogether."""


def _plus_phone(data: bytes, start: int, end: int) -> Hit | None:
    """International form: +, country code, national number of a length that the code allows."""
    if start and (data[start - 1 : start].isalnum() or data[start - 1] in b"+/"):
        return None
    raw = data[start:end]
    digits = _number(raw.replace(b"(0)", b""), 0, len(raw))
    text = digits.decode("ascii")
    if text[0] == "0":
        return None
    for size in (1, 2):
        limits = _LENGTHS.get(text[:size])
        if limits:
            if len(text) - size > limits[1]:
                return _shorter(data, start, end, limits[1] + size)
            if limits[0] <= len(text) - size or _worded(data, start, end):
                return start, end, "international"
            return None
    return (start, end, "international") if 8 <= len(text) <= 15 else None


def _shorter(data: bytes, start: int, end: int, most: int) -> Hit | None:
    """Cut a candidate that has run on into the next number, at a space."""
    cut = data.rfind(b" ", start, end)
    while cut > start:
        size = len(digits_of(data, start, cut))
        if size <= most:
            return (start, cut, "international") if size >= 8 else None
        cut = data.rfind(b" ", start, cut)
    return None


def _national_phone(data: bytes, start: int, end: int) -> Hit | None:
    """National forms with a leading zero: written alone, or near a word for a phone."""
    if start and data[start - 1] == 40:
        start -= 1
    if glued(data, start, end):
        return None
    if not 9 <= len(_number(data, start, end)) <= 12:
        return None
    if _worded(data, start, end):
        return start, end, "national"
    if quiet(data, start, end) and not mentions(before(data, start, 20), _NO_WORDS):
        return start, end, "national"
    return None


def _grouped_nine(data: bytes, start: int, end: int) -> Hit | None:
    """Nine digits in groups (Spain, Poland, Portugal): alone in its quotes or cell, or worded."""
    if glued(data, start, end):
        return None
    left, right = data[start - 1 : start], behind(data, end, 1)
    if _worded(data, start, end):
        return start, end, "national"
    if data[start] in b"679" and start and left not in (b" ", b"\t", b"(") and quiet(data, start, end):
        return (start, end, "national") if right not in (b" ", b"\t", b"-") else None
    return None


_VALUE = re.compile(
    rb"\(?\+?\d{1,5}\)?(?:[ ./-]{0,2}\(?\d{1,8}\)?){0,5}" + _EXTENSION + rb"(?![\w@])", re.ASCII
)


def _phone_behind_word(data: bytes, start: int, end: int) -> Hit | None:
    """Any grouping of 7 to 13 digits right behind a word for a phone and a colon or the like."""
    at = start
    while at < end and not (48 <= data[at] <= 57 or data[at] in b"(+"):
        at += 1
    match = _VALUE.match(data, at, end)
    if match is None:
        return None
    last = match.end()
    digits = _number(data, at, last)
    if not 7 <= len(digits) <= 13 or glued(data, at, last):
        return None
    raw = data[at:last]
    if raw[:4].isdigit() and raw[:2] in (b"19", b"20") and raw[4:5] in (b"-", b"/"):
        return None  # a date
    if mentions(data[start:at].lower(), _NO_WORDS):
        return None
    return at, last, "worded"


DETECTORS = (
    Detector(
        "us_phone", "phone",
        rb"\b(?:(?:00)?1[-. ]?)?(?:\(\d{3}\) ?|\b\d{3}\)[- ]?|\d{3}[-. /]{1,2})\d{3}[-. ]\d{4}" + _EXTENSION + rb"\b",
        (rb"\d\d\d\)?[-. /]{0,2}\d\d\d[-. ]\d\d\d\d",),
        _us_phone,
    ),
    Detector(
        "plus_phone", "phone",
        rb"\+\d(?:[ .()/-]{0,2}\d){6,14}" + _EXTENSION + rb"\b",
        (rb"\+\d[\d .()/-]{4}",),
        _plus_phone,
    ),
    Detector(
        "national_phone", "phone",
        rb"\b0(?:[1-9](?:[ .-]\d\d){4}"  # France
        rb"|\d{2,4}\)?[ -]\d{3}[ -]?\d{3,4}"  # United Kingdom
        rb"|\d{2,4}\)?[ /-]\d{4,8}"  # Germany, Austria, Italy
        rb"|\d{1,3}\)?[ /-]\d{2,4}[ -]\d{2}[ -]\d{2}"  # Switzerland, Sweden, the Netherlands
        rb"|\d{1,2}\)?[ -]\d{4}[ -]\d{4})" + _EXTENSION + rb"\b",
        (rb"\b0\d{1,4}\)?[ ./-]\d\d",),
        _national_phone,
    ),
    Detector(
        "grouped_nine", "phone",
        rb"\b[2-9]\d\d \d\d\d? \d\d\d?(?: \d\d)?\b",
        (rb"\b[2-9]\d\d \d\d\d? \d\d",),
        _grouped_nine,
    ),
    Detector(
        "worded_phone", "phone",
        rb"(?i)(?:phone|mobile|\btel|\bcell|\bfax|\bsms|whatsapp|\bcall|\bdial|\bdesk|answering|messages|registered|reach)[a-z]{0,10}"
        rb"[^0-9+(\x00]{1,20}[0-9+(][0-9 ()./+-]{5,24}" + _EXTENSION,
        (rb"(?i)phone|mobile|\btel|\bcell|\bfax|\bsms|whatsapp|\bcall|\bdial|\bdesk|answering|messages|registered|reach",),
        _phone_behind_word,
    ),
    Detector(
        "phone_and_word", "phone",
        rb"(?i)\b\(?\d{2,4}[) .-]{1,2}\d{2,4}[ .-]\d{2,4}(?:[ .-]\d{2,4})?[ \t]{0,2}-?(?:office|fax|mobile|home|work)\b",
        (rb"(?i)\d[ \t]{0,2}-?(?:office|fax|mobile|home|work)\b",),
        lambda data, start, end: _phone_before_word(data, start, end),
    ),
)  # fmt: skip
"""In no particular order: overlaps are resolved afterwards."""


def _phone_before_word(data: bytes, start: int, end: int) -> Hit | None:
    """A number with the name of its line behind it."""
    if start and data[start - 1] == 40:
        start -= 1
    while not 48 <= data[end - 1] <= 57:
        end -= 1
    if glued(data, start, end):
        return None
    return (start, end, "worded") if 7 <= len(digits_of(data, start, end)) <= 12 else None
