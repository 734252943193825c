"""`checkrein store migrate`: everything comes along, whatever breaks off on the way."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Plugin, Rein, errors
from checkrein.cli import run
from checkrein.store import Batch, HoldRow, NewEvent, SessionPut, StoreOptions, open_store
from checkrein.store._moving import TABLES
from checkrein_plugins.budget import Budget

pytest.importorskip("psycopg")

pytestmark = pytest.mark.stores


class Large(Plugin):
    """Asks about large amounts."""

    def pre_call(self, call: Any) -> Any:
        return Ask("large", rule="limit") if call.arguments.get("amount", 0) > 100 else None


def application(url: str, done: list[int]) -> tuple[Rein, Callable[..., str]]:
    plugins = [Large(), Budget(calls=50, per="tenant"), Budget(calls=20, window=3600, name="hour")]
    rein = Rein(plugins=plugins, store=url, wait="suspend")

    @rein.tool(name="pay")
    def pay(amount: int, note: str = "") -> str:
        done.append(amount)
        return f"paid {amount} {note[:10]}"

    return rein, pay


def fill(url: str, *, more: int = 0) -> str:
    """A store with something of everything; returns the token of a call that waits."""
    rein, pay = application(url, [])
    with rein.session(id="plain", tenant="one"):
        for amount in range(5):
            pay(amount)
        pay(7, note="x" * 200_000)  # its payloads lie in files beside a SQLite store
    with rein.session(id="gone"):
        pay(1)
    rein.store.forget("gone", at=rein.clock())
    with rein.session(id="bare"):
        pay(1)
    rein.store.erase([e.seq for e in rein.store.events(session="bare") if e.ref])
    with pytest.raises(errors.ApprovalPending) as pending, rein.session(id="waits"):
        pay(500)
    store = rein.store
    store.commit(Batch("dead", [], 1, session_put=SessionPut(create=True)))
    hold = HoldRow("h", "acc", 5, "usd", 100, None, "measured", "dead.1", "dead")
    store.commit(Batch("dead", [NewEvent("intent", "dead.1", 1, {}, {"a": 1})], 1, holds=[hold]))
    for number in range(more):
        store.commit(Batch("dead", [NewEvent("note", "", number, {"i": number})], number))
    rein.close()
    return pending.value.token


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with closing(open_store(url)) as store:
        found: Any = store
        return {table: list(found.rows(table)) for table in TABLES}


def migrate(*arguments: object) -> int:
    return run(["store", "migrate", *map(str, arguments)])


def test_there_and_back(tmp_path: Path, url: str, capsys: Any) -> None:
    first, last = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    token = fill(first)
    before = contents(first)
    assert all(before[table] for table in TABLES if table not in ("owners", "costs"))
    assert migrate(first, url, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["resumed"], told["sessions"]) == (False, len(before["sessions"]))
    assert told["rows"] == {table: len(rows) for table, rows in before.items()}
    assert contents(url) == before == contents(first)
    assert migrate(url, last) == 0
    assert contents(last) == before
    assert len(list((tmp_path / "b.db.payloads").iterdir())) == 1
    for moved in (url, last):
        with closing(open_store(moved)) as store:
            assert store.rebuild() == []
    # What waited in the first store is approved and runs in the others: their key is the same.
    for moved in (url, last):
        done: list[int] = []
        rein, pay = application(moved, done)
        rein.approvals.approve(token, by="anna")
        assert rein.resume(token).startswith("paid 500")
        assert done == [500]
        with rein.session(tenant="one") as session:
            pay(3)
            seqs = [event.seq for event in rein.store.events(session=session.id)]
        assert min(seqs) > max(row[0] for row in before["events"])
        assert rein.store.verify(session.id) is None
        assert rein.store.rebuild() == []
        rein.close()


MOVER = """
import sys
from checkrein.cli import run, store
from checkrein.store import _moving

_moving.ROWS, store.OFTEN = 20, 0
sys.exit(run(["store", "migrate", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("back", [False, True], ids=["to-postgres", "to-sqlite"])
def test_it_goes_on_after_kills(
    back: bool, tmp_path: Path, url: str, child: Any, full: bool
) -> None:
    lite = f"sqlite:///{tmp_path}/a.db"
    source, target = (url, lite) if back else (lite, url)
    fill(source, more=3000 if full else 600)
    before = contents(source)
    chance = random.Random(5)
    sizes = []
    for _ in range(60 if full else 5):
        process = child(MOVER, source, target)
        for _ in range(chance.randint(1, 6)):
            assert process.stderr.readline().startswith(("copying", "comparing"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(errors.StoreUnavailable, match="half migrated"):
            open_store(target)
        sizes.append(events_in(target))
    assert 0 < sizes[0] < sizes[-1], "nothing was interrupted, or it began anew each time"
    process = child(MOVER, source, target)
    _, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems
    assert contents(target) == before


def events_in(url: str) -> int:
    with closing(open_store(url, StoreOptions(moving=True))) as store:
        found: Any = store
        return int(found.count("events"))


def test_what_is_refused(tmp_path: Path, new_url: Callable[[], str], capsys: Any) -> None:
    first, other = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    fill(first)
    fill(other)

    def refused(*arguments: object, code: int = 1) -> str:
        assert migrate(*arguments) == code
        return str(capsys.readouterr().err)

    assert "is not empty; name a new one" in refused(first, other)
    assert "does not exist" in refused(f"sqlite:///{tmp_path}/none.db", new_url())
    assert "memory:" in refused("memory:", new_url(), code=2)
    assert "memory:" in refused(first, "memory:", code=2)
    assert "the same store" in refused(first, first, code=2)
    moved = new_url()
    assert migrate(first, moved) == 0
    assert "moved already?" in refused(first, moved)

    begun = new_url()
    with closing(open_store(begun)) as store:
        found: Any = store
        found.begin_move("of another", b"k" * 32)
    assert "half migrated from another store" in refused(first, begun)
    for reader in (["sessions"], ["stats"], ["recover"]):
        assert run(["--store", begun, *reader]) == 1
        assert "half migrated" in capsys.readouterr().err

    rein = Rein(store=first)
    with rein.session(id="runs"):
        assert f"process {os.getpid()}" in refused(first, new_url())
    rein.close()


def test_a_source_that_changed_in_between_is_found(tmp_path: Path, url: str, capsys: Any) -> None:
    path = tmp_path / "a.db"
    fill(f"sqlite:///{path}")
    stopped = Stopped(f"sqlite:///{path}", url)
    stopped.until("records")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sessions SET stopped = 1 WHERE id = 'plain'")
    assert migrate(f"sqlite:///{path}", url) == 1
    assert "the source was changed since" in capsys.readouterr().err
    with pytest.raises(errors.StoreUnavailable, match="half migrated"):
        open_store(url)


def test_a_damaged_source_is_named(tmp_path: Path, url: str, capsys: Any) -> None:
    path = tmp_path / "a.db"
    fill(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET view = '{}' WHERE kind = 'outcome' AND n = 3")
    assert migrate(f"sqlite:///{path}", url) == 1
    assert "is damaged from event 3 on" in capsys.readouterr().err


class Stopped:
    """A move that breaks off when it comes to a table."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target

    def until(self, table: str) -> None:
        from checkrein.store._moving import move

        def tell(step: str, done: int, total: int) -> None:
            if step == f"copying {table}":
                raise KeyboardInterrupt

        with (
            closing(open_store(self.source)) as old,
            closing(open_store(self.target, StoreOptions(moving=True))) as new,
            pytest.raises(KeyboardInterrupt),
        ):
            move(old, new, time.time_ns() // 1000, tell)
