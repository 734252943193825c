"""All scenarios, and what is installed to run them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from typing import Any

from .scenario import Scenario
from .scenarios_approvals import SCENARIOS as APPROVALS
from .scenarios_content import SCENARIOS as CONTENT
from .scenarios_failures import SCENARIOS as FAILURES
from .scenarios_limits import SCENARIOS as LIMITS
from .scenarios_runs import SCENARIOS as RUNS
from .scenarios_verdicts import SCENARIOS as VERDICTS

SCENARIOS: list[Scenario] = [*VERDICTS, *APPROVALS, *LIMITS, *FAILURES, *CONTENT, *RUNS]
NAMES = [scenario.name for scenario in SCENARIOS]

DRIVERS = {
    "plain": "",
    "langchain": "langchain",
    "crewai": "crewai",
    "openai_agents": "agents",
    "openai": "openai",
}
"""Driver -> the module of its framework."""


def drivers() -> dict[str, Any]:
    """The drivers whose framework is installed, by name."""
    found: dict[str, Any] = {}
    for name, framework in DRIVERS.items():
        if importlib.util.find_spec(f"{__package__}.driver_{name}") is None:
            continue
        if name == "openai" and os.environ.get("CHECKREIN_REQUIRE", name) != name:
            continue  # other frameworks bring its client: it has a session of its own
        if not framework or importlib.util.find_spec(framework) is not None:
            with warnings.catch_warnings():
                # What a framework warns of while it is imported is its own affair.
                warnings.simplefilter("ignore")
                found[name] = importlib.import_module(f".driver_{name}", __package__)
    return found


def table() -> dict[str, Any]:
    """What the page about compatibility says of scenarios and differences."""
    from .differences import DIFFERENCES

    return {
        "scenarios": {s.name: s.about for s in SCENARIOS},
        "differences": [
            {
                "scenario": row.scenario,
                "driver": row.driver,
                "only": [_form(key, value) for key, value in row.only.items()],
                "fields": list(row.changes or ()),
                "mechanism": row.mechanism,
            }
            for row in DIFFERENCES
        ],
    }


def _form(key: str, value: Any) -> str:
    if key == "streamed":
        return "streamed" if value else "not streamed"
    return str(value)
