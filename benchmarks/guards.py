"""What the guards by rule add to a call: all of them together, and a limit over processes.

    python3 benchmarks/guards.py

Counters in memory for the first, in a SQLite file (within the commits of the call) for the
second. The timeout is one of another tool: a sync tool's own costs a thread, whoever sets it.
CPU time, medians over interleaved rounds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("benchmarks", "core", "plugins")]

from _bench import Case, machine, measure, table  # noqa: E402 - found by the lines above

from checkrein import Plugin, Rein  # noqa: E402
from checkrein_plugins.guardrails import (  # noqa: E402
    ActiveHours,
    CategoryRateLimit,
    IdempotencyGuard,
    OutputLengthLimit,
    RecursionDetector,
    ResourceQuota,
    SchemaValidator,
    UrlGuard,
)
from checkrein_plugins.resilience import CircuitBreaker, IterationLimit, Timeout  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "maxLength": 100},
        "amount": {"type": "integer", "minimum": 1},
        "note": {"type": "string"},
    },
    "required": ["to", "amount"],
}


def pay(to: str, amount: int, note: str) -> int:  # noqa: ARG001 - a tool has parameters
    """A tool with a few short arguments."""
    return amount


def rates() -> CategoryRateLimit:
    """A limit per minute that is not reached."""
    return CategoryRateLimit(
        limits=[{"category": "write", "calls": 100_000_000, "window": 60, "per": "agent"}]
    )


def guards() -> list[Plugin]:
    """Every guard by rule, with limits that are not reached."""
    return [
        SchemaValidator(arguments={"pay": SCHEMA}),
        rates(),
        RecursionDetector(),
        IdempotencyGuard(),
        OutputLengthLimit(),
        UrlGuard(allow=["example.com"]),
        ActiveHours(hours=["00:00-24:00"]),
        Timeout(tools={"fetch": 30}),
        IterationLimit(iterations=1_000_000),
        CircuitBreaker(),
        ResourceQuota(wall=1_000_000, cpu=1_000_000, memory_mb=1_000_000),
    ]


def calls(rein: Rein) -> Callable[[int], None]:
    """Calls in one session; no two are the same."""
    numbers = iter(range(1, 10**9))

    def run(count: int) -> None:
        with rein.session(agent="bench", on_error="keep"):
            for _ in range(count):
                rein.call(pay, "casey", next(numbers), "for the lamp")

    return run


def added(name: str, more: Case, less: Case, goal: float) -> str:
    """One line: what `more` costs above `less`, and what was aimed at."""
    value = statistics.median(a - b for a, b in zip(more.times, less.times, strict=True))
    return f"| {name} | {value:.1f} us | {goal:g} us | {'yes' if value < goal else 'NO'} |"


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:

        def rein(plugins: list[Plugin], file: str = "") -> Any:
            made = Rein(plugins, store=f"sqlite:///{folder}/{file}.db" if file else "memory:")
            reins.append(made)
            return calls(made)

        reins: list[Rein] = []
        cases = [
            Case("no plugin, in memory", rein([]), 1000),
            Case("eleven guards, in memory", rein(guards()), 300),
            Case("no plugin, SQLite", rein([], "none"), 300),
            Case("a rate limit over processes, SQLite", rein([rates()], "rates"), 300),
        ]
        measure(cases, 11)
        for made in reins:
            made.close()
    none, eleven, bare, limited = cases
    print(f"# Guards\n\n> {machine()}\n")
    print("\n".join(table(cases)))
    print(
        "\n| a call costs more with | measured | aimed at | reached |\n| --- | ---: | ---: | --- |"
    )
    print(added("eleven guards, counters in memory", eleven, none, 60))
    print(added("a rate limit over processes", limited, bare, 40))


if __name__ == "__main__":
    main()
