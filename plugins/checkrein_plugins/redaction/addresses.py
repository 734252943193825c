"""Detectors of addresses: e-mail, IP, MAC, URL and wallets."""

from __future__ import annotations

import re

from checkrein_plugins.redaction.detector import Detector, before
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import Words
from checkrein_plugins.redaction.validators import base58check, bech32, ipv6

_NOT_DOMAINS = frozenset(
    b"png jpg jpeg gif svg webp js ts jsx tsx css scss html htm json yaml yml toml xml md txt py "
    b"rb go rs java cpp hpp log conf cfg ini service socket timer target mount slice scope "
    b"device".split()
)
"""Endings of names of files and units that look like addresses: `icon@2x.png`, `a@tty1.service`."""


def _email(data: bytes, start: int, end: int) -> Finding | None:
    at = max(data.rfind(b"@", start, end), data.rfind(b"%40", start, end))
    domain = data[at + (1 if data[at] == 64 else 3) : end]
    if b".." in domain or domain[:1] in (b".", b"-"):
        return None
    name, _, ending = domain.rpartition(b".")
    if ending.lower() in _NOT_DOMAINS:
        return None
    if name.endswith(b"-") or not name:
        return None
    if data[start:at] == b"git" and data[end : end + 1] in (b":", b"/"):
        return None  # an address of a repository, not of a person
    while data[start : start + 1] in (b".", b"'", b"-", b"+"):
        start += 1
    return Finding(start, end, "email") if start < at else None


_VERSION = Words(
    rb"(?:upgrad\w{1,3}|updat\w{1,3}|bump\w{0,4}|patch|\bv8|\bsince|section|chapter|clause|paragraph|article|figure|table|appendix|\boid|versions?|\bver|\bv|release|build|firmware|==|>=|<=|~=|!=|[a-z0-9]/|[a-z]-|[a-z]_|@)"
    rb"(?: to| from)?[\s:=\"'(]{0,4}\z"
)


_OCTET = rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_QUAD = re.compile(_OCTET + rb"(?:\." + _OCTET + rb"){3}")


def _ipv4(data: bytes, start: int, end: int) -> Finding | None:
    """Four octets, not part of a longer dotted number, not a version."""
    if end - start > 15 or not _QUAD.fullmatch(data, start, end):
        return None
    if start and data[start - 1] in b".-_" and data[start - 2 : start - 1].isalnum():
        return None
    follow = data[end : end + 1]
    if follow and follow in b".-+~_" and data[end + 1 : end + 2].isalnum():
        # Only a range may go on: 203.0.113.7-203.0.113.9
        if follow != b"-" or b"." not in data[end + 1 : end + 5]:
            return None
    if data.startswith((b" Release", b" release"), end):
        return None
    if data.startswith((b"0.", b"127.", b"255."), start):
        return None
    context = before(data, start, 24)
    if _VERSION.within(context, 0, len(context)) and not context.endswith(b"//"):
        return None
    return Finding(start, end, "ip_address", "ip4")


_LABEL = re.compile(rb"(?:^|[^A-Za-z0-9_:.])[a-z_]{0,14}[g-z_][a-z_]{0,14}:\Z")
"""The name of what follows, which is no part of it: `mailto:`, `addr:`."""


def _ipv6(data: bytes, start: int, end: int) -> Finding | None:
    """Parse; leave out what only looks like one: times, slices, scopes of names."""
    if end - start > 45:
        return None
    if start and (data[start - 1 : start].isalnum() or data[start - 1] in b"_:."):
        if not _LABEL.search(data, start - 18 if start > 18 else 0, start):
            return None
    while end > start and data[end - 1] in b".:" and data[end - 2 : end] != b"::":
        end -= 1
    follow = data[end : end + 1]
    if follow and (follow.isalnum() or follow in b"_:"):
        return None
    text = data[start:end].decode("latin-1")
    groups = [group for group in text.split(":") if group]
    if len(groups) < 2 or not any(char.isdigit() for char in text):
        return None
    if "::" in text and len(groups) < 3 and max(map(len, groups)) < 3:
        return None
    address = ipv6(text)
    if address is None or address.is_loopback or address.is_unspecified:
        return None
    return Finding(start, end, "ip_address", "ip6")


def _mac(data: bytes, start: int, end: int) -> Finding | None:
    """Six pairs with one separator, or three groups of four; not part of a longer fingerprint."""
    raw = data[start:end]
    marks = {char for char in raw if char in b":-."}
    if len(marks) != 1:
        return None
    mark = bytes(marks)
    if data[end : end + 1] == mark and data[end + 1 : end + 2].isalnum():
        return None
    if mark == b"." and data[start - 1 : start] == mark:
        return None
    if data[start - 1 : start] == mark and data[start - 2 : start - 1].isalnum():
        if not _LABEL.search(data, start - 18 if start > 18 else 0, start):
            return None
    digits = raw.replace(mark, b"").lower()
    if digits in (b"0" * 12, b"f" * 12):
        return None
    if mark == b"." and digits.isdigit():
        return None
    return Finding(start, end, "mac")


_URL_END = b".,;:!?'\")]}>*_"


def _url(data: bytes, start: int, end: int) -> Finding | None:
    """Drop punctuation that belongs to the sentence, not to the address."""
    while end > start and data[end - 1] in _URL_END:
        last = data[end - 1]
        if (last == 41 and b"(" in data[start:end]) or (last == 93 and b"[" in data[start:end]):
            break
        end -= 1
    scheme = data.find(b"://", start, end)
    host = scheme + 3 if scheme >= 0 else start
    return Finding(start, end, "url") if end - host >= 3 else None


_BASE58_VERSIONS = {0: "btc", 5: "btc", 48: "ltc", 50: "ltc", 30: "doge", 22: "doge", 65: "tron",
                    76: "dash", 16: "dash", 111: "btc-test", 196: "btc-test"}  # fmt: skip


_WALLET_WORDS = Words(rb"wallet|solana|ripple|\bxrp\b")


def _wallet(data: bytes, start: int, end: int) -> Finding | None:
    token = data[start:end]
    if token[:2] == b"0x":
        return None if len(set(token[2:].lower())) < 6 else Finding(start, end, "crypto", "eth")
    lower = token.lower()
    if lower[:4] in (b"bc1q", b"bc1p", b"tb1q", b"tb1p", b"ltc1") or lower[:5] == b"addr1":
        return Finding(start, end, "crypto", "bech32") if bech32(token) else None
    if len(token) == 95 and token[:1] in (b"4", b"8"):
        return Finding(start, end, "crypto", "xmr")
    version = base58check(token)
    if version in _BASE58_VERSIONS:
        return Finding(start, end, "crypto", _BASE58_VERSIONS[version])
    if token[:1] not in (b"1", b"3") and _WALLET_WORDS.before(data, start, 40):
        return Finding(start, end, "crypto", "unchecked")
    return None


DETECTORS = (
    Detector(
        "email", frozenset({"email"}),
        rb"[A-Za-z0-9_\xc0-\xd6\xd8-\xf6\xf8-\xff][A-Za-z0-9._+'\xc0-\xd6\xd8-\xf6\xf8-\xff-]*"
        rb"(?:@|%40)[A-Za-z0-9\xc0-\xd6\xd8-\xf6\xf8-\xff][A-Za-z0-9.\xc0-\xd6\xd8-\xf6\xf8-\xff-]*"
        rb"\.(?:[A-Za-z\xff]{2,24}|xn--[A-Za-z0-9-]{2,59})",
        (rb"[A-Za-z0-9_\xc0-\xff](?:@|%40)[A-Za-z0-9\xc0-\xff]",),
        _email,
        retry=False,
        exact=True,
    ),
    Detector(
        "ipv4", frozenset({"ip_address"}),
        rb"\b\d+\.\d+\.\d+\.\d+(?:\.\d+)*\b",
        (rb"\d\.\d{1,3}\.\d{1,3}\.\d",),
        _ipv4,
        retry=False,
        exact=True,
    ),
    Detector(
        "ipv6", frozenset({"ip_address"}),
        rb"(?:[0-9A-Fa-f]{1,4}:){3,8}[0-9A-Fa-f:.]*|[0-9A-Fa-f:]*::[0-9A-Fa-f:.]*",
        (rb"[0-9A-Fa-f]:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]",
        rb"[0-9A-Fa-f]::[0-9A-Fa-f]|[^:0-9A-Za-z]::[0-9a-fA-F]{2}"),
        _ipv6,
        retry=False,
    ),
    Detector(
        "mac", frozenset({"mac"}),
        rb"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"
        rb"|\b[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\b",
        (rb"[0-9A-Fa-f][:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-]",
        rb"\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\b"),
        _mac,
        exact=True,
    ),
    Detector(
        "url", frozenset({"url"}),
        rb"\b(?i:(?:https?|ftps?|wss?|sftp)://|www\.[a-z0-9-]{1,63}\.)[^\s\"<>\\^`{|}\x00-\x20\xd7]+",
        (rb"(?i)(?:tp|tps|ws|wss)://|\bwww\.[a-z0-9]",),
        _url,
        retry=False,
        exact=True,
    ),
    Detector(
        "wallet", frozenset({"crypto"}),
        rb"\b(?:0x[0-9a-fA-F]{40}|[13LMDTAX9mn2][1-9A-HJ-NP-Za-km-z]{25,34}|(?i:bc1|tb1|ltc1"
        rb"|addr1)[02-9ac-hj-np-zAC-HJ-NP-Z]{20,110}|[48][1-9A-HJ-NP-Za-km-z]{94})\b",
        (rb"0x[0-9a-fA-F]{4}",
        (rb"\b[1348LMDTAX9mn2][1-9A-HJ-NP-Za-km-z]{25}"
        rb"(?:[1-9A-HJ-NP-Za-km-z]{0,9}\b|[1-9A-HJ-NP-Za-km-z]{15})"),
        rb"(?i)\b(?:bc1|tb1|ltc1|addr1)"),
        _wallet,
        exact=True,
    ),
)  # fmt: skip
"""In no particular order: overlaps are resolved afterwards."""
