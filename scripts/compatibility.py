"""Write `docs/compatibility.md` from a run of the conformance suite.

`python3 scripts/compatibility.py` runs the suite in every environment that has it;
`--from FILE ...` takes reports of runs that were made already
(`CHECKREIN_CONFORMANCE_REPORT=FILE pytest tests/conformance`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import environments

PAGE = environments.ROOT / "docs" / "compatibility.md"
SUITE = "tests/conformance"
TITLES = {
    "plain": "own loop",
    "langchain": "LangChain",
    "crewai": "CrewAI",
    "openai_agents": "OpenAI Agents SDK",
    "openai": "OpenAI clients",
}


def main() -> int:
    """Run, or read, and write the page; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="reports", nargs="+", type=Path, default=[])
    options = parser.parse_args()
    runs: dict[str, Any] = {}
    if options.reports:
        for path in options.reports:
            runs |= json.loads(path.read_text(encoding="utf-8"))
    else:
        for environment in environments.load().values():
            if SUITE in environment.tests:
                runs |= run(environment)
    PAGE.write_text(page(runs), encoding="utf-8")
    print(f"{PAGE.relative_to(environments.ROOT)}: {', '.join(runs)}")
    return 0


def run(environment: environments.Environment) -> dict[str, Any]:
    """Run the suite in one environment; its report."""
    python = environments.ensure(environment)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        done = subprocess.run(
            [str(python), "-m", "pytest", "-q", SUITE],
            cwd=environments.ROOT,
            env=environments.child_environment(
                CHECKREIN_CONFORMANCE_REPORT=str(report), CHECKREIN_REQUIRE=environment.require
            ),
            check=False,
        )
        if done.returncode:
            sys.exit(f"session {environment.name}: the suite failed, the page is left as it is")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def page(runs: dict[str, Any]) -> str:
    """The page for the reports of all drivers."""
    catalogue = _suite("table")
    names = [name for name in TITLES if name in runs]
    total = sum(len(v) for n in names for v in runs[n]["runs"].values())
    lines = [
        "# Compatibility: one policy, every framework",
        "",
        (
            "Each scenario below is written once: policy, scripted model answers, tools, and one "
            "expected result. The result is what happened to the world, what the model read, what "
            "the user got, every row of the journal, the tree of spans and the spend. It is run "
            "through every framework, sync and async, with tool calls one by one and in parallel, "
            "streamed and not, in CrewAI with native tool calls and ReAct, and in a loop over "
            "OpenAI's own clients by chat completions and responses. The suite is "
            "`tests/conformance/`: `pytest tests/conformance` runs it for what is installed, and "
            "`python3 scripts/compatibility.py` writes this page from a run."
        ),
        "",
        f"This page: {total} runs.",
        "",
        "| framework | versions | runs | as expected | by a named mechanism | cannot run |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in names:
        count = Counter(v for variants in runs[name]["runs"].values() for v in variants.values())
        versions = ", ".join(f"{p} {v}" for p, v in runs[name]["versions"].items()) or "-"
        lines.append(
            f"| {TITLES[name]} | {versions} | {count.total()} | {count['same']} "
            f"| {count['differs']} | {count['cannot']} |"
        )
    lines += [
        "",
        "## Scenarios",
        "",
        (
            "`=` the expected result in every form; a number: the row of the table below that says "
            "what differs, and in which forms."
        ),
        "",
        "| scenario | what it is about | " + " | ".join(TITLES[n] for n in names) + " |",
        "| --- | --- |" + " --- |" * len(names),
    ]
    rows = catalogue["differences"]
    for scenario, about in catalogue["scenarios"].items():
        cells = [
            _cell(runs[name]["runs"].get(scenario, {}), scenario, name, rows) for name in names
        ]
        lines.append(f"| `{scenario}` | {about} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Differences",
        "",
        (
            "A difference is allowed only where a mechanism of the framework forces it, and a test "
            "shows that mechanism without us."
        ),
        "",
        "| | scenario | where | what differs | mechanism |",
        "| --- | --- | --- | --- | --- |",
    ]
    for number, row in enumerate(rows, 1):
        if row["driver"] in names:
            where = ", ".join([TITLES[row["driver"]], *row["only"]])
            what = ", ".join(row["fields"]) if row["fields"] else "cannot be run"
            lines.append(
                f"| {number} | `{row['scenario']}` | {where} | {what} | {row['mechanism']} |"
            )
    return "\n".join(lines) + "\n"


def _cell(verdicts: dict[str, str], scenario: str, driver: str, rows: list[Any]) -> str:
    if not verdicts:
        return "not run"
    if set(verdicts.values()) == {"same"}:
        return "="
    numbers = [
        str(number)
        for number, row in enumerate(rows, 1)
        if row["driver"] == driver and row["scenario"] == scenario
    ]
    return ", ".join(numbers)


def _suite(name: str) -> Any:
    """What the suite itself says of its scenarios, without any framework."""
    for root in ("core", "plugins", "integrations", ""):
        sys.path.insert(0, str(environments.ROOT / root))
    return getattr(importlib.import_module("tests.conformance.catalogue"), name)()


if __name__ == "__main__":
    sys.exit(main())
