"""How long totals of the bill take: 1,000,000 calls in one SQLite file, 10,000 not folded yet.

    python3 benchmarks/totals.py [CALLS]

100,000 sessions of ten calls, 10,000 users, 2,000 tasks, over 90 days. CPU time of one query,
the best of five.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("benchmarks", "core")]

from _bench import machine  # noqa: E402 - found by the lines above

from checkrein.store import DIMENSIONS, open_store  # noqa: E402

DAYS = 90
DAY = 86_400_000_000
BEGIN = int(datetime(2026, 8, 1, 7, 13, tzinfo=UTC).timestamp()) * 1_000_000
GOAL = 20.0
"""Milliseconds."""


def rows(calls: int) -> Iterator[tuple[Any, ...]]:
    """Rows of the bill, in time."""
    for number in range(calls):
        sid = number // 10 + 1
        user = sid * 7919 % max(1, calls // 100)
        model = number % 3 != 0
        yield (
            number + 1, BEGIN + int(number / calls * DAYS * DAY), sid,
            "model" if model else "tool",
            f"model-{number % 20}" if model else f"tool-{number % 50}",
            f"agent-{sid % 20}", f"task-{sid % 2000}", f"user-{user}", f"tenant-{user % 100}", "",
            "reported" if number % 50 else "estimated", (number * 2_654_435_761) % 10**7, 1000,
            800, 200, 0, 0, 0, 0, 0, "genai-prices 0.2.3",
        )  # fmt: skip


def fill(path: Path, calls: int) -> None:
    """Write the file at once: as many commits would take a quarter of an hour."""
    open_store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO sessions VALUES (?, ?, 'COMPLETED', 'none', 0, '', 0, 0, x'', ?, ?, '', "
            "'a', '{}')",
            ((n + 1, f"{n:032x}", BEGIN, BEGIN) for n in range(calls // 10 + 1)),
        )
        marks = ", ".join("?" * 21)
        insert = f"INSERT INTO costs VALUES ({marks})"  # noqa: S608 - of question marks
        connection.executemany(insert, rows(calls))
    connection.close()


def main() -> None:
    """Measure and print."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    periods = {
        "always": (None, None),
        "a month": (int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()) * 1_000_000,
                    int(datetime(2026, 10, 1, tzinfo=UTC).timestamp()) * 1_000_000),
        "30 days": (BEGIN + 40 * DAY, BEGIN + 70 * DAY),
        "7 days": (BEGIN + 50 * DAY, BEGIN + 57 * DAY),
        "the last day": (BEGIN + (DAYS - 1) * DAY, None),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bill.db"
        fill(path, calls)
        store = open_store(f"sqlite:///{path}")
        begun = time.process_time()
        store.totals()
        folding = time.process_time() - begun
        sys.stdout.write(f"{machine()}\n\n{calls} calls; the first reader folds them in "
                         f"{folding:.1f} s\n\n| by | {' | '.join(periods)} |\n"
                         f"| --- |{' ---: |' * len(periods)}\n")  # fmt: skip
        worst = 0.0
        for by in ("", *DIMENSIONS):
            found = []
            for since, until in periods.values():
                times = []
                for _ in range(5):
                    begun = time.process_time()
                    store.totals(by, since=since, until=until, limit=50)
                    times.append((time.process_time() - begun) * 1e3)
                found.append(min(times))
            worst = max(worst, *found)
            sys.stdout.write(f"| {by or 'all'} | {' | '.join(f'{t:.1f} ms' for t in found)} |\n")
        store.close()
    sys.stdout.write(f"\nworst {worst:.1f} ms, aimed at {GOAL:g} ms: "
                     f"{'reached' if worst < GOAL else 'NOT REACHED'}\n")  # fmt: skip


if __name__ == "__main__":
    main()
