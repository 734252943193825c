"""Sessions: which calls belong to them, how they end, and who carries them where."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from typing import Any

import pytest

from checkrein import Ask, Call, Plugin, Rein, errors


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


def of(rein: Rein, session: Any) -> list[str]:
    """Names of the calls of a session."""
    return [e.view["name"] for e in rein.store.events(session=session.id, kinds=("intent",))]


def one() -> int:
    return 1


def two() -> int:
    return 2


# how they end


def test_an_id_has_128_bits() -> None:
    with Rein() as rein:
        ids = {rein.session().id for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id) == 32 for id in ids)


def test_a_session_that_is_over_takes_no_calls(go, store) -> None:
    with Rein(store=store) as rein:
        with rein.session() as session:
            go.call(rein, one)
            call = session.bind(functools.partial(rein.call, one))
        with pytest.raises(errors.SessionClosed):
            call()
        with pytest.raises(errors.SessionClosed), session:
            raise AssertionError
        with pytest.raises(errors.SessionClosed), rein.session(id=session.id):
            raise AssertionError
        assert session.state == "COMPLETED"
        assert of(rein, session) == ["one"]


def test_a_session_is_entered_once(store) -> None:
    with Rein(store=store) as rein, rein.session() as session:
        with pytest.raises(errors.SessionClosed, match="open already"), session:
            raise AssertionError
        assert rein.current_session() is session
        rein.call(one)


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError]
)
def test_an_error_fails_the_session_and_undoes_it(go, store, error) -> None:
    undone: list[int] = []
    with Rein(store=store) as rein:
        tool = rein.tool(lambda n: n, name="make", undo=lambda n: undone.append(n))
        session = rein.session()

        def work() -> None:
            go.call(rein, tool, 1)
            go.call(rein, tool, 2)
            raise error

        with pytest.raises(error), session:
            work()
        row = rein.store.session(session.id)
        assert (row.state, row.rollback) == ("FAILED", "rolled_back")
    assert undone == [2, 1]


def test_async_sessions_end_as_sync_ones_do(store) -> None:
    undone: list[int] = []

    async def main() -> None:
        tool = rein.tool(lambda n: n, name="make", undo=lambda n: undone.append(n))
        session = rein.session()

        async def work() -> None:
            async with session:
                await rein.acall(tool, 1)
                raise ValueError("lost")

        with pytest.raises(ValueError, match="lost"):
            await work()
        assert rein.store.session(session.id).rollback == "rolled_back"

    with Rein(store=store) as rein:
        asyncio.run(main())
    assert undone == [1]


def test_a_cancelled_session_is_undone(store) -> None:
    undone: list[int] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def run() -> None:
            async with rein.session():
                await rein.acall(tool, 1)
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(run())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Rein(store=store) as rein:
        tool = rein.tool(lambda n: n, name="make", undo=lambda n: undone.append(n))
        asyncio.run(main())
    assert undone == [1]


def test_on_error_keep_keeps(go, store) -> None:
    with Rein(store=store) as rein:
        session = rein.session(on_error="keep")

        def work() -> None:
            go.call(rein, one)
            raise ValueError("lost")

        with pytest.raises(ValueError, match="lost"), session:
            work()
        row = rein.store.session(session.id)
        assert (row.state, row.rollback) == ("FAILED", "none")


def test_a_store_that_fails_at_the_end_does_not_hide_the_error(tmp_path) -> None:
    rein = Rein(store=f"sqlite:///{tmp_path}/s.db")

    def work() -> None:
        rein.store.close()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised, rein.session():
        work()
    assert any("checkrein" in note for note in raised.value.__notes__)
    rein.close()


# stopping


def test_stopped_from_another_process(child, go, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(store=url) as rein:
        with rein.session(on_error="keep") as session:
            go.call(rein, one)
            stop = (
                "import sys\nfrom checkrein import Rein\n"
                "with Rein(store=sys.argv[1]) as r: print(r.stop(sys.argv[2]))"
            )
            out, err = child(stop, url, session.id).communicate(timeout=60)
            assert out == "1\n", err
            with pytest.raises(errors.Halted) as halted:
                go.call(rein, two)
        assert halted.value.session_id == session.id
        assert of(rein, session) == ["one"]


def test_stopping_by_agent_and_all(go, store) -> None:
    with Rein(store=store) as rein:
        with rein.session(agent="a", on_error="keep"), rein.session(agent="b", on_error="keep"):
            assert rein.stop(agent="a") == 1
            go.call(rein, one)
            assert rein.stop(all=True) == 2
            with pytest.raises(errors.Halted):
                go.call(rein, one)
        with pytest.raises(errors.Conflict):
            rein.stop("nobody")
        for wrong in ({}, {"session_id": "x", "all": True}):
            with pytest.raises(errors.ConfigError):
                rein.stop(**wrong)


# nesting


def test_inner_sessions(go, store) -> None:
    with Rein(store=store) as rein:
        with rein.session(agent="outer") as outer:
            go.call(rein, one)
            with rein.session(agent="inner") as inner:
                go.call(rein, two)
            go.call(rein, one)
        assert of(rein, outer) == ["one", "one"]
        assert of(rein, inner) == ["two"]
        assert rein.store.session(inner.id).body["parent"] == outer.id
        assert outer.spend().calls == 3


def test_a_failed_outer_session_takes_the_inner_one_along(go, store) -> None:
    undone: list[int] = []
    with Rein(store=store) as rein:
        tool = rein.tool(lambda n: n, name="make", undo=lambda n: undone.append(n))

        def work() -> None:
            go.call(rein, tool, 1)
            with rein.session():
                go.call(rein, tool, 2)
            with rein.session(detached=True):
                go.call(rein, tool, 3)
            go.call(rein, tool, 4)
            raise ValueError("lost")

        with pytest.raises(ValueError, match="lost"), rein.session():
            work()
    assert undone == [4, 2, 1]


# carrying them along


def test_executors_threads_and_tasks(store) -> None:
    """Four ways into another thread: what loses the session must not be free."""

    async def main() -> dict[str, str]:
        found: dict[str, str] = {}

        def work(way: str) -> None:
            rein.call(one)
            found[way] = rein.current_session().agent

        loop = asyncio.get_running_loop()
        async with rein.session(agent="mine") as session:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                await loop.run_in_executor(pool, work, "executor")
                await loop.run_in_executor(pool, session.bind(work), "bound executor")
                await asyncio.to_thread(work, "to_thread")
                pool.submit(work, "submit").result()
                pool.submit(session.bind(work), "bound submit").result()
            for way, target in (("thread", work), ("bound thread", session.bind(work))):
                thread = threading.Thread(target=target, args=(way,))
                thread.start()
                thread.join()
        return found

    with Rein(store=store) as rein:
        found = asyncio.run(main())
        calls = {row.body["agent"]: 0 for row in rein.store.sessions().rows}
        for row in rein.store.sessions().rows:
            calls[row.body["agent"]] += len(rein.store.events(session=row.id, kinds=("intent",)))
    assert found == {
        "executor": "unattributed", "bound executor": "mine", "to_thread": "mine",
        "submit": "unattributed", "bound submit": "mine", "thread": "unattributed",
        "bound thread": "mine",
    }  # fmt: skip
    assert calls == {"mine": 4, "unattributed": 3}


def test_calls_outside_a_session_may_be_refused(go, caplog) -> None:
    with Rein(unattributed="refuse") as rein, pytest.raises(errors.SessionClosed, match="bind"):
        go.call(rein, one)
    with Rein() as rein:
        go.call(rein, one)
        go.call(rein, one)
        assert len(rein.store.sessions(agent="unattributed").rows) == 1
    assert caplog.text.count("outside any session") == 1


def test_an_account_for_strays_is_not_inside_whatever_session_came_first(store) -> None:
    with Rein(store=store) as rein, Rein() as other, other.session():
        rein.call(one)
        (row,) = rein.store.sessions().rows
        assert row.body["parent"] == ""


def test_a_bound_coroutine_function(store) -> None:
    class Later:
        async def __call__(self) -> str:
            await asyncio.sleep(0)
            return rein.current_session().agent

    async def later() -> str:
        await asyncio.sleep(0)
        return rein.current_session().agent

    async def main() -> list[str]:
        async with rein.session(agent="mine") as session:
            made = [session.bind(later), session.bind(Later()), session.bind(lambda: later())]
        async with rein.session(agent="other"):
            return [*await asyncio.gather(*(fn() for fn in made)), rein.current_session().agent]

    with Rein(store=store) as rein:
        assert asyncio.run(main()) == ["mine", "mine", "mine", "other"]


def test_bound_generators_do_not_leak_into_their_consumer() -> None:
    closed: list[str] = []

    def numbers() -> Any:
        try:
            got = yield rein.current_session().agent
            yield (got, rein.current_session().agent)
        finally:
            closed.append(rein.current_session().agent)

    async def stream() -> Any:
        try:
            got = yield rein.current_session().agent
            yield (got, rein.current_session().agent)
        finally:
            closed.append(rein.current_session().agent)

    async def consume(session: Any) -> None:
        made = session.bind(stream)()
        assert await anext(made) == "mine"
        assert rein.current_session().agent == "consumer"
        assert await made.asend("x") == ("x", "mine")
        await made.aclose()

    with Rein() as rein:
        with rein.session(agent="mine") as session:
            pass
        with rein.session(agent="consumer"):
            made = session.bind(numbers)()
            assert next(made) == "mine"
            assert rein.current_session().agent == "consumer"
            assert made.send("x") == ("x", "mine")
            assert rein.current_session().agent == "consumer"
            made.close()
            assert list(session.bind(numbers)()) == ["mine", (None, "mine")]
            asyncio.run(consume(session))
    assert closed == ["mine", "mine", "mine"]


def test_a_session_around_a_yield_ends_with_its_generator() -> None:
    with Rein() as rein:

        def numbers() -> Any:
            with rein.session(agent="mine") as session:
                yield session
                rein.call(one)

        made = numbers()
        session = next(made)
        made.close()
        assert session.state == "COMPLETED"
        assert rein.current_session().agent == "unattributed"


def test_a_session_may_be_left_in_another_task(store) -> None:
    async def main() -> str:
        session = rein.session(agent="mine")
        await asyncio.create_task(session.__aenter__())
        await asyncio.create_task(session.__aexit__(None, None, None))
        return session.state

    with Rein(store=store) as rein:
        assert asyncio.run(main()) == "COMPLETED"


def test_sessions_of_two_reins_do_not_hide_each_other(go) -> None:
    with Rein() as rein, Rein() as other:
        with rein.session() as mine, other.session() as theirs:
            go.call(rein, one)
            go.call(other, two)
        assert of(rein, mine) == ["one"]
        assert of(other, theirs) == ["two"]


# waiting


class Asks(Plugin):
    def pre_call(self, call: Call) -> Any:
        return Ask("sure?")


def test_a_session_with_a_question_open_is_suspended_not_ended(go, tmp_path) -> None:
    """Also where the caller handled `ApprovalPending` and went on."""
    with Rein(plugins=[Asks()], store=f"sqlite:///{tmp_path}/s.db") as rein:
        session = rein.session(wait="suspend")
        with session, pytest.raises(errors.ApprovalPending) as pending:
            go.call(rein, one)
        assert session.state == "ACTIVE"
        assert rein.store.session(session.id).owner == ""
        rein.approvals.approve(pending.value.token, by="anna")
        assert go.run(rein, "resume", pending.value.token) == 1
        with rein.session(id=session.id):
            pass
        assert session.state == "COMPLETED"


@pytest.mark.parametrize("wrong", [{"wait": "x"}, {"on_error": "x"}, {"on_rejected": "x"},
                                   {"labels": {"a": 1}}, {"labels": ["a"]}], ids=repr)  # fmt: skip
def test_settings_are_checked(wrong) -> None:
    with Rein() as rein, pytest.raises(errors.ConfigError):
        rein.session(**wrong)
