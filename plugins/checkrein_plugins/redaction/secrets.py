"""Detectors of secrets: tokens of known make, JWT, passwords in addresses, keyed values."""

from __future__ import annotations

import base64
import binascii
import json
import re

from checkrein_plugins.redaction.detector import Detector, before
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.tokens import HEADS, TOKENS
from checkrein_plugins.redaction.validators import entropy

_TRIGGERS = (rb"\b(?:" + HEADS + rb")[A-Za-z0-9_.+/:=-]{3}",)
_ALL_TOKENS = re.compile(rb"|".join(rb"(" + form + rb")" for _, form in TOKENS))


def _token(data: bytes, start: int, end: int) -> Finding | None:
    """A run that begins like a token: its maker's form must fit, up to the end of the word."""
    if start and data[start - 1] in b"-_/" and data[start] != 104:
        if data[start - 1] != 47 or not data.startswith(b"bot", start):
            return None
        start += 3  # https://api.telegram.org/bot1234:AA...
    match = _ALL_TOKENS.match(data, start, end)
    if match is None or match.lastindex is None:
        return None
    kind = TOKENS[match.lastindex - 1][0]
    last = match.end()
    follow = data[last : last + 1]
    if follow and (follow.isalnum() or follow in b"_"):
        if last - start < _OPEN_TOKEN:
            return None
        last = end
    if follow == b"-" and data[last + 1 : last + 2].isalnum():
        return None
    if kind in ("openai", "crates", "nuget") and not re.search(rb"\d", data[start:last]):
        return None
    while data[last : last + 1] == b"=":
        last += 1
    return Finding(start, last, "secret", kind)


_OPEN_TOKEN = 200
"""A longer token than its maker's form allows is still one from this length on."""


def _decoded(part: bytes) -> object:
    """A Base64url part of a token as JSON; None if it is none."""
    try:
        return json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None


def _jwt(data: bytes, start: int, end: int) -> Finding | None:
    """The header must be a JSON object that names an algorithm or a type (RFC 7515)."""
    if data[start - 1 : start] in (b"-", b"_", b"."):
        return None
    header = data[start : data.index(b".", start)]
    if len(header) > 1500:
        return Finding(start, end, "secret", "jwt")
    decoded = _decoded(header)
    if isinstance(decoded, dict) and ("alg" in decoded or "typ" in decoded or "enc" in decoded):
        return Finding(start, end, "secret", "jwt")
    return None


def _password_in_url(data: bytes, start: int, end: int) -> Finding | None:
    """The password of `scheme://user:password@host`."""
    at = data.rfind(b"@", start, end)
    colon = data.find(b":", data.find(b"://", start, at) + 3, at)
    if colon < 0 or at - colon < 3:
        return None
    value = data[colon + 1 : at]
    if _PLACEHOLDER.match(value.decode("latin-1")):
        return None
    return Finding(colon + 1, at, "secret", "password")


_PLACEHOLDER = re.compile(
    r"(?:\$\{?|<|\{\{|%\(|%s|\{|\$\()|(?i:x{3,}|\*{3,}|\.{3,}|your|changeme|example|placeholder|dummy|none"
    r"|null|true|false|undefined|redacted|\[|os\.|env\.|process\.|self\.|getenv|config\.)"
)

_STRONG = re.compile(
    rb"pass|pwd|secret|api.?key|auth.?token|access.?key|account.?key|private.?key|shared.?access"
    rb"|client.?secret|access.?token|bearer|refresh.?token|bot.?token|signing.?key|encryption.?key"
    rb"|[?&]sig|signature|authoriz"
)
_WEAK_NAME = re.compile(
    rb"next|page|continu|cursor|count|max|num|type|name|_id|url|path|file"
    rb"|len|csrf"
)
_ID = re.compile(rb"(?:_id|-id|[a-z]Id|_hint|_name|_hash|_length|_count|_type)[\"'`]?\Z")
"""The end of a name that says that the value is not the secret itself."""
_IDENTIFIER = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]{0,80}(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]{0,80}){0,8}[(\[]?"
)
_VARIABLE = re.compile(
    r"(?i)[a-z_]{1,80}\d{0,2}|[a-z0-9_.]{0,80}(?:pass|pwd|secret|token|user|name|value|param|input|field|string|text)"
    r"[a-z0-9_.]{0,80}"
)
"""A word of a program or of prose, not one that somebody made up to be secret."""
_CAMEL = re.compile(
    r"(?:[A-Z]{1,8}[a-z]{1,20}\d{0,5}){2,8}|[a-z]{2,20}(?:[A-Z]{1,8}[a-z]{1,20}\d{0,5}){1,8}"
)
"""Names of classes and functions."""
_CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,80}[(\[]")
_PLAIN = re.compile(r"[A-Za-z0-9_+=-]{20,200}")
_NO_SECRET_KEY = re.compile(
    rb"primary|foreign|sort|public|cache|partition|dict|hash|index|map|idempot|object|lookup|item"
)
_ENVIRONMENT = re.compile(rb"(?:TOKEN|[A-Z0-9]_KEY) ?=[\"']?\Z")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-fA-F]{16,128}")
_SEPARATED = rb"(?:[ \t]{0,4}(?:=>|:=|==?|:|\x01|>)[ \t]{0,4}|[ \t]{1,4}(?:is:?[ \t]{1,2})?)"
_IN_VALUE = rb"[\"'](?:,[ \t]{0,2})?[ \t]{0,4}[\"']?value[\"']?[ \t]{0,2}[=:][ \t]{0,2}"
"""`key="ApiKey" value="..."` and `{"name": "API_KEY", "value": "..."}`."""
_NAME = re.compile(
    rb"(?i)[?&;]?[a-z_-]{2,12}(?: key)?[a-z0-9_.-]{0,24}(?:"
    + _IN_VALUE
    + rb"|[\"'`]?"
    + _SEPARATED
    + rb")(?:(?:bearer|basic|token)[ \t]{1,4})?[\"'`]?"
)
_FRONT = re.compile(rb"[A-Za-z0-9_.$-]{0,40}\Z")
_PARAMETER = re.compile(r"&[A-Za-z_][A-Za-z0-9_.-]{0,40}=")


def _secret_like(value: str, key: bytes, quoted: bool, environment: bool) -> bool:
    size = len(value)
    if size < 6 or _PLACEHOLDER.match(value) or _CALL.match(value):
        return False
    digits = any(char.isdigit() for char in value)
    kinds = (
        digits + any(char.islower() for char in value)
        + any(char.isupper() for char in value) + any(not char.isalnum() for char in value)
    )  # fmt: skip
    word = b"pass" in key or b"pwd" in key
    if word:
        if _IDENTIFIER.fullmatch(value) and not (kinds >= 3 and digits):
            if not digits or kinds < 2:
                return False
            return (quoted and size >= 8) or _VARIABLE.fullmatch(value) is None
        return kinds >= 2 and len(set(value)) >= 5 and not value.endswith(("(", ")"))
    if size < 16 or len(set(value)) < 8:
        return False
    strong = environment or _STRONG.search(key) is not None
    if _UUID.fullmatch(value):
        return strong or b"token" in key
    if not digits:
        return False
    name = key.rstrip(b" \t:=>\"'`\1")
    if name.endswith((b"_key", b"-key")) and not strong:
        if not quoted or size < 20 or not _PLAIN.fullmatch(value) or _NO_SECRET_KEY.search(key):
            return False
        if _HEX.fullmatch(value):
            return size >= 32
    if _HEX.fullmatch(value):
        return size >= 20 and (strong or b"token" in key)
    if _IDENTIFIER.fullmatch(value) and ("_" in value or "." in value) and value.islower():
        return False
    if _CAMEL.fullmatch(value) and sum(map(str.isdigit, value)) <= size // 3:
        return False
    return kinds >= 2 and entropy(value) >= (3.2 if strong else 3.7)


def _keyed(data: bytes, start: int, end: int) -> Finding | None:
    """A value behind a name that says it is secret, if it looks like one."""
    match = _NAME.match(data, start, end)
    if match is None:
        return None
    low = start - 40 if start > 40 else 0
    front = _FRONT.search(data, low, start)
    whole = (front[0] if front else b"") + match[0]
    key = whole.lower()
    name = _SEPARATOR.split(key, maxsplit=1)[0]
    strong = _STRONG.search(match[0].lower())
    if _WEAK_NAME.search(before(data, start, 10) + name) and not strong:
        return None
    if _ID.search(_SEPARATOR.split(whole, maxsplit=1)[0].rstrip(b" \t")):
        return None
    at = match.end()
    if b">" in match[0] and b"=>" not in match[0] and data[start - 1 : start] not in (b"<", b":"):
        return None  # only what stands in an element of XML
    quoted = data[at - 1] in b"\"'`\1"
    value = data[at:end].decode("latin-1")
    if not quoted and not _SEPARATOR.search(key):
        # "password Tr0ub4dor": without a sign in between it has to look like nothing else.
        if not any(char.isdigit() for char in value) or not _WHOLE_NAME.search(key):
            return None
    if not quoted:
        following = _PARAMETER.search(value)
        if following:
            end = at + following.start()
            value = value[: following.start()]
    environment = _ENVIRONMENT.search(match[0]) is not None and not _NO_SECRET_KEY.search(key)
    judged = value if quoted else value.rstrip(":.)")
    if not _secret_like(judged, key, quoted, environment):
        return None
    return Finding(at, end, "secret", "keyed")


_WHOLE_NAME = re.compile(
    rb"(?:password|passwd|passphrase|pass|pwd|secret|token|key|credential|bearer|basic"
    rb"|authorization)s?"
    rb"[ \t]{1,4}(?:is:?[ \t]{1,2})?(?:(?:bearer|basic|token)[ \t]{1,4})?[\"'`]?\Z"
)
_SEPARATOR = re.compile(rb"[=:\x01>]")


_LOGIN = re.compile(
    rb"(?:-u|--user|-p|--password|-w|-a)(?:[ =]{1,2}|)[\"']?"
    rb"(?:[A-Za-z0-9_.@-]{1,64}:)?([^\s\"'\x00\xd7]{6,128})"
)


def _login(data: bytes, start: int, end: int) -> Finding | None:
    """The password that a command line holds: `curl -u user:...`, `docker login -p ...`."""
    match = _LOGIN.search(data, start, end)
    if match is None:
        return None
    value = match[1].decode("latin-1")
    if data.startswith((b"curl", b"wget"), start) and b":" not in match[0]:
        return None
    if _PLACEHOLDER.match(value) or value.startswith("-") or _PORT.match(value):
        return None
    return Finding(match.start(1), match.end(1), "secret", "login")


_PORT = re.compile(r"[0-9:.]{1,32}\Z|[a-z][a-z-]{0,30}\Z|[./~]")
"""What stands behind `-p` or `-u` and is no password: numbers, plain words, paths."""


DETECTORS = (
    Detector(
        "token", frozenset({"secret"}),
        rb"\b(?:" + HEADS + rb")[A-Za-z0-9_./+:@=~-]{6}[A-Za-z0-9_./+:@=~-]*",
        _TRIGGERS,
        _token,
        exact=True,
    ),
    Detector(
        "token_by_middle", frozenset({"secret"}),
        rb"[A-Za-z0-9_-]{8,}(?::AA[A-Za-z0-9_-]{33}|-us\d{1,2}\b|AZDO[A-Za-z0-9]{4}\b"
        rb"|JQQJ9[A-Za-z0-9]{20,40}\b"
        rb"|\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{20,}|\.atlasv1\.[A-Za-z0-9_-]{20,}"
        rb"|\.[a-f0-9]{64}|_mmk\b)"
        rb"|[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"
        rb"|[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}\b"
        rb"|access_token\$[a-z]{7,10}\$[0-9a-z]{16}\$[0-9a-f]{32}"
        rb"|00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{60,160}"
        rb"|\bA{20,22}[A-Za-z0-9%]{60,120}|[a-z0-9]{10}msh[a-z0-9]{15}p1[a-z0-9]{6}jsn[a-z0-9]{12}"
        rb"|\b\d{13,17}\|[A-Za-z0-9_-]{27}\b"
        rb"|\b0\.[a-f0-9-]{36}\.[A-Za-z0-9]{30}:[A-Za-z0-9+/]{22}==",
        (rb":AA[A-Za-z0-9_-]", rb"[0-9a-f]-us\d", rb"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{4}",
        rb"AZDO[A-Za-z0-9]{4}\b", rb"JQQJ9",
        rb"\.atlasv1\.", rb"\bpat[A-Za-z0-9]{14}\.",
            rb"\dQ~", rb"_mmk\b", rb"-[0-9a-f]{8}-[0-9a-f]", rb"access_token\$",
            rb"\b00D[A-Za-z0-9]{4}",
            rb"\bA{20}", rb"\d{4}\|[A-Za-z0-9_-]", rb"[a-z0-9]jsn[a-z0-9]",
            rb"\b0\.[a-f0-9]{8}-"),
        _token,
        retry=False,
    ),
    Detector(
        "jwt", frozenset({"secret"}),
        rb"\bey[JK][A-Za-z0-9_-]{12,}\.(?:ey[JKA-Za-z0-9_-]{4,}"
        rb"|[A-Za-z0-9_-]{0,600}\.[A-Za-z0-9_-]{16,})(?:\.[A-Za-z0-9_-]+){0,3}",
        (rb"\bey[JK][A-Za-z0-9_-]{8}",),
        _jwt,
        retry=False,
    ),
    Detector(
        "url_password", frozenset({"secret"}),
        rb"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>/@:\x00-\x20\xd7]{0,128}:[^\s\"'<>/\x00-\x20\xd7]{1,256}@",
        (rb"://[^\s\"'<>/@:]{0,64}:[^\s\"'<>/@]",),
        _password_in_url,
    ),
    Detector(
        "keyed", frozenset({"secret"}),
        rb"(?i)(?:passw(?:or)?d|passwd|passphrase|pass|pwd|secret|token|api[_ .-]?key|apikey"
        rb"|access[_ .-]?key|account[_-]?key"
        rb"|private[_-]?key|signing[_-]?key|encryption[_-]?key|shared[_-]?access[_-]?key"
        rb"|credential|authorization|bearer|x-api-key|authtoken|[a-z0-9][_-]key|[?&]sig"
        rb"|x-(?:amz|goog)-signature)"
        rb"[a-z0-9_.-]{0,24}(?:" + _IN_VALUE + rb"|[\"'`]?" + _SEPARATED
        + rb")(?:(?:bearer|basic|token)[ \t]{1,4})?"
        rb"(?:\"[^\s\"\x00\x01\xd7]{6,}|'[^\s'\"\x00\x01\xd7]{6,}|`[^\s`\"\x00\x01\xd7]{6,}"
        rb"|[^\s\"'`,;<>\x00\x01\xd7]{6,})",
        ((rb"(?i)passw|passph|pass[\"']?[:=]|pwd|secret|token|api[_ .-]?key|access[_ .-]?key"
        rb"|account.?key|private.?key|signing.?key|encryption.?key|credential|authoriz|bearer"
        rb"|[_-]key\b|[?&]sig="
        rb"|-signature="),),
        _keyed,
        lookback=True,
    ),
    Detector(
        "login", frozenset({"secret"}),
        rb"\b(?:curl|wget|sshpass|docker login|mysql|mysqldump|smbclient|ldapsearch|redis-cli)"
        rb" [^\n\"\x00\xd7]{0,80}?(?:-u|--user|-p|--password|-w"
        rb"|-a)[ =]{0,2}[\"']?[^\s\"'\x00\xd7]{6,128}",
        (rb"\b(?:curl|wget|sshpass|docker login|mysql|mysqldump|smbclient|ldapsearch|redis-cli) ",),
        _login,
        lookback=True,
    ),
)  # fmt: skip
"""Except PEM blocks, which have no bound and are read by `pieces`."""
