"""All scenarios, and what is installed to run them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from .scenario import Scenario
from .scenarios import approvals, content, failures, limits, runs, verdicts

SCENARIOS: list[Scenario] = [
    *verdicts.SCENARIOS,
    *approvals.SCENARIOS,
    *limits.SCENARIOS,
    *failures.SCENARIOS,
    *content.SCENARIOS,
    *runs.SCENARIOS,
]
NAMES = [scenario.name for scenario in SCENARIOS]

DRIVERS = {"plain": "", "langchain": "langchain", "crewai": "crewai", "openai_agents": "agents"}
"""Driver -> the module of its framework."""


def drivers() -> dict[str, Any]:
    """The drivers whose framework is installed, by name."""
    found: dict[str, Any] = {}
    for name, framework in DRIVERS.items():
        if importlib.util.find_spec(f"{__package__}.drivers.{name}") is None:
            continue
        if not framework or importlib.util.find_spec(framework) is not None:
            found[name] = importlib.import_module(f".drivers.{name}", __package__)
    return found
