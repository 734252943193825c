"""Store checks about the bill: rows, totals, periods."""

from __future__ import annotations

from checkrein.errors import ConfigError, Conflict, DuplicateIntent
from checkrein.store import DIMENSIONS, Batch, CostRow, NewEvent, SettleRow, Store, Total
from checkrein.testing._store_batches import expect, hold, opened, same, write

HOUR = 3_600_000_000


def row(session: str = "s", cost: int | None = 5, **fields: object) -> CostRow:
    """A row of the bill, as a batch brings it."""
    given: dict[str, object] = {
        "call": "c", "at": 0, "session": session, "kind": "model", "name": "m", "agent": "a",
        "task": "", "user": "u", "tenant": "", "role": "", "state": "reported", "cost": cost,
        "tokens": 30, "input": 10, "output": 20,
    }  # fmt: skip
    return CostRow(**{**given, **fields})  # type: ignore[arg-type]  # by name


def bill(store: Store, at: int, call: str, *costs: CostRow, session: str = "s") -> None:
    """Commit an outcome with rows of the bill."""
    store.commit(Batch(session, [NewEvent("outcome", call, at, {})], at, costs=costs))


def rows_add_up(store: Store) -> None:
    """Rows come back as they were written, and sum to every total of every dimension."""
    opened(store, "s")
    opened(store, "t")
    bill(store, HOUR, "1", row(call="1"))
    bill(store, HOUR, "2", row(call="2", cost=None, state="unpriced", agent="b"))
    bill(store, HOUR, "3", row(call="3", kind="tool", name="search", cost=7, tokens=0, input=0,
                               output=0, session="t"), session="t")  # fmt: skip
    bill(store, 30 * HOUR, "4", row(call="4", state="estimated", role="retry", saved=9))
    rows = store.costs().rows
    same([(r.call, r.at, r.session, r.cost) for r in rows], [
        ("1", HOUR, "s", 5), ("2", HOUR, "s", None), ("3", HOUR, "t", 7), ("4", 30 * HOUR, "s", 5),
    ])  # fmt: skip
    same([r.call for r in store.costs(session="s").rows], ["1", "2", "4"])
    same([r.call for r in store.costs(since=2 * HOUR).rows], ["4"])
    first = store.costs(limit=3)
    same([r.call for r in store.costs(after=first.next).rows], ["4"])
    whole = Total("", 4, 17, 90, 30, 60, 0, 0, 0, 0, 9, 1, 1)
    same(store.totals(), [whole])
    for by in DIMENSIONS:
        found = store.totals(by)
        counted = [
            r for r in rows if by not in ("tool", "model") or (r.kind == "model") == (by == "model")
        ]
        same(sum(t.cost for t in found), sum(r.cost or 0 for r in counted))
        same(sum(t.calls for t in found), len(counted))
        same(store.totals(by, limit=1), found[:1])
    same([(t.key, t.calls, t.cost) for t in store.totals("agent")], [("a", 3, 17), ("b", 1, 0)])
    same([(t.key, t.cost) for t in store.totals("session")], [("s", 10), ("t", 7)])
    same([(t.key, t.cost) for t in store.totals("tool")], [("search", 7)])
    same([(t.key, t.cost) for t in store.totals("agent", since=2 * HOUR)], [("a", 5)])
    same([t.cost for t in store.totals(until=2 * HOUR)], [12])
    same(store.totals(since=HOUR, until=HOUR), [])
    same([(t.key, t.cost) for t in store.totals("model", where={"session": "s", "agent": "a"})],
         [("m", 10)])  # fmt: skip
    expect(ConfigError, store.totals, "colour")
    expect(ConfigError, lambda: store.totals("agent", where={"colour": "red"}))


def a_row_stands_and_falls_with_its_batch(store: Store) -> None:
    """With holds closed or none, in a group or alone; a batch that is refused leaves no row."""
    opened(store, "s")
    write(store, "intent", session="s", call="1", holds=[hold("h1", 5), hold("h2", 5)])
    two = (SettleRow("h1", 1), SettleRow("h2", 1))
    event = NewEvent("outcome", "1", 7, {})
    store.commit(Batch("s", [event], 7, settles=two[:1], costs=(row(),)))
    expect(DuplicateIntent, store.commit, Batch("s", [event], 7, settles=two, costs=(row(),)))
    expect(Conflict, store.commit, Batch("none", [event], 7, costs=(row(),)))
    other = NewEvent("outcome", "2", 8, {})
    store.commit_many([Batch("s", [other], 8, settles=two[1:], costs=(row(),))])
    same(len(store.costs().rows), 2)
    same(store.holds(), [])
