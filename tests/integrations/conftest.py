"""Fixtures that the tests of all adapters share."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Rein

from .shared import effects


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


@pytest.fixture
def rein() -> Any:
    """A function that makes a Rein and closes it at the end."""
    made: list[Rein] = []

    def make(*plugins: Any, **settings: Any) -> Rein:
        made.append(Rein(plugins=list(plugins), **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
