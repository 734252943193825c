"""Every scenario gives its one result, in every framework and form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from . import differences
from .catalogue import NAMES, SCENARIOS, drivers
from .killed import play_killed
from .play import compare, differing, leaks, play
from .scenario import Scenario, Variant, variants

_DRIVERS = drivers()
_CASES = [
    pytest.param(
        driver,
        scenario,
        variant,
        id=f"{driver}-{scenario.name}-{variant}",
        # CrewAI reads deprecated fields of its own, and uses deprecated parts of others.
        marks=[pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")]
        if driver == "crewai"
        else [],
    )
    for driver, module in _DRIVERS.items()
    for scenario in SCENARIOS
    for variant in variants(scenario, module.VARIANTS)
]


def test_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 40
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("driver", "scenario", "variant"), _CASES)
def test_scenario(
    driver: str, scenario: Scenario, variant: Variant, verdicts: dict[str, Any], tmp_path: Path
) -> None:
    module: Any = _DRIVERS[driver]
    row = differences.of(scenario, driver, variant)
    if row is not None and row.changes is None:
        verdicts[driver, scenario.name, str(variant)] = "cannot"
        pytest.skip(row.mechanism)
    if scenario.dies is None:
        seen = play(module, scenario, variant)
    else:
        seen = play_killed(driver, module, scenario, variant, tmp_path)
    want, got = compare(scenario, variant, seen, row.changes if row is not None else None)
    assert not differing(want, got)
    assert leaks(scenario, seen) == []
    if seen.streamed is not None and isinstance(want["final"], str):
        assert seen.streamed == seen.final
    if row is not None:
        common, got = compare(scenario, variant, seen)
        assert differing(common, got).keys() == row.changes.keys(), "the row is no longer true"
    verdicts[driver, scenario.name, str(variant)] = "same" if row is None else "differs"
