"""Install and run all tests of all extras: `python3 scripts/test.py`.

Every session has an environment of its own, because some frameworks cannot share one.
Arguments after `--` go to pytest. Ends with one line that adds all sessions up; exits 1
if anything failed, or if a session ran no test.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import environments


@dataclass(frozen=True, slots=True)
class Count:
    """How the tests of a session ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def main() -> int:
    """Run the sessions; return the exit code."""
    sessions = {name: env for name, env in environments.load().items() if env.tests}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--session", action="append", choices=sorted(sessions), default=[])
    parser.add_argument("--full", action="store_true", help="large counts: hours, not minutes")
    parser.add_argument("--oldest", action="store_true", help="oldest supported dependencies")
    parser.add_argument("--few", action="store_true", help="of each session the few that it names")
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="arguments for pytest")
    options = parser.parse_args()

    chosen = environments.load(oldest=options.oldest)
    extra = [*(["--full"] if options.full else []), *options.pytest]
    wanted = [chosen[name] for name in options.session or sessions]
    if options.few:
        wanted = [replace(env, tests=env.few) for env in wanted if env.few]
    results: dict[str, tuple[Count, int]] = {}
    for environment, python in installed(wanted):
        results[environment.name] = run(environment, python.result(), extra)
    print()
    for name, (count, code) in results.items():
        print(f"session {name}: {count} (pytest exit code {code})")
    total = sum((count for count, _ in results.values()), Count())
    print(total, flush=True)
    return int(total.failed > 0 or any(code for _, code in results.values()))


def installed(
    wanted: list[environments.Environment],
) -> Iterator[tuple[environments.Environment, Future[Path]]]:
    """Each environment with its interpreter; the next one is made while a session runs."""
    with ThreadPoolExecutor(1) as pool:
        made = [
            (environment, pool.submit(environments.ensure, environment)) for environment in wanted
        ]
        try:
            yield from made
        finally:
            pool.shutdown(cancel_futures=True)


def run(environment: environments.Environment, python: Path, extra: list[str]) -> tuple[Count, int]:
    """Run one session; return its count and pytest's exit code."""
    print(f"\nsession {environment.name}", flush=True)
    variables = environments.child_environment(
        CHECKREIN_REQUIRE=environment.require, CHECKREIN_SESSION=environment.name
    )
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        done = subprocess.run(
            [str(python), "-m", "pytest", *environment.tests, f"--junit-xml={report}", *extra],
            cwd=environments.ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return count(report), done.returncode


def count(report: Path) -> Count:
    """Add up pytest's report; a run that left none counts as one failure."""
    if not report.is_file():
        return Count(failed=1)
    suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - of our own pytest
    total = Count()
    for suite in suites:
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        total += Count(int(suite.get("tests", 0)) - failed - skipped, failed, skipped)
    return total


if __name__ == "__main__":
    sys.exit(main())
