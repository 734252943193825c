"""What every store must do: run this over a backend of your own.

    def test_my_store(tmp_path):
        names = itertools.count()
        check_store(lambda: MyStore(f"mine:{tmp_path}/{next(names)}"))

`CHECKS` are the single checks, for a parametrized test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkrein.errors import (
    ConfigError,
    Conflict,
    DuplicateIntent,
    FencedOut,
    Halted,
    SessionClosed,
)
from checkrein.store import (
    ERASED,
    Batch,
    NewEvent,
    OwnerRow,
    Put,
    SessionPut,
    Store,
)
from checkrein.testing import _store_bill, _store_sessions, _store_wholes
from checkrein.testing._store_batches import expect, opened, same, write

Check = Callable[[Store], None]


def check_store(open: Callable[[], Store]) -> None:
    """Run every check, each over a new and empty store from `open`.

    Raises `AssertionError` that names the check and what it saw.
    """
    for check in CHECKS:
        store = open()
        try:
            check(store)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        finally:
            store.close()


def session_is_created_once(store: Store) -> None:
    """A session is created with its row, once; no other batch may name an unknown one."""
    body = {"agent": "billing", "parent": None, "policy": {"a": [1, 2.5, "é"]}}
    store.commit(Batch("s", [], 5, session_put=SessionPut(create=True, body=body)))
    row = store.session("s")
    assert row is not None
    same(
        (row.state, row.rollback, row.stopped, row.owner, row.fence),
        ("ACTIVE", "none", False, "", 0),
    )
    same((row.n, row.created, row.updated, row.body), (0, 5, 5, body))
    expect(Conflict, lambda: opened(store, "s"))
    expect(Conflict, lambda: write(store, "note", session="unknown"))
    same(store.session("unknown"), None)
    same(store.events(), [])
    only_new = SessionPut(create=True, if_state=("ACTIVE",))
    expect(Conflict, lambda: store.commit(Batch("t", [], 1, session_put=only_new)))


def session_changes(store: Store) -> None:
    """Fields left None stay; `if_state` guards; the body is written at creation only."""
    opened(store, "s", agent="a")
    store.commit(Batch("s", [], 7, session_put=SessionPut(state="COMPLETED", body={"x": 1})))
    row = store.session("s")
    assert row is not None
    same((row.state, row.rollback, row.updated, row.body), ("COMPLETED", "none", 7, {"agent": "a"}))
    late = Batch("s", [NewEvent("note", "", 8, {})], 8)
    late.session_put = SessionPut(state="FAILED", if_state=("ACTIVE",))
    expect(Conflict, lambda: store.commit(late))
    same([event.kind for event in store.events()], [])
    done = store.commit(
        Batch("s", [], 9, session_put=SessionPut(rollback="partial", if_state=("COMPLETED",)))
    )
    same(done.rollback, "partial")


def events_are_chained(store: Store) -> None:
    """Events have rising numbers and name their predecessor's hash, session by session."""
    opened(store, "a")
    opened(store, "b")
    first = write(store, "note", session="a")
    write(store, "note", session="b")
    last = write(store, "note", "note", session="a")
    same((first.n, last.n), (2, 4))
    events = store.events(session="a")
    same([event.n for event in events], [1, 2, 3])
    same([event.seq for event in events], sorted({event.seq for event in events}))
    same(events[-1].seq, last.seq)
    same(events[0].prev, "0" * 64)
    same([event.prev for event in events[1:]], [event.hash for event in events[:-1]])
    row = store.session("a")
    assert row is not None
    same((row.n, row.head), (3, events[-1].hash))
    same(len({event.hash for event in store.events()}), 4)
    same((store.verify("a"), store.verify("b")), (None, None))
    missing = store.verify("unknown")
    same(missing is not None and missing.kind, "missing")


def events_are_selected(store: Store) -> None:
    """By session, call and kind, between two numbers, both ways, up to a limit."""
    opened(store, "a")
    opened(store, "b")
    for call in ("x", "y"):
        write(store, "intent", session="a", call=call)
        write(store, "note", "note", session="b", call=call)
        write(store, "outcome", session="a", call=call)
    every = store.events()
    same([event.kind for event in every], ["intent", "note", "note", "outcome"] * 2)
    seqs = [event.seq for event in every]
    same([e.seq for e in store.events(session="a")], [seqs[i] for i in (0, 3, 4, 7)])
    same([e.seq for e in store.events(session="a", reverse=True, limit=2)], [seqs[7], seqs[4]])
    same([e.seq for e in store.events(call="x")], seqs[:4])
    same([e.seq for e in store.events(call="x", reverse=True)], seqs[3::-1])
    same([e.seq for e in store.events(call="x", session="b")], seqs[1:3])
    same([e.seq for e in store.events(call="y", kinds=("intent", "outcome"))], [seqs[4], seqs[7]])
    same(
        [e.seq for e in store.events(kinds=("note",), after=seqs[1], before=seqs[6])],
        [seqs[2], seqs[5]],
    )
    same([e.seq for e in store.events(after=seqs[2], limit=2)], seqs[3:5])
    same([e.seq for e in store.events(before=seqs[5], reverse=True, limit=2)], [seqs[4], seqs[3]])
    for nothing in (
        store.events(session="unknown"), store.events(call="unknown"), store.events(kinds=()),
        store.events(limit=0), store.events(after=seqs[-1]), store.events(call="x", session="no"),
    ):  # fmt: skip
        same(nothing, [])


def trees_come_back(store: Store) -> None:
    """Views, payloads and bodies come back as they were."""
    tree = {
        "": None,
        'ü\n"\\\u2028': [True, False, 0, -1, 2**62, 1.5, 1e300, "", [], {}, "😀" * 50],
    }
    opened(store, "s")
    store.commit(
        Batch("s", [NewEvent("note", "c", -5, tree, tree)], 1, puts=[Put("k", "i", "s", tree)])
    )
    event = store.events()[0]
    same((event.view, event.at), (tree, -5))
    same(store.payload(event.seq), tree)
    record = store.record("k", "i")
    same(record and record.body, tree)


def one_event_is_appended(store: Store) -> None:
    """`append` is `commit` of a plain call's event, in parts."""
    opened(store, "s")
    view = {"arguments": {"to": "x"}, "tool": "mail"}
    store.append("s", "intent", "c", 7, {"tool": "mail"}, {"to": "x"}, fence=0, admit=True)
    store.append("s", "outcome", "c", 8, {"note": ""}, "y", durable=True)
    events = store.events()
    same([(event.seq, event.n, event.view) for event in events[:1]], [(1, 1, view)])
    wanted = [{"arguments": {"to": "x"}}, {"result": "y"}]
    same([store.payload(event.seq) for event in events], wanted)
    expect(DuplicateIntent, store.append, "s", "intent", "c", 9, {}, {})
    expect(Conflict, store.append, "unknown", "intent", "d", 9, {}, {})
    store.claim("s", "me", expect=0, at=9)
    expect(FencedOut, store.append, "s", "intent", "d", 9, {}, {}, fence=0)
    store.commit(Batch("s", [], 10, session_put=SessionPut(state="FAILED")))
    expect(SessionClosed, store.append, "s", "intent", "d", 9, {}, {}, admit=True)
    same((len(store.events()), store.verify("s")), (2, None))


def payloads_are_erased(store: Store) -> None:
    """A payload can be erased, and the chain still verifies."""
    opened(store, "s")
    trees: list[Any] = [{"secret": 1}, None, [], {"secret": "x" * 200_000}]
    for payload in trees:
        store.commit(Batch("s", [NewEvent("note", "", 1, {"v": 1}, payload)], 1))
    events = store.events()
    same([bool(event.ref) for event in events], [True, False, True, True])
    seqs = [event.seq for event in events]
    same([store.payload(seq) for seq in seqs], trees)
    same(store.erase([seqs[0], seqs[1], seqs[3], 10**6]), 2)
    same([store.payload(seq) for seq in seqs], [ERASED, None, [], ERASED])
    same(store.erase([seqs[0], seqs[3]]), 0)
    same(store.payload(10**6), None)
    same(store.events(), events)
    same(store.verify("s"), None)


def intents_are_single(store: Store) -> None:
    """One intent and one outcome for each call and attempt; other kinds repeat."""
    opened(store, "a")
    opened(store, "b")
    write(store, "intent", "outcome", "probed", "probed", session="a", call="c")
    count = len(store.events())
    for kinds in (("intent",), ("note", "outcome")):
        expect(DuplicateIntent, write, store, *kinds, session="b", call="c")
    expect(DuplicateIntent, lambda: write(store, "intent", "intent", session="b", call="d"))
    same(len(store.events()), count)
    write(store, "intent", session="b", call="d")
    write(store, "intent", "outcome", session="a", call="c", attempt=2)
    write(store, "probed", session="a", call="c")


def closed_sessions_admit_nothing(store: Store) -> None:
    """An intent needs an active session; what is no intent is still written."""
    closed: dict[str, tuple[SessionPut, str]] = {
        "a": (SessionPut(state="COMPLETED"), "completed"),
        "b": (SessionPut(state="FAILED"), "failed"),
        "c": (SessionPut(stopped=True), "stopped"),
        "d": (SessionPut(rollback="rolling_back"), "rolling back"),
        "e": (SessionPut(rollback="rolled_back"), "rolled back"),
    }
    for id, (change, why) in closed.items():
        opened(store, id)
        write(store, "intent", session=id, call=id, admit=True)
        store.commit(Batch(id, [], 1, session_put=change))
        again = f"{id}2"
        error = expect(
            Halted if id == "c" else SessionClosed,
            write,
            store,
            "intent",
            session=id,
            call=again,
            admit=True,
        )
        assert why in str(error), f"{error} does not say {why!r}"
        same((error.session_id, error.call_id), (id, again))
        done = write(store, "outcome", session=id, call=id)
        same(done.rollback, change.rollback or "none")
        same([event.kind for event in store.events(session=id)], ["intent", "outcome"])
    store.commit(Batch("c", [], 1, session_put=SessionPut(stopped=False)))
    write(store, "intent", session="c", call="again", admit=True)


def owners_have_fences(store: Store) -> None:
    """A claim needs the fence that it saw, and fences out whoever had it before."""
    opened(store, "s")
    same(store.claim("s", "one", expect=0, at=3), 1)
    write(store, "note", session="s", fence=1)
    expect(Conflict, lambda: store.claim("s", "two", expect=0, at=4))
    expect(Conflict, lambda: store.claim("unknown", "two", expect=0, at=4))
    same(store.claim("s", "two", expect=1, at=4), 2)
    row = store.session("s")
    same(row and (row.owner, row.fence, row.updated), ("two", 2, 4))
    expect(FencedOut, lambda: write(store, "note", session="s", fence=1))
    write(store, "note", session="s", fence=2)
    write(store, "note", session="s")
    same(len(store.events()), 3)
    store.commit(Batch("t", [], 1, session_put=SessionPut(create=True, owner="one")))
    row = store.session("t")
    same(row and (row.owner, row.fence), ("one", 1))
    store.commit(Batch("t", [], 2, session_put=SessionPut(owner="")))
    row = store.session("t")
    same(row and (row.owner, row.fence), ("", 1))


def leases_are_kept(store: Store) -> None:
    """A process's lease is written, renewed, listed and dropped."""
    lease = OwnerRow("o", "host", "boot", 12, "34.5", 100)
    same(store.owner("o"), None)
    store.beat(lease)
    later = OwnerRow("o", "host", "boot", 12, "34.5", 200)
    store.beat(later)
    store.beat(OwnerRow("p", "h", "b", 1, "", 1))
    same(store.owner("o"), later)
    same(sorted(row.id for row in store.owners()), ["o", "p"])
    store.drop_owner("o")
    store.drop_owner("o")
    same((store.owner("o"), len(store.owners())), (None, 1))


def rows_change_on_condition(store: Store) -> None:
    """A row is written if its state is one of those named, else nothing of the batch is."""
    opened(store, "s")

    def put(state: str, *if_state: str, at: int = 1, always: bool = False) -> None:
        row = Put("approval", "t", state, {"to": state}, "s", "mail.send")
        row.if_state = None if always else if_state
        store.commit(Batch("s", [NewEvent("note", "", at, {})], at, puts=[row]))

    expect(Conflict, lambda: put("approved", "pending"))
    same((store.record("approval", "t"), store.events()), (None, []))
    put("pending", "")
    expect(Conflict, lambda: put("pending", ""))
    put("approved", "pending", "expired", at=5)
    expect(Conflict, lambda: put("rejected", "pending", "expired"))
    record = store.record("approval", "t")
    assert record is not None
    same(
        (record.state, record.body, record.session, record.label),
        ("approved", {"to": "approved"}, "s", "mail.send"),
    )
    same((record.created, record.updated), (1, 5))
    put("started", "", "approved")
    put("done", always=True)
    same(len(store.events()), 4)
    same(store.record("grant", "t"), None)


def records_are_paged(store: Store) -> None:
    """Oldest first, each once, by kind and by state, session and label."""
    opened(store, "s")
    for i in range(10):
        put = Put(
            "a", f"{9 - i}", "even" if i % 2 == 0 else "odd", {"i": i}, f"s{i % 3}", f"l{i % 5}"
        )
        store.commit(Batch("s", [], i, puts=[put, Put("b", str(i), "even", {})]))
    same(_all(lambda after: store.records("a", after=after, limit=3)), list(range(10)))
    same(
        _all(lambda after: store.records("a", state="odd", after=after, limit=2)),
        [1, 3, 5, 7, 9],
    )
    same(
        _all(lambda after: store.records("a", session="s0", after=after, limit=4)),
        [0, 3, 6, 9],
    )
    same(_all(lambda after: store.records("a", label="l1", after=after)), [1, 6])
    store.commit(Batch("s", [], 11, puts=[Put("c", id, "x", {}) for id in ("ab", "b", "aa", "a%")]))
    same([row.id for row in store.records("c", prefix="a").rows], ["ab", "aa", "a%"])
    same([row.id for row in store.records("c", state="x", prefix="a%").rows], ["a%"])
    page = store.records("a", state="even", session="s0", label="l1", limit=1)
    same(([row.body["i"] for row in page.rows], page.next), ([6], None))
    same(store.records("a", session="").rows, [])
    same(len(store.records("b", label="").rows), 10)
    expect(ConfigError, lambda: store.records("a", after="x"))


def sessions_are_paged(store: Store) -> None:
    """Newest first, each once, by state, rollback, owner, parent and agent."""
    for i in range(9):
        body = {"i": i, "agent": f"a{i % 2}", "parent": "p" if i % 3 == 0 else None}
        change = SessionPut(create=True, body=body, owner="me" if i % 4 == 0 else None)
        store.commit(Batch(f"s{i}", [], i, session_put=change))
    store.commit(Batch("s3", [], 20, session_put=SessionPut(state="FAILED", rollback="partial")))
    store.commit(Batch("s4", [], 20, session_put=SessionPut(state="FAILED")))
    same(_all(lambda after: store.sessions(after=after, limit=4)), list(range(8, -1, -1)))
    same(_all(lambda after: store.sessions(after=after, agent="a0", limit=2)), [8, 6, 4, 2, 0])
    same(_all(lambda after: store.sessions(after=after, parent="p", limit=3)), [6, 3, 0])
    same(_all(lambda after: store.sessions(after=after, owner="me", limit=1)), [8, 4, 0])
    same(_all(lambda after: store.sessions(after=after, state="FAILED")), [4, 3])
    same(_all(lambda after: store.sessions(state="FAILED", rollback="none")), [4])
    same(_all(lambda after: store.sessions(state="ACTIVE", agent="a1", parent="")), [7, 5, 1])
    same(_all(lambda after: store.sessions(rollback="partial", after=after)), [3])
    same([row.id for row in store.sessions(prefix="s", agent="a0", limit=2).rows], ["s8", "s6"])
    same((len(store.sessions(prefix="s3").rows), store.sessions(prefix="3").rows), (1, []))
    expect(ConfigError, lambda: store.sessions(after="-1"))


def _all(page: Callable[[str | None], Any]) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        rows = page(after)
        found += [row.body["i"] for row in rows.rows]
        if rows.next is None or len(found) > 100:
            return found
        after = rows.next


CHECKS: tuple[Check, ...] = (
    session_is_created_once,
    session_changes,
    events_are_chained,
    events_are_selected,
    trees_come_back,
    one_event_is_appended,
    payloads_are_erased,
    intents_are_single,
    closed_sessions_admit_nothing,
    owners_have_fences,
    leases_are_kept,
    rows_change_on_condition,
    records_are_paged,
    sessions_are_paged,
    _store_sessions.sessions_are_paused,
    _store_sessions.sessions_have_standings,
    _store_sessions.sessions_are_forgotten,
    _store_wholes.plain_calls_hold_and_settle,
    _store_wholes.holds_keep_to_the_limit,
    _store_wholes.holds_are_all_or_none,
    _store_wholes.windows_slide,
    _store_wholes.open_holds_do_not_slide,
    _store_wholes.failures_in_a_row_fill,
    _store_wholes.holds_and_accounts_are_listed,
    _store_bill.rows_add_up,
    _store_bill.a_row_stands_and_falls_with_its_batch,
    _store_wholes.groups_stand_alone,
    _store_wholes.commits_are_told,
    _store_wholes.bad_input_is_refused,
    _store_wholes.threads_keep_to_the_limit,
    _store_wholes.has_key_and_end,
)
