"""Threads and loops: what would stop a running loop is refused, and says what to call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Call, Plugin, Rein, errors


async def later() -> int:
    await asyncio.sleep(0)
    return 1


class AsyncHook(Plugin):
    async def pre_call(self, call: Call) -> Any:
        await asyncio.sleep(0)


def on_loop(fn: Callable[[], Any]) -> Any:
    async def main() -> Any:
        return fn()

    return asyncio.run(main())


def test_an_async_tool_from_a_sync_entry(go) -> None:
    with Rein() as rein, rein.session():
        assert go.call(rein, later) == 1


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_async_tool_by_a_sync_entry_on_a_loop_is_refused_before_it_runs(timeout) -> None:
    with Rein() as rein, rein.session(on_error="keep"):
        tool = rein.declare("later", fn=later, timeout=timeout)
        with pytest.raises(errors.WouldBlock, match="acall"):
            on_loop(lambda: rein.call(tool.fn))
        assert not rein.store.events(kinds=("intent",))


def test_an_async_model_by_a_sync_entry_on_a_loop_is_refused_before_it_runs() -> None:
    async def model(**request: Any) -> str:
        raise AssertionError

    with Rein() as rein, rein.session(on_error="keep"):
        with pytest.raises(errors.WouldBlock, match="amodel_call"):
            on_loop(lambda: rein.model_call(model, model="m", messages=[]))
        assert not rein.store.events(kinds=("intent",))


def test_an_async_hook_by_a_sync_entry_on_a_loop_is_refused_before_anything_runs() -> None:
    for timeout in (None, 5.0):
        hook = AsyncHook()
        hook.timeout = timeout
        ran: list[int] = []
        with Rein(plugins=[hook]) as rein, rein.session(on_error="keep"):
            with pytest.raises(errors.WouldBlock):
                on_loop(lambda rein=rein, ran=ran: rein.call(ran.append, 1))  # type: ignore[misc]
            assert not rein.store.events(kinds=("intent",))
        assert ran == []


def test_a_sync_call_that_need_not_wait_is_let_through_on_a_loop() -> None:
    class Hook(Plugin):
        def pre_call(self, call: Call) -> Any:
            return None

    with Rein(plugins=[Hook()]) as rein, rein.session():
        assert on_loop(lambda: rein.call(lambda: 1)) == 1


def test_the_portal_itself_is_a_loop() -> None:
    """An async tool of a sync call that makes a sync call of an async tool: no deadlock."""

    async def outer() -> int:
        return rein.call(later)

    with Rein() as rein, rein.session(on_error="keep"), pytest.raises(errors.WouldBlock):
        rein.call(outer)


def test_an_async_tool_may_make_async_calls_on_the_portal() -> None:
    async def outer() -> int:
        return await rein.acall(later) + 1

    with Rein() as rein, rein.session() as session:
        assert rein.call(outer) == 2
        first, second = rein.store.events(session=session.id, kinds=("intent",))
        assert second.view["parent"] == first.call


def test_the_context_of_the_caller_reaches_the_portal() -> None:
    async def who() -> str:
        return rein.current_session().agent

    with Rein() as rein, rein.session(agent="mine"):
        assert rein.call(who) == "mine"


def test_concurrent_async_calls_do_not_mix_their_parents() -> None:
    async def inner(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    async def outer(n: int) -> int:
        await asyncio.sleep(0.001 * (3 - n))
        return await rein.acall(inner, n)

    async def main() -> list[int]:
        async with rein.session():
            return await asyncio.gather(*(rein.acall(outer, n) for n in range(3)))

    with Rein() as rein:
        assert asyncio.run(main()) == [0, 1, 2]
        intents = rein.store.events(kinds=("intent",))
        outers = {e.call: e.view["arguments"]["n"] for e in intents if e.view["name"] == "outer"}
        for event in intents:
            if event.view["name"] == "inner":
                assert outers[event.view["parent"]] == event.view["arguments"]["n"]


def test_many_threads_share_one_rein_and_one_portal(tmp_path) -> None:
    got: list[int] = []
    with Rein(plugins=[AsyncHook()], store=f"sqlite:///{tmp_path}/s.db") as rein:
        with rein.session() as session:

            def work() -> None:
                for _ in range(5):
                    got.append(rein.call(later))  # noqa: PERF401 - one by one

            threads = [threading.Thread(target=session.bind(work)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(rein.store.events(kinds=("outcome",))) == 40
    assert got == [1] * 40
    assert sum(t.name == "checkrein-portal" for t in threading.enumerate()) == 0


def test_rollback_asked_for_inside_a_call_waits_for_its_end(go, tmp_path) -> None:
    order: list[str] = []
    with Rein(store=f"sqlite:///{tmp_path}/s.db") as rein:
        rein.declare("unmake", fn=lambda: order.append("undone"))
        make = rein.tool(lambda: None, name="make", undo="unmake")

        def work() -> str:
            assert session.rollback() is None
            order.append("still at work")
            return "done"

        with rein.session(on_error="keep") as session:
            go.call(rein, make)
            assert go.call(rein, work) == "done"
            order.append("after")
    assert order == ["still at work", "undone", "after"]


def test_a_rein_works_in_a_forked_child(tmp_path) -> None:
    import os
    import warnings

    with Rein(store=f"sqlite:///{tmp_path}/s.db") as rein:
        with rein.session():
            rein.call(later)
            parent = rein.lease.id()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                with rein.session():
                    ok = rein.call(later) == 1 and rein.lease.id() != parent
            except BaseException:
                os._exit(2)
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(rein.store.events(kinds=("outcome",))) == 2


def test_one_lease_for_a_process_however_many_threads_begin() -> None:
    with Rein() as rein:
        barrier = threading.Barrier(8)
        ids: list[str] = []

        def work() -> None:
            barrier.wait(10)
            ids.append(rein.lease.id())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(ids)) == 1
        assert len(rein.store.owners()) == 1
