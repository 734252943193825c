"""Options, collection rules and fixtures of all tests.

* `--full` asks for the large counts (kills, examples); the fixture `full` tells.
* Tests of a framework that is not installed are not collected. `CHECKREIN_REQUIRE=langchain`
  (extras, by commas) makes that absence an error.
* `go` runs a test twice, by the sync entries and by their async twins.
* `child` starts real Python processes and ends them with the test.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = {
    "langchain": "langchain",
    "crewai": "crewai",
    "openai": "openai",
    "openai-agents": "agents",
    "connectors": "stripe",
    "postgres": "psycopg",
}
"""Extra -> the module that its framework is imported by."""

# A shared machine stalls at random: a slow example is no fault. Fixed examples keep two
# runs alike; `--full` draws new ones.
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.register_profile("full", deadline=None, max_examples=2000)


def installed(extra: str) -> bool:
    """Whether the framework of an extra can be imported (it is not)."""
    return importlib.util.find_spec(FRAMEWORKS[extra]) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="large counts: hours, not minutes")


def pytest_configure(config: pytest.Config) -> None:
    # CrewAI reports to its makers, in this process and in those that tests start.
    os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
    hypothesis.settings.load_profile("full" if config.getoption("--full") else "quick")
    for extra in filter(None, os.environ.get("CHECKREIN_REQUIRE", "").split(",")):
        if extra not in FRAMEWORKS:
            raise pytest.UsageError(f"CHECKREIN_REQUIRE: unknown extra {extra!r}")
        if not installed(extra):
            raise pytest.UsageError(f"CHECKREIN_REQUIRE: {FRAMEWORKS[extra]} is not installed")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out `tests/integrations/FRAMEWORK` and `tests/demo` without their extra."""
    parts = collection_path.relative_to(ROOT).parts if ROOT in collection_path.parents else ()
    if parts[:2] == ("tests", "demo") and not installed("langchain"):
        return True
    if parts[:2] == ("tests", "connectors") and not installed("connectors"):
        return True
    if parts[:2] == ("tests", "stores") and not installed("postgres"):
        return True
    if parts[:2] == ("tests", "integrations") and len(parts) > 2:
        extra = parts[2].removesuffix(".py").removeprefix("test_").replace("_", "-")
        if extra in FRAMEWORKS and not installed(extra):
            return True
    return None


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the large counts are asked for."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone."""
    return ROOT


@dataclass(frozen=True, slots=True)
class Go:
    """Runs what a test does through the sync entries, or through their async twins."""

    mode: Literal["sync", "async"]

    def call(self, rein: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`rein.call(fn, ...)`, or `await rein.acall(fn, ...)` on a loop of its own."""
        return self.run(rein, "call", fn, *args, **kwargs)

    def run(self, obj: Any, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """`obj.method(...)`, or `await obj.amethod(...)` on a loop of its own."""
        if self.mode == "sync":
            return getattr(obj, method)(*args, **kwargs)

        async def entry() -> Any:
            return await getattr(obj, f"a{method}")(*args, **kwargs)

        return asyncio.run(entry())


@pytest.fixture(params=["sync", "async"])
def go(request: pytest.FixtureRequest) -> Go:
    """The test runs twice: `go.call(rein, fn, ...)`, `go.run(rein, "rollback", id)`."""
    return Go(request.param)


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `child(snippet, *argv, env={...}, cwd=...)`: a real process, same interpreter.

    It sees the packages of this clone. stdin, stdout and stderr are text pipes. What still
    runs when the test ends is killed, and all pipes are closed.
    """
    started: list[subprocess.Popen[str]] = []

    def start(
        snippet: str, *argv: object, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        roots = [str(ROOT / name) for name in ("core", "plugins", "integrations")]
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([*roots, inherited] if inherited else roots)
        process = subprocess.Popen(
            [sys.executable, "-c", snippet, *map(str, argv)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
            cwd=cwd,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
        process.wait()
