"""The PostgreSQL store, against a real server: the contract, several processes, bad input."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from checkrein import Ask, Plugin, Rein, errors
from checkrein.store import (
    Batch,
    HoldRow,
    NewEvent,
    SessionPut,
    SettleRow,
    Store,
    StoreOptions,
)
from checkrein.testing import Effects
from checkrein.testing.check_store import CHECKS
from checkrein_plugins.budget import Budget

psycopg = pytest.importorskip("psycopg")
from checkrein_plugins.stores.postgres import PostgresStore  # noqa: E402 - needs psycopg

pytestmark = pytest.mark.stores


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[Store], None], url: str) -> None:
    store = PostgresStore(url)
    try:
        check(store)
    finally:
        store.close()


# -- under a Rein


def made(url: str, *plugins: object, **settings: Any) -> Rein:
    return Rein(plugins=plugins, store=PostgresStore(url), **settings)


def test_a_failed_session_is_undone(go: Any, url: str) -> None:
    effects = Effects()
    rein = made(url)

    @rein.tool(undo=lambda order: effects.undo("pay", order=order), name="pay")
    def pay(order: str) -> str:
        effects.do("pay", order=order)
        return f"paid {order}"

    def run() -> None:
        with rein.session(agent="desk") as session:
            assert go.call(rein, pay, "o1") == "paid o1"
            ids.append(session.id)
            raise ValueError("no")

    ids: list[str] = []
    with pytest.raises(ValueError, match="no"):
        run()
    assert effects == ["pay", "-pay"]
    row = rein.store.session(ids[0])
    assert row is not None
    assert (row.stored, rein.store.verify(ids[0])) == ("ROLLED_BACK", None)
    assert rein.store.rebuild() == []
    rein.close()


def test_a_call_that_waits_is_resumed_by_another_process(go: Any, url: str) -> None:
    class Large(Plugin):
        def pre_call(self, call: Any) -> Any:
            return Ask("large", rule="limit")

    def process() -> tuple[Rein, Effects]:
        effects = Effects()
        rein = made(url, Large(), wait="suspend")

        @rein.tool(name="pay")
        def pay(order: str) -> str:
            effects.do("pay", order=order)
            return f"paid {order}"

        return rein, effects

    first, _ = process()
    with pytest.raises(errors.ApprovalPending) as pending, first.session():
        go.call(first, first.tools.get("pay").fn, "o1")  # type: ignore[union-attr]
    first.close()
    second, effects = process()
    token = pending.value.token
    second.approvals.approve(token, by="anna")
    assert go.run(second, "resume", token) == "paid o1"
    assert go.run(second, "resume", token) == "paid o1"
    assert effects == ["pay"]
    second.close()


WORKER = """
import sys
from checkrein import Rein, errors
from checkrein_plugins.budget import Budget
from checkrein_plugins.stores.postgres import PostgresStore

rein = Rein(plugins=[Budget(calls=CAP, per="tenant")], store=PostgresStore(sys.argv[1]))

@rein.tool(name="count", effect="read")
def count():
    pass

done = 0
with rein.session(tenant="one", on_error="keep"):
    print("up", flush=True)
    sys.stdin.readline()
    for _ in range(CAP):
        try:
            count()
        except errors.BudgetExceeded:
            continue
        done += 1
print(done, flush=True)
rein.close()
"""


def test_processes_keep_exactly_to_a_shared_cap(url: str, child: Any) -> None:
    PostgresStore(url).close()
    cap = 40
    running = [child(WORKER.replace("CAP", str(cap)), url) for _ in range(8)]
    for process in running:
        assert process.stdout.readline() == "up\n", process.stderr.read()
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    let_through = [int(process.stdout.readline()) for process in running]
    assert sum(let_through) == cap, let_through


def test_a_session_of_a_killed_process_is_recovered(url: str, child: Any, tmp_path: Any) -> None:
    program = """
import os, signal, sys
from checkrein import Rein
from checkrein.testing import Effects
from checkrein_plugins.stores.postgres import PostgresStore

effects = Effects(sys.argv[2])
rein = Rein(store=PostgresStore(sys.argv[1]))

@rein.tool(undo="unpay(order)", name="pay")
def pay(order):
    effects.do("pay", order=order)

with rein.session(agent="desk"):
    pay("o1")
    pay("o2")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    child(program, url, tmp_path / "effects").wait()
    effects = Effects(tmp_path / "effects")
    assert effects == ["pay", "pay"]
    rein = made(url)

    @rein.tool(name="unpay")
    def unpay(order: str) -> None:
        effects.undo("pay", order=order)

    @rein.tool(undo="unpay(order)", name="pay")
    def pay(order: str) -> None: ...

    assert rein.recover().complete
    assert effects.in_place == {}
    rein.close()


def test_who_follows_all_sessions_misses_no_event(url: str) -> None:
    """Numbers are taken before they are seen: a reader must not step over one."""
    store = PostgresStore(url)
    for number in range(6):
        store.commit(Batch(f"s{number}", [], 1, session_put=SessionPut(create=True)))
    ended = threading.Event()
    seen: list[int] = []

    def follow() -> None:
        last = 0
        while True:
            over = ended.is_set()
            while page := store.events(after=last, limit=50):
                seen.extend(event.seq for event in page)
                last = page[-1].seq
            if over:
                return

    def write(number: int) -> None:
        for at in range(60):
            events = [NewEvent("note", "", at, {"at": at}) for _ in range(1 + at % 3)]
            store.commit(Batch(f"s{number}", events, at))

    follower = threading.Thread(target=follow)
    follower.start()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    ended.set()
    follower.join()
    assert seen == sorted(seen)
    assert len(seen) == len(set(seen)) == 6 * 120
    store.close()


def test_a_forked_child_has_connections_of_its_own(url: str) -> None:
    import multiprocessing

    store = PostgresStore(url)
    store.commit(Batch("s", [], 1, session_put=SessionPut(create=True)))

    def write() -> None:
        for at in range(20):
            store.commit(Batch("s", [NewEvent("note", "", at, {})], at))

    forked = [multiprocessing.get_context("fork").Process(target=write) for _ in range(3)]
    for process in forked:
        process.start()
    write()
    for process in forked:
        process.join()
    assert [process.exitcode for process in forked] == [0, 0, 0]
    assert len(store.events(session="s")) == 80
    assert store.verify("s") is None
    store.close()


def test_payloads_are_sealed_with_a_key_that_is_not_in_the_database(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHECKREIN_KEY", raising=False)
    with pytest.raises(errors.ConfigError, match="CHECKREIN_KEY, the same on every host"):
        PostgresStore(url, StoreOptions(encrypt=True))
    monkeypatch.setenv("CHECKREIN_KEY", "11" * 32)
    store = PostgresStore(url, StoreOptions(encrypt=True))
    event = NewEvent("intent", "c", 1, {"shown": 1}, {"arguments": {"card": "4111"}}, 1)
    store.commit(Batch("s", [event], 1, session_put=SessionPut(create=True)))
    assert store.payload(store.events()[0].seq) == {"arguments": {"card": "4111"}}
    store.close()


# -- bad input


def test_an_altered_event_is_found_and_not_used(url: str, server: Any) -> None:
    store = PostgresStore(url)
    for at in range(4):
        event = NewEvent("intent", f"c{at}", at, {"at": at}, {"arguments": {"n": at}}, 1)
        create = SessionPut(create=True) if at == 0 else None
        store.commit(Batch("s", [event], at, session_put=create))
    name = url.rpartition("schema=")[2]
    with psycopg.connect(server.uri, autocommit=True) as other:
        other.execute(f"UPDATE {name}.events SET view = '{{\"at\":9}}' WHERE n = 3")
    bad = store.verify("s")
    assert bad is not None
    assert bad.n == 3
    with pytest.raises(errors.PayloadUnreadable, match="altered or damaged"):
        store.payload(bad.seq)
    store.close()


def test_a_rollback_that_no_event_tells_of_is_found(url: str, server: Any) -> None:
    store = PostgresStore(url)
    store.commit(Batch("s", [NewEvent("note", "", 1, {})], 1, session_put=SessionPut(create=True)))
    name = url.rpartition("schema=")[2]
    with psycopg.connect(server.uri, autocommit=True) as other:
        other.execute(f"UPDATE {name}.sessions SET rollback = 'rolled_back'")
    said = ["session s: its row says rolled_back, its events nothing of a rollback"]
    assert store.rebuild(repair=True) == said
    assert store.rebuild() == []
    store.close()


def test_addresses_that_cannot_be_used_are_refused_without_their_password(url: str) -> None:
    for wrong, said in [
        ("postgresql://u:hunter2@localhost:port/db", "is the port a number"),
        ("postgresql://u:hunter2@localhost/db?schema=No", "schema must be"),
        ("postgresql://u:hunter2@localhost/db?schema=pg_x", "schema must be"),
    ]:
        with pytest.raises(errors.ConfigError, match=said) as caught:
            PostgresStore(wrong)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(errors.StoreUnavailable, match="no connection within 1 s") as lost:
        PostgresStore("postgresql://u:hunter2@127.0.0.1:1/db", StoreOptions(extra={"patience": 1}))
    assert "hunter2" not in str(lost.value)
    store = PostgresStore(url)
    assert "schema=" in store.url
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="was closed"):
        store.session("s")


def test_other_schemas_and_newer_ones_are_refused(url: str, server: Any) -> None:
    name = url.rpartition("schema=")[2]
    PostgresStore(url).close()
    with psycopg.connect(server.uri, autocommit=True) as other:
        other.execute(f"UPDATE {name}.meta SET value = '99' WHERE key = 'version'")
        with pytest.raises(errors.StoreUnavailable, match=r"newer checkrein \(schema 99"):
            PostgresStore(url)
        other.execute(f"DROP TABLE {name}.meta")
        with pytest.raises(errors.ConfigError, match="belongs to another program"):
            PostgresStore(url)


def test_a_role_that_may_only_read_looks_and_writes_nothing(url: str, server: Any) -> None:
    store = PostgresStore(url)
    store.commit(Batch("s", [], 1, session_put=SessionPut(create=True)))
    name = url.rpartition("schema=")[2]
    with psycopg.connect(server.uri, autocommit=True) as other:
        other.execute(f"DROP ROLE IF EXISTS reader_{name}")
        other.execute(f"CREATE ROLE reader_{name} LOGIN")
        other.execute(f"GRANT USAGE ON SCHEMA {name} TO reader_{name}")
        other.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO reader_{name}")
        other.execute(f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA {name} TO reader_{name}")
    try:
        reader = PostgresStore(url.replace("//postgres", f"//reader_{name}"))
        assert [row.id for row in reader.sessions().rows] == ["s"]
        with pytest.raises(errors.StoreUnavailable, match="may not do that"):
            reader.commit(Batch("s", [NewEvent("note", "", 1, {})], 1))
        reader.close()
    finally:
        store.close()
        with psycopg.connect(server.uri, autocommit=True) as other:
            other.execute(f"DROP OWNED BY reader_{name}")
            other.execute(f"DROP ROLE reader_{name}")


def test_what_postgresql_cannot_hold_is_refused(url: str) -> None:
    store = PostgresStore(url)
    create = SessionPut(create=True)
    with pytest.raises(errors.Unencodable):
        store.commit(Batch("s\x00", [], 1, session_put=create))
    store.commit(Batch("s", [NewEvent("note", "", 1, {"a": "\x00"})], 1, session_put=create))
    assert store.events()[0].view == {"a": "\x00"}
    store.close()


def test_two_processes_that_make_the_schema_at_once(new_url: Callable[[], str]) -> None:
    for _ in range(3):
        url = new_url()
        with ThreadPoolExecutor(6) as pool:
            stores = list(pool.map(lambda _, url=url: PostgresStore(url), range(6)))
        assert len({store.key for store in stores}) == 1
        for store in stores:
            store.close()


def test_a_budget_is_a_rein_of_its_own(url: str) -> None:
    rein = made(url, Budget(calls=2, per="session"))
    with rein.session(on_error="keep"):
        rein.call(max, 1, 2)
        rein.call(max, 1, 2)
        with pytest.raises(errors.BudgetExceeded):
            rein.call(max, 1, 2)
    rein.close()


def test_a_settle_waits_for_nobody_and_counts_at_once(url: str, server: Any) -> None:
    store = PostgresStore(url)
    store.commit(Batch("s", [], 1, session_put=SessionPut(create=True)))

    def take(number: int) -> None:
        hold = HoldRow(f"h{number}", "acc", 10, "usd", 100, None, "measured", f"c{number}", "s")
        store.commit(Batch("s", [NewEvent("note", "", 1, {})], 1, holds=[hold]))

    for number in range(10):
        take(number)
    schema = url.rpartition("schema=")[2]
    with psycopg.connect(server.uri) as other:
        # Somebody else is in the middle of a commit that changes the account.
        other.execute(f"SELECT 1 FROM {schema}.accounts WHERE account = 'acc' FOR UPDATE")
        for number, actual in enumerate((4, 0, 10)):
            store.commit(Batch("s", [], 2, settles=[SettleRow(f"h{number}", actual)]))
        balance = store.balance("acc")
        assert balance is not None
        assert (balance.spent, balance.held) == (14, 70)
        assert store.balances("acc") == [balance]
        assert store.rebuild() == []
    # Ten that are held have room, and not one more.
    take(10)
    with pytest.raises(errors.HoldRefused) as refused:
        take(11)
    assert (refused.value.spent, refused.value.held) == (14, 80)
    assert store.rebuild(repair=True) == []
    assert store.balance("acc").held == 80  # type: ignore[union-attr]
    # What costs more than was held is counted before anybody else may take more.
    store.commit(Batch("s", [], 3, settles=[SettleRow("h3", 25)]))
    with pytest.raises(errors.HoldRefused):
        take(12)
    store.close()
