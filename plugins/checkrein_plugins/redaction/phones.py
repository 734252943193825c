"""Checks of phone numbers: North America, international form, national forms.

Each gets a candidate that `numbers` has cut out by its shape.
"""

from __future__ import annotations

import re

from checkrein_plugins.redaction.detector import behind, digits_of, quiet
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import Words

WORDS = (
    rb"phone|call|tel|mobil|cell|fax|sms|whatsapp|signal|dial|text me|handy|movil|m\xf3vil|reach"
    rb"|number is|registered|answer|message|office|desk|hotline|voicemail|rufnummer|numero"
    rb"|contact|\btlf|\bpuh|\bgsm\b|anruf|rufen|appel|ligue|llam|chiam|portable|t\xe9l"
    rb"|\bmob\b|\bph\b|telegram"
)
"""Words that speak for a phone number when one stands in front of it."""
_WORDS = Words(WORDS)
_NO_WORDS = Words(
    rb"order|invoice|isbn|sku|ticket|tracking|serial|version|offset|build|lat=|lon=|issn|doi|total"
    rb"|amount|price|zip|postal|ssn|card|account"
)
_LINE_BEHIND = re.compile(rb"[ \t]{0,2}[-(]?(?i:office|fax|mobile|cell|home|work|tel|phone|desk)\b")
_LEADS = frozenset(bytes([char]) for char in b" \t-(OoFfMmCcHhWwTtPpDd")
EXTENSION = re.compile(rb" ?(?:x|ext\.? ?)\d{1,6}\b", re.IGNORECASE)


def worded(data: bytes, start: int, end: int) -> bool:
    """Whether a word for a phone stands in front of a number, or right behind it."""
    if not _WORDS.before(data, start, 48):
        # The word behind stands there after at most two spaces and one of - and (.
        if data[end : end + 1] not in _LEADS or not _LINE_BEHIND.match(behind(data, end, 12)):
            return False
    return not _NO_WORDS.before(data, start, 20)


def _phone(data: bytes, start: int, end: int, kind: str) -> Finding | None:
    """Take the extension in, and leave out a bracket that is not closed."""
    if data[start] == 40 and data.find(b")", start, end) < 0:
        start += 1
    follow = data[end : end + 1]
    if (
        follow
        and follow in b" xXeE"
        and (follow != b" " or data[end + 1 : end + 2] in (b"x", b"X", b"e", b"E"))
    ):
        extension = EXTENSION.match(behind(data, end, 12))
        if extension:
            end += extension.end()
        elif follow != b" ":
            return None
    return Finding(start, end, "phone", kind)


def us_phone(data: bytes, start: int, end: int) -> Finding | None:
    """NANP, 3-3-4: area and exchange do not start with 0 or 1, except beside a word."""
    digits = digits_of(data, start, end)[-10:]
    odd = digits[0] in b"01" or digits[3] in b"01"
    if data[end - 5] == 32 and data[start] != 40 and data.find(b"+", start, end) < 0:
        # Three figures in a row: an area code and an exchange that can be dialled.
        area = digits[:3] in (b"200", b"300", b"400") or digits[1:3] == b"11" or digits[1] == 57
        odd = odd or area or digits[4:6] == b"11"
    if odd and not worded(data, start, end):
        return None
    return _phone(data, start, end, "US")


def dotted_phone(data: bytes, start: int, end: int) -> Finding | None:
    """212.555.0143 is also how versions and amounts are written."""
    if not worded(data, start, end) and not quiet(data, start, end):
        return None
    return us_phone(data, start, end)


LENGTHS = {
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


def plus_phone(data: bytes, start: int, end: int) -> Finding | None:
    """International form: +, country code, national number of a length that the code allows."""
    if start and (data[start - 1 : start].isalnum() or data[start - 1] in b"+/"):
        return None
    while True:
        found = _international(data, start, end)
        if found:
            return found
        # It may have run on into the next number.
        end = data.rfind(b" ", start, end)
        if end - start < 8:
            return None


def _international(data: bytes, start: int, end: int) -> Finding | None:
    raw = data[start:end].replace(b"(0)", b"")
    text = digits_of(raw, 0, len(raw)).decode("ascii")
    if raw.startswith(b"00"):
        text = text[2:]
    if text[0] == "0":
        return None
    for size in (1, 2):
        limits = LENGTHS.get(text[:size])
        if limits:
            fits = limits[0] <= len(text) - size <= limits[1]
            # Generated and misdialled numbers are short; a word for a phone makes up for it.
            if fits or (7 <= len(text) - size <= limits[1] and worded(data, start, end)):
                return _phone(data, start, end, "international")
            return None
    return _phone(data, start, end, "international") if 8 <= len(text) <= 15 else None


def bracketed_phone(data: bytes, start: int, end: int) -> Finding | None:
    """The country in brackets: (+358) 170786687; without a plus beside a word only."""
    if data[start + 1] != 43 and not worded(data, start, end):
        return None
    return _international(data, start, end)


def zeros_phone(data: bytes, start: int, end: int) -> Finding | None:
    """International form with 00 for the plus, in groups, or in a row beside a word."""
    if not data.startswith(b"00", start) or data[start + 2] == 48:
        return None
    alone = data.count(b" ", start, end) >= 2 and quiet(data, start, end)
    if not alone and not worded(data, start, end):
        return None
    return _international(data, start, end)


def russian_phone(data: bytes, start: int, end: int) -> Finding | None:
    """8, the code of a region and seven digits: as it is dialled within Russia."""
    if data[start] != 56 or _NO_WORDS.before(data, start, 20):
        return None
    return _phone(data, start, end, "national")


def national_phone(data: bytes, start: int, end: int) -> Finding | None:
    """National forms with a leading zero: written alone, or near a word for a phone."""
    if data[start : start + 2] == b"00":
        return None
    if end - start == 10 and data[end - 5] == 45 and not worded(data, start, end):
        return None  # a postal code of the United States
    if worded(data, start, end):
        return _phone(data, start, end, "national")
    if quiet(data, start, end) and not _NO_WORDS.before(data, start, 20):
        return _phone(data, start, end, "national")
    return None


def grouped_nine(data: bytes, start: int, end: int) -> Finding | None:
    """Nine digits in groups (Spain, Poland, Portugal): alone in its quotes or cell, or worded."""
    left, right = data[start - 1 : start], behind(data, end, 1)
    if worded(data, start, end):
        return _phone(data, start, end, "national")
    if data[start] in b"679" and start and left not in b" \t(" and quiet(data, start, end):
        return (
            Finding(start, end, "phone", "national") if not right or right not in b" \t-" else None
        )
    return None


def worded_phone(data: bytes, start: int, end: int) -> Finding | None:
    """Any grouping of 7 to 13 digits beside a word for a phone."""
    if data[start + 4 : start + 5] in (b"-", b"/") and data[start : start + 2] in (b"19", b"20"):
        return None  # a date
    if not 7 <= len(digits_of(data, start, end)) <= 13 or not worded(data, start, end):
        return None
    return _phone(data, start, end, "worded")
