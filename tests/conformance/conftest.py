"""Collects what came of each run; `CHECKREIN_CONFORMANCE_REPORT=FILE` writes it as JSON."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {
    "plain": (),
    "langchain": ("langchain", "langchain-core", "langgraph"),
    "crewai": ("crewai",),
    "openai_agents": ("openai-agents", "openai"),
    "openai": ("openai",),
}
"""Driver -> the distributions whose versions the report names."""

_VERDICTS: dict[tuple[str, str, str], str] = {}


@pytest.fixture
def verdicts() -> dict[Any, str]:
    """(driver, scenario, variant) -> `same`, `differs` or `cannot`."""
    return _VERDICTS


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("CHECKREIN_CONFORMANCE_REPORT")
    if not path:
        return
    report: dict[str, Any] = {}
    for (driver, scenario, variant), verdict in _VERDICTS.items():
        about = report.setdefault(
            driver, {"versions": {p: version(p) for p in PACKAGES[driver]}, "runs": {}}
        )
        about["runs"].setdefault(scenario, {})[variant] = verdict
    Path(path).write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", encoding="utf-8")
