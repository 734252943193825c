"""The SQLite store in threads, forks and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import HoldRefused
from checkrein.store import (
    Batch,
    SessionPut,
    Store,
    open_store,
)
from checkrein.testing._store_batches import hold, note, opened

from .conftest import open_at


def test_connections_are_few_and_shared(path: Path, store: Store) -> None:
    def descriptors() -> int:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum(str(link.readlink()).startswith(str(path)) for link in links)

    def work() -> None:
        store.commit(note())
        assert store.events(limit=5)

    threads = [threading.Thread(target=work) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.events()) == 60
    assert descriptors() <= 15


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked process; raise if it failed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_forks_beside_writing_threads(path: Path, kind: str) -> None:
    store = open_at(path) if kind == "sqlite" else open_store("memory:")
    opened(store)
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.0003):
            store.commit(note())
            store.events(limit=1)
            store.changed()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child(number: int) -> None:
        for i in range(20):
            store.commit(note(kind="intent", call=f"{number}.{i}"))
        assert store.events(call=f"{number}.19")
        assert store.verify("s") is None
        store.close()

    try:
        for number in range(8):
            in_child(lambda number=number: child(number))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    store.commit(note())
    intents = store.events(kinds=["intent"])
    assert len(intents) == (160 if kind == "sqlite" else 0)
    assert (store.verify("s"), store.rebuild()) == (None, [])
    store.close()


WORKER = """
import sys
from checkrein.errors import HoldRefused
from checkrein.store import Batch, HoldRow, NewEvent, SessionPut, SettleRow, open_store

url, me, task = sys.argv[1:4]
sys.stdin.readline()
store = open_store(url)
session = f"s{me}"
store.commit(Batch(session, [], 1, session_put=SessionPut(create=True)))
if task == "open":
    print(store.key.hex())
    sys.exit()
ran = 0
window = 3600.0 if task == "window" else None
for i in range(int(sys.argv[4])):
    call = f"{me}.{i}"
    holds = [HoldRow(call, "acc", 5, "usd", 1000, window, "measured", call, session)]
    try:
        intent = [NewEvent("intent", call, i, {}, {"i": i})]
        store.commit(Batch(session, intent, i, admit=True, holds=holds))
    except HoldRefused:
        continue
    ran += 1
    outcome = [NewEvent("outcome", call, i, {}, {"i": i})]
    store.commit(Batch(session, outcome, i, settles=[SettleRow(call, 5)]))
print(ran)
"""


def at_once(path: Path, count: int, *task: str) -> list[str]:
    """Start processes that begin together; what each printed."""
    command = [sys.executable, "-c", WORKER, f"sqlite:///{path}"]
    running = [
        subprocess.Popen(
            [*command, str(i), *task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for i in range(count)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    texts = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * count
    return texts


def test_processes_that_create_one_file_agree(path: Path) -> None:
    keys = at_once(path, 6, "open")
    assert len(set(keys)) == 1
    store = open_at(path)
    assert store.key.hex() == keys[0]
    assert len(store.sessions().rows) == 6
    store.close()


@pytest.mark.parametrize("task", ["life", "window"])
def test_eight_processes_admit_exactly_what_fits(
    request: pytest.FixtureRequest, path: Path, task: str
) -> None:
    each = 1000 if request.config.getoption("--full", default=False) else 60
    ran = sum(int(text) for text in at_once(path, 8, task, str(each)))
    store = open_at(path)
    assert ran == 200  # 1000 at 5 each, and every call cost what it held
    balance = store.balance("acc")
    assert balance is not None
    assert (balance.spent, balance.held) == (1000, 0)
    assert len(store.events(kinds=["intent"], limit=10_000)) == 200
    assert [store.verify(f"s{i}") for i in range(8)] == [None] * 8
    assert store.rebuild() == []
    store.close()


def test_admission_reads_nothing_before_it_decides(store: Store) -> None:
    """Under the same lock a read first would do as well; a backend without it would overspend."""
    seen: list[str] = []
    connections: Any = store._connections  # type: ignore[attr-defined]
    store.commit(note(holds=[hold("a", limit=2)]))
    connections._writer.connection.set_trace_callback(seen.append)
    store.commit(note(holds=[hold("b", limit=2)]))
    with pytest.raises(HoldRefused):
        store.commit(note(holds=[hold("c", limit=2)]))
    connections._writer.connection.set_trace_callback(None)
    about = [statement for statement in seen if "accounts" in statement]
    # Room is decided by a condition of the UPDATE, also in the trigger behind `takings`.
    assert seen[0].startswith("INSERT INTO takings")
    (trigger,) = connections._writer.connection.execute(
        "SELECT substr(sql, instr(sql, 'BEGIN')) FROM sqlite_schema WHERE name = 'takings_event'"
    ).fetchone()
    for statement in (trigger.removeprefix("BEGIN").strip(), about[0]):
        assert statement.startswith("UPDATE accounts SET held")
        assert "<=" in statement.partition("INSERT")[0]
    assert any(statement.startswith("SELECT") for statement in about[1:])


def test_numbers_that_another_process_has_freed_are_not_used(path: Path) -> None:
    ours, theirs = open_at(path), open_at(path)
    opened(ours, "a")
    ours.commit(note("a"))
    ours.commit(note("a"))  # from here on it knows where the chain ends
    opened(theirs, "b")
    for _ in range(3):
        theirs.commit(note("b"))
    theirs.commit(Batch("b", (), 9, session_put=SessionPut(state="COMPLETED", owner="")))
    assert theirs.forget("b", at=9)
    last = theirs.events()[-1].seq
    ours.commit(note("a"))
    assert ours.append("a", "note", "c", 1, {}, 1) == "none"
    assert [event.seq for event in ours.events()] == [1, 2, last, last + 1, last + 2]
    assert [event.n for event in ours.events(session="a")] == [1, 2, 3, 4]
    assert ours.verify("a") is None and ours.rebuild() == []
    ours.close()
    theirs.close()
