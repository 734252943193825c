"""Redaction: private data and secrets are found and replaced wherever they would leave."""

from __future__ import annotations

from checkrein_plugins.redaction.faults import (
    DetectorFailed,
    NotText,
    Redacted,
    RedactionError,
    Unredactable,
)
from checkrein_plugins.redaction.findings import CATEGORIES, DEFAULT_CATEGORIES, Finding
from checkrein_plugins.redaction.plugin import Redaction
from checkrein_plugins.redaction.stream import TextFilter
from checkrein_plugins.redaction.text import redact, scan
from checkrein_plugins.redaction.tree import redact_tree

__all__ = [
    "CATEGORIES", "DEFAULT_CATEGORIES", "DetectorFailed", "Finding", "NotText", "Redacted",
    "Redaction", "RedactionError", "TextFilter", "Unredactable", "redact", "redact_tree", "scan",
]  # fmt: skip
