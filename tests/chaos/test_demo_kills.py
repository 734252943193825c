"""The demo's write path and its recovery under SIGKILL, the payment service answering late.

After the last recovery, and after everything late has landed: no refund is half done, nothing
was undone twice, every call that was cut off has been resolved and recorded.
"""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from checkrein import Rein
from checkrein.effects import effect_of
from checkrein.journal import is_effect
from checkrein_integrations.demo.world import World

LATE = 0.15
SETTLE = 0.6
ROOT = Path(__file__).resolve().parents[2]


class Processes:
    """Children that can be killed: one that forks them, and their pids."""

    def __init__(self, folder):
        roots = [str(ROOT / name) for name in ("core", "plugins", "integrations")]
        path = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])
        self.errors = (folder / "errors.txt").open("w+")
        self.zygote = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/chaos/demo_worker.py"), str(folder), str(SETTLE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self.alive = set()

    def ask(self, line):
        self.zygote.stdin.write(line + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def start(self, line):
        pid = self.ask(line)
        self.alive.add(pid)
        return pid

    def over(self, pid):
        """Whether the process has ended (it is a zombie until it is waited for)."""
        with contextlib.suppress(FileNotFoundError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    def wait(self, pid):
        status = self.ask(f"wait {pid}")
        self.alive.discard(pid)
        return status

    def kill(self, pid):
        """SIGKILL; whether it was still running."""
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid) == signal.SIGKILL

    def close(self):
        for pid in list(self.alive):
            self.kill(pid)
        self.zygote.stdin.close()
        self.zygote.wait(10)
        self.zygote.stdout.close()
        self.errors.close()


class Cuts:
    """Counts kills that fell between the intent and the outcome of a write or an undo."""

    def __init__(self, store):
        self.store = store
        self.after = 0
        self.open = {}
        self.counted = set()
        self.kinds = Counter()

    def look(self):
        while page := self.store.events(after=self.after, limit=500):
            self.after = page[-1].seq
            for event in page:
                mark = (event.call, event.attempt)
                if event.kind == "intent" and (is_effect(event) or event.view["kind"] == "undo"):
                    self.open[mark] = event.view["kind"]
                elif event.kind in ("outcome", "late"):
                    self.open.pop(mark, None)
        fresh = [mark for mark in self.open if mark not in self.counted]
        self.counted.update(fresh)
        for mark in fresh[:1]:
            self.kinds[self.open[mark]] += 1


@pytest.fixture
def processes(tmp_path):
    made = Processes(tmp_path)
    yield made
    made.close()


def aimed(world, method, over):
    """Wait until the payment service has received a request that it has not applied yet."""
    until = time.monotonic() + 3
    while time.monotonic() < until and not over():
        if any(found == method for found, _ in world.pending()):
            time.sleep(random.uniform(0, LATE))
            return
        time.sleep(0.005)


def test_no_effect_is_left_half_done_and_none_is_undone_twice(tmp_path, full, processes, capsys):
    wanted = 200 if full else 20
    with (
        World(tmp_path, late=LATE) as world,
        Rein(store=f"sqlite:///{tmp_path}/checkrein.db") as rein,
    ):
        cuts = Cuts(rein.store)
        kills = Counter()
        number = 0
        while kills.total() < wanted:
            number += 1
            worker = processes.start(f"work k{number}")
            if random.random() < 0.6:
                aimed(world, "POST", lambda pid=worker: processes.over(pid))
            else:
                time.sleep(random.uniform(0.02, 0.7))
            assert processes.kill(worker), errors(tmp_path)
            kills["work"] += 1
            cuts.look()
            for _ in range(random.choice((0, 1, 1, 2))):
                command = random.choice(("recover", "recover", "settle"))
                pid = processes.start(command)
                if random.random() < 0.7:
                    aimed(world, "DELETE", lambda pid=pid: processes.over(pid))
                else:
                    time.sleep(random.uniform(0, 0.3))
                if kills.total() < wanted and processes.kill(pid):
                    kills["recover"] += 1
                    cuts.look()
                elif pid in processes.alive:
                    assert processes.wait(pid) == 0, errors(tmp_path)
        assert processes.wait(processes.start("settle")) == 0, errors(tmp_path)
        # Whatever is late has landed by then; a last look must find nothing to do.
        time.sleep(SETTLE)
        report = rein.recover()
        assert not report.sessions
        with capsys.disabled():
            sys.stdout.write(
                f"\n{kills.total()} kills: {kills['work']} in the write path, "
                f"{kills['recover']} in recover; {cuts.kinds['tool']} between intent and "
                f"outcome, {cuts.kinds['undo']} inside an undo\n"
            )
        assert cuts.kinds.total() >= wanted / 4
        check_world(tmp_path, world, rein)
        check_record(rein)


def errors(folder):
    return (folder / "errors.txt").read_text()


def sessions(rein):
    after = None
    while True:
        page = rein.store.sessions(after=after, limit=500)
        yield from page.rows
        after = page.next
        if after is None:
            return


def check_world(folder, world, rein):
    with contextlib.closing(sqlite3.connect(folder / "payments.db")) as db:
        paid = {row[0] for row in db.execute("select ord from refunds where reversed = 0")}
        applied = Counter(db.execute("select key, what from applied").fetchall())
    with world.shop() as db:
        orders = {row["id"] for row in db.execute("select id from orders where id like 'k%'")}
        rows = {row["ord"] for row in db.execute("select ord from refunds")}
        unrecorded = Counter(row["ord"] for row in db.execute("select ord from unrecorded"))
    mailed = {m["Message-ID"][6:-14] for m in world.mails()}
    assert paid == rows == mailed
    completed = {row.body["task"] for row in sessions(rein) if row.state == "COMPLETED"}
    assert paid == completed
    assert completed < orders
    assert applied
    assert max(applied.values()) == 1, [k for k, n in applied.items() if n > 1]
    assert max(unrecorded.values(), default=0) <= 1


def check_record(rein):
    """Each session is over; what was cut off is resolved, and the record says so."""
    for row in sessions(rein):
        assert (row.state, row.rollback) in (("COMPLETED", "none"), ("FAILED", "rolled_back"))
        for event in rein.read(row.id).events():
            if event.kind != "intent" or not is_effect(event):
                continue
            effect = effect_of(rein.store, event.call)
            assert effect.state in ("done", "not_done"), event
            if row.rollback == "rolled_back":
                assert effect.undone or effect.state == "not_done", event
            if not effect.ended:
                assert any(e.kind == "resolved" for e in rein.store.events(call=event.call))
    assert not rein.store.records("doubt", state="open").rows
