"""Store checks about sessions as wholes: paused ones, their standing, and what is forgotten."""

from __future__ import annotations

from checkrein.errors import Conflict, Halted, Paused
from checkrein.store import Batch, NewEvent, Put, SessionPut, Standing, Store
from checkrein.testing._store_batches import expect, opened, same, write


def _change(store: Store, session: str, **fields: object) -> None:
    store.commit(Batch(session, [], 1, session_put=SessionPut(**fields)))  # type: ignore[arg-type]  # fields of it


def sessions_are_paused(store: Store) -> None:
    """A paused session takes no calls until it goes on; one that is stopped stays stopped."""
    opened(store, "s")
    _change(store, "s", paused=True)
    row = store.session("s")
    same(row is not None and (row.paused, row.stopped), (True, False))
    expect(Paused, lambda: write(store, "intent", session="s", call="1", admit=True))
    write(store, "note", session="s")
    _change(store, "s", paused=False)
    write(store, "intent", session="s", call="1", admit=True)
    _change(store, "s", stopped=True)
    for paused in (True, False):
        _change(store, "s", paused=paused)
        refused = expect(Halted, lambda: write(store, "intent", session="s", call="2", admit=True))
        same(isinstance(refused, Paused), False)


def sessions_have_standings(store: Store) -> None:
    """A page and the counts say what a session's approvals and doubts are at a time."""
    for name in "abcdef":
        change = SessionPut(create=True, owner="me", body={"agent": name})
        store.commit(Batch(name, [], 1, session_put=change))
    puts = {
        "a": Put("approval", "1", "pending", {"expires": 50}, "a"),
        "b": Put("approval", "2", "approved", {"expires": 50}, "b"),
        "c": Put("doubt", "c", "failed", {}, "c"),
        "d": Put("doubt", "d", "closed", {}, "d"),
        "e": Put("approval", "3", "rejected", {"expires": 50}, "e"),
    }
    for name, put in puts.items():
        store.commit(Batch(name, [], 1, puts=(put,)))
    page = store.standings(at=10, limit=4)
    same([s.row.id for s in page.rows], ["f", "e", "d", "c"])
    rows = [*page.rows, *store.standings(at=10, after=page.next).rows]
    marks = {s.row.id: (s.pending, s.approved, s.doubt) for s in rows}
    plain = (False, False, "")
    same(
        marks,
        {
            "a": (True, False, ""), "b": (False, True, ""), "c": (False, False, "failed"),
            "d": plain, "e": plain, "f": plain,
        },
    )  # fmt: skip
    same(rows[0].row, store.session("f"))
    counted = {(s.pending, s.approved, s.doubt): n for s, n in store.standing_counts(at=10)}
    failed = (False, False, "failed")
    same(counted, {(True, False, ""): 1, (False, True, ""): 1, failed: 1, plain: 3})
    late = {(s.pending, s.approved, s.doubt): n for s, n in store.standing_counts(at=50)}
    same(late, {failed: 1, plain: 5})
    same([s.row.id for s in store.standings(at=10, agent="b").rows], ["b"])
    same([n for _, n in store.standing_counts(at=10, agent="b")], [1])
    _change(store, "f", paused=True, state="FAILED")
    found: list[Standing] = [s for s, _ in store.standing_counts(at=10, agent="f")]
    same([(s.row.state, s.row.paused, s.row.owner) for s in found], [("FAILED", True, "me")])


def sessions_are_forgotten(store: Store) -> None:
    """What is over can be forgotten whole; every chain verifies, and numbers are used once."""
    opened(store, "a")
    opened(store, "b")
    tree = {"x": "y" * 100_000}
    store.commit(Batch("a", [NewEvent("intent", "c", 1, {"v": 1}, tree, 1)], 1))
    write(store, "note", session="b")
    store.commit(Batch("a", [NewEvent("outcome", "c", 1, {"v": 2}, tree, 1)], 1))
    store.commit(Batch("a", [], 1, puts=(Put("approval", "1", "done", {}, "a"),)))
    before = store.session("a")
    last = store.events()[-1].seq
    expect(Conflict, lambda: store.forget("a", at=5))
    same((len(store.events(session="a")), store.forget("nope", at=5)), (2, False))
    _change(store, "a", state="COMPLETED")
    same(store.forget("a", at=5), True)
    (event,) = store.events(session="a")
    head = before.head if before is not None else ""
    same((event.kind, event.view, event.seq > last), (
        "session_forgotten", {"events": 2, "head": head}, True,
    ))  # fmt: skip
    same((store.events(call="c"), store.record("approval", "1")), ([], None))
    same([e.session for e in store.events()], ["b", "a"])
    same(
        (store.verify("a"), store.verify("b"), store.rebuild(), store.sweep()), (None, None, [], 0)
    )
    write(store, "note", session="b")
    write(store, "note", session="a")
    same((store.verify("a"), len(store.events())), (None, 4))
