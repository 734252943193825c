"""Whatever is changed in the file behind the store's back is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.errors import StoreUnavailable
from checkrein.store import Batch, HoldRow, NewEvent, SessionPut, SettleRow, Store
from checkrein.testing._store_batches import hold, note, opened

from .conftest import open_at

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
    store = open_at(path)
    for id in ("s", "t"):
        opened(store, id)
        for i in range(6):
            store.commit(note(id, payload={"i": i}))
    store.close()
    store = open_at(path)
    assert store.verify("s") is None
    yield store
    store.close()


def test_every_column_of_an_event_is_covered(path: Path) -> None:
    open_at(path).close()
    connection = sqlite3.connect(path)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(events)")}
    connection.close()
    assert columns == set(EVENT_CHANGES)


@pytest.mark.parametrize("place", [1, 4, 6])
@pytest.mark.parametrize("column", EVENT_CHANGES)
def test_a_changed_column_is_found(path: Path, chained: Store, column: str, place: int) -> None:
    tamper(
        path, f"UPDATE events SET {column} = {EVENT_CHANGES[column]} WHERE sid = 1 AND n = {place}"
    )
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
        (("INSERT INTO events SELECT 900, sid, n + 1, kind, call, attempt, at, ref, prev, hash, "
         "view, salt, data, place FROM events WHERE sid = 1 AND n = 6"),),
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
    assert chained.rebuild() == [
        "marks: 2 belong to no event",
        "session s: its row ends at event 6, its events at 4",
    ]
    assert chained.verify("t") is None


def test_an_altered_payload_is_not_given_out(path: Path, chained: Store) -> None:
    tamper(path, "UPDATE events SET data = CAST('{\"i\":9}' AS BLOB) WHERE seq = 1")
    with pytest.raises(StoreUnavailable, match="do not match"):
        chained.payload(1)


@pytest.mark.parametrize(
    "change",
    ["view = replace(view, 'x', 'y')", "place = 'row'", "salt = x'00'", "data = x'00'",
     "ref = randomblob(32)"],
)  # fmt: skip
def test_an_altered_payload_in_a_view_is_found(path: Path, store: Store, change: str) -> None:
    store.append("s", "intent", "c", 1, {}, {"to": "x"}, 1)
    seq = store.events()[-1].seq
    assert store.payload(seq) == {"arguments": {"to": "x"}}
    tamper(path, f"UPDATE events SET {change}")
    assert store.verify("s") is not None
    if change.startswith(("view", "ref")):
        with pytest.raises(StoreUnavailable, match="do not match"):
            store.payload(seq)


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
    chained.commit(
        note("t", holds=[hold("h"), HoldRow("w", "rate", 1, "calls", 9, 5.0, "keep", "c", "t")])
    )
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


@pytest.mark.parametrize("claimed", ["rolled_back", "partial", "rolling_back"])
def test_a_rollback_that_no_event_tells_of_is_found(
    path: Path, chained: Store, claimed: str
) -> None:
    tamper(path, f"UPDATE sessions SET rollback = '{claimed}' WHERE id = 's'")
    said = f"session s: its row says {claimed}, its events nothing of a rollback"
    assert chained.rebuild() == [said]
    assert chained.rebuild(repair=True) == [said]
    row = chained.session("s")
    assert row is not None
    assert row.rollback == "none"


def test_the_row_of_a_running_session_is_behind_and_what_is_read_is_not(path: Path) -> None:
    store = open_at(path)
    opened(store, "s")
    for i in range(4):
        store.commit(note(payload={"i": i}))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT n FROM sessions").fetchone() == (0,)
    row, last = store.session("s"), store.events()[-1]
    assert row is not None
    assert (row.n, row.head, row.updated) == (4, last.hash, last.at)
    assert list(store.sessions().rows) == [row]
    assert store.rebuild() == []
    # Its end is written when it ends, and for all others when the store is closed.
    opened(store, "t")
    end = SessionPut(state="COMPLETED")
    store.commit(Batch("s", (NewEvent("session_ended", "", 9, {}),), 9, session_put=end))
    assert connection.execute("SELECT n FROM sessions").fetchall() == [(5,), (0,)]
    store.commit(note("t"))
    store.close()
    assert connection.execute("SELECT n FROM sessions").fetchall() == [(5,), (1,)]
    connection.close()


def test_events_cut_out_before_their_end_was_written_leave_a_gap(path: Path, store: Store) -> None:
    opened(store, "t")
    for id in ("s", "s", "t"):
        store.commit(note(id))
    tamper(path, "DELETE FROM events WHERE n = 2")
    assert store.rebuild() == ["events: 1 of the last ones are gone"]
