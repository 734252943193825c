"""Redaction: private data and secrets are found and replaced wherever they would leave."""

from __future__ import annotations

from checkrein_plugins.redaction.findings import CATEGORIES, DEFAULT_CATEGORIES, Finding
from checkrein_plugins.redaction.text import redact, scan

__all__ = ["CATEGORIES", "DEFAULT_CATEGORIES", "Finding", "redact", "scan"]
