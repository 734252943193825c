"""Rolling sessions back: order, drain, deferral, late results, and who may do it."""

# What must not run stands inside the block that raises.
# ruff: noqa: PT012, ASYNC110

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Ask, Call, Deny, Outcome, Plugin, Rein, errors
from checkrein.report import RollbackReport


class World:
    """An outside world: what was done and undone, in order."""

    def __init__(self, rein: Rein, **settings: Any) -> None:
        self.log: list[str] = []
        self.act = rein.tool(self._act, name="act", undo=self._undo, **settings)

    def _act(self, name: str) -> str:
        self.log.append(name)
        return name

    def _undo(self, name: str) -> None:
        self.log.append(f"-{name}")


def row(rein: Rein, session: str) -> Any:
    found = rein.store.session(session)
    assert found is not None
    return found


def rolled(go: Any, rein: Rein, session: str, **options: Any) -> RollbackReport:
    report = go.run(rein, "rollback", session, **options)
    assert isinstance(report, RollbackReport)
    return report


def wait_for(ready: Callable[[], Any], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


# -- triggers


def test_an_error_that_leaves_the_session_rolls_it_back(make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback")
    world = World(rein)
    with pytest.raises(KeyError) as caught, rein.session() as session:
        world.act("a")
        world.act("b")
        raise KeyError("mine")
    assert world.log == ["a", "b", "-b", "-a"]
    assert any("2 undone" in note for note in caught.value.__notes__)
    assert (row(rein, session.id).state, row(rein, session.id).rollback) == (
        "FAILED", "rolled_back",
    )  # fmt: skip

    async def run() -> None:
        async with rein.session():
            await rein.acall(world.act, "c")
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(run())
    assert world.log[4:] == ["c", "-c"]


def test_an_effect_whose_result_was_withheld_is_undone_like_any_other(
    go: Any, make: Callable[..., Rein]
) -> None:
    class Vetoes(Plugin):
        def post_call(self, call: Call, outcome: Outcome) -> Deny | None:
            return Deny("leaks") if call.kind == "tool" else None

    rein = make(Vetoes())
    world = World(rein)
    with rein.session() as session:
        with pytest.raises(errors.Denied) as caught:
            go.call(rein, world.act, "a")
        assert caught.value.ran and world.log == ["a"]
    report = rolled(go, rein, session.id)
    assert world.log == ["a", "-a"]
    assert [action.status for action in report.actions] == ["undone"]


def test_a_handled_error_is_no_trigger(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback")
    world = World(rein)
    with rein.session() as session:
        go.call(rein, world.act, "a")
        with pytest.raises(ZeroDivisionError):
            go.call(rein, lambda: 1 // 0)
    assert world.log == ["a"]
    assert (session.state, row(rein, session.id).rollback) == ("COMPLETED", "none")


def test_effects_can_be_kept(make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback")
    world = World(rein)
    with pytest.raises(KeyError), rein.session(on_error="keep") as session:
        world.act("a")
        raise KeyError
    assert world.log == ["a"] and row(rein, session.id).owner == ""


def test_a_failing_rollback_is_told_beside_the_error(make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback", undo_tries=1)

    def refuse() -> None:
        raise RuntimeError

    tool = rein.tool(lambda: None, name="act", undo=refuse)
    with pytest.raises(KeyError) as caught, rein.session() as session:
        tool()
        raise KeyError
    assert "left: act" in caught.value.__notes__[0]
    assert row(rein, session.id).rollback == "partial"


def test_unknown_sessions(go: Any, make: Callable[..., Rein]) -> None:
    with pytest.raises(errors.Conflict, match="unknown"):
        go.run(make(), "rollback", "nope")


# -- order over sessions


def test_last_in_first_out_over_nested_sessions(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as outer:
        go.call(rein, world.act, "a")
        with rein.session() as inner:
            go.call(rein, world.act, "b")
            with rein.session():
                go.call(rein, world.act, "c")
        go.call(rein, world.act, "d")
        with rein.session(detached=True) as apart:
            go.call(rein, world.act, "e")
    report = rolled(go, rein, outer.id)
    assert world.log[5:] == ["-d", "-c", "-b", "-a"]
    assert report.complete and len(report.actions) == 4
    assert [row(rein, s.id).rollback for s in (outer, inner, apart)] == [
        "rolled_back", "rolled_back", "none",
    ]  # fmt: skip


def test_last_in_first_out_over_parallel_sessions(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)

    async def agent(names: str) -> None:
        async with rein.session():
            for name in names:
                await rein.acall(world.act, name)
                await asyncio.sleep(0)

    async def run() -> str:
        async with rein.session() as outer:
            await asyncio.gather(agent("abc"), agent("xyz"))
        assert (await rein.arollback(outer.id)).complete  # type: ignore[union-attr]
        return outer.id

    asyncio.run(run())
    done, undone = world.log[:6], world.log[6:]
    assert sorted(done) == sorted("abcxyz")
    assert undone == [f"-{name}" for name in reversed(done)]


def test_an_inner_session_alone(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as outer:
        go.call(rein, world.act, "a")
        with rein.session() as inner:
            go.call(rein, world.act, "b")
        rolled(go, rein, inner.id)
        go.call(rein, world.act, "c")
        report = rolled(go, rein, outer.id)
    assert world.log == ["a", "b", "-b", "c", "-c", "-a"]
    assert [a.detail for a in report.actions if a.session == inner.id] == ["already"]


def test_what_an_inner_session_leaves_makes_the_outer_one_partial(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make()
    bare = rein.tool(lambda: None, name="bare")
    with rein.session() as outer, rein.session() as inner:
        go.call(rein, bare)
    rolled(go, rein, outer.id)
    assert row(rein, outer.id).rollback == row(rein, inner.id).rollback == "partial"


def test_a_retried_call_is_undone_once_and_stands_where_it_was_tried_last(
    go: Any, make: Callable[..., Rein]
) -> None:
    from checkrein import Retry

    class Again(Plugin):
        def post_call(self, call: Call, outcome: Outcome) -> Retry | None:
            return Retry() if outcome.error is not None and call.attempt < 3 else None

    rein = make(Again())
    log: list[str] = []
    fails = iter([True, True, False])

    def flaky(name: str) -> str:
        log.append(name)
        if next(fails):
            raise ConnectionResetError
        return name

    tool = rein.tool(flaky, undo=lambda name: log.append("-" + name), idempotent=True)
    with rein.session() as session:
        go.call(rein, tool, "a")
    report = rolled(go, rein, session.id)
    assert log == ["a", "a", "a", "-a"] and len(report.actions) == 1


# -- the session is closed to everybody


def test_no_calls_after_a_rollback(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        go.call(rein, world.act, "a")
        rolled(go, rein, session.id)
        with pytest.raises(errors.SessionClosed, match="rolled back"):
            go.call(rein, world.act, "b")
    assert world.log == ["a", "-a"]
    with pytest.raises(errors.SessionClosed):
        rein.session(id=session.id).__enter__()


def test_stop_refuses_the_next_call(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session(agent="billing") as session:
        go.call(rein, world.act, "a")
        assert rein.stop(agent="billing") == 1
        with pytest.raises(errors.Halted):
            go.call(rein, world.act, "b")
    assert rolled(go, rein, session.id).complete
    assert world.log == ["a", "-a"]


# -- asked for inside a call


def test_inside_a_call_it_is_deferred_to_the_outermost_one(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make()
    world = World(rein)

    def inner() -> str:
        assert rein.rollback(session.id) is None
        return "still running"

    def outer() -> str:
        world.act("inside")
        assert rein.call(inner) == "still running"
        # Not yet: the outermost call goes on, and may act.
        assert world.log == ["a", "inside"]
        return "done"

    with rein.session() as session:
        go.call(rein, world.act, "a")
        assert go.call(rein, outer) == "done"
        assert world.log == ["a", "inside", "-inside", "-a"]
        with pytest.raises(errors.SessionClosed):
            go.call(rein, world.act, "b")


def test_from_a_sub_agent_s_session_inside_a_call(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)

    def agent() -> None:
        with rein.session() as sub:
            world.act("sub")
            rein.call(lambda: outer.rollback())
            assert row(rein, sub.id).rollback == "none"
        assert world.log == ["sub"]

    with rein.session() as outer:
        go.call(rein, agent)
        assert world.log == ["sub", "-sub"]
    assert row(rein, outer.id).rollback == "partial"  # `agent` itself has no undo


def test_inside_a_call_with_a_framework_s_key(go: Any, make: Callable[..., Rein]) -> None:
    """It would wait for itself otherwise, and then undo what still runs."""
    from checkrein.engine import Entry

    rein = make(drain=0.1)
    world = World(rein)
    begun, gate = threading.Event(), threading.Event()

    def asks() -> None:
        assert rein.rollback(session.id) is None
        world.log.append("after")

    def slow() -> None:
        begun.set()
        gate.wait(10)

    ask = rein.tools.declare("ask", asks, undo=lambda: None)
    wait = rein.tools.declare(
        "wait", slow, undo=lambda: world.log.append("-wait"), probe=lambda: True
    )
    with rein.session() as session:
        go.call(rein, world.act, "a")
        go.run(rein, "enter", Entry(ask, {}, session, call_id="key", keyed=True))
        assert world.log == ["a", "after", "-a"]
    with rein.session() as session:
        entry = Entry(wait, {}, session, call_id="key 2", keyed=True)
        thread = threading.Thread(target=lambda: rein.enter(entry))
        thread.start()
        assert begun.wait(5)
        report = rolled(go, rein, session.id)
        assert [a.status for a in report.actions] == ["in_doubt"]
        gate.set()
        thread.join(5)
    assert world.log[3:] == ["-wait"]


def test_async_inside_a_call(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)

    async def outer() -> None:
        await rein.acall(world.act, "inside")
        assert await session.arollback() is None

    async def run() -> None:
        nonlocal session
        async with rein.session() as session:
            await rein.acall(outer)
            assert world.log == ["inside", "-inside"]

    session: Any = None
    asyncio.run(run())


def test_a_sibling_that_ends_first_does_not_roll_back(make: Callable[..., Rein]) -> None:
    """It would wait for the call that asked, which may well wait for it."""
    rein = make(drain=5)
    world = World(rein)
    asked, ended = threading.Event(), threading.Event()

    def asker() -> None:
        session.rollback()
        asked.set()
        assert ended.wait(5)

    def sibling() -> None:
        world.act("sibling")
        ended.set()

    with rein.session() as session:
        thread = threading.Thread(target=session.bind(lambda: rein.call(asker)))
        thread.start()
        assert asked.wait(5)
        session.bind(sibling)()
        thread.join(5)
        assert not thread.is_alive() and world.log == ["sibling", "-sibling"]


def test_an_undo_that_asks_for_the_rollback(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    log: list[str] = []

    def undo(name: str) -> None:
        log.append(name)
        assert rein.rollback(session.id) is None

    tool = rein.tool(lambda name: None, name="act", undo=undo)
    with rein.session() as session:
        go.call(rein, tool, "a")
        go.call(rein, tool, "b")
    assert rolled(go, rein, session.id).complete and log == ["b", "a"]


def test_a_refused_approval_can_roll_back_at_once(go: Any, make: Callable[..., Rein]) -> None:
    class Never(Plugin):
        def pre_call(self, call: Call) -> Ask | None:
            return Ask("big") if call.name == "pay" else None

        def on_approval(self, call: Call, request: Any) -> Any:
            from checkrein import Rejected

            return Rejected("bob", "no")

    rein = make(Never())
    world = World(rein)
    pay = rein.tool(lambda: None, name="pay")

    def agent() -> None:
        world.act("inside")
        with pytest.raises(errors.ApprovalRejected):
            pay()
        assert world.log == ["a", "inside"], "an outer call is still at work"

    async def later() -> None:
        world.act("inside")
        with pytest.raises(errors.ApprovalRejected):
            await rein.acall(pay)
        assert world.log == ["a", "inside"]

    run = agent if go.mode == "sync" else later
    rein.tool(run, undo=lambda: None)
    with rein.session(on_rejected="rollback"):
        go.call(rein, world.act, "a")
        go.call(rein, run)
        assert world.log == ["a", "inside", "-inside", "-a"]


# -- drain


def test_a_rollback_waits_for_sibling_threads(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(drain=10)
    world = World(rein)
    begun, gate = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        begun.set()
        gate.wait(10)
        world.log.append(name)

    tool = rein.tool(slow, undo=lambda name: world.log.append(f"-{name}"))
    with rein.session() as session:
        thread = threading.Thread(target=session.bind(lambda: rein.call(tool, "slow")))
        thread.start()
        assert begun.wait(5)
        timer = threading.Timer(0.2, gate.set)
        timer.start()
        report = rolled(go, rein, session.id)
        thread.join(5)
        timer.join(5)
    assert report.complete and world.log == ["slow", "-slow"]


def test_a_rollback_waits_for_sibling_tasks(make: Callable[..., Rein]) -> None:
    rein = make(drain=10)
    world = World(rein)

    async def slow(name: str) -> None:
        await asyncio.sleep(0.1)
        world.log.append(name)

    tool = rein.tool(slow, undo=lambda name: world.log.append(f"-{name}"))

    async def run() -> None:
        async with rein.session() as session:
            task = asyncio.ensure_future(tool("slow"))
            await asyncio.sleep(0.02)
            # From sync code on this thread it would be a deadlock: said before anything is done.
            with pytest.raises(errors.WouldBlock, match="arollback"):
                rein.rollback(session.id)
            assert row(rein, session.id).rollback == "none"
            report = await rein.arollback(session.id)
            await task
        assert report is not None and report.complete

    asyncio.run(run())
    assert world.log == ["slow", "-slow"]


def test_what_outlasts_the_drain_is_undone_when_it_lands(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make(drain=0.05)
    world = World(rein)
    begun, gate = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        begun.set()
        gate.wait(10)
        world.log.append(name)

    tool = rein.tool(slow, undo=lambda name: world.log.append(f"-{name}"))
    with rein.session() as session:
        go.call(rein, world.act, "a")
        thread = threading.Thread(target=session.bind(lambda: rein.call(tool, "slow")))
        thread.start()
        assert begun.wait(5)
        report = rolled(go, rein, session.id)
        assert [(a.name, a.status) for a in report.actions] == [
            ("slow", "in_doubt"), ("act", "undone"),
        ]  # fmt: skip
        assert row(rein, session.id).rollback == "partial"
        gate.set()
        thread.join(5)
    assert world.log == ["a", "-a", "slow", "-slow"]
    # Whoever recovers next finds that nothing is left.
    assert go.run(rein, "recover").complete
    assert row(rein, session.id).rollback == "rolled_back"


def test_a_timed_out_call_lands_in_a_rolled_back_session(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make(drain=0.05, clock=None)
    log: list[str] = []
    gate = threading.Event()

    def slow(name: str) -> str:
        gate.wait(10)
        log.append(name)
        return name

    tool = rein.tool(
        slow, undo=lambda result: log.append(f"-{result}"), timeout=0.05,
        probe=lambda name: name in log,
    )  # fmt: skip
    with rein.session() as session, pytest.raises(TimeoutError):
        go.call(rein, tool, "a")
    report = rolled(go, rein, session.id)
    assert [a.status for a in report.actions] == ["in_doubt"]
    gate.set()
    wait_for(lambda: log == ["a", "-a"])
    wait_for(lambda: not session.running)
    assert go.run(rein, "recover").complete


def test_a_late_effect_that_cannot_be_undone_is_no_success(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make(drain=0.05, undo_tries=1)
    begun, gate = threading.Event(), threading.Event()
    refuses = [True]

    def undo() -> None:
        if refuses and refuses.pop():
            raise RuntimeError

    def slow() -> None:
        begun.set()
        gate.wait(10)

    tool = rein.tool(slow, undo=undo)
    with rein.session() as session:
        thread = threading.Thread(target=session.bind(lambda: rein.call(tool)))
        thread.start()
        assert begun.wait(5)
        rolled(go, rein, session.id)
        gate.set()
        thread.join(5)
    assert row(rein, session.id).rollback == "partial"
    assert go.run(rein, "recover").complete
    assert row(rein, session.id).rollback == "rolled_back"


def test_models_and_reads_that_land_late_are_no_effects(
    make: Callable[..., Rein], caplog: pytest.LogCaptureFixture
) -> None:
    rein = make(drain=0.05)
    gate, begun = threading.Event(), threading.Event()

    def model(**request: Any) -> str:
        begun.set()
        gate.wait(10)
        return "hello"

    with rein.session() as session:
        ask = session.bind(lambda: rein.model_call(model, model="m", messages=[]))
        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(5)
        assert rein.rollback(session.id).complete  # type: ignore[union-attr]
        gate.set()
        thread.join(5)
    assert row(rein, session.id).rollback == "rolled_back" and not caplog.records


# -- one at a time


def test_two_rollbacks_at_once(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    begun, gate = threading.Event(), threading.Event()
    undone: list[int] = []

    def undo(n: int) -> None:
        begun.set()
        gate.wait(10)
        undone.append(n)

    tool = rein.tool(lambda n: None, name="act", undo=undo)
    with rein.session() as session:
        go.call(rein, tool, 1)
    first = threading.Thread(target=lambda: rein.rollback(session.id))
    first.start()
    assert begun.wait(5)
    with pytest.raises(errors.Conflict, match="rolled back"):
        rolled(go, rein, session.id)
    gate.set()
    first.join(5)
    assert undone == [1] and rolled(go, rein, session.id).complete


def test_an_undo_that_outlasts_every_lease_is_not_taken_for_a_dead_one(
    go: Any, tmp_path: Any, clock: Any
) -> None:
    begun, gate = threading.Event(), threading.Event()
    undone: list[int] = []

    def undo(n: int) -> None:
        begun.set()
        gate.wait(10)
        undone.append(n)

    def act(n: int) -> None:
        pass

    url = f"sqlite:///{tmp_path}/s.db"
    with (
        Rein(store=url, clock=clock, on_error="keep") as rein,
        Rein(store=url, clock=clock, on_error="keep") as other,
    ):
        for each in (rein, other):
            each.tool(act, undo=undo)
        with rein.session() as session:
            rein.call(act, 1)
        first = threading.Thread(target=lambda: rein.rollback(session.id))
        first.start()
        assert begun.wait(5)
        clock.sleep(7 * 86_400)
        assert go.run(other, "recover").sessions == []
        with pytest.raises(errors.Conflict):
            rolled(go, other, session.id)
        gate.set()
        first.join(5)
        assert undone == [1]
        assert rolled(go, other, session.id).complete and undone == [1]


def test_a_rollback_that_is_broken_off_is_finished_by_recover(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make()
    log: list[str] = []
    breaks = [True]

    def undo(name: str) -> None:
        if name == "b" and breaks and breaks.pop():
            raise KeyboardInterrupt
        log.append(name)

    tool = rein.tool(
        lambda name: None, name="act", undo=undo, probe=lambda name: name not in log,
        settle_time=0,
    )  # fmt: skip
    with rein.session() as session:
        for name in "abc":
            go.call(rein, tool, name)
    with pytest.raises(KeyboardInterrupt):
        rolled(go, rein, session.id)
    assert row(rein, session.id).rollback == "partial" and log == ["c"]
    assert go.run(rein, "recover").complete
    assert log == ["c", "b", "a"]
    assert row(rein, session.id).rollback == "rolled_back"


def test_cancelled_in_the_middle(make: Callable[..., Rein]) -> None:
    rein = make()
    log: list[str] = []

    async def undo(name: str) -> None:
        if name == "b" and len(log) == 1:
            log.append("?")
            await asyncio.sleep(30)
        log.append(name)

    tool = rein.tool(
        lambda name: None, name="act", undo=undo, probe=lambda name: name not in log,
        settle_time=0,
    )  # fmt: skip

    async def run() -> str:
        async with rein.session() as session:
            for name in "abc":
                await rein.acall(tool, name)
        task = asyncio.ensure_future(rein.arollback(session.id))
        while log != ["c", "?"]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await rein.arecover()).complete
        return session.id

    session = asyncio.run(run())
    assert log == ["c", "?", "b", "a"] and row(rein, session).rollback == "rolled_back"


def test_a_cancelled_call_is_in_doubt(make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback")
    log: list[str] = []

    async def act(name: str) -> None:
        log.append(name)
        await asyncio.sleep(30)

    tool = rein.tool(act, undo=lambda name: log.append(f"-{name}"), probe=lambda name: name in log)

    async def run() -> None:
        async with rein.session():
            task = asyncio.ensure_future(tool("a"))
            while not log:
                await asyncio.sleep(0.01)
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert log == ["a", "-a"]


# -- undos that make calls of their own


@pytest.mark.parametrize("where", ["inside", "after"])
def test_an_undo_may_call_other_tools(go: Any, make: Callable[..., Rein], where: str) -> None:
    """They are part of the undo: let in, recorded under it, and never undone themselves."""
    rein = make()
    log: list[str] = []
    deep = rein.tool(lambda name: log.append(f"deep {name}"), name="deep", undo=lambda: None)

    def remove(name: str) -> None:
        log.append(f"-{name}")
        deep(name)

    remove_tool = rein.tool(remove, undo=lambda name: log.append(f"+{name}"))

    def act(name: str) -> None:
        log.append(name)

    rein.tool(act, undo=lambda name: remove_tool(name))
    with rein.session() as session:
        go.call(rein, act, "a")
        if where == "inside":
            assert rolled(go, rein, session.id).complete
    if where == "after":
        assert rolled(go, rein, session.id).complete
    assert log == ["a", "-a", "deep a"]
    assert rolled(go, rein, session.id).complete and log == ["a", "-a", "deep a"]
    kinds = [e.view["kind"] for e in rein.read(session.id).events() if e.kind == "intent"]
    assert kinds == ["tool", "undo", "undo", "undo"]


def test_a_task_that_outlives_its_call_may_roll_back(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    left: list[asyncio.Task[Any]] = []

    async def starts() -> None:
        async def later() -> Any:
            await asyncio.sleep(0.02)
            return await session.arollback()

        left.append(asyncio.ensure_future(later()))

    rein.tool(starts, undo=lambda: None)

    async def run() -> None:
        nonlocal session
        async with rein.session() as session:
            await rein.acall(world.act, "a")
            await rein.acall(starts)
            assert (await left[0]).complete

    session: Any = None
    asyncio.run(run())
    assert world.log == ["a", "-a"]


def test_a_call_that_was_given_up_may_ask_for_the_rollback(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make(clock=None, drain=5)
    world = World(rein)
    gate = threading.Event()

    def slow() -> None:
        gate.wait(10)
        assert rein.rollback(session.id) is None

    tool = rein.tool(slow, timeout=0.05, undo=lambda: None)
    with rein.session() as session:
        go.call(rein, world.act, "a")
        with pytest.raises(TimeoutError):
            go.call(rein, tool)
        gate.set()
        wait_for(lambda: world.log == ["a", "-a"])
        wait_for(lambda: row(rein, session.id).rollback == "rolled_back")
