"""The short cut for calls that no plugin looks at writes what the engine writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein import Hold, Plugin, Rein
from checkrein.errors import BudgetExceeded


class Watcher(Plugin):
    """Any hook at all sends every call through the engine."""

    def post_call(self, call, outcome):
        return None


def fails(x: Any = None) -> None:
    raise ValueError("no")


def gives(x: Any = None, y: Any = 2) -> Any:
    return x


async def later(x: Any = None) -> Any:
    return x


def hands_out(x: Any = None) -> Any:
    return later(x)


def nests(rein: Rein, x: Any) -> Any:
    def outer(x: Any) -> Any:
        return rein.call(gives, x)

    return rein.call(outer, x)


def recorded(rein: Rein, fn: Any, *args: Any) -> tuple[Any, list[Any]]:
    try:
        with rein.session(agent="a", on_error="keep") as session:
            try:
                seen: Any = fn(rein, *args)
            except Exception as error:
                seen = type(error)
        events = []
        for event in session.events():
            view = {k: v for k, v in event.view.items() if k not in ("us", "parent")}
            view["nested"] = "parent" in event.view
            events.append((event.kind, event.attempt, view, rein.store.payload(event.seq)))
        assert rein.store.verify(session.id) is None
        return seen, events
    finally:
        rein.close()


def both(fn: Any, *args: Any, store: str = "memory:") -> None:
    short = Rein(store=store)
    assert short.plain.possible
    seen, events = recorded(short, fn, *args)
    long = Rein([Watcher()], store="memory:")
    assert not long.plain.possible
    assert recorded(long, fn, *args) == (seen, events)
    assert [kind for kind, *_ in events][:2] == ["session_started", "intent"]


class Holds(Plugin):
    """Two of each call fit."""

    name = "holds"

    def pre_call(self, call):
        return Hold("a", 1, "calls", 2, None, "keep"), None


def calls(rein: Rein, x: Any) -> Any:
    return [rein.call(gives, x), rein.call(gives, x), rein.call(gives, x)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_same_events_and_balances_with_holds(kind, tmp_path) -> None:
    found = []
    for plugins in ([Holds()], [Holds(), Watcher()]):
        number = len(found)
        store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/{number}.db"
        rein = Rein(plugins, store=store)
        assert rein.plain.possible is (number == 0)
        with rein.session(agent="a", on_error="keep") as session:
            with pytest.raises(BudgetExceeded):
                calls(rein, "v")
            with pytest.raises(BudgetExceeded):
                rein.call(fails, "v")
        balance = rein.store.balance("a")
        assert balance is not None
        assert (balance.spent, balance.held) == (2, 0)
        found.append(
            [
                (event.kind, event.attempt, {k: v for k, v in event.view.items() if k != "us"})
                for event in session.events()
            ]
        )
        rein.close()
    # The first event names the plugins, which differ.
    assert found[0][1:] == found[1][1:]
    assert [kind for kind, *_ in found[0]].count("denied") == 2


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.binary(max_size=4),
)


@given(value=values)
@settings(deadline=None, max_examples=60)
def test_the_same_events_for_any_value(value) -> None:
    both(lambda rein, x: rein.call(gives, x), value)


@pytest.mark.parametrize(
    "fn",
    [
        lambda rein, x: rein.call(gives, y=x),
        lambda rein, x: rein.call(fails, x),
        lambda rein, x: rein.call(hands_out, x),
        nests,
        lambda rein, x: rein.call(gives, 1, 2, 3),
        lambda rein, x: rein.call(gives, x * 5000),
    ],
    ids=["keyword", "raises", "awaitable", "nested", "misfit", "long"],
)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_same_events_however_the_call_goes(fn, kind, tmp_path) -> None:
    store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/a.db"
    if fn.__name__ == "<lambda>" and "1, 2, 3" in str(fn.__code__.co_consts):
        seen, events = recorded(Rein(store=store), fn, "v")
        assert seen is TypeError
        assert [kind for kind, *_ in events] == ["session_started", "session_ended"]
        return
    both(fn, "v", store=store)


def test_what_a_caller_changes_later_is_not_recorded() -> None:
    given = {"a": [1]}
    with Rein() as rein, rein.session() as session:
        rein.call(gives, given)
        given["a"].append(2)
        intent = next(e for e in session.events() if e.kind == "intent")
        assert intent.view["arguments"]["x"] == {"a": [1]}


def test_a_stopped_session_takes_no_plain_call() -> None:
    from checkrein.errors import Halted

    effects: list[int] = []
    with Rein() as rein, rein.session(on_error="keep") as session:
        rein.stop(session.id)
        with pytest.raises(Halted):
            rein.call(effects.append, 1)
    assert effects == []
