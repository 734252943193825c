"""Detectors of payment cards, US social security numbers and IBANs."""

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
from checkrein_plugins.redaction.validators import (
    IBAN_CLASSES,
    card_network,
    iban,
    luhn,
    us_ssn,
)

_CARD_WORDS = re.compile(
    rb"card|visa|master|amex|american express|credit|debit|\bcc\b|\bpan\b|kredit|carte|tarjeta"
)
_SSN_WORDS = (b"ssn", b"social", b"itin", b"taxpayer", b"tax id")


def _card(data: bytes, start: int, end: int) -> Hit | None:
    """Accept by range, length and check digit; without the check digit only near card words."""
    digits = digits_of(data, start, end)
    size = len(digits)
    if size < 12:
        return None
    network = card_network(digits)
    if network and luhn(digits):
        if glued(data, start, end):
            return None
        sure = size == 16 or size == 15 and network in ("amex", "jcb") or size == 14 and network == "diners"
        if sure or size == 19 and network in ("visa", "unionpay") or _near_card(data, start):
            return start, end, network
        return None
    if end - start > size > 16 and card_network(digits[:16]) and luhn(digits[:16]):
        return start, end - (size - 16) - 1, "grouped"
    if _near_card(data, start) and not glued(data, start, end):
        return start, end, "unchecked"
    return None


def _near_card(data: bytes, start: int) -> bool:
    return _CARD_WORDS.search(before(data, start, 40)) is not None


def _ssn(data: bytes, start: int, end: int) -> Hit | None:
    """Nine digits as 3-2-4: with dashes, or with other marks beside its word."""
    kind = us_ssn(digits_of(data, start, end))
    if not kind or glued(data, start, end) or data[start + 3] != data[end - 5]:
        return None
    if data[start + 3] == 45 or mentions(before(data, start), _SSN_WORDS):
        return start, end, kind
    alone = not data[max(0, start - 2) : start].strip()[-1:].isdigit()
    if data[start + 3] == 32 and kind == "ssn" and alone and not behind(data, end).strip()[:1].isdigit():
        return start, end, kind
    return None


def _worded_ssn(data: bytes, start: int, end: int) -> Hit | None:
    """Nine digits in a row behind the word."""
    kind = us_ssn(data[end - 9 : end])
    return (end - 9, end, kind) if kind and not glued(data, end - 9, end) else None


def _iban(data: bytes, start: int, end: int) -> Hit | None:
    """Collect as many characters as the country's form has, over single spaces, and check them."""
    country = data[start : start + 2].decode("ascii").upper()
    need = len(IBAN_CLASSES[country]) + 4
    chars = bytearray()
    at, stop = start, min(len(data), start + need * 2)
    spaced = False
    while at < stop and len(chars) < need:
        char = data[at]
        if 48 <= char <= 57 or 65 <= char <= 90 or 97 <= char <= 122:
            chars.append(char)
        elif char in b" -" and data[at - 1] not in b" -":
            spaced = True
        else:
            return None
        at += 1
    follow = data[at : at + 1]
    if len(chars) < need or follow.isalnum() and follow < b"\x80":
        return None
    text = chars.decode("ascii")
    if not text.isupper() and (spaced or not text.islower()):
        return None
    return (start, at, country) if iban(text.upper()) else None


_IBAN_HEADS = "|".join(IBAN_CLASSES).encode("ascii")

DETECTORS = (
    Detector(
        "card", "credit_card",
        rb"\b(?:\d{4}[ .-]\d{4}[ .-]\d{4}[ .-]\d{1,4}(?:[ .-]\d{3})?"
        rb"|\d{4}[ .-]\d{6}[ .-]\d{4,5}|[2-689]\d{11,18}|(?:1800|2131)\d{11})\b",
        (rb"\d{4}[ .-]\d{4}[ .-]\d{4}", rb"\d{4}[ .-]\d{6}[ .-]", rb"\b(?:[2-689]|1800)\d{11}"),
        _card,
    ),
    Detector(
        "us_ssn", "us_ssn",
        rb"\b\d{3}[ .-]\d{2}[ .-]\d{4}\b",
        (rb"\d\d\d[ .-]\d\d[ .-]\d\d\d\d",),
        _ssn,
    ),
    Detector(
        "worded_ssn", "us_ssn",
        rb"(?i)(?:\bssn|social.?sec|\bitin\b|taxpayer)[^0-9\n\x00]{0,30}\d{9}\b",
        (rb"(?i)\bssn|social.?sec|\bitin\b|taxpayer",),
        _worded_ssn,
    ),
    Detector(
        "iban", "iban",
        rb"(?i)\b(?:" + _IBAN_HEADS + rb")\d\d[ -]?[A-Z0-9]{4}[ -]?[A-Z0-9]{3}",
        (rb"\b[A-Z][A-Z]\d\d[ -]?[A-Z0-9]{4}[ -]?[A-Z0-9]", rb"\b[a-z][a-z]\d\d[a-z0-9]{6}"),
        _iban,
    ),
)  # fmt: skip
"""In no particular order: overlaps are resolved afterwards."""
