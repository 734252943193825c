"""Waiting for a person: no thread each, woken wherever the decision is made."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Ask, Call, Plugin, Rein, errors
from checkrein.channels import THREADS
from checkrein.testing import Clock
from checkrein.verdicts import Approved

DECIDE = """
import sys
from checkrein import Rein
with Rein(store=sys.argv[1]) as rein:
    for request in rein.approvals.pending(5000):
        rein.approvals.approve(request.id, by="anna")
"""


class Asks(Plugin):
    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", expires=float(call.labels.get("expires", 3600)))


def waiting(rein: Rein) -> int:
    return len(rein.store.records("approval", state="pending", limit=5000).rows)


async def until(ready: Callable[[], bool]) -> None:
    for _ in range(3000):
        if ready():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


async def pay(amount: int) -> int:
    return amount


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_thousand_async_waiters_need_no_thread_each(child, tmp_path, full, elsewhere) -> None:
    count = 1000 if full else 200
    url = f"sqlite:///{tmp_path}/s.db"

    async def main() -> None:
        with Rein(plugins=[Asks()], store=url) as rein:
            async with rein.session():
                calls = [asyncio.create_task(rein.acall(pay, n)) for n in range(count)]
                await until(lambda: waiting(rein) == count)
                # The lease, the waiters, at most one that writes, and the test's own.
                assert threading.active_count() < 10
                if elsewhere:
                    process = child(DECIDE, url)
                    await asyncio.to_thread(process.communicate)
                    assert process.returncode == 0
                else:
                    for request in rein.approvals.pending(count):
                        rein.approvals.approve(request.id, by="anna")
                assert await asyncio.gather(*calls) == list(range(count))

    asyncio.run(main())


def test_a_slow_channel_is_asked_by_few_threads(tmp_path) -> None:
    asked: list[str] = []
    most = [0]
    go_on = threading.Event()

    class Slow(Plugin):
        def on_approval(self, call: Call, request: Any) -> Any:
            asked.append(request.id)
            most[0] = max(most[0], threading.active_count())
            go_on.wait(60)
            return Approved("anna")

    async def main() -> None:
        with Rein(plugins=[Asks(), Slow()], store=f"sqlite:///{tmp_path}/s.db") as rein:
            async with rein.session():
                calls = [asyncio.create_task(rein.acall(pay, n)) for n in range(100)]
                await until(lambda: waiting(rein) == 100 and len(asked) == THREADS)
                assert len(asked) == THREADS
                go_on.set()
                await asyncio.gather(*calls)

    asyncio.run(main())
    assert most[0] < THREADS + 10
    assert len(set(asked)) == 100


def test_sync_callers_in_threads_are_woken_by_another_process(child, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"

    def plain(amount: int) -> int:
        return amount

    with Rein(plugins=[Asks()], store=url) as rein, rein.session() as session:
        got: list[int] = []
        threads = [
            threading.Thread(target=session.bind(lambda n=n: got.append(rein.call(plain, n))))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        while waiting(rein) < 8:
            time.sleep(0.01)
        child(DECIDE, url).communicate()
        for thread in threads:
            thread.join(60)
        assert sorted(got) == list(range(8))


def test_who_waits_is_told_when_the_clock_says_that_it_is_over(go, tmp_path) -> None:
    clock = Clock()
    with Rein(plugins=[Asks()], store=f"sqlite:///{tmp_path}/s.db", clock=clock) as rein:

        def later() -> None:
            while not waiting(rein):
                time.sleep(0.01)
            clock.advance(3601)

        thread = threading.Thread(target=later)
        thread.start()
        with pytest.raises(errors.ApprovalExpired), rein.session(on_error="keep"):
            go.call(rein, lambda amount: amount, 5)
        thread.join()


def test_the_thread_of_the_waiters_ends_with_nobody_waiting(tmp_path, monkeypatch) -> None:
    from checkrein import waiters

    monkeypatch.setattr(waiters, "LINGER", 0.0)
    with Rein(store=f"sqlite:///{tmp_path}/s.db") as rein:
        stop = rein.waiters.watch("ap-1", lambda: None)
        assert "checkrein-waiters" in {t.name for t in threading.enumerate()}
        stop()
        for _ in range(500):
            if "checkrein-waiters" not in {t.name for t in threading.enumerate()}:
                return
            time.sleep(0.01)
    raise AssertionError("it goes on")
