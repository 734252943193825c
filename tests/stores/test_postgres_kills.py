"""Clients, connections and the server are killed: nothing is half written, nothing twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import pytest

from checkrein.store import StoreOptions

pytest.importorskip("psycopg")
from checkrein_plugins.stores.postgres import PostgresStore

pytestmark = [pytest.mark.stores, pytest.mark.timeout(1800)]

WRITER = """
import itertools, sys
from checkrein.store import Batch, HoldRow, NewEvent, Put, SessionPut, SettleRow, StoreOptions
from checkrein_plugins.stores.postgres import PostgresStore

url, session = sys.argv[1:]
store = PostgresStore(url, StoreOptions(extra={"patience": 60}))
store.commit(Batch(session, [], 1, session_put=SessionPut(create=True)))
print("ready", flush=True)
for i in itertools.count(1):
    call = f"{session}.{i}"
    payload = {"i": i, "text": "x" * 300}
    holds = [HoldRow(call, "acc", 5, "usd", 10**12, None, "measured", call, session)]
    rows = [Put("call", call, "started", {"i": i}, session, if_state=("",))]
    intent = [NewEvent("intent", call, i, {"i": i}, payload), NewEvent("note", call, i, {})]
    store.commit(Batch(session, intent, i, admit=True, holds=holds, puts=rows))
    # What is told here was committed: nothing may take it back.
    print("i", i, flush=True)
    outcome = [NewEvent("outcome", call, i, {"cost": i % 9}, payload)]
    rows = [Put("call", call, "done", {"i": i}, session, if_state=("started",))]
    store.commit(Batch(session, outcome, i, settles=[SettleRow(call, i % 9)], puts=rows))
    print("o", i, flush=True)
"""


class Writers:
    """Processes that commit, and what they have said."""

    def __init__(self, child: Any, url: str, names: list[str]) -> None:
        self.names = names
        self.processes = {name: child(WRITER, url, name) for name in names}
        self.said: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
        for name, process in self.processes.items():
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            threading.Thread(target=self._hear, args=(name, process), daemon=True).start()

    def _hear(self, name: str, process: Any) -> None:
        for line in process.stdout:
            kind, _, number = line.partition(" ")
            if number.endswith("\n"):
                self.said[name].append((kind, int(number)))

    def kill(self) -> None:
        for process in self.processes.values():
            os.kill(process.pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        time.sleep(0.2)

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes.values())


def check(store: PostgresStore, writers: Writers) -> int:
    """Every session is whole and holds all that was said; returns the calls that are open."""
    running = spent = held = 0
    for name in writers.names:
        assert store.verify(name) is None
        done: dict[str, set[int]] = {"intent": set(), "outcome": set()}
        after = 0
        while page := store.events(session=name, after=after):
            for event in page:
                if event.kind in done:
                    number = event.view["i"] if event.kind == "intent" else None
                    number = int(event.call.rpartition(".")[2]) if number is None else number
                    assert number not in done[event.kind], "written twice"
                    done[event.kind].add(number)
            after = page[-1].seq
        for kind, number in writers.said[name]:
            assert number in done["intent" if kind == "i" else "outcome"], "lost"
        open_calls = done["intent"] - done["outcome"]
        assert len(open_calls) <= 1
        running += len(open_calls)
        spent += sum(number % 9 for number in done["outcome"])
        held += 5 * len(open_calls)
        assert {hold.call for hold in store.holds(session=name)} == {
            f"{name}.{number}" for number in open_calls
        }
        rows = store.records("call", session=name, state="started").rows
        assert len(rows) == len(open_calls)
    balance = store.balance("acc")
    assert balance is not None
    assert (balance.spent, balance.held) == (spent, held)
    return running


def test_killed_clients_leave_whole_batches(url: str, child: Any, full: bool) -> None:
    store = PostgresStore(url)
    chance = random.Random(11)
    everybody: list[Writers] = []
    running = 0
    for turn in range(125 if full else 3):
        writers = Writers(child, url, [f"{turn}.{number}" for number in range(4)])
        everybody.append(writers)
        time.sleep(chance.uniform(0.1, 0.6))
        writers.kill()
    together = everybody[0]
    for writers in everybody[1:]:
        together.names += writers.names
        together.said |= writers.said
    running = check(store, together)
    print(f"{4 * len(everybody)} kills, {running} between intent and outcome")  # noqa: T201 - told
    assert store.rebuild() == []
    store.close()


def test_a_crashing_server_loses_nothing_that_was_acknowledged(
    url: str, child: Any, server: Any, full: bool
) -> None:
    if server.given:
        pytest.skip("the server is somebody else's: it is not killed")
    store = PostgresStore(url, StoreOptions(extra={"patience": 60}))
    writers = Writers(child, url, ["a", "b", "c"])
    chance = random.Random(12)
    crashes = 500 if full else 4
    for _ in range(crashes):
        time.sleep(chance.uniform(0.05, 0.5))
        server.crash()
    time.sleep(1)
    assert writers.alive(), "a commit was not taken up again"
    writers.kill()
    check(store, writers)
    assert store.rebuild() == []
    assert min(len(said) for said in writers.said.values()) > crashes
    store.close()


def test_connections_that_are_cut_lose_and_repeat_nothing(
    url: str, child: Any, proxy: Any, full: bool
) -> None:
    schema = url.rpartition("schema=")[2]
    PostgresStore(url).close()
    writers = Writers(child, f"{proxy.uri}?schema={schema}", ["a", "b", "c"])
    chance = random.Random(13)
    for _ in range(300 if full else 25):
        time.sleep(chance.uniform(0.01, 0.1))
        proxy.cut()
    time.sleep(1)
    assert writers.alive(), "a commit was not taken up again"
    writers.kill()
    store = PostgresStore(url)
    check(store, writers)
    assert store.rebuild() == []
    assert proxy.cuts > 10
    store.close()
