"""Detectors of numbers: payment cards, US social security numbers, phones, IBANs."""

from __future__ import annotations

import re

from checkrein_plugins.redaction.detector import Detector, Hit, before, digits_of, mentions
from checkrein_plugins.redaction.validators import (
    IBAN_CLASSES,
    card_network,
    iban,
    luhn,
    us_ssn,
)

CARD_WORDS = (
    b"card", b"visa", b"mastercard", b"amex", b"american express", b"credit", b"debit",
    b"payment", b"pan ", b"pan:", b"kreditkarte", b"carte", b"tarjeta",
)  # fmt: skip
SSN_WORDS = (b"ssn", b"social sec", b"social-sec", b"socialsec", b"itin", b"taxpayer", b"tax id")
PHONE_WORDS = (
    b"phone", b"call", b"tel", b"mobile", b"cell", b"fax", b"sms", b"whatsapp", b"dial",
    b"contact", b"ring ", b"text me", b"handy", b"portable", b"movil", b"reach", b"number is",
    b"registered",
)  # fmt: skip
ID_WORDS = (
    b"order", b"invoice", b"isbn", b"sku", b"ticket", b"tracking", b"serial", b"version", b"offset",
    b"part no", b"build", b"lat", b"lon", b"ref", b"case", b"model", b"issn", b"doi",
)  # fmt: skip


def _glued(data: bytes, start: int, end: int) -> bool:
    """Whether a number goes on as a decimal, a longer dashed id, or part of a path."""
    if start >= 2 and data[start - 1] in b".-" and data[start - 2 : start - 1].isdigit():
        return True
    if start and data[start - 1] in b"_\\":
        return True
    if data[end : end + 1] in (b".", b"-", b"_") and data[end + 1 : end + 2].isalnum():
        return data[end : end + 1] == b"_" or data[end + 1 : end + 2].isdigit()
    return False


def _card(data: bytes, start: int, end: int) -> Hit | None:
    """Accept by range, length and check digit; without the check digit only near card words."""
    if _glued(data, start, end):
        return None
    digits = digits_of(data, start, end)
    size = len(digits)
    network = card_network(digits)
    if network and luhn(digits):
        if size <= 13 and not mentions(before(data, start), CARD_WORDS):
            return None
        if network == "maestro" and size != 16 and not mentions(before(data, start), CARD_WORDS):
            return None
        return start, end, network
    if size > 16 and end - start > size and luhn(digits[:16]) and card_network(digits[:16]):
        return start, start + data[start:end].rindex(data[end - 4 : end - 3]), "grouped"
    if size >= 12 and mentions(before(data, start, 40), CARD_WORDS):
        return start, end, "unchecked"
    return None


def _ssn(data: bytes, start: int, end: int) -> Hit | None:
    if _glued(data, start, end):
        return None
    digits = digits_of(data, start, end)
    kind = us_ssn(digits)
    if not kind:
        return None
    separators = {char for char in data[start:end] if not 48 <= char <= 57}
    if len(separators) > 1:
        return None
    if separators == {45}:
        return start, end, kind
    if mentions(before(data, start), SSN_WORDS):
        return start, end, kind
    return (start, end, kind) if separators == {32} and kind == "ssn" and _alone(data, start, end) else None


def _alone(data: bytes, start: int, end: int) -> bool:
    """Whether no other number stands beside this one, as it would in a column of figures."""
    left = data[max(0, start - 2) : start].strip()
    right = data[end : end + 2].strip()
    return not left[-1:].isdigit() and not right[:1].isdigit()


def _us_phone(data: bytes, start: int, end: int) -> Hit | None:
    """NANP: area and exchange do not start with 0 or 1."""
    if _glued(data, start, end):
        return None
    digits = digits_of(data, start, end)
    if len(digits) == 11:
        digits = digits[1:]
    if digits[0] in b"01" or digits[3] in b"01" or digits[1:3] == b"11":
        return None
    start, end = _widened(data, start, end)
    plain = end - start == len(digits)
    context = before(data, start)
    if plain and not mentions(context, PHONE_WORDS):
        return None
    if data[start:end].count(b".") == 2 and data[start : start + 1] not in b"(+":
        # 212.555.0143 is written like part of a version or an address: needs a word.
        if not mentions(context, PHONE_WORDS) and not _quiet(data, start, end):
            return None
    return start, end, "US"


def _widened(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Take in an opening bracket or plus sign that a word boundary cannot stand in front of."""
    while start and data[start - 1] in b"(+":
        start -= 1
    return start, end


def _quiet(data: bytes, start: int, end: int) -> bool:
    left, right = data[start - 1 : start], data[end : end + 1]
    return (not left or left in b" \t\n\"':|,=\0\1") and (not right or right in b" \t\n\"',|;\0\1")


_COUNTRY = {
    "1": (10, 10), "7": (10, 10), "20": (8, 10), "27": (9, 9), "30": (10, 10), "31": (9, 9),
    "32": (8, 9), "33": (9, 9), "34": (9, 9), "36": (8, 9), "39": (6, 11), "40": (9, 9),
    "41": (9, 9), "43": (4, 13), "44": (9, 10), "45": (8, 8), "46": (7, 10), "47": (8, 8),
    "48": (9, 9), "49": (5, 12), "51": (8, 9), "52": (10, 10), "54": (10, 11), "55": (10, 11),
    "56": (9, 9), "57": (10, 10), "60": (7, 10), "61": (9, 9), "62": (8, 12), "63": (8, 10),
    "64": (8, 10), "65": (8, 8), "66": (8, 9), "81": (9, 10), "82": (8, 11), "84": (8, 10),
    "86": (8, 11), "90": (10, 10), "91": (10, 10), "92": (9, 10), "94": (9, 9), "98": (10, 10),
}  # fmt: skip
"""Digits of a national number by country code, shortest and longest (ITU-T E.164, national plans);
other codes: 7 to 12 altogether."""


def _plus_phone(data: bytes, start: int, end: int) -> Hit | None:
    """International form: +, country code, national number of a length that the code allows."""
    if start and data[start - 1 : start].isalnum():
        return None
    raw = data[start:end]
    close = raw.find(b"(0)")
    digits = (raw if close < 0 else raw[:close] + raw[close + 3 :]).translate(None, b" .-/()+\t")
    text = digits.decode("ascii")
    if text[0] == "0":
        return None
    for size in (1, 2):
        limits = _COUNTRY.get(text[:size])
        if limits:
            if limits[0] <= len(text) - size <= limits[1]:
                return start, end, "international"
            return _shorter(data, start, end, limits[1] + size)
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


_NATIONAL = re.compile(
    rb"0[1-9](?:[ .-]\d\d){4}"  # France
    rb"|0\d{2,4}[ -]\d{3}[ -]?\d{3,4}"  # United Kingdom
    rb"|\(0\d{2,4}\) ?\d{3,4}[ -]?\d{3,4}"
    rb"|0\d{2,4}[ /-]\d{4,8}"  # Germany, Austria
    rb"|0\d{1,3}[ -]\d{3}[ -]\d{2}[ -]\d{2}"  # Switzerland, the Netherlands
    rb"|0\d[ -]\d{4}[ -]\d{4}"  # Italy, Japan, Australia
)
_GROUPED_NINE = re.compile(rb"[6-9]\d\d[ ]\d\d\d?[ ]\d\d\d?(?:[ ]\d\d\d?)?")


def _national_phone(data: bytes, start: int, end: int) -> Hit | None:
    """National forms: a leading zero and groups, or any grouping right behind a phone word."""
    if _glued(data, start, end):
        return None
    raw = data[start:end]
    digits = digits_of(data, start, end)
    context = before(data, start, 40)
    worded = mentions(context, PHONE_WORDS)
    if start and data[start - 1] == 40:
        start -= 1
        raw = data[start:end]
    if _NATIONAL.fullmatch(raw) and 9 <= len(digits) <= 12:
        if worded or _quiet(data, start, end) and not mentions(context, ID_WORDS):
            return start, end, "national"
        return None
    if worded and 7 <= len(digits) <= 12 and not mentions(context[-16:], ID_WORDS):
        return start, end, "national"
    if _GROUPED_NINE.fullmatch(raw) and len(digits) == 9 and _quiet(data, start, end):
        quoted = data[start - 1 : start] not in (b" ", b"\t") and data[end : end + 1] not in (b" ",)
        return (start, end, "national") if quoted and start else None
    return None


_IBAN_SEPARATORS = b" -"


def _iban(data: bytes, start: int, end: int) -> Hit | None:
    """Collect as many characters as the country's form has, over single spaces, and check them."""
    country = data[start : start + 2].decode("ascii").upper()
    need = len(IBAN_CLASSES[country]) + 4
    chars = bytearray()
    at, stop = start, min(len(data), start + need * 2)
    spaced = False
    while at < stop and len(chars) < need:
        char = data[at : at + 1]
        if char.isalnum() and char < b"\x80":
            chars += char
        elif char in (b" ", b"-") and data[at - 1 : at] not in (b" ", b"-"):
            spaced = True
        else:
            return None
        at += 1
    if len(chars) < need or data[at : at + 1].isalnum():
        return None
    text = chars.decode("ascii")
    if spaced and not text.isupper() or not text.isupper() and not text.islower():
        return None
    return (start, at, country) if iban(text.upper()) else None


_IBAN_HEADS = "|".join(IBAN_CLASSES).encode("ascii")

DETECTORS = (
    Detector(
        "card", "credit_card",
        rb"\b(?:\d{4}[ .-]\d{4}[ .-]\d{4}[ .-]\d{1,4}(?:[ .-]\d{3})?"
        rb"|\d{4}[ .-]\d{6}[ .-]\d{4,5}|\d{12,19})\b",
        (rb"\d{4}[ .-]\d{4}[ .-]\d{4}", rb"\d{4}[ .-]\d{6}[ .-]\d{4}", rb"\d{12}"),
        _card,
    ),
    Detector(
        "us_ssn", "us_ssn",
        rb"\b\d{3}[ .-]?\d{2}[ .-]?\d{4}\b",
        (rb"\d\d\d[ .-]\d\d[ .-]\d\d\d\d", rb"(?i)\bssn|social.?sec|\bitin\b|taxpayer|tax id"),
        _ssn,
    ),
    Detector(
        "us_phone", "phone",
        rb"\b(?:1[-. ]?)?\(?\d{3}\)?[-. ]{0,2}\d{3}[-. ]?\d{4}\b",
        (rb"\d\d\d\)?[-. ]{1,2}\d\d\d[-. ]\d\d\d\d", rb"(?i)phone|call|\btel|mobile|cell|fax|sms|dial|reach"),
        _us_phone,
    ),
    Detector(
        "plus_phone", "phone",
        rb"\+\d(?:[ .()/-]{0,2}\d){6,14}\b",
        (rb"\+\d[\d .()/-]{6}",),
        _plus_phone,
    ),
    Detector(
        "national_phone", "phone",
        rb"\b\(?\d{2,5}\)?(?:[ ./-]\d{2,8}){1,4}\b",
        (rb"\b\(?0\d{1,4}\)?[ ./-]\d\d", rb"(?i)phone|call|\btel|mobile|cell|fax|sms|dial", rb"[6-9]\d\d \d\d\d? \d\d\d?"),
        _national_phone,
    ),
    Detector(
        "iban", "iban",
        rb"(?i)\b(?:" + _IBAN_HEADS + rb")\d\d[ -]?[A-Z0-9]{4}[ -]?[A-Z0-9]{3}",
        (rb"[A-Z][A-Z]\d\d[ -]?[A-Z0-9]{4}[ -]?[A-Z0-9]{3}", rb"\b[a-z][a-z]\d\d[a-z0-9]{7}"),
        _iban,
    ),
)  # fmt: skip
"""In no particular order: overlaps are resolved afterwards."""
