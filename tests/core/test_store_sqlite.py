"""The SQLite store: files, versions, damage, disk, forks, processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import (
    ConfigError,
    DuplicateIntent,
    FencedOut,
    Halted,
    HoldRefused,
    SessionClosed,
    StoreBusy,
    StoreUnavailable,
)
from checkrein.store import (
    ERASED,
    Batch,
    Committed,
    Put,
    SessionPut,
    SettleRow,
    Store,
    _schema,
    open_store,
)
from checkrein.testing._store_batches import hold, note, opened

from .conftest import mode, open_at

# -- files ---------------------------------------------------------------------------------


def test_files_and_directories_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "er" / "checkrein.db"
    old = os.umask(0)
    try:
        store = open_at(path)
        opened(store)
        store.commit(note(payload="x" * 100_000))
        files = [file for file in path.parent.rglob("*") if file.is_file()]
        assert len(files) == 5  # database, its log and shared memory, key, payload
        assert {mode(file) for file in files} == {0o600}
        assert {mode(tmp_path / "new"), mode(path.parent)} == {0o700}
        store.close()
    finally:
        os.umask(old)


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///here.db")
    monkeypatch.chdir("/")
    opened(store)
    store.close()
    assert (tmp_path / "here.db").exists()
    for bad in ("sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a?b=1"):
        with pytest.raises(ConfigError, match="sqlite:///PATH"):
            open_store(bad)
    with pytest.raises(ConfigError, match="unknown scheme"):
        open_store("nosuch://x")
    with pytest.raises(ConfigError, match="directory"):
        open_store(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize(
    "extra", [{"max_page": 5}, {"max_pages": 0}, {"max_pages": True}, {"busy_timeout": "5"}]
)
def test_wrong_options_are_refused(path: Path, extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(extra))):
        open_at(path, extra=extra)


def test_everything_is_there_again(path: Path) -> None:
    store = open_at(path)
    opened(store)
    store.commit(note(kind="intent", call="c", payload={"a": 1}))
    key, events = store.key, store.events()
    store.close()
    again = open_at(path)
    assert (again.key, again.events()) == (key, events)
    assert again.payload(events[0].seq) == {"a": 1}
    assert again.verify("s") is None
    again.close()


def test_power_durability_and_process_durability_write_the_same(path: Path) -> None:
    store = open_at(path, durability="power")
    opened(store)
    store.commit(note(kind="intent", call="c", durable=True))
    store.commit(note(kind="outcome", call="c"))
    assert [event.kind for event in store.events()] == ["intent", "outcome"]
    store.close()


# -- what cannot be used -------------------------------------------------------------------


def test_garbage_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"this is no database, but somebody's text" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a SQLite database"):
        open_at(path)
    assert path.read_bytes() == before


def test_a_damaged_page_is_reported(path: Path) -> None:
    store = open_at(path)
    opened(store)
    for i in range(200):
        store.commit(note(kind="intent", call=f"c{i}", payload="x" * 500))
    store.close()
    data = bytearray(path.read_bytes())
    start = len(data) // 2
    data[start:] = b"\xa5" * (len(data) - start)
    path.write_bytes(data)
    store = open_at(path)
    with pytest.raises(StoreUnavailable, match="damaged"):
        store.events(limit=1000)
    store.close()


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        open_at(path)


def attempt(store: Store, batch: Batch) -> Committed | Exception:
    try:
        return store.commit(batch)
    except StoreUnavailable as error:
        return error


def test_a_full_disk_refuses_the_batch_and_goes_on_when_there_is_room(path: Path) -> None:
    small = open_at(path, extra={"max_pages": 60})
    opened(small)
    written = 0
    error = None
    while error is None:
        batch = note(kind="intent", call=f"c{written}", payload="x" * 3000)
        batch.holds = [hold(f"h{written}")]
        (result,) = small.commit_many([batch]) if written % 2 else [attempt(small, batch)]
        error = result if isinstance(result, Exception) else None
        written += error is None
    assert isinstance(error, StoreUnavailable)
    assert "full" in str(error)
    assert 0 < written < 100
    assert len(small.events()) == len(small.holds()) == written
    assert (small.verify("s"), small.rebuild()) == (None, [])
    with pytest.raises(StoreUnavailable, match="full"):
        small.commit(note(payload="x" * 50_000))
    small.close()
    roomy = open_at(path)
    roomy.commit(note(payload="x" * 50_000))
    roomy.close()


def test_a_wrong_key_file_is_refused(path: Path) -> None:
    open_at(path).close()
    key = path.with_name("checkrein.db.key")
    key.chmod(0o644)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        open_at(path)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(StoreUnavailable, match="32 bytes"):
        open_at(path)


_AS_NOBODY = """
import os, sys
from checkrein.errors import StoreUnavailable
from checkrein.store import Batch, NewEvent, SessionPut, open_store
# Imported before the user changes: it may not be able to read the modules.
import checkrein.store.sqlite, checkrein.payload, checkrein.codec
path, what = sys.argv[1:]
if what == "directory":
    os.chmod(os.path.dirname(path), 0o555)
else:
    os.chmod(path, 0o444)
if os.getuid() == 0:
    os.setuid(65534)
try:
    open_store("sqlite:///" + path)
except StoreUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["file", "directory"])
def test_read_only_files_and_directories_are_refused(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        path = directory / "checkrein.db"
        if what == "file":
            open_at(path).close()
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(path), what],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        directory.chmod(0o755)
    assert done.stderr == ""
    assert "write access" in done.stdout


# -- versions ------------------------------------------------------------------------------


def test_an_older_schema_is_migrated_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = open_at(path)
    opened(old)
    old.commit(note())
    old.close()
    newer = (*_schema.MIGRATIONS, ("ALTER TABLE events ADD COLUMN extra TEXT",))
    monkeypatch.setattr(_schema, "MIGRATIONS", newer)
    store = open_at(path)
    assert len(store.events()) == 1
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(newer),)
        assert connection.execute("SELECT extra FROM events").fetchall() == [(None,)]
    connection.close()


def test_a_failing_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_at(path).close()
    broken = (*_schema.MIGRATIONS, ("ALTER TABLE events ADD COLUMN extra TEXT", "no SQL"))
    with monkeypatch.context() as patched:
        patched.setattr(_schema, "MIGRATIONS", broken)
        with pytest.raises(StoreUnavailable):
            open_at(path)
    store = open_at(path)
    opened(store)
    store.close()


@pytest.mark.parametrize(("min_reader", "admitted"), [("1", True), ("2", False), ("x", False)])
def test_a_newer_schema_says_who_may_use_it(path: Path, min_reader: str, admitted: bool) -> None:
    open_at(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'min_reader'", (min_reader,))
    connection.close()
    if admitted:
        store = open_at(path)
        opened(store)
        store.close()
    else:
        with pytest.raises(StoreUnavailable, match="newer checkrein"):
            open_at(path)


# -- locks ---------------------------------------------------------------------------------


def test_a_locked_store_is_busy_at_once_or_waited_for(path: Path, store: Store) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.commit(note(), wait=False)
    timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    timer.start()
    store.commit(note())
    timer.join()
    other.execute("BEGIN IMMEDIATE")
    impatient = open_at(path, extra={"busy_timeout": 0.1})
    with pytest.raises(StoreUnavailable, match="stays locked") as caught:
        impatient.commit(note())
    assert not isinstance(caught.value, StoreBusy)
    results = impatient.commit_many([note(), note()])
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    assert len(impatient.events()) == 1  # readers do not wait for writers
    other.close()
    impatient.commit(note(), wait=False)
    impatient.close()


def test_the_log_does_not_grow_without_end(path: Path, store: Store) -> None:
    def begun() -> bytes:
        # The log's header counts how often it has begun anew.
        return path.with_name("checkrein.db-wal").read_bytes()[12:16]

    first, size = begun(), path.stat().st_size
    deadline = time.monotonic() + 60
    while begun() == first:
        assert time.monotonic() < deadline
        store.commit_many([note(payload="x" * 2000) for _ in range(50)])
        for _ in range(50):
            store.commit(note(payload="x" * 2000))
    assert path.stat().st_size > size  # copied, not dropped
    assert store.verify("s") is None


# -- erasing -------------------------------------------------------------------------------


def test_erased_bytes_are_gone_from_the_disk(path: Path, store: Store) -> None:
    secrets = ["small-secret", "large-secret" * 10_000]
    for secret in secrets:
        store.commit(note(payload={"value": secret}))
    assert any(b"large-secret" in file.read_bytes() for file in path.parent.rglob("*.payloads/*"))
    events = store.events()
    assert store.erase(event.seq for event in events) == 2
    assert [store.payload(event.seq) for event in events] == [ERASED, ERASED]
    for file in path.parent.rglob("*"):
        if file.is_file():
            assert b"-secret" not in file.read_bytes(), file
    assert store.verify("s") is None


def test_a_refused_batch_leaves_no_payload_file(path: Path, store: Store) -> None:
    store.commit(note(kind="intent", call="c"))
    results = store.commit_many(
        [note(kind="intent", call="c", payload="x" * 100_000), note(payload="y" * 100_000)]
    )
    assert isinstance(results[0], Exception)
    files = list(path.with_name("checkrein.db.payloads").iterdir())
    assert len(files) == 1
    assert store.payload(store.events()[-1].seq) == "y" * 100_000


def shown(text: str, call: str = "c") -> tuple[Any, ...]:
    return "intent", call, 1, {"name": "f"}, {"a": text}, 1


def test_a_payload_that_the_view_shows_is_stored_once(path: Path, store: Store) -> None:
    texts = ["once-only", "\ud800 alone", "x" * 70_000]
    for i, text in enumerate(texts):
        store.append("s", *shown(text, f"c{i}"))
    events = store.events()
    payloads = [store.payload(event.seq) for event in events]
    assert payloads == [{"arguments": event.view["arguments"]} for event in events]
    connection = sqlite3.connect(path)
    stored = connection.execute("SELECT view, data, place FROM events").fetchall()
    connection.close()
    assert stored[0][0].count("once-only") == 1
    assert [(data is None, place) for _, data, place in stored] == [
        (True, "view"), (True, "view"), (False, "file"),
    ]  # fmt: skip
    assert store.verify("s") is None
    assert store.erase(event.seq for event in events) == 3
    assert [store.payload(event.seq) for event in events] == [ERASED] * 3
    assert store.erase([events[0].seq]) == 0
    assert store.verify("s") is None


def test_sealed_and_large_payloads_are_not_read_from_the_view(path: Path) -> None:
    store = open_at(path, max_payload=100, encrypt=True)
    opened(store)
    store.append("s", *shown("short"))
    store.append("s", *shown("x" * 200, "d"))
    store.close()
    plain = open_at(path, max_payload=100)
    plain.append("s", *shown("x" * 200, "e"))
    sealed, *large = plain.events()
    with pytest.raises(StoreUnavailable, match="sealed"):
        plain.payload(sealed.seq)
    assert [plain.payload(event.seq) for event in large] == [ERASED, ERASED]
    plain.close()


def test_writers_of_one_session_do_not_know_of_each_other(path: Path, store: Store) -> None:
    """What a store remembers of its last commit is never relied on unseen."""
    other = open_at(path)
    opened(other, "t")
    for i in range(40):
        # In turns of one to five commits: with some that the other store is in the middle of.
        writer = store if i % 7 < 5 else other
        session = "t" if i % 3 == 0 else "s"
        call = f"c{i}"
        taken = [hold(f"h{i}", limit=10)]
        writer.commit(note(session, kind="intent", call=call, holds=taken, admit=True))
        with pytest.raises(DuplicateIntent):
            store.append(session, "intent", call, 1, {}, {})
        writer.commit(note(session, kind="outcome", call=call, settles=[SettleRow(f"h{i}", 0)]))
        writer.commit(note(session, kind="note", call=call))
    assert [event.seq for event in store.events()] == list(range(1, 121))
    for session in ("s", "t"):
        events = other.events(session=session)
        assert [event.n for event in events] == list(range(1, len(events) + 1))
        assert store.verify(session) is None
    assert store.holds() == []
    assert store.rebuild() == []
    other.close()


def test_what_another_process_decided_counts_for_the_next_event(path: Path, store: Store) -> None:
    other = open_at(path)

    def step(call: str, **more: Any) -> None:
        store.append("s", "intent", call, 1, {}, {}, fence=0, admit=True)
        store.commit(note(kind="note", call=call, fence=0, **more))

    step("a")
    step("b", holds=[hold("b", limit=3)])
    other.commit(note("s", holds=[hold("c", 2, limit=3)]))
    step("d")
    with pytest.raises(HoldRefused):
        step("e", holds=[hold("e", limit=3)])
    other.commit(Batch("s", [], 1, session_put=SessionPut(stopped=True)))
    with pytest.raises(Halted):
        step("f")
    other.commit(Batch("s", [], 1, session_put=SessionPut(stopped=False, rollback="rolling_back")))
    assert store.append("s", "outcome", "a", 1, {}, 1) == "rolling_back"
    with pytest.raises(SessionClosed):
        step("g")
    other.claim("s", "somebody", expect=0, at=1)
    with pytest.raises(FencedOut):
        store.append("s", "intent", "h", 1, {}, {}, fence=0)
    assert [event.call for event in store.events()] == ["a", "a", "b", "b", "", "d", "d", "e", "a"]
    assert store.verify("s") is None
    other.close()


def test_too_large_payloads_are_not_kept(path: Path) -> None:
    store = open_at(path, max_payload=1000)
    opened(store)
    store.commit(note(payload="x" * 2000))
    event = store.events()[0]
    assert event.ref
    assert store.payload(event.seq) is ERASED
    assert store.verify("s") is None
    store.close()


# -- indexes -------------------------------------------------------------------------------


def test_the_beginning_of_an_id_is_found_by_index(path: Path, store: Store) -> None:
    puts = [Put("approval", f"{i:03d}", "pending", {}, "s") for i in range(50)]
    store.commit(Batch("s", [], 1, puts=puts))
    seen: list[str] = []
    connections: Any = store._connections  # type: ignore[attr-defined]
    with connections.reading() as connection:
        connection.set_trace_callback(seen.append)
    found = store.records("approval", prefix="04", state="pending", session="s", limit=3)
    assert [row.id for row in store.sessions(prefix="s", state="ACTIVE", agent="").rows] == ["s"]
    connection.set_trace_callback(None)
    assert [row.id for row in found.rows] == ["040", "041", "042"]
    assert len(seen) == 2
    plain = sqlite3.connect(path)
    for statement, index in zip(
        seen, ("(kind=? AND id>? AND id<?)", "(id>? AND id<?)"), strict=True
    ):
        plan = [row[3] for row in plain.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert any(index in line for line in plan), plan
        assert not any(line.startswith("SCAN") for line in plan), plan
    plain.close()


def test_pages_and_events_are_found_by_index(path: Path, store: Store) -> None:
    puts = [Put("approval", f"{i}", "pending", {}, "s", f"l{i % 3}") for i in range(50)]
    store.commit(Batch("s", [], 1, puts=puts))
    seen: list[str] = []
    connections: Any = store._connections  # type: ignore[attr-defined]
    with connections.reading() as connection:
        connection.set_trace_callback(seen.append)
    for kind in ("state", "session", "label"):
        store.records("approval", **{kind: "x"}, after="3", limit=2)  # type: ignore[arg-type]
    store.records("approval", limit=2)
    for column in ("state", "rollback", "owner", "parent", "agent"):
        store.sessions(**{column: "x"}, after="3", limit=2)  # type: ignore[arg-type]
    store.sessions(state="FAILED", rollback="none", agent="x")
    store.events(session="s", reverse=True, limit=1)
    store.events(session="s", kinds=["note"], after=3)
    store.events(call="c")
    store.events(call="c", session="s", reverse=True)
    connection.set_trace_callback(None)
    plain = sqlite3.connect(path)
    for statement in seen:
        plan = [row[3] for row in plain.execute(f"EXPLAIN QUERY PLAN {statement}")]
        text = f"{statement}: {plan}"
        assert not any(line.startswith("SCAN") for line in plan), text
        assert not any("TEMP B-TREE FOR ORDER" in line for line in plan), text
    plain.close()
    assert len(seen) == 17
