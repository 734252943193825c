"""Who waits for a person is told by the server, whoever decides; cut off, it asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from checkrein import Ask, Plugin, Rein, waiters

psycopg = pytest.importorskip("psycopg")
from checkrein_plugins.stores.postgres import PostgresStore, listening  # noqa: E402 - see above

pytestmark = [pytest.mark.stores, pytest.mark.timeout(120)]

DECIDE = """
import sys
from checkrein import Rein
from checkrein_plugins.stores.postgres import PostgresStore

rein = Rein(store=PostgresStore(sys.argv[1]))
(row,) = rein.store.records("approval", state="pending").rows
rein.approvals.approve(row.id, by="anna")
rein.close()
"""


class Large(Plugin):
    """Asks about everything."""

    def pre_call(self, call: Any) -> Any:
        return Ask("large", rule="limit")


class Waiting:
    """A call that waits for a person, in a thread; `asked`: how often the store was asked."""

    def __init__(self, url: str, go: Any, pool: ThreadPoolExecutor) -> None:
        self.store = PostgresStore(url)
        self.asked = 0
        changed, lock = self.store.changed, threading.Lock()

        def counted(topic: str = "", after: int = -1) -> int:
            with lock:
                self.asked += 1
            return changed(topic, after)

        self.store.changed = counted  # type: ignore[method-assign]
        self.rein = Rein(plugins=[Large()], store=self.store, wait="block")

        @self.rein.tool(name="pay")
        def pay(order: str) -> str:
            return f"paid {order}"

        self.paid = pool.submit(self._pay, go, pay)

    def _pay(self, go: Any, pay: Any) -> str:
        with self.rein.session():
            return str(go.call(self.rein, pay, "o1"))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


def until(true: Any) -> None:
    pause = threading.Event()
    while not true():
        pause.wait(0.02)


def listeners(server: Any, schema: str) -> int:
    with psycopg.connect(server.uri, autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND query LIKE %s",
            (listening.NAME, f'%"{schema}_changed"%'),
        ).fetchone()
    return int(found[0])


def test_a_waiter_listens_and_another_process_decides(
    url: str, go: Any, child: Any, server: Any, pool: ThreadPoolExecutor, monkeypatch: Any
) -> None:
    # Whoever were to ask only now and then would still wait when the test is over.
    monkeypatch.setattr(waiters, "SLOW", 1e6)
    schema = url.rpartition("schema=")[2]
    PostgresStore(url).close()
    assert listeners(server, schema) == 0
    waiting = Waiting(url, go, pool)
    until(lambda: listeners(server, schema) == 1)
    assert waiting.asked <= 2
    process = child(DECIDE, url)
    _, problems = process.communicate(timeout=60)
    assert process.returncode == 0, problems
    assert waiting.paid.result(60) == "paid o1"
    waiting.rein.close()


def test_with_nobody_waiting_nobody_listens(
    url: str, go: Any, server: Any, pool: ThreadPoolExecutor, monkeypatch: Any
) -> None:
    monkeypatch.setattr(waiters, "LINGER", 0.1)
    schema = url.rpartition("schema=")[2]
    waiting = Waiting(url, go, pool)
    until(lambda: listeners(server, schema) == 1)
    (row,) = waiting.rein.store.records("approval", state="pending").rows
    waiting.rein.approvals.approve(row.id, by="anna")
    assert waiting.paid.result(60) == "paid o1"
    until(lambda: listeners(server, schema) == 0)
    waiting.rein.close()


def test_cut_off_it_asks_and_listens_again(
    url: str, go: Any, child: Any, server: Any, proxy: Any, pool: ThreadPoolExecutor
) -> None:
    schema = url.rpartition("schema=")[2]
    PostgresStore(url).close()
    waiting = Waiting(f"{proxy.uri}?schema={schema}", go, pool)
    until(lambda: listeners(server, schema) == 1)
    before = waiting.asked
    proxy.cut()
    # At first the store is asked instead.
    until(lambda: waiting.asked > before + 2)
    until(lambda: listeners(server, schema) == 1)
    proxy.cut()
    process = child(DECIDE, url)
    _, problems = process.communicate(timeout=60)
    assert process.returncode == 0, problems
    assert waiting.paid.result(60) == "paid o1"
    waiting.rein.close()
