"""Holds: what a call takes from accounts, when, and what it settles at."""

from __future__ import annotations  # noqa: I001 - meant so

import asyncio
import threading
from typing import Any

import pytest

from checkrein import Answer, Call, Deny, Hold, Plugin, Rein, errors
from checkrein.call import Usage
from checkrein.testing import Clock
from checkrein.verdicts import Measured
import contextlib


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


class Holds(Plugin):
    def __init__(self, *holds: Hold, cost: int | None = None, tokens: int | None = None) -> None:
        self.holds = holds
        self.cost = cost
        self.tokens = tokens

    def pre_call(self, call: Call) -> Any:
        return self.holds

    def measure(self, call: Call, outcome: Any) -> Any:
        usage = None if self.tokens is None else Usage(input_tokens=self.tokens)
        return Measured(
            usage=usage, cost=self.cost, state=None if self.cost is None else "reported"
        )


def balance(rein: Rein, account: str) -> tuple[int, int]:
    """(spent, held)."""
    found = rein.store.balance(account)
    return (0, 0) if found is None else (found.spent, found.held)


def test_a_hold_lasts_as_long_as_the_call(go, store) -> None:
    with Rein(plugins=[Holds(Hold("a", 5, "usd", 100), cost=3)], store=store) as rein:
        inside: list[tuple[int, int]] = []
        with rein.session():
            go.call(rein, lambda: inside.append(balance(rein, "a")))
        assert inside == [(0, 5)]
        assert balance(rein, "a") == (3, 0)


@pytest.mark.parametrize(("settle", "spent"), [("measured", 3), ("keep", 5), ("release", 0)])
def test_what_a_done_call_settles_at(go, store, settle, spent) -> None:
    with Rein(
        plugins=[Holds(Hold("a", 5, "usd", 100, settle=settle), cost=3)], store=store
    ) as rein:
        with rein.session():
            go.call(rein, lambda: 1)
        assert balance(rein, "a") == (spent, 0)


@pytest.mark.parametrize("unit", ["usd", "tokens"])
def test_what_is_not_measured_costs_what_was_held(go, store, unit) -> None:
    with Rein(plugins=[Holds(Hold("a", 5, unit, 100))], store=store) as rein:
        with pytest.raises(ValueError), rein.session(on_error="keep"):
            go.call(rein, int, "x")
        assert balance(rein, "a") == (5, 0)


def test_an_unpriced_call_is_not_free(go, store) -> None:
    class Unpriced(Plugin):
        def measure(self, call: Call, outcome: Any) -> Any:
            return Measured(cost=0, state="unpriced")

    plugins = [Holds(Hold("a", 5, "usd", 100)), Unpriced()]
    with Rein(plugins=plugins, store=store) as rein:
        with rein.session():
            go.call(rein, lambda: 1)
        assert balance(rein, "a") == (5, 0)


def test_an_error_that_was_measured_costs_what_it_measured(go, store) -> None:
    with Rein(plugins=[Holds(Hold("a", 50, "tokens", 100), tokens=7)], store=store) as rein:
        with pytest.raises(ValueError), rein.session(on_error="keep"):
            go.call(rein, int, "x")
        assert balance(rein, "a") == (7, 0)


def test_a_call_that_had_no_effect_gives_everything_back(go, store) -> None:
    plugins = [
        Holds(Hold("a", 5, "usd", 100, settle="keep"), Hold("b", 1, "calls", 9, settle="keep"))
    ]
    with Rein(plugins=plugins, store=store) as rein:

        @rein.tool(no_effect_on=(ConnectionRefusedError,))
        def tool() -> None:
            raise ConnectionRefusedError

        with pytest.raises(ConnectionRefusedError), rein.session(on_error="keep"):
            go.call(rein, tool)
        assert balance(rein, "a") == (0, 0)
        assert balance(rein, "b") == (0, 0)


def test_more_than_was_held_is_booked_and_flagged(go, store) -> None:
    with Rein(plugins=[Holds(Hold("a", 5, "usd", 100), cost=70)], store=store) as rein:
        with rein.session():
            go.call(rein, lambda: 1)
        assert balance(rein, "a") == (70, 0)
        assert rein.store.events(kinds=("outcome",))[0].view["overrun"] == ["a"]


@pytest.mark.parametrize("verdict", [Answer("cached"), Deny("no")], ids=lambda v: type(v).__name__)
def test_a_call_that_does_not_run_holds_nothing(go, store, verdict) -> None:
    with Rein(plugins=[Holds(Hold("a", 5, "usd", 100), verdict)], store=store) as rein:
        with rein.session(on_error="keep"), contextlib.suppress(errors.Denied):
            go.call(rein, lambda: 1)
        assert balance(rein, "a") == (0, 0)
        assert rein.store.holds() == []


def test_two_holds_are_taken_together_or_not_at_all(go, store) -> None:
    holds = (Hold("a", 5, "usd", 100, rule="day"), Hold("b", 5, "usd", 4, rule="hour"))
    ran: list[int] = []
    with Rein(plugins=[Holds(*holds)], store=store) as rein:
        session = rein.session(on_error="keep")
        with pytest.raises(errors.BudgetExceeded) as refused, session:
            go.call(rein, ran.append, 1)
        assert ran == []
        assert (refused.value.account, refused.value.rule) == ("b", "hour")
        assert refused.value.session_id == session.id
        assert balance(rein, "a") == balance(rein, "b") == (0, 0)
        kinds = [e.kind for e in session.events()]
    assert kinds == ["session_started", "denied", "session_ended"]


def test_a_refused_hold_halts_where_it_says_so(go, store) -> None:
    with Rein(plugins=[Holds(Hold("a", 5, "usd", 1, halt=True))], store=store) as rein:  # noqa: SIM117 - the order of endings is the point
        with pytest.raises(errors.BudgetExceeded) as refused, rein.session(on_error="keep"):
            go.call(rein, lambda: 1)
    assert refused.value.halt


def test_a_window_slides(go, store) -> None:
    now = [1_000_000_000]
    plugin = Holds(Hold("a", 1, "calls", 2, window=60, settle="keep"))
    with Rein(plugins=[plugin], store=store, clock=lambda: now[0]) as rein, rein.session():
        go.call(rein, lambda: 1)
        now[0] += 30_000_000
        go.call(rein, lambda: 1)
        with pytest.raises(errors.BudgetExceeded, match="within 60 s"):
            go.call(rein, lambda: 1)
        now[0] += 31_000_000
        go.call(rein, lambda: 1)


def test_exact_over_32_threads(store) -> None:
    with Rein(plugins=[Holds(Hold("a", 1, "calls", 20, settle="keep"))], store=store) as rein:
        ran: list[int] = []
        refused: list[int] = []
        with rein.session() as session:

            def work() -> None:
                for _ in range(3):
                    try:
                        rein.call(ran.append, 1)
                    except errors.BudgetExceeded:
                        refused.append(1)

            threads = [threading.Thread(target=session.bind(work)) for _ in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert (len(ran), len(refused)) == (20, 76)
        assert balance(rein, "a") == (20, 0)
        assert len(rein.store.events(kinds=("denied",))) == 76


def test_exact_over_tasks(store) -> None:
    with Rein(plugins=[Holds(Hold("a", 1, "calls", 20, settle="keep"))], store=store) as rein:
        ran: list[int] = []

        async def tool() -> None:
            ran.append(1)
            await asyncio.sleep(0)

        async def main() -> int:
            async with rein.session():
                calls = (rein.acall(tool) for _ in range(100))
                results = await asyncio.gather(*calls, return_exceptions=True)
            return sum(isinstance(r, errors.BudgetExceeded) for r in results)

        assert asyncio.run(main()) == 80
        assert len(ran) == 20
        assert balance(rein, "a") == (20, 0)


def test_cancelled_tasks_leave_no_hold_behind(store) -> None:
    """Whether the cancellation comes before, at, or after the intent."""
    with Rein(
        plugins=[Holds(Hold("a", 1, "calls", 10_000, settle="release"))], store=store
    ) as rein:

        async def tool() -> None:
            await asyncio.sleep(30)

        async def main() -> None:
            async with rein.session(on_error="keep"):
                tasks = [asyncio.create_task(rein.acall(tool)) for _ in range(60)]
                for index, task in enumerate(tasks):
                    if index % 7 == 0:
                        await asyncio.sleep(0.001)
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(main())
        assert balance(rein, "a") == (0, 0)
        intents = {e.call for e in rein.store.events(kinds=("intent",))}
        assert intents == {e.call for e in rein.store.events(kinds=("outcome",))}


# waiting for the holder


class Recorded(Plugin):
    """One call at a time; whoever waited is answered from the record of the one before."""

    def start(self, rein: Rein) -> None:
        self.store = rein.store

    def pre_call(self, call: Call) -> Any:
        for event in self.store.events(kinds=("outcome",)):
            return Answer(self.store.payload(event.seq)["result"], "record")
        return Hold("flight", 1, "calls", 1, settle="release", on_refused="wait")


def test_single_flight_over_threads(store) -> None:
    ran: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def tool(n: int) -> str:
        ran.append(n)
        begun.set()
        go_on.wait(20)
        return f"r{n}"

    with Rein(plugins=[Recorded()], store=store) as rein, rein.session() as session:
        got: list[str] = []
        call = session.bind(lambda: got.append(rein.call(tool, 1)))
        threads = [threading.Thread(target=call) for _ in range(6)]
        threads[0].start()
        begun.wait(20)
        for thread in threads[1:]:
            thread.start()
        go_on.set()
        for thread in threads:
            thread.join(30)
    assert got == ["r1"] * 6
    assert ran == [1]


class Outdated(Recorded):
    """What it saw of the record is out of date by the time that its hold is taken."""

    def __init__(self) -> None:
        self.looked, self.ended = threading.Event(), threading.Event()

    def pre_call(self, call: Call) -> Any:
        seen = super().pre_call(call)
        if threading.current_thread().name == "late" and not self.looked.is_set():
            self.looked.set()
            self.ended.wait(20)
        return seen


def test_what_ended_between_check_and_intent_answers(store) -> None:
    ran: list[int] = []
    plugin = Outdated()

    def tool(n: int) -> str:
        ran.append(n)
        return f"r{n}"

    with Rein(plugins=[plugin], store=store) as rein, rein.session() as session:
        got: list[str] = []
        late = threading.Thread(
            target=session.bind(lambda: got.append(rein.call(tool, 1))), name="late"
        )
        late.start()
        plugin.looked.wait(20)
        assert rein.call(tool, 1) == "r1"
        plugin.ended.set()
        late.join(30)
        assert not rein.store.holds(account="flight")
    assert got == ["r1"]
    assert ran == [1]


def test_single_flight_over_tasks(store) -> None:
    ran: list[int] = []

    async def tool(n: int) -> str:
        ran.append(n)
        await asyncio.sleep(0.02)
        return f"r{n}"

    async def main() -> list[str]:
        with Rein(plugins=[Recorded()], store=store) as rein:
            async with rein.session():
                return await asyncio.gather(*(rein.acall(tool, 1) for _ in range(6)))

    assert asyncio.run(main()) == ["r1"] * 6
    assert ran == [1]


def test_a_holder_that_does_not_end_is_not_waited_for_for_ever(go, store) -> None:
    plugin = Holds(Hold("a", 1, "calls", 1, settle="release", on_refused="wait"))
    with Rein(plugins=[plugin], store=store, hold_wait=0.2) as rein:

        def outer() -> None:
            go.call(rein, lambda: 1) if go.mode == "sync" else rein.call(lambda: 1)

        with (
            pytest.raises((errors.BudgetExceeded, errors.WouldBlock)),
            rein.session(on_error="keep"),
        ):
            go.call(rein, outer)


# spent already


def test_usage_of_a_model_called_elsewhere_is_on_the_bill(go, store) -> None:
    with Rein(plugins=[Holds(Hold("t", 1, "tokens", 100))], store=store) as rein:
        with rein.session() as session:
            go.run(session, "record_usage", Usage(input_tokens=30, output_tokens=12), model="m")
            assert session.spend().tokens == 42
        assert balance(rein, "t") == (42, 0)


@pytest.mark.parametrize("verdict", [Deny("no"), Answer("x")], ids=lambda v: type(v).__name__)
def test_what_is_spent_is_booked_whatever_a_guard_says(go, store, verdict) -> None:
    with Rein(plugins=[Holds(Hold("t", 1, "tokens", 100), verdict)], store=store) as rein:
        with rein.session() as session:
            go.run(session, "record_usage", Usage(input_tokens=30), model="m")
        assert balance(rein, "t") == (30, 0)


def test_what_is_spent_above_a_limit_is_booked_and_told(go, store) -> None:
    plugin = Holds(Hold("t", 1, "tokens", 100, rule="cap", halt=True))
    with Rein(plugins=[plugin], store=store) as rein, rein.session(on_error="keep") as session:
        go.run(session, "record_usage", Usage(input_tokens=150), model="m")
        with pytest.raises(errors.BudgetExceeded) as refused:
            go.run(session, "record_usage", Usage(input_tokens=20), model="m")
        assert refused.value.halt
        assert balance(rein, "t") == (170, 0)
        assert session.spend().tokens == 170
        with pytest.raises(errors.BudgetExceeded):
            go.call(rein, lambda: 1)


@pytest.mark.parametrize(
    "usage", [{"input_tokens": 5}, None, Usage(input_tokens=-1), "5"], ids=repr
)
def test_usage_must_be_usage(go, usage) -> None:
    with Rein() as rein, rein.session() as session, pytest.raises(errors.ConfigError):
        go.run(session, "record_usage", usage, model="m")


def test_spend_is_known_after_a_failed_run(go, store) -> None:
    with Rein(plugins=[Holds(cost=3)], store=store) as rein:
        session = rein.session()
        with pytest.raises(ValueError), session:  # noqa: PT012 - what leaves the block is looked at
            go.call(rein, lambda: 1)
            with rein.session(agent="inner"):
                go.call(rein, lambda: 1)
            go.call(rein, int, "x")
        spend = session.spend()
    assert (spend.nano_usd, spend.calls) == (9, 3)


class Failing(Plugin):
    """Counts failures in a row of every tool; `measured` decides what a failure is."""

    def __init__(self, measured: int | None = None) -> None:
        self.measured = measured

    def pre_call(self, call: Call) -> Any:
        return Hold("row", 1, "calls", 2, window=60, settle="streak", code="circuit_open")

    def measure(self, call: Call, outcome: Any) -> Any:
        return None if self.measured is None else Measured(amounts={"row": self.measured})


def test_failures_in_a_row_close_an_account(go, store) -> None:
    clock = Clock()
    ran: list[int] = []

    def tool(fail: bool) -> None:
        ran.append(1)
        if fail:
            raise OSError("down")

    with (
        Rein(plugins=[Failing()], store=store, clock=clock) as rein,
        rein.session(on_error="keep"),
    ):
        for fail in (True, False, True, True):
            clock.advance(1)
            with contextlib.suppress(OSError):
                go.call(rein, tool, fail)
        with pytest.raises(errors.BudgetExceeded) as refused:
            go.call(rein, tool, False)
        assert refused.value.code == "circuit_open"
        clock.advance(60)
        go.call(rein, tool, False)
        go.call(rein, tool, False)
    assert len(ran) == 6


@pytest.mark.parametrize(("measured", "runs"), [(None, 2), (0, 5), (1, 2)])
def test_a_measure_says_what_a_failure_is(go, store, measured, runs) -> None:
    ran: list[int] = []

    def tool() -> None:
        ran.append(1)
        raise OSError("down")

    with Rein(plugins=[Failing(measured)], store=store) as rein, rein.session(on_error="keep"):
        for _ in range(5):
            with contextlib.suppress(OSError, errors.BudgetExceeded):
                go.call(rein, tool)
    assert len(ran) == runs


def test_what_may_happen_once_tells_which_call_it_was(go, store) -> None:
    with (
        Rein(plugins=[Holds(Hold("one", 1, "calls", 1, settle="once"))], store=store) as rein,
        rein.session() as session,
    ):
        go.call(rein, lambda: 1)
        record = rein.store.record("once", "one")
        assert record is not None and record.state == "done"
        assert record.session == session.id
        intents = [e.call for e in session.events() if e.kind == "intent"]
        assert [record.body["call"]] == intents
        with pytest.raises(errors.BudgetExceeded):
            go.call(rein, lambda: 1)


def test_a_plugin_measures_its_own_account(go, store) -> None:
    class Own(Holds):
        def measure(self, call: Call, outcome: Any) -> Any:
            return Measured(amounts={"a": 7})

    with Rein(plugins=[Own(Hold("a", 5, "calls", 100), Hold("b", 5, "calls", 9))]) as rein:
        with rein.session():
            go.call(rein, lambda: 1)
        assert balance(rein, "a") == (7, 0)
        assert balance(rein, "b") == (5, 0)


def test_nobody_waits_for_what_is_spent(go, store) -> None:
    hold = Hold("a", 1, "calls", 1, settle="keep", on_refused="wait", reason="once is enough")
    with Rein(plugins=[Holds(hold)], store=store, hold_wait=3600) as rein, rein.session():
        go.call(rein, lambda: 1)
        with pytest.raises(errors.BudgetExceeded, match="once is enough"):
            go.call(rein, lambda: 1)


class Instead(Plugin):
    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def on_denied(self, call: Call, denied: Any) -> Any:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


@pytest.mark.parametrize("late", [False, True])
def test_a_refusal_may_be_answered(go, store, late) -> None:
    class No(Plugin):
        def pre_call(self, call: Call) -> Any:
            return None if late else Deny("no")

        def post_call(self, call: Call, outcome: Any) -> Any:
            return Deny("no") if late else None

    ran: list[int] = []
    with (
        Rein(plugins=[Instead(Answer("else")), No()], store=store) as rein,
        rein.session() as session,
    ):
        assert go.call(rein, lambda: ran.append(1)) == "else"
        kinds = [event.kind for event in session.events()]
    assert ran == [1] * late
    assert kinds[-2:] == (["amended", "amended"] if late else ["denied", "amended"])


@pytest.mark.parametrize(
    ("verdicts", "halt"),
    [
        ([None], False),
        ([Deny("stop", halt=True)], True),
        ([Answer(1), Deny("stop", halt=True)], True),
        ([ValueError("broken")], False),
    ],
)
def test_a_refusal_stands_or_ends_the_run(go, store, verdicts, halt) -> None:
    plugins: list[Any] = [Holds(Hold("a", 1, "calls", 0))]
    plugins += [(f"instead{i}", Instead(verdict)) for i, verdict in enumerate(verdicts)]
    with (
        Rein(plugins=plugins, store=store) as rein,
        rein.session(),
        pytest.raises(errors.BudgetExceeded) as refused,
    ):
        go.call(rein, lambda: 1)
    assert refused.value.halt is halt
