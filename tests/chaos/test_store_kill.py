"""Processes that commit are killed with SIGKILL: nothing is half written, nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkrein.store import Store, open_store

WORKERS = 4

WORKER = """
import itertools, sys
from checkrein.errors import HoldRefused
from checkrein.store import Batch, HoldRow, NewEvent, Put, SessionPut, SettleRow, open_store

url, session = sys.argv[1:]
store = open_store(url)
store.commit(Batch(session, [], 1, session_put=SessionPut(create=True)))
print("ready", flush=True)
for i in itertools.count(1):
    call = f"{session}.{i}"
    payload = {"i": i, "text": "x" * (100_000 if i % 20 == 0 else 500)}
    holds = [HoldRow(call, "acc", 5, "usd", 10**12, None, "measured", call, session)]
    holds.append(HoldRow(call + ".w", "rate", 1, "calls", 10**12, 0.01, "keep", call, session))
    rows = [Put("call", call, "started", {"i": i}, session, if_state=("",))]
    intent = [NewEvent("intent", call, i, {"i": i}, payload), NewEvent("note", call, i, {})]
    at = i * 1000
    store.commit(Batch(session, intent, at, admit=True, holds=holds, puts=rows))
    # What is told here was committed: a kill may not take it back.
    print("i", i, flush=True)
    outcome = [NewEvent("outcome", call, i, {"cost": i % 9}, payload)]
    outcome.append(NewEvent("note", call, i, {}))
    rows = [Put("call", call, "done", {"i": i}, session, if_state=("started",))]
    settles = [SettleRow(call, i % 9), SettleRow(call + ".w", 1)]
    if i % 3:
        store.commit(Batch(session, outcome, at, settles=settles, puts=rows))
    else:
        (result,) = store.commit_many([Batch(session, outcome, at, settles=settles, puts=rows)])
        if isinstance(result, Exception):
            raise result
    print("o", i, flush=True)
"""


def rounds(request: pytest.FixtureRequest) -> int:
    return 40 if request.config.getoption("--full", default=False) else 2


@pytest.mark.timeout(1800)
def test_kills_leave_whole_batches(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'checkrein.db'}"
    totals = Totals()
    sessions: list[str] = []
    store = open_store(url)
    for turn in range(rounds(request)):
        names = [f"{turn}.{worker}" for worker in range(WORKERS)]
        for session, said in run_and_kill(url, names, tmp_path).items():
            check(store, session, said, totals)
        check_totals(store, totals)
        sessions += names
    said_all = f"{len(sessions)} kills, {totals.running} of them between intent and outcome"
    print(said_all)  # noqa: T201 - shown with -rP
    if request.config.getoption("--full", default=False):
        assert totals.running >= 40, said_all
    store.close()
    # The first process to open it after the last one died finds the same.
    again = open_store(url)
    assert [again.verify(session) for session in sessions] == [None] * len(sessions)
    check_totals(again, totals)
    again.close()


@dataclass
class Totals:
    """What the accounts must come to."""

    spent: int = 0
    done: int = 0
    running: int = 0


def run_and_kill(url: str, sessions: list[str], tmp_path: Path) -> dict[str, list[tuple[str, int]]]:
    """Run a process for each session, kill each at some moment; what they said was done."""
    logs = [tmp_path / f"{session}.log" for session in sessions]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for session, log in zip(sessions, logs, strict=True):
            with log.open("wb") as out:
                running.append(
                    subprocess.Popen([sys.executable, "-c", WORKER, url, session], stdout=out)
                )
        deadline = time.monotonic() + 60
        while any(b"o 5\n" not in log.read_bytes() for log in logs):
            assert time.monotonic() < deadline, "the workers do not work"
            assert all(process.poll() is None for process in running)
            time.sleep(0.01)
        for process in random.sample(running, len(running)):
            time.sleep(random.uniform(0.01, 0.15))
            assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
    finally:
        for process in running:
            process.kill()
            process.wait()
    said = {}
    for session, log in zip(sessions, logs, strict=True):
        lines = log.read_text().splitlines(keepends=True)[1:]
        words = [line.split() for line in lines if line.endswith("\n")]
        said[session] = [(kind, int(number)) for kind, number in words]
    return said


def check(store: Store, session: str, said: list[tuple[str, int]], totals: Totals) -> None:
    """The chain holds, batches are whole, and what was told is there."""
    assert store.verify(session) is None
    events = store.events(session=session, limit=100_000)
    # Two events a batch: a half one would break the pattern.
    kinds = [event.kind for event in events]
    assert kinds == (["intent", "note", "outcome", "note"] * len(kinds))[: len(kinds)]
    assert len(kinds) % 2 == 0
    intents = [event for event in events if event.kind == "intent"]
    outcomes = [event for event in events if event.kind == "outcome"]
    there = {("i", event.view["i"]) for event in intents}
    there |= {("o", number + 1) for number in range(len(outcomes))}
    assert set(said) <= there
    # A worker tells each commit before it begins the next.
    assert len(there) - len(said) <= 1
    running = len(intents) - len(outcomes)
    states = [row.state for row in store.records("call", session=session, limit=100_000).rows]
    assert states == ["done"] * len(outcomes) + ["started"] * running
    for event in events:
        assert (store.payload(event.seq) is None) == (event.kind == "note")
    totals.spent += sum(event.view["cost"] for event in outcomes)
    totals.done += len(outcomes)
    totals.running += running


def check_totals(store: Store, totals: Totals) -> None:
    """The accounts are what was booked, and the holds of those who were killed."""
    balance, rate = store.balance("acc"), store.balance("rate")
    assert balance is not None
    assert rate is not None
    assert (balance.spent, balance.held) == (totals.spent, 5 * totals.running)
    assert (rate.spent, rate.held) == (totals.done, totals.running)
    assert len(store.holds()) == 2 * totals.running
    assert store.rebuild() == []
