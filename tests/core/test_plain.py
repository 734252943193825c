"""The short cut for calls that no plugin looks at writes what the engine writes."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein import Ask, Deny, Hold, Plugin, Rein, Replace, Retry
from checkrein.call import ToolInfo
from checkrein.codec import describe, dumps, encode, is_brief, loads
from checkrein.entry import Entry
from checkrein.errors import BudgetExceeded, InDoubt, StoreUnavailable
from checkrein.tools import Tool
from checkrein.verdicts import Measured


class Watcher(Plugin):
    """Who hears of every event sends every call through the engine."""

    def on_event(self, event):
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
        return recorded_open(rein, fn, *args)
    finally:
        rein.close()


def recorded_open(rein: Rein, fn: Any, *args: Any) -> tuple[Any, list[Any]]:
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


class Looks(Plugin):
    """Holds of every kind, a measure, and something to say of some results."""

    name = "looks"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def pre_call(self, call):
        key = str(sorted(call.arguments.items()))
        return (
            Hold(f"once/{key}", 1, "calls", 1, None, "once", on_refused="wait"),
            Hold("row", 1, "calls", 2, 60.0, "streak"),
            Hold("time", 10**12, "seconds", 10**18),
            Hold("amount", 3, "calls", 10**6),
            None,
        )

    def measure(self, call, outcome):
        value = outcome.value
        if value == "priced":
            return Measured(cost=5, state="reported")
        return Measured(amounts={"amount": 9}) if value == "much" else None

    def post_call(self, call, outcome):
        self.seen.append((outcome.value, type(outcome.error)))
        if outcome.value == "raise":
            raise ValueError("no")
        return {
            "deny": Deny("no"), "other": Replace("another"), "wrong": Hold("a", 1, "calls", 1),
            "again": Retry(), "ask": Ask("sure?"),
        }.get(outcome.value)  # fmt: skip


class Mends(Plugin):
    """Gives a value for what failed."""

    name = "mends"

    def post_call(self, call, outcome):
        return Replace("mended") if type(outcome.error) is ValueError else None


WORDS = ["plain", "much", "deny", "other", "raise", "wrong", "again", "ask", "priced", "x" * 5000]


def says(rein: Rein, words: list[Any], fn: Any) -> Any:
    said = []
    for word in words:
        try:
            said.append(rein.call(fn, word))
        except Exception as error:
            said.append((type(error), str(error)))
    return said


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("fn", [gives, fails, hands_out])
@pytest.mark.parametrize("mends", [False, True])
def test_the_same_events_where_plugins_look_at_outcomes(kind, fn, mends, tmp_path) -> None:
    found = []
    for number in (0, 1):
        store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/{number}.db"
        looks = Looks()
        plugins = [looks, *([Mends()] if mends else []), *([Watcher()] if number else [])]
        rein = Rein(plugins, store=store, approvals="channels")
        rein.call(gives, "first")
        assert rein.plain.possible is (number == 0)
        seen, events = recorded_open(rein, says, [*WORDS, "plain"], fn)
        balances = [(b.account, b.spent > 0, b.held) for b in rein.store.balances()]
        records = [(r.id, r.state) for r in rein.store.records("once").rows]
        bill = [(row.name, row.cost, row.state) for row in rein.store.costs().rows]
        rein.close()
        parts = [*seen, *looks.seen, *balances, *records, *bill, *events[1:]]
        texts = [json.dumps(part, sort_keys=True, default=repr) for part in parts]
        found.append([re.sub(r"[0-9a-f]{16}-[0-9]+", "", text) for text in texts])
        assert [kind for kind, *_ in events].count("outcome") >= 2
    for short, long in zip(*found, strict=True):
        assert short == long


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_an_outcome_that_the_store_does_not_take_is_in_doubt(looks, watched, monkeypatch) -> None:
    plugins = [*([Looks()] if looks else []), *([Watcher()] if watched else [])]
    with Rein(plugins) as rein, rein.session(on_error="keep") as session:
        rein.call(gives, "first")
        for name in ("append", "commit"):
            way = getattr(rein.store, name)

            def fails_at_outcomes(*args: Any, way: Any = way, **more: Any) -> Any:
                kinds = [e.kind for e in args[0].events] if len(args) == 1 else [args[1]]
                if "outcome" in kinds:
                    raise StoreUnavailable("gone")
                return way(*args, **more)

            monkeypatch.setattr(rein.store, name, fails_at_outcomes)
        rein.plain.append = rein.store.append
        with pytest.raises(InDoubt, match="before its outcome was recorded"):
            rein.call(gives, "plain")
        assert session.running == set()
        monkeypatch.undo()


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


trees = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30),
        st.sampled_from(["x" * 3000, "\u00e9", b"b", 2**200, Decimal(1)]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner),
        st.dictionaries(
            st.one_of(st.text(max_size=4), st.just("$cr"), st.just("k" * 101), st.integers()),
            inner, max_size=4,
        ),
        inner.map(lambda v: [[[[v]]]]),
        inner.map(lambda v: [v] * 101),
    ),
    max_leaves=12,
)  # fmt: skip


@given(value=trees)
@settings(deadline=None, max_examples=300)
def test_a_brief_value_is_its_own_tree_and_its_own_view(value) -> None:
    if is_brief(value):
        assert encode(value) == value
        assert describe(value) == value
        assert loads(dumps(value)) == value


def test_what_is_brief() -> None:
    assert is_brief({"messages": [{"role": "user", "parts": [{"type": "text", "content": "a"}]}]})
    for long in ("x" * 4001, ["x" * 2000] * 3, {"a": "\u00e9"}, [None] * 101, {"a": (1,)}):
        assert not is_brief(long)


class Seen(Plugin):
    """Sees every call, changes nothing."""

    def pre_call(self, call):
        return None


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("text", ["short", "long " * 1000, "n\u00f6n ascii"])
def test_arguments_that_only_reads_are_recorded_as_others(kind, text, tmp_path) -> None:
    """An adapter's promise saves copies; it changes no record, and later changes are not seen."""

    def fn(rein: Rein, only_reads: bool) -> Any:
        given = {"messages": [{"role": "user", "parts": [{"content": text, "n": 1}]}]}
        handed: dict[str, Any] = {}

        def run(call: Any, exact: dict[str, Any]) -> Any:
            handed.update(exact)
            return {"role": "assistant", "parts": [{"content": text}]}

        tool = Tool(ToolInfo("m"), None)
        session = rein.current_session()
        value = rein.enter(
            Entry(tool, given, session, run=run, kind="model", name="m", only_reads=only_reads)
        ).value
        assert handed == given
        value["parts"].append("later")
        given["messages"][0]["parts"].append("later")
        return value

    stores = {
        name: "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/{name}.db"
        for name in ("copied", "read", "hooked")
    }
    seen = [
        recorded(Rein(store=stores["copied"]), fn, False),
        recorded(Rein(store=stores["read"]), fn, True),
    ]
    assert seen[0] == seen[1]
    assert "later" not in str(seen[0][1])
    hooked = recorded(Rein(store=stores["hooked"], plugins=[Seen()]), fn, True)
    assert [e[:2] for e in hooked[1]] == [e[:2] for e in seen[1][1]]


def test_a_stopped_session_takes_no_plain_call() -> None:
    from checkrein.errors import Halted

    effects: list[int] = []
    with Rein() as rein, rein.session(on_error="keep") as session:
        rein.stop(session.id)
        with pytest.raises(Halted):
            rein.call(effects.append, 1)
    assert effects == []


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_a_call_that_is_interrupted_after_its_intent_is_taken_back(
    store: str, watched: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Limits(Plugin):
        def pre_call(self, call):
            return Hold("acc", 1, "calls", 10)

    url = store if store == "memory:" else f"sqlite:///{tmp_path / 'a.db'}"
    with Rein([Limits(), *([Watcher()] if watched else [])], store=url) as rein:
        assert rein.plain.possible is not watched
        ran: list[int] = []
        act = rein.tool(lambda x: ran.append(x), name="act")
        with rein.session(on_error="keep") as session:
            act(1)

            def interrupted(write: Any) -> Any:
                def commit(*given: Any, **more: Any) -> None:
                    write(*given, **more)
                    monkeypatch.undo()
                    raise KeyboardInterrupt

                return commit

            monkeypatch.setattr(rein.plain, "append", interrupted(rein.plain.append))
            monkeypatch.setattr(rein.store, "commit", interrupted(rein.store.commit))
            with pytest.raises(KeyboardInterrupt):
                act(2)
            assert ran == [1] and not session.running
            kinds = [(e.kind, e.view.get("state")) for e in session.events()][-2:]
            assert kinds == [("intent", None), ("outcome", "not_done")]
            assert rein.store.holds() == []
            balance = rein.store.balance("acc")
            assert balance is not None and (balance.spent, balance.held) == (1, 0)
            report = session.rollback()
            assert report is not None
            assert [a.status for a in report.actions] == ["absent", "not_undoable"]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_an_outcome_is_measured_loses_nothing(
    watched: bool, error: type[BaseException]
) -> None:
    class Measures(Plugin):
        def pre_call(self, call):
            return Hold("acc", 1, "calls", 10)

        def measure(self, call, outcome):
            raise error

    ran: list[int] = []
    with Rein([Measures(), *([Watcher()] if watched else [])], store="memory:") as rein:
        assert rein.plain.possible is not watched

        def act(x: int) -> None:
            ran.append(x)

        with rein.session(on_error="keep") as session:
            for _ in range(2):
                with pytest.raises(error):
                    rein.call(act, 1)
        kinds = [(e.kind, e.view.get("state")) for e in session.events()][1:5]
        assert kinds == [("intent", None), ("outcome", "done")] * 2
        assert ran == [1, 1] and rein.store.holds() == []
