"""Where a text may be cut so that the cut changes nothing, and blocks that have no bound.

A *joint* is a place that no value reaches over: behind a line break, a double quote, a NUL, or a
lower-case word and its space. Detectors decide on what lies between joints, with `CONTEXT` bytes
in front. So a text gives the same findings however it is cut at joints: in pieces for speed, or
as a stream delivers it. Where `PIECE` bytes hold no joint, the text is cut all the same, by a rule
that depends on nothing but the last joint and those bytes.
"""

from __future__ import annotations

import re

from checkrein_plugins.redaction.detector import CONTEXT, LINE, TEXT, WORD
from checkrein_plugins.redaction.linear import prefix

PIECE = 2048
"""Most bytes between two cuts: also the most visible characters that a stream keeps back."""
GUARD = 256
"""A forced cut lies this far in front of the end of what was searched, so that every value in
front of it was seen whole; longer tokens are swallowed to their end."""
WIDE = 1 << 16
"""As `PIECE`, where values may hold words or line breaks: categories of one's own."""
WIDE_GUARD = WIDE // 2
"""As `GUARD` there: so long a value is found whole wherever it stands."""
AHEAD = 16
"""Bytes behind a forced cut's window that must be known, or the end of the text."""

_WORD = re.compile(rb"[a-z\xe0-\xff]{3}[,;.!?]?[ \t]|\xd7\xd7")
token_end = prefix(rb"[A-Za-z0-9_.+/=%~:-]*")
"""(data, start) -> end of the run of token characters that begins at `start`."""


def joint(data: bytes, start: int, end: int, reach: int = WORD) -> int:
    """Return some joint in `(start, end]`, a late one if possible; 0 if there is none.

    `reach`: what values may hold; of `LINE` only line breaks and NUL are joints, of `TEXT` only
    NUL is.
    """
    if reach:
        return last_joint(data, start, end, reach)
    half = start + (end - start) // 2
    for mark in (b"\n", b'"', b"\0"):
        at = data.rfind(mark, half, end)
        if at > 0:
            return at + 1
    at = end
    for _ in range(4):
        at = data.rfind(b" ", half, at)
        word = data[at - 3 : at] if at > 2 else b""
        if word.isalpha() and word.islower():
            return at + 1
        if at <= half:
            break
    return last_joint(data, start, end)


def last_joint(data: bytes, start: int, end: int, reach: int = WORD) -> int:
    """Return the last joint in `(start, end]`; 0 if there is none."""
    if reach == TEXT:
        return data.rfind(b"\0", start, end) + 1
    if reach == LINE:
        return max(data.rfind(b"\n", start, end), data.rfind(b"\0", start, end)) + 1
    low = max(data.rfind(mark, start, end) for mark in (b"\n", b"\0", b'"')) + 1
    found = low
    # A word's three letters may lie in front of `start`, its space may not.
    for match in _WORD.finditer(data, max(0, low - 4, start - 4), end):
        if match.end() > start:
            found = max(found, match.end())
    return found if found > start else 0


PEM_OPENING = b"-----BEGIN "
_PEM_HEADER = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_pem_lines = prefix(
    rb"(?:\s{0,8}(?:[A-Za-z0-9+/=]{16}[A-Za-z0-9+/=]*"
    rb"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): ?[^\n\"\x00]{0,200}))*"
)
_PEM_LAST = re.compile(rb"\s{0,8}[A-Za-z0-9+/=]{1,15}(?=\s{0,8}(?:-----END|[\"'\x00<]|\Z))")
_PEM_CLOSING = re.compile(rb"\s{0,8}-----END [A-Z0-9 ]{0,60}-----")
PEM_AHEAD = 320
"""Bytes behind a PEM block's last full line that decide where it ends: a header line (at most
230), or the last word and the closing line (at most 111)."""


def pem_header(data: bytes, start: int, end: int, final: bool) -> tuple[int, int]:
    """Find the next PEM header of a private key that starts in `[start, end)`.

    Returns (start, end of the header), (start, -1) if more text must decide, or (-1, -1).
    """
    at = data.find(PEM_OPENING, start, end + len(PEM_OPENING) - 1)
    while at >= 0:
        match = _PEM_HEADER.match(data, at)
        if match:
            return at, match.end()
        if not final and len(data) - at < 80 and b"\n" not in data[at:]:
            return at, -1
        at = data.find(PEM_OPENING, at + 1, end + len(PEM_OPENING) - 1)
    return -1, -1


def pem_end(data: bytes, start: int) -> int:
    """End of the PEM block whose header ends at `start`, once the whole text is known."""
    end = _pem_lines(data, start)
    last = _PEM_LAST.match(data, end)
    if last:
        end = last.end()
    closing = _PEM_CLOSING.match(data, end)
    return closing.end() if closing else end


def pem_swallow(data: bytes) -> tuple[int, bool]:
    """Read on in an open PEM block: how much may be forgotten, and whether the block has ended."""
    end = _pem_lines(data, 0)
    rest = pem_end(data, 0)
    if len(data) - end > PEM_AHEAD or (data[end:rest].endswith(b"-----") and rest < len(data)):
        return rest, True
    if data[:end].endswith(b"-----"):
        return end, False
    # What is left of the last line must still count as one: 16 characters at least.
    keep = end
    while keep and end - keep < 16 and data[keep - 1] in _BASE64:
        keep -= 1
    return (keep if end - keep == 16 else 0), False


_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


def context_of(data: bytes, start: int) -> bytes:
    """What a stream keeps of the text in front of `start`."""
    return data[max(0, start - CONTEXT) : start]
