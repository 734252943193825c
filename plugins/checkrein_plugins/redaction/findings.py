"""What a scan reports: findings, their categories, and which one wins where two overlap."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """A stretch of text that belongs to a category: `text[start:end]`."""

    start: int
    end: int
    category: str
    subtype: str = ""


CATEGORIES = (
    "secret", "credit_card", "us_ssn", "iban", "national_id", "passport",
    "crypto", "email", "phone", "ip_address", "mac", "url",
)  # fmt: skip
"""Everything that is found without an extra, the most severe first."""

DEFAULT_CATEGORIES = tuple(category for category in CATEGORIES if category != "url")
"""What the plugin, `redact` and `redact_tree` look for unless told otherwise. A URL is rarely
private in itself, and a masked one stops most tools."""

SEVERITY = {category: rank for rank, category in enumerate(CATEGORIES)}
"""0 is the most severe. Categories that are not listed rank after all of these."""

_LAST = len(CATEGORIES)


def severity(category: str) -> int:
    """Rank of a category: smaller is more severe."""
    return SEVERITY.get(category, _LAST)


def resolve(
    found: list[Finding], kept: Collection[str] = (), passed: Collection[str] = ()
) -> list[Finding]:
    """Return findings that do not overlap, in order of their start.

    Of two that overlap the wider one wins, and of two equally wide ones the more severe; a URL
    gives way to anything inside it. A winner that overlaps a loser only in part takes over the
    loser's characters too, so that nothing of either is left in clear. Winners of a category in
    `kept` are left out, together with whatever less severe they cover. Those in `passed` are in
    the answer, but will not be replaced either, so they shield no more than kept ones do.
    """
    if len(found) > 1:
        found.sort()
        end = 0
        for finding in found:
            if finding.start < end:
                found.sort(key=_order)
                found = list(_resolved(found, {*kept, *passed}))
                break
            end = finding.end
    if kept:
        return [finding for finding in found if finding.category not in kept]
    return found


def _order(finding: Finding) -> tuple[int, int, int]:
    return finding.start, -finding.end, severity(finding.category)


def _resolved(found: list[Finding], kept: Collection[str]) -> Iterable[Finding]:
    """Sweep over sorted findings, joining those that overlap."""
    current = found[0]
    for finding in found[1:]:
        if finding.start >= current.end:
            yield current
            current = finding
            continue
        current = _winner(current, finding, kept)
    yield current


def _winner(first: Finding, second: Finding, kept: Collection[str]) -> Finding:
    """Join two overlapping findings; `first` starts no later than `second`."""
    if first.category == "url" and second.category != "url":
        return second
    if second.category == "url":
        return first
    if first.category == "secret" and second.category == "email" and first.subtype == "password":
        return first  # what looks like an address is the password and the host of a URL
    if second.category == "secret" and first.category == "email" and second.subtype == "password":
        return second
    if kept and (first.category in kept) != (second.category in kept):
        # A kept value never shields something more severe, and is not cut by something less so.
        return min(first, second, key=lambda finding: severity(finding.category))
    end = max(first.end, second.end)
    if second.end <= first.end:
        return first
    winner = second if second.end - second.start > first.end - first.start else first
    return Finding(first.start, end, winner.category, winner.subtype)
