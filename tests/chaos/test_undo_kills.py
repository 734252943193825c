"""Kills over calls of a wrapped client and over their undo, and an owner that stood still.

The world is a SQLite file: `items` honours idempotency keys, `notes` does not and can be asked.
Workers are forked from one process, so that a hundred of them take seconds.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein

Child = Callable[..., Any]

APP = """
import json, os, random, signal, sqlite3, sys, time
from checkrein import Absent, Present, Rein

class Part:
    def __init__(self, place, honours):
        self.place, self.honours = place, honours

    def sql(self, text, *values):
        db = sqlite3.connect(self.place, isolation_level=None, timeout=60)
        try:
            return db.execute(text, values).fetchall()
        finally:
            db.close()

    def apply(self, what, name, key):
        pause()
        db = sqlite3.connect(self.place, isolation_level=None, timeout=60)
        try:
            db.execute("BEGIN IMMEDIATE")
            known = db.execute("SELECT 1 FROM log WHERE key = ?", (key,)).fetchone()
            if not (self.honours and known):
                db.execute("INSERT INTO log VALUES (?, ?, ?)", (what, name, key))
            db.execute("COMMIT")
        finally:
            db.close()
        pause()

    def create(self, name, token=""):
        self.apply("act", name, token)
        return {"name": name}

    def delete(self, name, token=""):
        self.apply("undo", name, token)

def pause():
    time.sleep(random.uniform(0, 0.002))

class Client:
    def __init__(self, place):
        self.items, self.notes = Part(place, True), Part(place, False)

def there(client, name):
    count = "SELECT count(*) FROM log WHERE what = ? AND name = ?"
    done, undone = (client.notes.sql(count, w, name)[0][0] for w in ("act", "undo"))
    return Present({"name": name}) if done > undone else Absent()

sys.modules["field_app"] = sys.modules[__name__]
method = {"idempotency": "token", "settle_time": 0.0,
          "probe": "python:field_app:there", "operation": "create"}
TABLE = {
    "connector": "world", "package": "world", "tested": "1", "client": "field_app:Client",
    "methods": {f"{part}.create": {**method, "undo": f"{part}.delete(name, token=key)"}
                for part in ("items", "notes")},
}

def open_world(store, place):
    rein = Rein(store=store)
    return rein, rein.wrap(Client(place), connector="world", table=TABLE)

def work(store, place, number, ready):
    rein, world = open_world(store, place)
    ready()
    n = 0
    while True:
        try:
            with rein.session():
                for _ in range(random.randint(1, 5)):
                    n += 1
                    part = random.choice((world.items, world.notes))
                    part.create(f"{number}-{n}")
                if random.random() < 0.6:
                    raise KeyError
        except KeyError:
            pass

def recover(store, place, number, ready):
    rein, _ = open_world(store, place)
    ready()
    rein.recover(settle=True)
    rein.close()
"""

FIELD = (
    APP
    + """
# What is imported here need not be imported by every worker.
rein, world = open_world("memory:", sys.argv[2])
rein.recover()
with rein.session() as session:
    pass
session.rollback()
rein.close()

store, place, wanted, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
kills = number = ended = 0
while kills < wanted:
    number += 1
    job = work if chance.random() < 0.6 else recover
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            random.seed(seed + number)
            job(store, place, number, lambda: os.write(told, b"!"))
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    os.close(told)
    os.read(heard, 1)
    os.close(heard)
    time.sleep(chance.uniform(0, 0.15))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        kills += 1
    elif os.WEXITSTATUS(status):
        sys.exit(1)
    else:
        ended += 1
print(json.dumps({"kills": kills, "ended": ended}), flush=True)
"""
)


def make_world(tmp_path: Path) -> Path:
    place = tmp_path / "world.db"
    with sqlite3.connect(place) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE log (what TEXT, name TEXT, key TEXT)")
        db.execute("CREATE INDEX by_key ON log (key)")
        db.execute("CREATE INDEX by_name ON log (name)")
    db.close()
    return place


def world_of(place: Path) -> tuple[set[str], list[str]]:
    """Names that are in place, and what was done or undone too often."""
    db = sqlite3.connect(place)
    try:
        rows = db.execute(
            "SELECT name, sum(what = 'act'), sum(what = 'undo') FROM log GROUP BY name"
        ).fetchall()
    finally:
        db.close()
    wrong = [f"{n}: done {a} times, undone {u} times" for n, a, u in rows if a > 1 or u > a]
    return {n for n, a, u in rows if a > u}, wrong


def application() -> dict[str, Any]:
    """The text that the children run, here."""
    import sys
    import types

    module = types.ModuleType("field_app")
    sys.modules["field_app"] = module
    exec(APP.replace('sys.modules["field_app"] = sys.modules[__name__]', ""), module.__dict__)
    return module.__dict__


def rows(rein: Rein) -> list[Any]:
    found: list[Any] = []
    after: str | None = None
    while True:
        page = rein.store.sessions(after=after, limit=500)
        found += page.rows
        after = page.next
        if after is None:
            return found


def test_kills_over_wrapped_calls_and_their_undo(
    tmp_path: Path, child: Child, full: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_world(tmp_path)
    store = f"sqlite:///{tmp_path}/store.db"
    seed = random.randrange(2**31)
    process = child(FIELD, store, place, 2000 if full else 100, seed)
    out, err = process.communicate()
    assert process.returncode == 0, f"seed {seed}: {err[-2000:]}"
    counts = json.loads(out)
    rein, _ = application()["open_world"](store, str(place))
    with rein:
        # Nobody comes back any more but this one.
        report = rein.recover(settle=True)
        in_place, wrong = world_of(place)
        assert wrong == [], f"seed {seed}"
        kept: set[str] = set()
        undone: set[str] = set()
        reported: set[str] = set()
        for row in rows(rein):
            assert row.state != "ACTIVE" and rein.store.verify(row.id) is None
            events = list(rein.read(row.id).events())
            acts = {e.call: e for e in events if e.kind == "intent" and e.view["kind"] == "tool"}
            names = {e.view["arguments"]["name"] for e in acts.values()}
            reported |= {
                acts[e.call].view["arguments"]["name"] for e in events if e.kind == "needs_human"
            }
            if row.state == "COMPLETED":
                kept |= names
            else:
                undone |= names
        assert undone & in_place - reported == set(), f"seed {seed}: lost"
        assert kept <= in_place | reported, f"seed {seed}: undone although it had ended well"
        assert report.left == [] and rein.recover().left == []
    with capsys.disabled():
        print(  # noqa: T201 - the counts are what this test shows
            f"\n{counts['kills']} kills, {counts['ended']} ended before: {len(kept | undone)} "
            f"effects, {len(undone)} to undo, 0 lost, 0 undone twice, {len(reported)} reported"
        )
    assert len(undone) > counts["kills"] / 20


STALLED = (
    APP
    + """
delete = Part.delete

def stall(self, name, token=""):
    print("stalling", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    delete(self, name, token)

Part.delete = stall
rein, world = open_world(sys.argv[1], sys.argv[2])
try:
    with rein.session() as session:
        world.items.create("a")
        raise KeyError
except KeyError as error:
    print(*getattr(error, "__notes__", []), flush=True)
"""
)


def test_an_owner_that_stood_still_wakes_after_somebody_else_has_undone(
    go: Any, tmp_path: Path, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a key that the world honours keeps its undo from being applied twice: it does."""
    from checkrein import owner

    place = make_world(tmp_path)
    store = f"sqlite:///{tmp_path}/store.db"
    process = child(STALLED, store, place)
    assert process.stdout.readline() == "stalling\n"
    # As another host sees it: silent for longer than a lease.
    monkeypatch.setattr(owner, "host", lambda: "elsewhere")
    monkeypatch.setattr(owner, "LEASE", 0.3)
    time.sleep(0.5)
    rein, _ = application()["open_world"](store, str(place))
    with rein:
        report = go.run(rein, "recover", settle=True)
        assert report.complete and world_of(place) == (set(), [])
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        assert "another process took the rollback over" in out, err
        assert world_of(place) == (set(), [])
        (row,) = rows(rein)
        assert row.rollback == "rolled_back" and rein.store.verify(row.id) is None
    db = sqlite3.connect(place)
    assert db.execute("SELECT count(*) FROM log WHERE what = 'undo'").fetchone() == (1,)
    db.close()
