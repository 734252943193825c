"""The memory store and the SQLite store answer alike, whatever is written in whatever order."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.errors import CheckreinError
from checkrein.store import (
    Batch,
    HoldRow,
    NewEvent,
    Put,
    SessionPut,
    SettleRow,
    Store,
    open_store,
)

names = st.sampled_from(["a", "b"])
trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
events = st.builds(
    NewEvent,
    kind=st.sampled_from(["intent", "outcome", "note"]),
    call=st.sampled_from(["", "c", "d", "e"]),
    at=st.integers(0, 100),
    view=trees,
    payload=trees,
    attempt=st.integers(1, 2),
)
holds = st.builds(
    HoldRow,
    id=st.sampled_from(["h", "i", "j", "k"]),
    account=names,
    amount=st.integers(-1, 5),
    unit=st.sampled_from(["usd", "usd", "usd", "calls"]),
    limit=st.integers(0, 12),
    window=st.sampled_from([None, None, 10e-6, 30e-6]),
    settle=st.just("keep"),
    call=names,
    session=names,
)
settles = st.builds(SettleRow, id=st.sampled_from(["h", "i", "j", "k"]), actual=st.integers(0, 8))
puts = st.builds(
    Put,
    kind=names,
    id=names,
    state=st.sampled_from(["x", "y"]),
    body=st.dictionaries(names, trees, max_size=1),
    session=st.sampled_from(["", "a"]),
    label=st.sampled_from(["", "l"]),
    if_state=st.sampled_from([None, ("",), ("x",), ("", "x"), ("x", "y")]),
)
changes = st.builds(
    SessionPut,
    create=st.booleans(),
    state=st.sampled_from([None, "ACTIVE", "FAILED"]),
    rollback=st.sampled_from([None, None, "none", "partial"]),
    stopped=st.sampled_from([None, None, True, False]),
    owner=st.sampled_from([None, "", "me"]),
    body=st.none() | st.fixed_dictionaries({"agent": names}),
    if_state=st.sampled_from([None, None, ("",), ("ACTIVE",)]),
)
batches = st.builds(
    Batch,
    session=names,
    events=st.lists(events, max_size=3),
    at=st.integers(0, 100),
    fence=st.sampled_from([None, 0, 1]),
    admit=st.booleans(),
    holds=st.lists(holds, max_size=2),
    settles=st.lists(settles, max_size=2),
    puts=st.lists(puts, max_size=2),
    session_put=st.none() | changes,
)
claims = st.tuples(names, st.integers(0, 2))
erasures = st.lists(st.integers(0, 8), max_size=3)
steps = st.lists(batches | st.lists(batches, max_size=3) | claims | erasures, max_size=12)


def answer(store: Store, step: Any) -> Any:
    """What a step gave: its result, or the kind and text of its refusal."""
    try:
        if isinstance(step, Batch):
            return store.commit(step)
        if isinstance(step, tuple):
            return store.claim(step[0], "me", expect=step[1], at=50)
        if step and isinstance(step[0], int):
            return store.erase(step)
        return [
            (type(result), str(result)) if isinstance(result, Exception) else result
            for result in store.commit_many(step)
        ]
    except CheckreinError as error:
        return type(error), str(error)


def seen(store: Store) -> list[Any]:
    """Everything that can be read, but for what is random in it (salts, and so hashes)."""
    bare = [replace(event, ref=str(bool(event.ref)), prev="", hash="") for event in store.events()]
    parts: list[Any] = [bare, [store.payload(event.seq) for event in bare], store.sessions().rows]
    parts[2] = [replace(row, head="") for row in parts[2]]
    for name in ("a", "b"):
        parts.append(store.records(name).rows)
        parts.append(store.records(name, state="x", label="l").rows)
        parts.append([replace(event, ref="", prev="", hash="") for event in
                      store.events(call="c", session=name, reverse=True, limit=2)])  # fmt: skip
        parts += [store.balance(name, at=60, window=span) for span in (None, 10e-6, 30e-6)]
        bad = store.verify(name)
        parts.append(bad and bad.kind)
    parts += [sorted(store.holds(), key=lambda row: row.id), store.balances(), store.rebuild()]
    return parts


@given(steps)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_both_answer_alike(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        memory, sqlite = open_store("memory:"), open_store(f"sqlite:///{directory}/x.db")
        try:
            start = Batch("a", [], 0, session_put=SessionPut(create=True))
            for step in [start, *steps]:
                assert answer(memory, step) == answer(sqlite, step)
            assert seen(memory) == seen(sqlite)
        finally:
            memory.close()
            sqlite.close()
