"""Every scenario gives its one result, in every framework and form."""

from __future__ import annotations

from typing import Any

import pytest

from .catalogue import NAMES, SCENARIOS, drivers
from .play import compare, leaks, play
from .scenario import Scenario, Variant, variants

_DRIVERS = drivers()
_CASES = [
    pytest.param(driver, scenario, variant, id=f"{driver}-{scenario.name}-{variant}")
    for driver, module in _DRIVERS.items()
    for scenario in SCENARIOS
    for variant in variants(scenario, module.VARIANTS)
]


def test_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 40
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("driver", "scenario", "variant"), _CASES)
def test_scenario(driver: str, scenario: Scenario, variant: Variant) -> None:
    module: Any = _DRIVERS[driver]
    seen = play(module, scenario, variant)
    want, got = compare(scenario, variant, seen)
    assert got == want
    assert leaks(scenario, seen) == []
    if seen.streamed is not None and isinstance(want["final"], str):
        assert seen.streamed == seen.final
