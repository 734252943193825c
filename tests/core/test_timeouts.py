"""Timeouts: the caller stops waiting, and what comes later is recorded."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Call, Plugin, Rein, errors


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


def wait_for(ready: Callable[[], Any]) -> Any:
    for _ in range(1000):
        if found := ready():
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def states(rein: Rein) -> list[tuple[str, str]]:
    found = rein.store.events(kinds=("outcome", "late"))
    return [(e.kind, e.view["state"]) for e in found]


def test_a_sync_tool_is_given_up_and_its_result_recorded_when_it_comes(go, store) -> None:
    end = threading.Event()
    with Rein(store=store) as rein:

        @rein.tool(timeout=0.05)
        def slow() -> str:
            end.wait(30)
            return "late"

        with rein.session(on_error="keep") as session:
            with pytest.raises(TimeoutError, match=r"0\.05"):
                go.call(rein, slow)
            assert states(rein) == [("outcome", "unknown")]
            assert session.running
            end.set()
            wait_for(lambda: len(states(rein)) == 2)
            wait_for(lambda: not session.running)
        assert states(rein) == [("outcome", "unknown"), ("late", "done")]
        (late,) = rein.store.events(kinds=("late",))
        assert late.view["result"] == "late"


def test_a_late_error_is_recorded_too(go, store) -> None:
    end = threading.Event()
    with Rein(store=store) as rein:

        @rein.tool(timeout=0.05)
        def slow() -> str:
            end.wait(30)
            raise ValueError("x")

        with rein.session(on_error="keep"):
            with pytest.raises(TimeoutError):
                go.call(rein, slow)
            end.set()
            wait_for(lambda: len(states(rein)) == 2)
        assert rein.store.events(kinds=("late",))[0].view["error"]["type"] == "ValueError"


def test_an_async_tool_is_cancelled(go, store) -> None:
    cleaned: list[int] = []
    with Rein(store=store) as rein:

        @rein.tool(timeout=0.05)
        async def slow() -> None:
            try:
                await asyncio.sleep(600)
            finally:
                cleaned.append(1)

        with rein.session(on_error="keep") as session:
            with pytest.raises(TimeoutError):
                go.call(rein, slow)
            wait_for(lambda: not session.running)
        assert cleaned == [1]
        assert states(rein) == [("outcome", "unknown")]


def test_an_async_tool_that_acts_all_the_same_is_recorded(store) -> None:
    with Rein(store=store) as rein:

        @rein.tool(timeout=0.05)
        async def stubborn() -> str:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                return "did it"

        with rein.session(on_error="keep"):
            with pytest.raises(TimeoutError):
                rein.call(rein.tools.get("stubborn").fn)
            wait_for(lambda: len(states(rein)) == 2)
        assert states(rein)[1] == ("late", "done")


def test_a_cancelled_caller_leaves_the_thread_and_hears_of_its_result(store) -> None:
    begun, end = threading.Event(), threading.Event()
    with Rein(store=store) as rein:

        @rein.tool(timeout=60)
        def slow() -> str:
            begun.set()
            end.wait(30)
            return "late"

        async def main() -> None:
            async with rein.session(on_error="keep"):
                task = asyncio.create_task(rein.acall(slow))
                await asyncio.to_thread(begun.wait)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert states(rein) == [("outcome", "unknown")]

        asyncio.run(main())
        end.set()
        wait_for(lambda: len(states(rein)) == 2)
        assert states(rein)[1] == ("late", "done")


def test_a_timeout_is_unknown_even_where_timeouts_of_the_tool_are_not(go, store) -> None:
    end = threading.Event()
    with Rein(store=store) as rein:

        @rein.tool(timeout=0.05, no_effect_on=(OSError,))
        def slow(fail: bool) -> None:
            if fail:
                raise TimeoutError("before anything was sent")
            end.wait(30)

        with rein.session(on_error="keep"):
            with pytest.raises(TimeoutError, match="before"):
                go.call(rein, slow, True)
            with pytest.raises(TimeoutError, match="unknown"):
                go.call(rein, slow, False)
            end.set()
            wait_for(lambda: len(states(rein)) == 3)
        assert states(rein)[:2] == [("outcome", "not_done"), ("outcome", "unknown")]


def test_a_late_result_in_a_session_that_was_rolled_back_is_undone(go, store) -> None:
    end = threading.Event()
    undone: list[str] = []
    with Rein(store=store, drain=0.05) as rein:

        @rein.tool(timeout=0.05, undo=lambda result: undone.append(result), settle_time=0)
        def slow() -> str:
            end.wait(30)
            return "thing"

        with pytest.raises(TimeoutError), rein.session() as session:
            go.call(rein, slow)
        assert rein.store.session(session.id).rollback in ("partial", "rolled_back")
        assert undone == []
        end.set()
        wait_for(lambda: undone)
        assert undone == ["thing"]


def test_the_context_goes_along_and_does_not_come_back(go) -> None:
    import contextvars

    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="")
    with Rein() as rein:

        @rein.tool(timeout=30)
        def tool() -> str:
            seen = var.get()
            var.set("inside")
            rein.call(lambda: 1)
            return seen

        var.set("outside")
        with rein.session() as session:
            assert go.call(rein, tool) == "outside"
            assert var.get() == "outside"
            outer, inner = rein.store.events(session=session.id, kinds=("intent",))
        assert inner.view["parent"] == outer.call


def test_a_tool_that_is_bound_to_its_thread_gets_no_timeout(go) -> None:
    with Rein() as rein:
        with pytest.raises(errors.ConfigError, match="thread_affine"):
            rein.declare("t", timeout=1, thread_affine=True)
        database = sqlite3.connect(":memory:")

        @rein.tool(thread_affine=True)
        def query() -> int:
            return int(database.execute("select 1").fetchone()[0])

        with rein.session(on_error="keep"):
            assert go.call(rein, query) == 1
            with rein.options(timeout=5), pytest.raises(errors.ConfigError, match="worker thread"):
                go.call(rein, query)
        database.close()
        assert len(rein.store.events(kinds=("intent",))) == 1


def test_the_shortest_limit_counts(go) -> None:
    import dataclasses

    from checkrein import Rewrite

    class Shorter(Plugin):
        def pre_call(self, call: Call) -> Any:
            tool = dataclasses.replace(call.tool, timeout=0.05)
            return Rewrite(call.replace(tool=tool))

    end = threading.Event()
    with Rein(plugins=[Shorter()]) as rein, rein.session(on_error="keep") as session:
        tool = rein.tool(lambda: end.wait(30) and None, name="slow", timeout=50)
        with rein.options(timeout=20), pytest.raises(TimeoutError, match=r"0\.05"):
            go.call(rein, tool)
        end.set()
        wait_for(lambda: not session.running)
