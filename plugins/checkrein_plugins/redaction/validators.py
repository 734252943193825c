"""Checks on candidates: check digits, ranges, and the shape of what a pattern has cut out.

Each takes plain ASCII bytes or text and is bounded by the length of the candidate.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections import Counter

_DOUBLED = bytes(
    (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)[byte - 48] if 48 <= byte <= 57 else 0 for byte in range(256)
)


def luhn(digits: bytes) -> bool:
    """Check digit of payment cards (ISO/IEC 7812-1, annex B)."""
    plain = digits[-1::-2]
    return (sum(plain) - 48 * len(plain) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0


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
        if two == 35:  # of which 3528 to 3589 are given out
            return "jcb"
        if two in (62, 81):
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
    if area in (0, 666) or group == 0 or serial == 0 or digits.count(digits[:1]) == 9:
        return ""
    if area < 900:
        return "ssn"
    itin = 50 <= group <= 65 or 70 <= group <= 88 or 90 <= group <= 92 or 94 <= group <= 99
    return "itin" if itin else ""


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
