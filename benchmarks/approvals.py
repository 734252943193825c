"""How soon those who wait for a person go on, and how long it takes to look at many requests.

    python3 benchmarks/approvals.py [PENDING]

1,000 async callers wait on one SQLite file; 200 of them are answered in their process and 200
by another one. Then 100,000 pending requests in one file: a page, and the whole command.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOTS = [str(ROOT / part) for part in ("benchmarks", "core", "plugins")]
sys.path[:0] = ROOTS

from _bench import machine  # noqa: E402 - found by the lines above

from checkrein import Ask, Call, Plugin, Rein, errors, seals  # noqa: E402
from checkrein.store import Batch, Put  # noqa: E402

WAITERS = 1000
ANSWERED = 200
DECIDE = """
import json, sys, time
from checkrein import Rein
with Rein(store=sys.argv[1]) as rein:
    for request in rein.approvals.pending(int(sys.argv[2])):
        rein.approvals.approve(request.id, by="b")
        print(json.dumps([request.arguments["n"], time.time()]), flush=True)
        time.sleep(0.02)
"""


class Asks(Plugin):
    """Asks about everything."""

    def pre_call(self, call: Call) -> Ask:
        """Ask."""
        return Ask("sure?", rule="r")


async def pay(n: int) -> int:
    """Do nothing."""
    return n


def line(what: str, found: str, goal: str, *, reached: bool) -> None:
    """One row of the table."""
    sys.stdout.write(f"| {what} | {found} | {goal} | {'yes' if reached else 'NO'} |\n")


def at(times: list[float], share: float) -> float:
    """A quantile in milliseconds."""
    return 1e3 * sorted(times)[min(len(times) - 1, int(len(times) * share))]


async def waits(url: str) -> None:
    """Measure how callers wait and wake."""
    woke: dict[int, float] = {}
    with Rein(plugins=[Asks()], store=url) as rein:

        async def one(n: int) -> None:
            await rein.acall(pay, n)
            woke[n] = time.time()

        async with rein.session():
            calls = [asyncio.create_task(one(n)) for n in range(WAITERS)]
            waiting: list[Any] = []
            for _ in range(600):
                waiting = rein.store.records("approval", state="pending", limit=WAITERS).rows
                if len(waiting) == WAITERS:
                    break
                await asyncio.sleep(0.1)
            threads = threading.active_count()
            await asyncio.sleep(1)
            cpu, wall = time.process_time(), time.perf_counter()
            await asyncio.sleep(10)
            idle = 100 * (time.process_time() - cpu) / (time.perf_counter() - wall)
            line(f"threads of {WAITERS} waiters", str(threads), "< 10", reached=threads < 10)
            line("CPU while they wait", f"{idle:.2f} %", "< 1 %", reached=idle < 1)
            here: list[float] = []
            for record in waiting[-ANSWERED:]:
                rein.approvals.approve(record.id, by="a")
                said = time.time()
                await calls[record.body["arguments"]["n"]]
                here.append(woke[record.body["arguments"]["n"]] - said)
            p99 = at(here, 0.99)
            told = f"p50 {at(here, 0.5):.1f}, p99 {p99:.1f} ms"
            line("from the answer to the end of the call", told, "20 ms", reached=p99 < 20)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", DECIDE, url, str(ANSWERED), stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(ROOTS)},
            )  # fmt: skip
            out, _ = await process.communicate()
            await asyncio.sleep(0.5)
            said_there = dict(map(json.loads, out.decode().splitlines()))
            there = [woke[n] - said for n, said in said_there.items()]
            p99 = at(there, 0.99)
            told = f"p50 {at(there, 0.5):.1f}, p99 {p99:.1f} ms"
            line("the same, answered by another process", told, "p99 100 ms", reached=p99 < 100)
            for request in rein.approvals.pending(WAITERS):
                rein.approvals.approve(request.id, by="a")
            await asyncio.gather(*calls)


def fill(rein: Rein, pending: int) -> None:
    """Write requests like one that was asked."""
    try:
        with rein.session("desk", wait="suspend"):
            rein.call(lambda n: n, 5)
    except errors.ApprovalPending as error:
        record = rein.store.record("approval", error.token)
    assert record is not None
    for begin in range(0, pending, 500):
        puts = []
        for n in range(begin, min(pending, begin + 500)):
            body = seals.sealed(rein.store.key, f"ap-{n:024d}", "pending", record.body)
            puts.append(
                Put("approval", f"ap-{n:024d}", "pending", body, record.session, "pay", ("",))
            )
        rein.store.commit(Batch(record.session, (), rein.clock(), puts=puts))


def looks(url: str, pending: int) -> None:
    """Measure how long a look at many requests takes."""
    with Rein(plugins=[Asks()], store=url) as rein:
        fill(rein, pending)
        pages = []
        for _ in range(9):
            begun = time.process_time()
            rein.store.records("approval", state="pending", after=str(pending // 2), limit=100)
            pages.append(1e3 * (time.process_time() - begun))
    page = sorted(pages)[4]
    line(f"a page of {pending:,} pending", f"{page:.2f} ms of CPU", "5 ms", reached=page < 5)
    # As installed: with its bytecode compiled, whatever this process was told about that.
    child = {**os.environ, "PYTHONPATH": os.pathsep.join(ROOTS)}
    child.pop("PYTHONDONTWRITEBYTECODE", None)
    child["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(dir=Path(url.removeprefix("sqlite:///")).parent)

    def run(*arguments: str) -> tuple[float, float]:
        """(seconds, seconds of CPU) of a command, at best of five after one that compiles."""
        found = []
        for _ in range(6):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "checkrein", *arguments], env=child, check=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            wall = time.perf_counter() - begun
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found.append((wall, used))
        return min(wall for wall, _ in found), min(used for _, used in found)

    for what, arguments in (
        ("checkrein approvals", ("approvals", "--store", url)),
        ("checkrein --help", ("--help",)),
    ):
        wall, cpu = run(*arguments)
        told = f"{wall:.2f} s at best, {cpu:.2f} s of CPU"
        line(what, told, "0.5 s", reached=wall < 0.5)
    with Rein(store=url) as rein:
        begun = time.process_time()
        rein.store.records("approval", prefix=f"ap-{pending - 1:024d}"[:-1], limit=6)
        cut = 1e3 * (time.process_time() - begun)
    line("an approval by the beginning of its id", f"{cut:.2f} ms of CPU", "5 ms", reached=cut < 5)


def main() -> None:
    """Measure and print."""
    pending = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    sys.stdout.write(f"{machine()}\n\n| what | found | aimed at | reached |\n")
    sys.stdout.write("| --- | ---: | ---: | --- |\n")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(waits(f"sqlite:///{folder}/waits.db"))
        looks(f"sqlite:///{folder}/many.db", pending)


if __name__ == "__main__":
    main()
