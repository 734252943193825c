"""A clock that a test moves, a store of each kind, and Reins that are closed with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein

SECOND = 1_000_000


class Clock:
    """Microseconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * SECOND)


@pytest.fixture
def clock() -> Clock:
    """Time of the test's Reins."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store in memory, and one in a file."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def make(url: str, clock: Clock) -> Iterator[Callable[..., Rein]]:
    """`make(*plugins, **settings)`: a Rein on `url` by `clock`; errors keep effects."""
    made: list[Rein] = []

    def build(*plugins: object, **settings: Any) -> Rein:
        settings = {"store": url, "clock": clock, "on_error": "keep", **settings}
        rein = Rein(plugins, **settings)
        made.append(rein)
        return rein

    yield build
    for rein in made:
        rein.close()
