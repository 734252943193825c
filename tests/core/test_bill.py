"""The bill: a row for each attempt, totals that readers keep added up, spend of a run."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Plugin, Rein
from checkrein.call import ToolInfo, Usage
from checkrein.entry import Entry
from checkrein.errors import ConfigError
from checkrein.store import DIMENSIONS, Batch, NewEvent, SessionPut, _bill, open_store
from checkrein.store._periods import DAY, QUARTER, bucket, pieces
from checkrein.testing._store_bill import row
from checkrein.tools import Tool
from checkrein.verdicts import Answer, Fallback, Hold, Measured, Retry

MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]


class Price(Plugin):
    """One nano-dollar a token."""

    def measure(self, call: Any, outcome: Any) -> Any:
        if outcome.usage is None:
            return None
        return Measured(cost=outcome.usage.total_tokens, state="reported", price="list 1")


class Cap(Plugin):
    """Holds 100 nano-dollars."""

    def pre_call(self, call: Any) -> Any:
        return Hold("cap", 100, "usd", 10**9)


def ask(rein: Rein, model: str = "m", fn: Any = None, tokens: int = 3) -> Any:
    return rein.model_call(
        fn or (lambda **k: "ok"), model=model, messages=MESSAGES, usage=lambda v: Usage(tokens, 0)
    )


@pytest.fixture(params=["memory", "sqlite"])
def store(request: Any, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/bill.db"


def rows(rein: Rein, **only: Any) -> list[Any]:
    return list(rein.store.costs(**only).rows)


def test_who_what_and_at_which_price(store: str) -> None:
    with Rein(plugins=[Price()], store=store) as rein:
        with rein.session(agent="a", user="u", tenant="t", task="plan") as session:
            ask(rein)
        (one,) = rows(rein)
        assert (one.session, one.agent, one.user, one.tenant, one.task) == (
            session.id, "a", "u", "t", "plan",
        )  # fmt: skip
        assert (one.kind, one.name, one.cost, one.state, one.tokens) == (
            "model",
            "m",
            3,
            "reported",
            3,
        )
        assert (one.source, one.role) == ("list 1", "")
        (outcome,) = rein.store.events(kinds=("outcome",))
        assert outcome.view["price"] == "list 1"
        assert one.at == outcome.at


def test_what_is_not_measured_is_on_the_bill_at_its_hold(store: str) -> None:
    def fails(**request: Any) -> Any:
        raise ConnectionError

    with Rein(plugins=[Cap()], store=store) as rein, rein.session(on_error="keep") as session:
        rein.model_call(lambda **k: "no usage", model="m", messages=MESSAGES)
        with pytest.raises(ConnectionError):
            rein.model_call(fails, model="m", messages=MESSAGES)
        assert [(r.cost, r.state) for r in rows(rein)] == [(100, "estimated")] * 2
        balance = rein.store.balance("cap")
        assert balance is not None
        assert balance.spent == session.spend().nano_usd == 200


def test_without_a_budget_and_a_price_a_model_call_is_unpriced_not_free(store: str) -> None:
    with Rein(store=store) as rein, rein.session():
        ask(rein)
        assert [(r.cost, r.state, r.tokens) for r in rows(rein)] == [(None, "unpriced", 3)]
        (total,) = rein.store.totals("model")
        assert (total.key, total.cost, total.unpriced, total.tokens) == ("m", 0, 1, 3)


def test_retries_fallbacks_answers_and_guards_have_rows_of_their_own(store: str) -> None:
    class Twice(Plugin):
        def post_call(self, call: Any, outcome: Any) -> Any:
            if call.name == "m":
                return Retry() if call.attempt == 1 else Fallback("other")
            return None

    class Cache(Plugin):
        def pre_call(self, call: Any) -> Any:
            if call.name == "known":
                return Answer("again", "cache", Usage(40, 2))
            return None

    with Rein(plugins=[Price(), Twice(), Cache()], store=store) as rein, rein.session():
        ask(rein)
        ask(rein, "known")
        judge = Tool(ToolInfo("judge", effect="read"), None)
        rein.enter(
            Entry(
                judge,
                {"system": None, "messages": [], "tools": []},
                rein.current_session(),
                kind="model",
                run=lambda call, exact: "fine",
                usage=lambda answer: Usage(1, 2),
                guard="injection",
            )
        )
        found = [(r.name, r.role, r.cost, r.saved) for r in rows(rein)]
    assert found == [
        ("m", "", 3, 0), ("m", "retry", 3, 0), ("other", "fallback", 3, 0),
        ("known", "answer", 0, 42), ("judge", "guard", 3, 0),
    ]  # fmt: skip


def test_a_tool_reports_what_it_used(store: str) -> None:
    def report(result: Any) -> Usage:
        return Usage(result["tokens"], 0, model="inner")

    with Rein(plugins=[Price()], store=store) as rein:

        @rein.tool(usage=report)
        def summarise(tokens: int) -> dict[str, int]:
            return {"tokens": tokens}

        @rein.tool
        def free() -> int:
            return 1

        with rein.session() as session:
            summarise(7)
            free()
            summarise(-1)
            assert [(r.kind, r.name, r.tokens, r.cost, r.state) for r in rows(rein)] == [
                ("tool", "summarise", 7, 7, "reported"), ("tool", "summarise", 0, None, "unpriced"),
            ]  # fmt: skip
            last = rein.store.events(kinds=("outcome",), reverse=True, limit=1)[0]
            assert last.view["usage_unreadable"] is True
            assert session.spend().tokens == 7
    with pytest.raises(ConfigError, match="usage must be a function"):
        Rein().declare("t", usage="tokens")  # type: ignore[arg-type]  # wrong on purpose


def test_a_sub_agent_is_part_of_its_parents_run(store: str) -> None:
    seen: list[tuple[str, str]] = []

    class Look(Plugin):
        def pre_call(self, call: Any) -> None:
            seen.append((call.session, call.root))

    with Rein(plugins=[Price(), Look()], store=store) as rein:
        with rein.session(agent="outer") as outer:
            ask(rein)
            with rein.session(agent="inner") as inner:
                ask(rein)
                with rein.session(agent="innermost", detached=True) as last:
                    ask(rein)
        assert seen == [(outer.id, outer.id), (inner.id, outer.id), (last.id, outer.id)]
        assert outer.spend().nano_usd == 9
        assert {t.key: t.cost for t in rein.store.totals("agent")} == {
            "outer": 3, "inner": 3, "innermost": 3,
        }  # fmt: skip


def fill(path: Path, count: int, days: int, seed: int = 1) -> Any:
    """A SQLite store with `count` calls at random over `days`."""
    store: Any = open_store(f"sqlite:///{path}")
    chance = random.Random(seed)
    names = [f"s{n}" for n in range(5)]
    for name in names:
        put = SessionPut(create=True, body={"agent": name})
        store.commit(Batch(name, [], 1, session_put=put))
    begin = int(datetime(2025, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000
    batches = []
    for number in range(count):
        at = begin + chance.randrange(days * 96) * QUARTER + chance.randrange(QUARTER)
        name = chance.choice(names)
        pick = chance.choice
        one = row(
            name, pick([None, 0, 1, 10**6]), name=pick("xyz"), agent=pick("ab"),
            kind=pick(["model", "tool"]), state=pick(["reported", "estimated", "unpriced"]),
        )  # fmt: skip
        event = NewEvent("outcome", str(number), at, {})
        batches.append(Batch(name, [event], at, costs=(one,)))
    assert not [done for done in store.commit_many(batches) if isinstance(done, Exception)]
    return store


def test_totals_are_the_same_before_and_after_they_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path / "a.db", 400, 70)
    start = datetime(2025, 12, 30, 7, 45, tzinfo=UTC)
    periods: list[tuple[Any, Any]] = [(None, None)]
    for first, length in ((0, 1), (0, 30), (1, 60), (3, 0), (17, 45), (40, 99)):
        since = start + timedelta(days=first, hours=first)
        periods.append((since, since + timedelta(days=length, minutes=30)))
    periods += [(None, start + timedelta(days=33)), (start + timedelta(days=2), None)]

    def look() -> list[Any]:
        found = []
        for since, until in periods:
            span = [
                None if at is None else int(at.timestamp()) * 1_000_000 for at in (since, until)
            ]
            for by in ("", *DIMENSIONS):
                found.append(store.totals(by, since=span[0], until=span[1]))
                for limit in (1, 2, 3):
                    first = store.totals(by, since=span[0], until=span[1], limit=limit)
                    assert first == found[-1][:limit]
        return found

    try:
        before = look()
        monkeypatch.setattr(_bill, "FOLD_AT", 50)
        monkeypatch.setattr(_bill, "STEP", 37)
        assert look() == before
        with store._connections.reading() as connection:
            folded = connection.execute(_bill._FOLDED).fetchone()[0]
            left = connection.execute("SELECT count(*) FROM costs WHERE seq > ?", (folded,))
            assert left.fetchone()[0] <= 50
        assert store.rebuild() == []
    finally:
        store.close()


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.booleans(), st.booleans())
def test_pieces_of_a_period_cover_it_once(first: int, end: int, open1: bool, open2: bool) -> None:
    since = None if open1 else first * QUARTER
    until = None if open2 else end * QUARTER
    found = pieces(since, until)
    for quarter in {0, first, first - 1, end - 1, end, (first + end) // 2, DAY * 31, 10**5}:
        if quarter < 0:
            continue
        inside = (open1 or quarter >= first) and (open2 or quarter < end)
        covered = sum(low <= bucket(quarter, level) < high for level, low, high in found)
        assert covered == inside
