"""What undo costs: rollback, recovery, wrapped calls, lists of sessions; agent-saga beside it.

    python3 benchmarks/undo.py             # prints tables; 10,000 effects, 100,000 sessions
    python3 benchmarks/undo.py --full      # 100,000 effects, a journal of 1,000,000 actions
    python3 benchmarks/undo.py --quick     # to see that it runs

Run it where the requirements of `benchmarks` are installed. CPU time; several things of one run
are compared, because a shared machine is slow now and then.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "plugins"), str(ROOT / "core")]

from _bench import Case, machine, measure, table  # noqa: E402

from checkrein import Plugin, Rein, owner  # noqa: E402
from checkrein.call import Call, Outcome  # noqa: E402
from checkrein.store import Batch, NewEvent, Put, SessionPut  # noqa: E402


class Look(Plugin):
    """A plugin that looks at every call, before and after."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pre_call(self, call: Call) -> None:
        """Look at it."""

    def post_call(self, call: Call, outcome: Outcome) -> None:
        """Look at what became of it."""


def megabytes() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def apart(work: Callable[..., dict[str, float]], *given: Any) -> dict[str, float]:
    """Run something in a process of its own: memory and caches of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(work, given)


# -- rollback


def rollback(effects: int, plugins: int) -> dict[str, float]:
    """Do and undo `effects` over SQLite with `plugins` plugins."""
    with tempfile.TemporaryDirectory() as folder:
        world: set[int] = set()

        def act(n: int) -> None:
            world.add(n)

        def take_back(n: int) -> None:
            world.discard(n)

        looking = [Look(f"look-{n}") for n in range(plugins)]
        rein = Rein(looking, store=f"sqlite:///{folder}/s.db")
        put = rein.tool(act, name="put", undo=take_back)
        with rein.session() as session:
            for n in range(effects):
                put(n)
        assert len(world) == effects
        gc.collect()
        before = megabytes()
        begun, clock = time.process_time(), time.perf_counter()
        report = session.rollback()
        spent, passed = time.process_time() - begun, time.perf_counter() - clock
        assert report is not None
        assert report.complete
        assert not world
        grown = megabytes() - before
        rein.close()
    return {"per_second": effects / spent, "wall": effects / passed, "megabytes": grown}


def saga(effects: int) -> dict[str, float]:
    """Do and undo `effects` with agent-saga and its log in a file."""
    from agent_saga.context import SagaContext
    from agent_saga.semantics import ActionSemantics, Compensation
    from agent_saga.wal.file_wal import FileWAL

    world: set[int] = set()

    def act(n: int) -> None:
        world.add(n)

    def take_back(n: int) -> None:
        world.discard(n)

    async def run(folder: str) -> dict[str, float]:
        wal = FileWAL(f"{folder}/saga.log")
        await wal.start()
        context = SagaContext(wal=wal)
        for n in range(effects):
            await context.execute(
                "put", ActionSemantics.COMPENSABLE, act, {"n": n},
                lambda _, n=n: Compensation(fn=take_back, kwargs={"n": n}, handler="put.undo"),
            )  # fmt: skip
        assert len(world) == effects
        gc.collect()
        before = megabytes()
        begun, clock = time.process_time(), time.perf_counter()
        await context.rollback()
        spent, passed = time.process_time() - begun, time.perf_counter() - clock
        assert not world
        grown = megabytes() - before
        await wal.close()
        return {"per_second": effects / spent, "wall": effects / passed, "megabytes": grown}

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(folder))


# -- recovery


def recovery(actions: int) -> dict[str, float]:
    """Milliseconds until the first undo of a recovery, in a journal of `actions` actions."""
    with tempfile.TemporaryDirectory() as folder:
        rein = Rein(store=f"sqlite:///{folder}/s.db")
        first: list[tuple[float, float]] = []

        def undo() -> None:
            if not first:
                first.append((time.process_time(), time.perf_counter()))

        rein.declare("put", lambda n: n, undo=undo)
        for _ in range(max(1, actions // 10_000)):
            with rein.session(on_error="keep"):
                for n in range(5_000):
                    rein.call(len, str(n))
        session = rein.session()
        session.__enter__()
        for n in range(min(5_000, actions)):
            rein.call(rein.tools.get("put").fn, n)  # type: ignore[union-attr, arg-type]  # declared above
        # Its process has died.
        dead = replace(owner.this_process(rein.clock()), pid=2**22 + 1, started="1")
        rein.store.beat(dead)
        row = rein.store.session(session.id)
        assert row is not None
        rein.store.claim(session.id, dead.id, expect=row.fence, at=rein.clock())
        rein.untrack(session)
        rein.close()

        again = Rein(store=f"sqlite:///{folder}/s.db", undo_tries=1)
        again.declare("put", lambda n: n, undo=undo)
        cpu, wall = time.process_time(), time.perf_counter()
        again.recover()
        again.close()
    return {"cpu": (first[0][0] - cpu) * 1e3, "wall": (first[0][1] - wall) * 1e3}


# -- wrapped calls


class Part:
    """Part of a client."""

    def create(self, name: str) -> str:
        """Act."""
        return name


class Client:
    """A client."""

    def __init__(self) -> None:
        self.items = Part()


def wrapped(rounds: int, count: int) -> list[Case]:
    """A supervised call, and the same through a wrapped client."""
    rein = Rein([Look("look")])
    client = Client()
    supervised = rein.wrap(client, connector="x")
    session = rein.session(on_error="keep")
    session.__enter__()
    plain, create = client.items.create, supervised.items.create

    def call(n: int) -> None:
        for _ in range(n):
            rein.call(plain, "a")

    def through(n: int) -> None:
        for _ in range(n):
            create("a")

    cases = [Case("supervised call", call, count), Case("wrapped call", through, count)]
    measure(cases, rounds)
    session.__exit__(None, None, None)
    rein.close()
    return cases


# -- lists


def lists(sessions: int) -> dict[str, float]:
    """Milliseconds for a page of 100 sessions and for the counts, display states derived."""
    with tempfile.TemporaryDirectory() as folder:
        rein = Rein(store=f"sqlite:///{folder}/s.db")
        lease = rein.lease.id()
        states = ("COMPLETED", "COMPLETED", "FAILED", "ACTIVE", "ABANDONED")
        batches = []
        for n in range(sessions):
            state: Any = states[n % len(states)]
            body = {
                "agent": f"a{n % 7}",
                "intent": "do a thing " * 5,
                "user": "ann",
                "on_error": "x",
            }
            put = SessionPut(
                create=True, state=state, owner=lease if state == "ACTIVE" else "", body=body,
                rollback="partial" if n % 10 == 2 else None,
            )  # fmt: skip
            puts = ()
            if n % 50 == 3:
                expires = rein.clock() + 10**12
                puts = (Put("approval", f"ap{n}", "pending", {"expires": expires}, f"s{n}"),)
            event = NewEvent("session_started", "", n, {"agent": "a"})
            batches.append(Batch(f"s{n}", (event,), n, session_put=put, puts=puts))
            if len(batches) == 500:
                rein.store.commit_many(batches)
                batches = []
        rein.store.commit_many(batches)
        rein.close()
        # Another process looks: what was written in one go is indexed by then.
        rein = Rein(store=f"sqlite:///{folder}/s.db")
        rein.sessions(limit=100)
        found: dict[str, list[float]] = {"page": [], "counts": []}
        after = None
        for _ in range(20):
            begun = time.process_time()
            page = rein.sessions(limit=100, after=after)
            found["page"].append((time.process_time() - begun) * 1e3)
            after = page.next
            begun = time.process_time()
            counts = rein.session_counts()
            found["counts"].append((time.process_time() - begun) * 1e3)
            assert sum(counts.values()) == sessions
        rein.close()
    return {name: sorted(times)[len(times) // 2] for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    effects = 100_000 if options.full else 500 if options.quick else 10_000
    journal = 1_000_000 if options.full else 5_000 if options.quick else 100_000
    sessions = 2_000 if options.quick else 100_000
    print(f"# Undo\n\n> {machine()}\n")
    print(f"## Rollback of {effects:,} effects\n")
    print(
        "| | undone per CPU second | per second | memory grows by |\n| --- | ---: | ---: | ---: |"
    )
    runs: list[tuple[str, Callable[..., dict[str, float]], tuple[Any, ...]]] = [
        ("checkrein, SQLite, five plugins", rollback, (effects, 5)),
        ("checkrein, SQLite, no plugin", rollback, (effects, 0)),
    ]
    try:
        import agent_saga
    except ImportError:
        print("| agent-saga is not installed | | | |")
    else:
        name = f"agent-saga {getattr(agent_saga, '__version__', '')}, log in a file, one process"
        runs.append((name, saga, (effects,)))
    for name, work, given in runs:
        got = apart(work, *given)
        grown = f"{got['megabytes']:.1f} MB"
        print(f"| {name} | {got['per_second']:,.0f} | {got['wall']:,.0f} | {grown} |")
    print("\n## The first undo of a recovery starts after\n")
    for actions in (min(10_000, journal), journal):
        got = apart(recovery, actions)
        print(f"* {actions:,} actions: {got['cpu']:.1f} ms CPU, {got['wall']:.1f} ms")
    print("\n## A wrapped call\n")
    cases = wrapped(3 if options.quick else 15, 200 if options.quick else 3_000)
    print("\n".join(table(cases)))
    print(f"\nIt adds {cases[1].median - cases[0].median:.1f} us.")
    got = apart(lists, sessions)
    print(f"\n## {sessions:,} sessions with display states\n")
    print(
        f"* a page of 100: {got['page']:.2f} ms CPU\n* counts by state: {got['counts']:.2f} ms CPU"
    )


if __name__ == "__main__":
    main()
