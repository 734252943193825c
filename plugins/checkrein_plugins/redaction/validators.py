"""Checks on candidates: check digits, ranges, and the shape of what a pattern has cut out.

Each takes plain ASCII bytes or text and is bounded by the length of the candidate.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections import Counter

_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def luhn(digits: bytes) -> bool:
    """Check digit of payment cards (ISO/IEC 7812-1, annex B)."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = digit - 48
        total += _DOUBLED[value] if index & 1 else value
    return total % 10 == 0


def card_network(digits: bytes) -> str:
    """Return the network whose ranges and lengths fit `digits`, or "" (ISO/IEC 7812 ranges)."""
    size, two, four = len(digits), int(digits[:2]), int(digits[:4])
    if digits[0] == 52:  # "4"
        return "visa" if size in (13, 16, 19) else ""
    if size == 16 and (51 <= two <= 55 or 2221 <= four <= 2720):
        return "mastercard"
    if size == 15 and two in (34, 37):
        return "amex"
    if size in (14, 16, 19) and (two in (36, 38, 39) or 3000 <= four <= 3059 or four == 3095):
        return "diners"
    if 16 <= size <= 19:
        if four == 6011 or two == 65 or 6440 <= four <= 6499:
            return "discover"
        if 3528 <= four <= 3589:
            return "jcb"
        if two == 62 or two == 81:
            return "unionpay"
        if 2200 <= four <= 2204:
            return "mir"
        if two in (60, 82) or four in (5080, 5085, 5086, 5087):
            return "rupay"
    if 12 <= size <= 19 and (two in (50, 56, 57, 58, 63, 67, 68) or four == 6390):
        return "maestro"
    if size == 15 and four in (2014, 2149):
        return "enroute"
    if size in (15, 16) and four in (1800, 2131):
        return "jcb"
    return ""


def us_ssn(digits: bytes) -> str:
    """`ssn`, `itin` or "" for nine digits (SSA: no area 000, 666, 9xx; no zero group)."""
    area, group, serial = int(digits[:3]), int(digits[3:5]), int(digits[5:])
    if area in (0, 666) or group == 0 or serial == 0 or len(set(digits)) == 1:
        return ""
    if area < 900:
        return "ssn"
    itin = 50 <= group <= 65 or 70 <= group <= 88 or 90 <= group <= 92 or 94 <= group <= 99
    return "itin" if itin else ""


IBAN_FORMS = {
    "AD": "8n12c", "AE": "19n", "AL": "8n16c", "AT": "16n", "AZ": "4a20c", "BA": "16n",
    "BE": "12n", "BG": "4a6n8c", "BH": "4a14c", "BI": "23n", "BR": "23n1a1c", "BY": "4c4n16c",
    "CH": "5n12c", "CR": "18n", "CY": "8n16c", "CZ": "20n", "DE": "18n", "DJ": "23n",
    "DK": "14n", "DO": "4c20n", "EE": "16n", "EG": "25n", "ES": "20n", "FI": "14n",
    "FK": "2a12n", "FO": "14n", "FR": "10n11c2n", "GB": "4a14n", "GE": "2a16n", "GI": "4a15c",
    "GL": "14n", "GR": "7n16c", "GT": "4c20c", "HN": "4a20n", "HR": "17n", "HU": "24n",
    "IE": "4a14n", "IL": "19n", "IQ": "4a15n", "IS": "22n", "IT": "1a10n12c", "JO": "4a4n18c",
    "KW": "4a22c", "KZ": "3n13c", "LB": "4n20c", "LC": "4a24c", "LI": "5n12c", "LT": "16n",
    "LU": "3n13c", "LV": "4a13c", "LY": "21n", "MC": "10n11c2n", "MD": "2c18c", "ME": "18n",
    "MK": "3n10c2n", "MN": "16n", "MR": "23n", "MT": "4a5n18c", "MU": "4a19n3a", "NI": "4a20n",
    "NL": "4a10n", "NO": "11n", "OM": "3n16c", "PK": "4a16c", "PL": "24n", "PS": "4a21c",
    "PT": "21n", "QA": "4a21c", "RO": "4a16c", "RS": "18n", "RU": "14n15c", "SA": "2n18c",
    "SC": "4a20n3a", "SD": "14n", "SE": "20n", "SI": "15n", "SK": "20n", "SM": "1a10n12c",
    "SO": "19n", "ST": "21n", "SV": "4a20n", "TL": "19n", "TN": "20n", "TR": "6n16c",
    "UA": "6n19c", "VA": "18n", "VG": "4a16n", "XK": "16n", "YE": "4a4n18c",
}  # fmt: skip
"""Account part by country: counts of digits (n), letters (a), either (c). Source: the SWIFT IBAN
registry."""


def _iban_classes(form: str) -> str:
    """`4a2n` becomes `aaaann`."""
    classes, count = "", ""
    for char in form:
        if char.isdigit():
            count += char
        else:
            classes += char * int(count)
            count = ""
    return classes


IBAN_CLASSES = {country: _iban_classes(form) for country, form in IBAN_FORMS.items()}


def iban(text: str) -> bool:
    """Check an IBAN in capitals and without spaces: country form and ISO 7064 mod 97-10."""
    classes = IBAN_CLASSES.get(text[:2])
    if classes is None or len(text) != len(classes) + 4:
        return False
    for char, kind in zip(text[4:], classes, strict=True):
        if kind == "n" and not char.isdigit() or kind == "a" and not char.isalpha():
            return False
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


def ipv6(text: str) -> ipaddress.IPv6Address | None:
    """Parse an IPv6 address; None if it is none."""
    try:
        return ipaddress.IPv6Address(text)
    except ValueError:
        return None


_BASE58 = {
    char: value
    for value, char in enumerate(b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")
}


def base58check(token: bytes) -> int | None:
    """Return the version byte of a 25-byte Base58Check payload, or None."""
    number = 0
    for char in token:
        value = _BASE58.get(char)
        if value is None:
            return None
        number = number * 58 + value
    if number >> 200:
        return None
    raw = number.to_bytes(25, "big")
    if hashlib.sha256(hashlib.sha256(raw[:21]).digest()).digest()[:4] != raw[21:]:
        return None
    return raw[0]


_BECH32 = {char: value for value, char in enumerate(b"qpzry9x8gf2tvdw0s3jn54khce6mua7l")}
_BECH32_STEPS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


def bech32(token: bytes) -> bool:
    """Check sum of a Bech32 or Bech32m string (BIP 173, BIP 350)."""
    token = token.lower()
    prefix, _, rest = token.rpartition(b"1")
    values = [_BECH32.get(char, -1) for char in rest]
    if not prefix or len(rest) < 6 or -1 in values:
        return False
    checked = [char >> 5 for char in prefix] + [0] + [char & 31 for char in prefix] + values
    state = 1
    for value in checked:
        top = state >> 25
        state = (state & 0x1FFFFFF) << 5 ^ value
        for bit, step in enumerate(_BECH32_STEPS):
            if top >> bit & 1:
                state ^= step
    return state in (1, 0x2BC830A3)


def entropy(text: str) -> float:
    """Shannon entropy in bits a character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())
