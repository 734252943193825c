"""The SQLite store: files, versions, damage, disk, forks, processes."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkrein.errors import ConfigError, HoldRefused, StoreBusy, StoreUnavailable
from checkrein.store import (
    ERASED,
    Batch,
    HoldRow,
    NewEvent,
    Put,
    SessionPut,
    SettleRow,
    Store,
    StoreOptions,
    _schema,
    open_store,
)


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def opened(path: Path, **options: Any) -> Store:
    return open_store(url(path), StoreOptions(**options))


def note(session: str = "s", kind: str = "note", call: str = "", **more: Any) -> Batch:
    payload = more.pop("payload", None)
    return Batch(session, [NewEvent(kind, call, 1, {"k": kind}, payload)], 1, **more)


def create(store: Store, id: str = "s") -> None:
    store.commit(Batch(id, [], 1, session_put=SessionPut(create=True)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkrein.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = opened(path)
    create(store)
    yield store
    store.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- files ---------------------------------------------------------------------------------


def test_files_and_directories_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "er" / "checkrein.db"
    old = os.umask(0)
    try:
        store = opened(path)
        create(store)
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
    create(store)
    store.close()
    assert (tmp_path / "here.db").exists()
    for bad in ("sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a?b=1"):
        with pytest.raises(ConfigError, match="sqlite:///PATH"):
            open_store(bad)
    with pytest.raises(ConfigError, match="unknown scheme"):
        open_store("nosuch://x")
    with pytest.raises(ConfigError, match="directory"):
        open_store(url(tmp_path))


@pytest.mark.parametrize(
    "extra", [{"max_page": 5}, {"max_pages": 0}, {"max_pages": True}, {"busy_timeout": "5"}]
)
def test_wrong_options_are_refused(path: Path, extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(extra))):
        opened(path, extra=extra)


def test_everything_is_there_again(path: Path) -> None:
    store = opened(path)
    create(store)
    store.commit(note(kind="intent", call="c", payload={"a": 1}))
    key, events = store.key, store.events()
    store.close()
    again = opened(path)
    assert (again.key, again.events()) == (key, events)
    assert again.payload(events[0].seq) == {"a": 1}
    assert again.verify("s") is None
    again.close()


def test_power_durability_and_process_durability_write_the_same(path: Path) -> None:
    store = opened(path, durability="power")
    create(store)
    store.commit(note(kind="intent", call="c", durable=True))
    store.commit(note(kind="outcome", call="c"))
    assert [event.kind for event in store.events()] == ["intent", "outcome"]
    store.close()


# -- what cannot be used -------------------------------------------------------------------


def test_garbage_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"this is no database, but somebody's text" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a SQLite database"):
        opened(path)
    assert path.read_bytes() == before


def test_a_damaged_page_is_reported(path: Path) -> None:
    store = opened(path)
    create(store)
    for i in range(200):
        store.commit(note(kind="intent", call=f"c{i}", payload="x" * 500))
    store.close()
    data = bytearray(path.read_bytes())
    data[4096 * 4 :] = b"\xa5" * (len(data) - 4096 * 4)
    path.write_bytes(data)
    store = opened(path)
    with pytest.raises(StoreUnavailable, match="damaged"):
        store.events(limit=1000)
    store.close()


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        opened(path)


def test_a_full_disk_refuses_the_batch_and_goes_on_when_there_is_room(path: Path) -> None:
    small = opened(path, extra={"max_pages": 60})
    create(small)
    written = 0
    with pytest.raises(StoreUnavailable, match="full"):
        for i in range(1000):
            small.commit(
                note(kind="intent", call=f"c{i}", payload="x" * 3000, holds=[hold(f"h{i}")])
            )
            written += 1
    assert 0 < written < 100
    assert len(small.events()) == len(small.holds()) == written
    assert (small.verify("s"), small.rebuild()) == (None, [])
    with pytest.raises(StoreUnavailable, match="full"):
        small.commit(note(payload="x" * 50_000))
    small.close()
    roomy = opened(path)
    roomy.commit(note(payload="x" * 50_000))
    roomy.close()


def hold(id: str, limit: int = 10**6, account: str = "acc") -> HoldRow:
    return HoldRow(id, account, 1, "calls", limit, None, "keep", "c", "s")


def test_a_wrong_key_file_is_refused(path: Path) -> None:
    opened(path).close()
    key = path.with_name("checkrein.db.key")
    key.chmod(0o644)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        opened(path)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(StoreUnavailable, match="32 bytes"):
        opened(path)


_AS_NOBODY = """
import os, sys
from checkrein.errors import StoreUnavailable
from checkrein.store import Batch, NewEvent, SessionPut, open_store
# Imported before the user changes: it may not be able to read the modules.
import checkrein.store.sqlite, checkrein.payload, checkrein.codec
path, what = sys.argv[1:]
store = open_store("sqlite:///" + path) if what == "later" else None
if what != "later":
    os.chmod(os.path.dirname(path) if what == "directory" else path, 0o555 if what == "directory" else 0o444)
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
            opened(path).close()
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(path), what],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        directory.chmod(0o755)
    assert done.stderr == ""
    assert "write access" in done.stdout


# -- versions ------------------------------------------------------------------------------


def test_an_older_schema_is_migrated_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = opened(path)
    create(old)
    old.commit(note())
    old.close()
    newer = (*_schema.MIGRATIONS, ("ALTER TABLE events ADD COLUMN extra TEXT",))
    monkeypatch.setattr(_schema, "MIGRATIONS", newer)
    store = opened(path)
    assert len(store.events()) == 1
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(newer),)
        assert connection.execute("SELECT extra FROM events").fetchall() == [(None,)]
    connection.close()


def test_a_failing_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(path).close()
    broken = (*_schema.MIGRATIONS, ("ALTER TABLE events ADD COLUMN extra TEXT", "no SQL"))
    with monkeypatch.context() as patched:
        patched.setattr(_schema, "MIGRATIONS", broken)
        with pytest.raises(StoreUnavailable):
            opened(path)
    store = opened(path)
    create(store)
    store.close()


@pytest.mark.parametrize(("min_reader", "admitted"), [("1", True), ("2", False), ("x", False)])
def test_a_newer_schema_says_who_may_use_it(path: Path, min_reader: str, admitted: bool) -> None:
    opened(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'min_reader'", (min_reader,))
    connection.close()
    if admitted:
        store = opened(path)
        create(store)
        store.close()
    else:
        with pytest.raises(StoreUnavailable, match="newer checkrein"):
            opened(path)


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
    impatient = opened(path, extra={"busy_timeout": 0.1})
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
    for i in range(1500):
        store.commit(note(kind="intent", call=f"c{i}", payload="x" * 1000))
    log = path.with_name("checkrein.db-wal")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and path.stat().st_size < 1_000_000:
        time.sleep(0.01)
    assert path.stat().st_size > 1_000_000  # the background thread has copied
    assert log.stat().st_size < 30_000_000


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


def test_too_large_payloads_are_not_kept(path: Path) -> None:
    store = opened(path, max_payload=1000)
    create(store)
    store.commit(note(payload="x" * 2000))
    event = store.events()[0]
    assert event.ref
    assert store.payload(event.seq) is ERASED
    assert store.verify("s") is None
    store.close()


# -- tampering -----------------------------------------------------------------------------

EVENT_CHANGES = {
    "seq": "seq + 1000", "n": "n + 1", "kind": "kind || 'x'", "call": "call || 'x'",
    "attempt": "attempt + 1", "at": "at + 1", "ref": "randomblob(32)", "prev": "randomblob(32)",
    "hash": "randomblob(32)", "view": "'{\"k\":1}'", "sid": "sid + 1", "salt": "randomblob(16)",
    "data": "CAST(data || x'20' AS BLOB)", "place": "'file'",
}  # fmt: skip


def tamper(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.fixture
def chained(path: Path) -> Iterator[Store]:
    store = opened(path)
    for id in ("s", "t"):
        create(store, id)
        for i in range(6):
            store.commit(note(id, payload={"i": i}))
    assert store.verify("s") is None
    yield store
    store.close()


def test_every_column_of_an_event_is_covered(path: Path) -> None:
    opened(path).close()
    connection = sqlite3.connect(path)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(events)")}
    connection.close()
    assert columns == set(EVENT_CHANGES)


@pytest.mark.parametrize("place", [1, 4, 6])
@pytest.mark.parametrize("column", EVENT_CHANGES)
def test_a_changed_column_is_found(path: Path, chained: Store, column: str, place: int) -> None:
    tamper(path, f"UPDATE events SET {column} = {EVENT_CHANGES[column]} WHERE sid = 1 AND n = {place}")
    bad = chained.verify("s")
    assert bad is not None
    # A number that moved behind the others is missed where it was.
    assert bad.n in ((place, place + 1) if column in ("n", "seq", "sid") else (place,))


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE events SET seq = -seq WHERE sid = 1 AND n IN (2, 3)",
         "UPDATE events SET seq = (SELECT 5 - n FROM (SELECT 1)) WHERE seq < 0"),
        ("DELETE FROM events WHERE sid = 1 AND n = 3",),
        ("DELETE FROM events WHERE sid = 1 AND n >= 5",),
        ("DELETE FROM events WHERE sid = 1",),
        ("DELETE FROM sessions WHERE sid = 1",),
        ("UPDATE sessions SET head = x'00' WHERE sid = 1",),
        ("UPDATE sessions SET n = n - 1 WHERE sid = 1",),
        ("UPDATE sessions SET n = n + 1 WHERE sid = 1",),
        ("UPDATE sessions SET id = id || '0'",
         "UPDATE sessions SET id = iif(sid = 1, 't', 's')"),
        ("INSERT INTO events SELECT 900, sid, n + 1, kind, call, attempt, at, ref, prev, hash, "
         "view, salt, data, place FROM events WHERE sid = 1 AND n = 6",),
    ],
    ids=["swapped", "gap", "cut tail", "emptied", "no row", "head", "n less", "n more",
         "swapped sessions", "added"],
)  # fmt: skip
def test_changed_rows_are_found(path: Path, chained: Store, statements: tuple[str, ...]) -> None:
    tamper(path, *statements)
    assert chained.verify("s") is not None


def test_a_cut_tail_is_a_missing_event(path: Path, chained: Store) -> None:
    tamper(path, "DELETE FROM events WHERE sid = 1 AND n >= 5")
    bad = chained.verify("s")
    assert bad is not None
    assert (bad.kind, bad.n, bad.session) == ("missing", 5, "s")
    assert chained.rebuild() == ["session s: its row ends at event 6, its events at 4"]
    assert chained.verify("t") is None


def test_an_altered_payload_is_not_given_out(path: Path, chained: Store) -> None:
    tamper(path, "UPDATE events SET data = CAST('{\"i\":9}' AS BLOB) WHERE seq = 1")
    with pytest.raises(StoreUnavailable, match="do not match"):
        chained.payload(1)


def test_an_altered_payload_file_is_found(path: Path, store: Store) -> None:
    store.commit(note(payload="x" * 100_000))
    (file,) = path.with_name("checkrein.db.payloads").iterdir()
    assert store.verify("s") is None
    file.write_bytes(b"y" + file.read_bytes()[1:])
    bad = store.verify("s")
    assert bad is not None
    assert bad.n == 1
    file.unlink()
    assert store.verify("s") is not None


def test_verify_reads_long_sessions_in_pieces(path: Path, store: Store) -> None:
    for _ in range(3):
        store.commit_many([note() for _ in range(500)])
    assert store.verify("s") is None
    tamper(path, "UPDATE events SET at = 2 WHERE n = 1203")
    bad = store.verify("s")
    assert bad is not None
    assert bad.n == 1203


def test_rebuild_repairs_what_is_derived(path: Path, chained: Store) -> None:
    chained.commit(note("t", holds=[hold("h"), HoldRow("w", "rate", 1, "calls", 9, 5.0, "keep", "c", "t")]))
    chained.commit(note("t", settles=[SettleRow("w", 1)]))
    tamper(
        path,
        "UPDATE accounts SET held = 9 WHERE account = 'acc'",
        "UPDATE accounts SET recent = 9 WHERE account = 'rate'",
        "UPDATE sessions SET n = 3, head = x'00' WHERE id = 's'",
    )
    found = chained.rebuild()
    assert [line.split(":")[0] for line in found] == ["session s", "account acc", "account rate"]
    assert chained.rebuild(repair=True) == found
    assert chained.rebuild() == []
    assert chained.verify("s") is None
    chained.commit(note("s", payload={"goes": "on"}))
    assert chained.verify("s") is None


# -- indexes -------------------------------------------------------------------------------


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
    assert len(seen) == 14


# -- threads, forks and processes ----------------------------------------------------------


def test_connections_are_few_and_shared(path: Path, store: Store) -> None:
    def descriptors() -> int:
        return sum(
            os.readlink(f"/proc/self/fd/{fd}").startswith(str(path))
            for fd in os.listdir("/proc/self/fd")
            if os.path.islink(f"/proc/self/fd/{fd}")
        )

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
    store = opened(path) if kind == "sqlite" else open_store("memory:")
    create(store)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
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
        store.commit(Batch(session, [NewEvent("intent", call, i, {}, {"i": i})], i, admit=True, holds=holds))
    except HoldRefused:
        continue
    ran += 1
    store.commit(Batch(session, [NewEvent("outcome", call, i, {}, {"i": i})], i, settles=[SettleRow(call, 5)]))
print(ran)
"""


def at_once(path: Path, count: int, *task: str) -> list[str]:
    """Start processes that begin together; what each printed."""
    command = [sys.executable, "-c", WORKER, url(path)]
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
    store = opened(path)
    assert store.key.hex() == keys[0]
    assert len(store.sessions().rows) == 6
    store.close()


@pytest.mark.parametrize("task", ["life", "window"])
def test_eight_processes_admit_exactly_what_fits(
    request: pytest.FixtureRequest, path: Path, task: str
) -> None:
    each = 1000 if request.config.getoption("--full", default=False) else 60
    ran = sum(int(text) for text in at_once(path, 8, task, str(each)))
    store = opened(path)
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
    assert about[0].startswith("UPDATE accounts SET held")
    assert "<=" in about[0]
    assert about[1].startswith("UPDATE accounts SET held")
    assert any(statement.startswith("SELECT") for statement in about[2:])
