"""Measuring side by side: every case in every round, medians of CPU time, ratios."""

from __future__ import annotations

import gc
import os
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass
class Case:
    """One thing to measure: `run(n)` does it n times."""

    name: str
    run: Callable[[int], None]
    n: int
    times: list[float] = field(default_factory=list)
    """CPU microseconds for one, per round."""

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.times)

    @property
    def spread(self) -> str:
        """Lower and upper quartile."""
        low, _, high = statistics.quantiles(self.times, n=4)
        return f"{low:.1f} to {high:.1f}"


def measure(cases: list[Case], rounds: int) -> None:
    """Interleave the cases, so that a slow moment of the machine meets all of them."""
    for case in cases:
        case.run(max(1, case.n // 10))
    for _ in range(rounds):
        for case in cases:
            gc.collect()
            begun = time.process_time()
            case.run(case.n)
            case.times.append((time.process_time() - begun) / case.n * 1e6)


def table(cases: list[Case]) -> list[str]:
    """Rows of a Markdown table."""
    rows = ["| case | CPU per call, median | quartiles |", "| --- | ---: | ---: |"]
    rows += [f"| {c.name} | {c.median:.1f} us | {c.spread} us |" for c in cases]
    return rows


def ratio(name: str, above: Case, below: Case, goal: float) -> str:
    """One line: how many times cheaper `below` is, and what was aimed at."""
    value = statistics.median(a / b for a, b in zip(above.times, below.times, strict=True))
    return f"| {name} | {value:.2f} | {goal:g} | {'yes' if value >= goal else 'NO'} |"


def machine() -> str:
    """What this was measured on."""
    model = ""
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text(encoding="utf-8").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        model = next(names, "")
    packages = []
    for name in (
        "agenthandler",
        "agent-aegis",
        "langchain",
        "langgraph",
        "pluggy",
        "pydantic",
        "google-re2",
    ):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return (
        f"{model or platform.processor()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release().split('-')[0]}, CPython {sys.version.split()[0]}, SQLite "
        f"{sqlite3.sqlite_version}; {', '.join(packages)}"
    )
