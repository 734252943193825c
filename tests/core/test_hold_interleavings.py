"""Any interleaving of hold, settle, sweep and crash keeps an account within its limit."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.errors import HoldRefused
from checkrein.store import Batch, HoldRow, NewEvent, SessionPut, SettleRow, open_store

LIMIT = 100
STEP = st.one_of(
    st.tuples(st.just("hold"), st.integers(0, 60)),
    st.tuples(st.just("settle"), st.integers(0, 100)),
    st.tuples(st.just("sweep"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
)


def replay(url: str, steps: list[tuple[str, int]]) -> None:
    """Play `steps` on a store and on two numbers beside it; both must agree after each."""
    store: Any = open_store(url)
    store.commit(Batch("s", [], 1, session_put=SessionPut(create=True, body={})))
    spent, held = 0, {}
    try:
        for number, (what, amount) in enumerate(steps, 2):
            call = str(number)
            if what == "hold":
                hold = HoldRow(call, "acc", amount, "usd", LIMIT, None, "measured", call, "s")
                fits = spent + sum(held.values()) + amount <= LIMIT
                intent = NewEvent("intent", call, number, {}, None, 1)
                try:
                    store.commit(Batch("s", [intent], number, holds=[hold]))
                except HoldRefused:
                    assert not fits
                    assert not store.events(call=call), "a refused hold leaves no intent"
                else:
                    assert fits
                    held[call] = amount
            elif what == "settle" and held:
                # Nothing settles above its hold here: an overrun is booked, and flagged.
                of, most = list(held.items())[number % len(held)]
                actual = min(amount, most)
                event = NewEvent("outcome", of, number, {}, None, 1)
                store.commit(Batch("s", [event], number, settles=[SettleRow(of, actual)]))
                spent += actual
                del held[of]
            elif what == "sweep":
                # Of dead owners: what has an intent and no outcome is charged in full.
                settles = [SettleRow(row.id, row.amount) for row in store.holds(account="acc")]
                store.commit(Batch("s", [], number, settles=settles))
                store.commit(Batch("s", [], number, settles=settles))
                spent, held = spent + sum(held.values()), {}
            elif what == "crash" and url != "memory:":
                store.close()
                store = open_store(url)
            balance = store.balance("acc")
            if balance is not None:
                assert (balance.spent, balance.held) == (spent, sum(held.values()))
                assert balance.spent + balance.held <= LIMIT
        assert store.rebuild() == []
    finally:
        store.close()


@given(st.lists(STEP, max_size=40))
def test_in_memory(steps: list[tuple[str, int]]) -> None:
    replay("memory:", steps)


@settings(max_examples=20)
@given(st.lists(STEP, max_size=25))
def test_in_a_file(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        replay(f"sqlite:///{folder}/book.db", steps)
