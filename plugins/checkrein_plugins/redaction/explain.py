"""Which rule found a value, and what decided on it: an engine that leaves its name in findings."""

from __future__ import annotations

from dataclasses import replace

from checkrein_plugins.redaction.detector import Check, Detector
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.findings import Finding

DECIDED_BY = {
    "secret": "form of the maker, entropy, or the name in front of it",
    "credit_card": "network, length and Luhn; without Luhn a word for a card",
    "us_ssn": "ranges; nine digits in a row beside the word only",
    "iban": "form of the country and mod 97",
    "national_id": "check digits, or words where there are none",
    "passport": "the word in front of it and the form",
    "crypto": "check sum where the address has one",
    "email": "form of the address and its domain",
    "phone": "national plans; other groupings beside a word for a phone",
    "ip_address": "parsed as an address; no version, no loopback",
    "mac": "six pairs or three groups, one separator",
    "url": "scheme and host",
    "person": "the model of language",
    "location": "the model of language",
    "organisation": "the model of language",
    "address": "the form of an address, or the model of language",
}
"""What decides on a candidate, by category."""


class Told(str):
    """A subtype that knows which rule it comes from."""

    __slots__ = ("rule",)
    rule: str


def explaining(engine: Engine) -> Engine:
    """An engine that finds the same; `rule_of` answers for its findings."""
    rows = [replace(row, check=_telling(row)) for row in engine.detectors]
    return Engine(rows, engine.categories, engine.finders)


def rule_of(finding: Finding) -> str:
    """Name of the detector that found it."""
    told = finding.subtype
    return told.rule if isinstance(told, Told) else told or finding.category


def decided_by(finding: Finding) -> str:
    """What decided that the candidate counts."""
    if finding.subtype == "pem":
        return "the opening line of the block"
    return DECIDED_BY.get(finding.category, "your own pattern")


def _telling(row: Detector) -> Check:
    inner = row.check

    def check(data: bytes, start: int, end: int) -> Finding | None:
        found = inner(data, start, end)
        if found is None:
            return None
        told = Told(found.subtype)
        told.rule = row.name
        return found._replace(subtype=told)

    return check
