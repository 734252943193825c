"""A pytest plugin for tests of agents: `pytest -p checkrein.testing.pytest`, nothing without it.

Fixtures
    rein            a `Rein` on a store in memory, closed after the test; what it is made of
                    comes from `rein_settings`
    rein_settings   keyword arguments of that `Rein`: override it (in a conftest, a class or a
                    module) to test under your policy
    effects         an outside world that counts: see `checkrein.testing.Effects`
    told            assertions over the journal: see `checkrein.testing.Told`
    clock           a clock that stands still until it is moved; use it in `rein_settings`
    scripted_model  `scripted_model("langchain", [...])`: a model that says what the test wants,
                    for any framework whose extra is installed; "openai" gives an HTTP server on
                    loopback (`.url`), for clients of OpenAI's interface

`--checkrein-trace` prints the life of each call after every test that used `rein`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import entry_points
from typing import Any

import pytest

from checkrein.rein import Rein
from checkrein.testing import Clock, Effects, OpenAIServer, Told

GROUP = "checkrein.models"
"""Entry-point group of scripted models: framework -> what makes one from a script."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--checkrein-trace`."""
    group = parser.getgroup("checkrein")
    group.addoption(
        "--checkrein-trace", action="store_true", help="print the life of each supervised call"
    )


@pytest.fixture
def rein_settings() -> dict[str, Any]:
    """Keyword arguments of `rein`: override this fixture. Default: `memory:`, no plugins."""
    return {}


@pytest.fixture
def rein(rein_settings: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Rein]:
    """A `Rein` on a store in memory."""
    made = Rein(**{"store": "memory:", **rein_settings})
    try:
        yield made
    finally:
        lines = Told(made).lines() if request.config.getoption("--checkrein-trace") else []
        made.close()
        _trace(request, lines)


@pytest.fixture
def effects() -> Effects:
    """An outside world for tools: it counts what they do and take back."""
    return Effects()


@pytest.fixture
def told(rein: Rein) -> Told:
    """Assertions over what `rein` recorded."""
    return Told(rein)


@pytest.fixture
def clock() -> Clock:
    """A clock for `rein_settings`: `{"clock": clock}`."""
    return Clock()


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., Any]]:
    """What makes scripted models: `scripted_model(framework, script, **settings)`."""
    with ExitStack() as stack:

        def make(framework: str, script: Any, **settings: Any) -> Any:
            if framework == "openai":
                return stack.enter_context(OpenAIServer(script, **settings))
            found = {entry.name: entry for entry in entry_points(group=GROUP)}
            if framework not in found:
                offered = ", ".join(sorted({"openai", *found}))
                raise LookupError(f"no scripted model for {framework!r}; there are: {offered}")
            return found[framework].load()(script=list(script), **settings)

        yield make


def _trace(request: pytest.FixtureRequest, lines: list[str]) -> None:
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if not lines or reporter is None:
        return
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with ExitStack() as stack:
        if capture is not None:
            stack.enter_context(capture.global_and_fixture_disabled())
        reporter.ensure_newline()
        reporter.write_line(f"checkrein: {request.node.nodeid}")
        for line in lines:
            reporter.write_line(f"  {line}")
