"""Store checks about holds, windows, groups, threads and the store as a whole."""

from __future__ import annotations

import threading

from checkrein.errors import (
    ConfigError,
    Conflict,
    DuplicateIntent,
    HoldRefused,
    StoreBusy,
    StoreUnavailable,
    Unencodable,
)
from checkrein.store import (
    Balance,
    Batch,
    NewEvent,
    Put,
    SessionPut,
    SettleRow,
    Store,
    StreakStep,
)
from checkrein.testing._store_batches import expect, hold, opened, same, write

SECOND = 1_000_000


def plain_calls_hold_and_settle(store: Store) -> None:
    """`append` takes holds with an intent, and settles and rows with an outcome."""
    opened(store, "s")
    store.append("s", "intent", "e", 8, {}, {}, 1, 0, True, True, (hold("h"),))
    rows = (Put("once", "one", "done", {"call": "e"}, "s"),)
    store.append("s", "outcome", "e", 8, {}, 1, 1, settles=(SettleRow("h", 1),), puts=rows)
    record = store.record("once", "one")
    same(record and record.body, {"call": "e"})
    same(store.balance("acc"), _balance(1, 0))
    same((store.holds(), store.verify("s")), ([], None))


def holds_keep_to_the_limit(store: Store) -> None:
    """Spent and held never pass the limit at admission; what is settled is booked in full."""
    opened(store, "s")
    write(store, "intent", session="s", call="1", holds=[hold("1", 6, 10)])
    same(store.balance("acc"), _balance(0, 6))
    refused = expect(
        HoldRefused, lambda: write(store, "intent", session="s", call="2", holds=[hold("2", 5, 10)])
    )
    same((refused.index, refused.account, refused.spent, refused.held), (0, "acc", 0, 6))
    write(store, "intent", session="s", call="2", holds=[hold("2", 4, 10)])
    expect(Conflict, lambda: write(store, "note", session="s", holds=[hold("2", 0, 10)]))
    write(
        store, "outcome", session="s", call="1", settles=[SettleRow("1", 3), SettleRow("none", 9)]
    )
    same(store.balance("acc"), _balance(3, 4))
    write(store, "outcome", session="s", call="2", settles=[SettleRow("2", 40)])
    same(store.balance("acc"), _balance(43, 0))
    write(store, "note", session="s", settles=[SettleRow("2", 40)])
    same(store.balance("acc"), _balance(43, 0))
    expect(HoldRefused, lambda: write(store, "note", session="s", holds=[hold("3", 0, 42)]))
    write(store, "note", session="s", holds=[hold("3", 0, 43)])
    same([row.id for row in store.holds()], ["3"])
    same(store.balance("unknown"), None)


def holds_are_all_or_none(store: Store) -> None:
    """Nothing of a batch is written if one of its holds, rows or events is refused."""
    opened(store, "s")
    write(store, "note", session="s", holds=[hold("old", 5, 10)])
    before = (store.balances(), store.holds(), store.events())
    settles = [SettleRow("old", 5)]
    refused = expect(
        HoldRefused,
        lambda: write(
            store,
            "note",
            session="s",
            settles=settles,
            holds=[hold("a", 5, 10, "new"), hold("b", 6, 10)],
        ),
    )
    same((refused.index, refused.spent, refused.held), (1, 5, 0))
    same((store.balances(), store.holds(), store.events()), before)
    row = Put("k", "i", "s", {}, if_state=("other",))
    expect(
        Conflict,
        lambda: write(
            store, "note", session="s", settles=settles, puts=[Put("k", "j", "s", {}), row]
        ),
    )
    same((store.balances(), store.holds(), store.events()), before)
    same(store.record("k", "j"), None)
    write(store, "note", session="s", settles=settles, holds=[hold("a", 5, 10)])
    same(store.balance("acc"), _balance(5, 5))


def _balance(spent: int, held: int) -> Balance:
    return Balance("acc", "calls", spent, held)


def windows_slide(store: Store) -> None:
    """In an account with a window a call counts from its hold on, for the window's length."""
    opened(store, "s")

    def take(id: str, at: int, window: float = 10, limit: int = 2) -> None:
        held = hold(id, 1, limit, "rate", window)
        write(store, "note", session="s", at=at * SECOND, holds=[held])
        write(store, "note", session="s", at=at * SECOND + 1, settles=[SettleRow(id, 1)])

    def counted(at: int, window: float | None = 10) -> int:
        balance = store.balance("rate", at=at * SECOND, window=window)
        return -1 if balance is None else balance.spent

    take("a", 0)
    take("b", 4)
    refused = expect(HoldRefused, lambda: take("c", 9))
    same((refused.spent, refused.held), (2, 0))
    same((counted(9), counted(10), counted(13), counted(14)), (2, 1, 1, 0))
    take("c", 10)
    expect(HoldRefused, lambda: take("d", 13))
    take("d", 14)
    expect(HoldRefused, lambda: take("e", 15, window=1000, limit=2))
    take("e", 15, window=3, limit=2)
    same((counted(15, 3), counted(15, None)), (2, 5))
    same(store.rebuild(), [])


def open_holds_do_not_slide(store: Store) -> None:
    """A call that still runs counts, however long ago it began; then as of when it began."""
    opened(store, "s")
    write(store, "note", session="s", at=0, holds=[hold("a", 1, 1, "rate", 1.0)])
    late = 100 * SECOND
    expect(
        HoldRefused,
        lambda: write(store, "note", session="s", at=late, holds=[hold("b", 1, 1, "rate", 1.0)]),
    )
    write(store, "note", session="s", at=late, settles=[SettleRow("a", 1)])
    write(store, "note", session="s", at=late, holds=[hold("b", 1, 1, "rate", 1.0)])
    same(store.balance("rate", at=late, window=1.0), Balance("rate", "calls", 0, 1))
    same(store.rebuild(), [])


def failures_in_a_row_fill(store: Store) -> None:
    """Failures and running calls never pass the limit; one call tries a full account."""
    opened(store, "s")

    def take(id: str, at: int) -> None:
        row = hold(id, limit=2, window=10.0, settle="streak")
        write(store, "note", session="s", at=at * SECOND, holds=[row])

    def end(id: str, step: StreakStep, at: int) -> None:
        settles = [SettleRow(id, int(step == "book"), step)]
        write(store, "note", session="s", at=at * SECOND, settles=settles)

    take("slow", 1)
    take("a", 1)
    refused = expect(HoldRefused, take, "b", 2)
    same((refused.spent, refused.held), (0, 2))
    end("a", "book", 3)
    expect(HoldRefused, take, "b", 4)
    end("slow", "clear", 5)  # it had begun before the failure
    take("b", 6)
    end("b", "book", 7)
    refused = expect(HoldRefused, take, "c", 16)
    same((refused.spent, refused.held), (2, 0))
    take("probe", 17)
    expect(HoldRefused, take, "c", 17)
    end("probe", "book", 18)
    expect(HoldRefused, take, "c", 27)
    take("probe", 28)
    end("probe", "", 29)  # nothing is known of the tool
    take("probe", 30)
    end("probe", "clear", 31)
    take("c", 32)
    take("d", 32)
    expect(HoldRefused, take, "e", 32)
    same(store.rebuild(), [])


def holds_and_accounts_are_listed(store: Store) -> None:
    """Open holds by session, call and account; accounts by prefix of their name."""
    opened(store, "s")
    for id, account, call in (("1", "x:a", "c"), ("2", "x:b", "c"), ("3", "y", "d")):
        taken = hold(id, 1, 9, account, session="s" + id, call=call)
        write(store, "note", session="s", at=int(id), holds=[taken])
    same([row.id for row in store.holds()], ["1", "2", "3"])
    same([row.id for row in store.holds(call="c")], ["1", "2"])
    same([row.id for row in store.holds(call="c", account="x:b")], ["2"])
    same([row.id for row in store.holds(session="s3")], ["3"])
    row = store.holds(session="s1")[0]
    same((row.account, row.amount, row.unit, row.settle), ("x:a", 1, "calls", "keep"))
    same([row.account for row in store.balances()], ["x:a", "x:b", "y"])
    same([row.account for row in store.balances("x:")], ["x:a", "x:b"])
    same([row.account for row in store.balances("x:", limit=1)], ["x:a"])


def groups_stand_alone(store: Store) -> None:
    """In a group each batch is written or refused by itself, in its order."""
    opened(store, "s")

    def batch(call: str, *holds: int, kind: str = "intent", session: str = "s") -> Batch:
        taken = [hold(f"{call}{n}", n, 5) for n in holds]
        return Batch(session, [NewEvent(kind, call, 1, {}, {"p": call})], 1, holds=taken)

    results = store.commit_many(
        [batch("a", 3), batch("b", 3), batch("a"), batch("c", kind=""), batch("d", session="no"),
         batch("e", 2)]
    )  # fmt: skip
    kinds = [type(result).__name__ for result in results]
    same(
        kinds,
        ["Committed", "HoldRefused", "DuplicateIntent", "ConfigError", "Conflict", "Committed"],
    )
    same([event.call for event in store.events()], ["a", "e"])
    same(store.balance("acc"), Balance("acc", "calls", 0, 5))
    same([event.n for event in store.events()], [1, 2])
    same(store.verify("s"), None)
    same(store.commit_many([]), [])


def commits_are_told(store: Store) -> None:
    """`changed` differs after a commit; listeners are called, and cannot harm it."""
    opened(store, "s")
    calls: list[str] = []

    def broken() -> None:
        calls.append("broken")
        raise RuntimeError("a listener's own trouble")

    marks = [store.changed()]
    same(store.changed(), marks[0])
    stop_broken = store.watch(broken)
    stops = [store.watch(lambda: calls.append("fine")) for _ in range(2)]
    write(store, "note", session="s")
    same(sorted(calls), ["broken", "fine", "fine"])
    stop_broken()
    stops[0]()
    marks.append(store.changed())
    write(store, "intent", session="s", call="c")
    same(calls[3:], ["fine"])
    stops[1]()
    marks.append(store.changed())
    expect(DuplicateIntent, lambda: write(store, "intent", session="s", call="c"))
    store.commit(Batch("s", [], 1, session_put=SessionPut(state="COMPLETED")))
    marks.append(store.changed())
    same(len(calls), 4)
    same(len(set(marks)), 4)


def bad_input_is_refused(store: Store) -> None:
    """Numbers that make no sense are refused with their place, and nothing is written."""
    opened(store, "s")
    for bad in (hold("h", -1, 5), hold("h", 2**70, 5), hold("h", 1, 5, window=0.0)):
        error = expect(ConfigError, write, store, "note", session="s", holds=[bad])
        assert "h" in str(error)
    write(store, "note", session="s", holds=[hold("h", 1, 2**80)])
    expect(ConfigError, lambda: write(store, "note", session="s", settles=[SettleRow("h", -1)]))
    other = hold("i", 1, 5)
    other.unit = "tokens"
    expect(ConfigError, lambda: write(store, "note", session="s", holds=[other]))
    expect(ConfigError, lambda: write(store, "", session="s"))
    lone = "\ud800"
    expect(Unencodable, write, store, "note", session="s", call=lone)
    expect(Unencodable, write, store, "note", session="s", holds=[hold("i", 1, 5, lone)])
    put = Put("k", "i", "s", {}, label=lone)
    (result,) = store.commit_many([Batch("s", [], 1, puts=[put])])
    same(type(result), Unencodable)
    expect(Unencodable, opened, store, lone)
    same(len(store.events()), 1)
    same(store.balance("acc"), Balance("acc", "calls", 0, 1))


def threads_keep_to_the_limit(store: Store) -> None:
    """Eight threads: no number twice, no gap, and not one hold above the limit."""
    opened(store, "s")
    taken: list[int] = []
    refused: list[int] = []
    failed: list[Exception] = []

    def work(thread: int) -> None:
        for i in range(25):
            call = f"{thread}.{i}"
            try:
                write(store, "intent", session="s", call=call, holds=[hold(call, 1, 60)])
                write(store, "outcome", session="s", call=call, settles=[SettleRow(call, 1)])
                taken.append(thread)
            except HoldRefused:
                refused.append(thread)
            except Exception as error:  # noqa: BLE001 - shown below, in the test's own thread
                failed.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(failed, [])
    same((len(taken), len(refused)), (60, 140))
    same(store.balance("acc"), Balance("acc", "calls", 60, 0))
    events = store.events()
    same([event.n for event in events], list(range(1, 121)))
    same(len({event.seq for event in events}), 120)
    same((store.verify("s"), store.rebuild()), (None, []))


def has_key_and_end(store: Store) -> None:
    """A store has 32 random bytes of its own, commits without waiting, and can be closed."""
    same(len(store.key), 32)
    assert store.key.strip(store.key[:1]), "the key is not random"
    opened(store, "s")
    note = Batch("s", [NewEvent("note", "", 1, {})], 1, durable=True)
    try:
        store.commit(note, wait=False)
    except StoreBusy:  # so say those that cannot tell how long it takes
        store.commit(note)
    same(store.rebuild(repair=True), [])
    store.close()
    store.close()
    expect(StoreUnavailable, lambda: write(store, "note", session="s"))
    expect(StoreUnavailable, store.events)
