"""Undoing single effects: what an undo is given, when it is repeated, and what is left."""

from __future__ import annotations

import datetime as dt
import decimal
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkrein import Absent, Call, Deny, Outcome, Plugin, Present, Rein, Skip, Undo
from checkrein.report import RollbackReport


def acted(go: Any, rein: Rein, *calls: tuple[Any, ...]) -> str:
    """Run calls in one session, whatever they raise; its id."""
    with rein.session() as session:
        for fn, *args in calls:
            try:
                go.call(rein, fn, *args)
            except OSError:
                continue
    return session.id


def rolled(go: Any, rein: Rein, session: str, **options: Any) -> RollbackReport:
    report = go.run(rein, "rollback", session, **options)
    assert report is not None
    return report


def statuses(report: RollbackReport) -> list[tuple[str, str]]:
    return [(a.name, a.status) for a in report.actions]


# -- what an undo is given


def test_an_undo_takes_by_name_what_it_names(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[Any] = []

    def remove(name: str, result: int, call: Call, key: str, colour: str = "own default") -> None:
        seen.append((name, result, call.id, call.name, dict(call.arguments), key, colour))

    @rein.tool(undo=remove)
    def create(name: str, size: int = 3) -> int:
        return len(name) + size

    session = acted(go, rein, (create, "box"))
    assert statuses(rolled(go, rein, session)) == [("create", "undone")]
    [(name, result, call, tool, arguments, key, colour)] = seen
    assert (name, result, tool, colour) == ("box", 6, "create", "own default")
    assert arguments == {"name": "box", "size": 3}
    assert key == f"{call}.undo"


def test_defaults_are_arguments_too(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[int] = []

    @rein.tool(undo=lambda size: seen.append(size))
    def create(name: str, size: int = 7) -> None: ...

    rolled(go, rein, acted(go, rein, (create, "box")))
    assert seen == [7]


@pytest.mark.parametrize("where", ["before", "after", "decorated"])
def test_an_undo_may_be_another_tool(go: Any, make: Callable[..., Rein], where: str) -> None:
    rein = make()
    seen: list[str] = []

    def delete(name: str) -> None:
        seen.append(name)

    undo: Any = "delete"
    if where == "decorated":
        undo = rein.tool(delete)
    elif where == "before":
        rein.tool(delete)

    @rein.tool(undo=undo)
    def create(name: str, size: int = 1) -> object:
        return object()

    if where == "after":
        rein.tool(delete)
    report = rolled(go, rein, acted(go, rein, (create, "box")))
    assert statuses(report) == [("create", "undone")] and seen == ["box"]


def test_an_undo_that_comes_after_the_call(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[Any] = []

    @rein.tool(undo="delete")
    def create(name: str, size: int = 1) -> int:
        return 5

    session = acted(go, rein, (create, "box"))
    report = rolled(go, rein, session)
    assert statuses(report) == [("create", "failed")]
    assert "not declared in this process" in report.actions[0].detail

    @rein.tool
    def delete(result: int, key: str) -> None:
        seen.append((result, key))

    assert statuses(rolled(go, rein, session)) == [("create", "undone")]
    assert [result for result, _ in seen] == [5] and seen[0][1].endswith(".undo")


@dataclass
class Customer:
    id: str
    tags: list[str]


class Foreign:
    """Not plain data: it cannot be recorded."""

    def __init__(self) -> None:
        self.id = "cus_9"
        self.meta = {"region": "eu"}

    @property
    def broken(self) -> str:
        raise RuntimeError("the property of a foreign object")


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("customers.delete(result.id)", ("cus_9", None, None)),
        ("customers.delete(result.id, region=result.meta['region'])", ("cus_9", "eu", None)),
        ("customers.delete(name, token=key)", ("Ada", None, "key")),
        ("customers.delete(names[0])", ("x", None, None)),
    ],
)
def test_templates(
    go: Any, make: Callable[..., Rein], template: str, want: tuple[Any, ...]
) -> None:
    rein = make()
    seen: list[Any] = []

    def delete(customer: str, /, region: str | None = None, token: str | None = None) -> None:
        seen.append((customer, region, "key" if token and token.endswith(".undo") else token))

    rein.tool(delete, name="customers.delete")

    @rein.tool(undo=template)
    def create(name: str, names: tuple[str, ...] = ("x",)) -> Foreign:
        return Foreign()

    session = acted(go, rein, (create, "Ada"))
    assert statuses(rolled(go, rein, session)) == [("create", "undone")]
    assert seen == [want]


@pytest.mark.parametrize("path", ["result.missing", "result.meta['no']", "result.broken"])
def test_a_path_that_leads_nowhere_is_reported(
    go: Any, make: Callable[..., Rein], path: str
) -> None:
    rein = make()
    rein.tool(lambda id: None, name="delete")

    @rein.tool(undo=f"delete({path})")
    def create() -> Foreign:
        return Foreign()

    report = rolled(go, rein, acted(go, rein, (create,)))
    assert statuses(report) == [("create", "not_undoable")]
    assert not report.complete and "gave no" in report.actions[0].detail


def test_a_result_that_cannot_be_recorded(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[str] = []

    @rein.tool(undo=lambda result: seen.append("never"))
    def needs() -> Foreign:
        return Foreign()

    @rein.tool(undo=lambda name: seen.append(name))
    def does_without(name: str) -> Foreign:
        return Foreign()

    with rein.session() as session:
        assert isinstance(go.call(rein, needs), Foreign)
        assert isinstance(go.call(rein, does_without, "box"), Foreign)
    report = rolled(go, rein, session.id)
    assert statuses(report) == [("does_without", "undone"), ("needs", "not_undoable")]
    assert seen == ["box"]
    assert session.rein.store.session(session.id).rollback == "partial"


def test_a_result_that_is_too_large_to_keep(
    go: Any, make: Callable[..., Rein], tmp_path: Path
) -> None:
    """Its undo plan is kept all the same."""
    rein = make(store=f"sqlite:///{tmp_path}/small.db", max_payload=2000)
    seen: list[int] = []
    tool = rein.tool(
        lambda n: {"id": n, "text": "x" * 5000}, name="act", undo="remove(result['id'])"
    )
    rein.tool(lambda id: seen.append(id), name="remove")
    assert rolled(go, rein, acted(go, rein, (tool, 7))).complete and seen == [7]


def test_positional_only_parameters(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[Any] = []
    sentinel = object()

    def cancel(id: str, options: Any = sentinel, /, *, reason: str = "undo") -> None:
        seen.append((id, options is sentinel, reason))

    @rein.tool(undo=cancel)
    def subscribe(
        id: str, extra: Any = sentinel, count: int = 2, /, *rest: int, **more: int
    ) -> None:
        seen.append((id, extra is sentinel, count, rest, more))

    with rein.session() as session:
        go.call(rein, subscribe, "sub_1")
        go.call(rein, subscribe, "sub_2", 0, 1, 9, id=4)
    assert statuses(rolled(go, rein, session.id)) == [("subscribe", "undone")] * 2
    assert seen == [
        ("sub_1", True, 2, (), {}),
        ("sub_2", False, 1, (9,), {"id": 4}),
        ("sub_2", True, "undo"),
        ("sub_1", True, "undo"),
    ]


def test_live_and_recovered_undo_get_the_same_values(go: Any, make: Callable[..., Rein]) -> None:
    """The caller changes its list after the call; the undo gets what was recorded."""
    seen: list[Any] = []

    def undo(
        when: dt.datetime, amount: decimal.Decimal, ids: set[int], raw: bytes,
        place: Path, owner: Customer, pair: tuple[int, ...], token: uuid.UUID, result: Customer,
    ) -> None:  # fmt: skip
        seen.append((when, amount, ids, raw, place, owner, pair, token, result))

    def act(
        when: dt.datetime, amount: decimal.Decimal, ids: set[int], raw: bytes,
        place: Path, owner: Customer, pair: tuple[int, ...], token: uuid.UUID,
    ) -> Customer:  # fmt: skip
        return owner

    rein = make()
    tool = rein.tool(act, undo=undo)
    values: tuple[Any, ...] = (
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), decimal.Decimal("1.10"),
        {1, 2}, b"\x00\xff", Path("/a/b"), Customer("c", ["x"]), (1, 2), uuid.UUID(int=7),
    )  # fmt: skip
    session = acted(go, rein, (tool, *values))
    values[5].tags.append("changed afterwards")
    values[2].add(99)
    rolled(go, rein, session)
    [got] = seen
    assert got[:2] == values[:2] and got[3:5] == values[3:5] and got[6:8] == values[6:8]
    assert got[2] == {1, 2} and got[5] == Customer("c", ["x"]) and got[8] == Customer("c", ["x"])
    assert [type(v) for v in got[:8]] == [type(v) for v in values]


# -- trying, failing, trying again


def ledger(rein: Rein, name: str, undo: Callable[..., Any], **settings: Any) -> Any:
    def act(n: int) -> int:
        return n

    return rein.tool(act, name=name, undo=undo, **settings)


def test_a_failing_undo_is_retried_then_left_and_the_rest_goes_on(
    go: Any, make: Callable[..., Rein]
) -> None:
    rein = make(undo_tries=3)
    order: list[str] = []
    broken = {"three": 2, "two": 99}

    def undoing(name: str) -> Callable[[int], None]:
        def undo(n: int) -> None:
            order.append(name)
            if broken.get(name, 0):
                broken[name] -= 1
                raise RuntimeError("refused")

        return undo

    tools = [ledger(rein, n, undoing(n)) for n in ("one", "two", "three", "four")]
    session = acted(go, rein, *((t, 1) for t in tools))
    report = rolled(go, rein, session)
    assert order == ["four", "three", "three", "three", "two", "two", "two", "one"]
    assert statuses(report) == [
        ("four", "undone"), ("three", "undone"), ("two", "failed"), ("one", "undone"),
    ]  # fmt: skip
    row = rein.store.session(session)
    assert row is not None and row.rollback == "partial"
    assert [a.name for a in report.left] == ["two"]

    # It can be run again: only what is left is tried.
    broken.clear()
    order.clear()
    again = rolled(go, rein, session)
    assert order == ["two"] and again.complete
    row = rein.store.session(session)
    assert row is not None and row.rollback == "rolled_back"

    # And a third time changes nothing at all.
    before = row.n
    order.clear()
    third = rolled(go, rein, session)
    row = rein.store.session(session)
    assert row is not None and (order, row.n, third.complete) == ([], before, True)


def test_all_tries_share_one_key(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(undo_tries=2)
    keys: list[str] = []

    def undo(key: str) -> None:
        keys.append(key)
        if len(keys) < 4:
            raise RuntimeError

    tool = ledger(rein, "pay", undo)
    session = acted(go, rein, (tool, 1))
    assert not rolled(go, rein, session).complete
    assert rolled(go, rein, session).complete
    assert len(keys) == 4 and len(set(keys)) == 1


def test_an_undo_that_hangs_past_its_timeout(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(clock=None)
    order: list[str] = []
    gate = threading.Event()

    def hang(n: int) -> None:
        order.append("hang")
        gate.wait(10)

    first = ledger(rein, "first", lambda n: order.append("first"))
    second = ledger(rein, "second", hang, timeout=0.05)
    session = acted(go, rein, (first, 1), (second, 1))
    report = rolled(go, rein, session)
    assert order == ["hang", "first"]
    assert statuses(report) == [("second", "needs_human"), ("first", "undone")]
    # It ends after all, and its late word is taken.
    gate.set()
    wait_for(lambda: any(e.kind == "late" for e in rein.read(session).events()))
    assert rolled(go, rein, session).complete


def wait_for(ready: Callable[[], Any], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_an_undo_that_says_it_had_no_effect(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    tries: list[int] = []

    def undo(n: int) -> None:
        tries.append(n)
        if len(tries) == 1:
            raise ConnectionRefusedError

    rein.tool(undo, name="take_back", no_effect_on=(ConnectionRefusedError,))
    tool = ledger(rein, "act", "take_back")  # type: ignore[arg-type]
    assert rolled(go, rein, acted(go, rein, (tool, 1))).complete
    assert tries == [1, 1]


def test_async_tools_undos_and_probes(make: Callable[..., Rein]) -> None:
    import asyncio

    rein = make()
    world: list[int] = []

    async def undo(n: int) -> None:
        await asyncio.sleep(0)
        world.remove(n)

    async def probe(n: int) -> bool:
        await asyncio.sleep(0)
        return n in world

    @rein.tool(undo=undo, probe=probe)
    async def act(n: int) -> None:
        world.append(n)
        if n > 1:
            raise ConnectionResetError

    async def run() -> str:
        async with rein.session() as session:
            await act(1)
            with pytest.raises(ConnectionResetError):
                await act(2)
        report = rein.rollback(session.id)
        assert report is not None
        # On the thread of a running loop nothing async can be waited for: said, not guessed.
        assert [a.status for a in report.actions] == ["failed", "failed"]
        assert "arollback" in report.actions[0].detail
        assert (await rein.arollback(session.id)).complete  # type: ignore[union-attr]
        return session.id

    asyncio.run(run())
    assert world == []
    # From sync code they are finished on the portal.
    with rein.session() as session:
        asyncio.run(acall(rein, act, 3))
    assert rein.rollback(session.id).complete and world == []  # type: ignore[union-attr]


async def acall(rein: Rein, fn: Any, *args: Any) -> None:
    try:
        await rein.acall(fn, *args)
    except ConnectionResetError:
        return


# -- doubt


class World:
    """What is really there."""

    def __init__(self) -> None:
        self.there: set[int] = set()
        self.undone: list[int] = []

    def act(self, n: int) -> int:
        self.there.add(n)
        raise ConnectionResetError("the reply was lost")

    def never(self, n: int) -> int:
        raise ConnectionResetError("it never arrived")

    def undo(self, n: int) -> None:
        self.undone.append(n)
        self.there.discard(n)


@pytest.mark.parametrize("answer", [Present(), True])
def test_present_is_undone(go: Any, make: Callable[..., Rein], answer: Any) -> None:
    rein, world = make(), World()
    tool = rein.tool(world.act, undo=world.undo, probe=lambda n: answer)
    report = rolled(go, rein, acted(go, rein, (tool, 1)))
    assert statuses(report) == [("act", "undone")] and world.undone == [1]


@pytest.mark.parametrize("answer", [Absent(), False])
def test_absent_is_final_only_after_settle_time(
    go: Any, make: Callable[..., Rein], clock: Any, answer: Any
) -> None:
    rein, world = make(), World()
    tool = rein.tool(world.never, undo=world.undo, probe=lambda n: answer, settle_time=30)
    session = acted(go, rein, (tool, 1))
    early = rolled(go, rein, session)
    assert statuses(early) == [("never", "in_doubt")] and not early.complete
    assert 25 < early.actions[0].wait <= 30
    clock.sleep(31)
    # Somebody has to come back: a recovery does.
    report = go.run(rein, "recover")
    assert [a.status for r in report.sessions for a in r.actions] == ["absent"]
    assert world.undone == []
    row = rein.store.session(session)
    assert row is not None and row.rollback == "rolled_back"


def test_what_lands_late_is_undone_by_the_next_recovery(
    go: Any, make: Callable[..., Rein], clock: Any
) -> None:
    rein, world = make(), World()
    tool = rein.tool(world.never, undo=world.undo, probe=lambda n: n in world.there)
    session = acted(go, rein, (tool, 1))
    assert not rolled(go, rein, session).complete
    world.there.add(1)
    report = go.run(rein, "recover")
    assert report.complete and world.there == set() and world.undone == [1]
    assert go.run(rein, "recover").sessions == []


@pytest.mark.parametrize("answer", [None, "perhaps", RuntimeError])
def test_a_probe_that_cannot_tell(go: Any, make: Callable[..., Rein], answer: Any) -> None:
    rein, world = make(), World()

    def probe(n: int) -> Any:
        if isinstance(answer, type):
            raise answer
        return answer

    tool = rein.tool(world.act, undo=world.undo, probe=probe)
    session = acted(go, rein, (tool, 1))
    report = rolled(go, rein, session)
    assert statuses(report) == [("act", "needs_human")] and world.undone == []
    assert any(e.kind == "needs_human" for e in rein.read(session).events())


def test_no_probe_needs_a_human(go: Any, make: Callable[..., Rein]) -> None:
    rein, world = make(), World()
    tool = rein.tool(world.act, undo=world.undo)
    assert statuses(rolled(go, rein, acted(go, rein, (tool, 1)))) == [("act", "needs_human")]
    assert world.undone == []


def test_an_undo_that_is_safe_to_repeat(go: Any, make: Callable[..., Rein], clock: Any) -> None:
    """It is run at once, and once more when nothing can land any more."""
    rein, world = make(), World()
    tool = rein.tool(world.never, undo=world.undo, undo_safe_to_repeat=True, settle_time=30)
    session = acted(go, rein, (tool, 1))
    assert statuses(rolled(go, rein, session)) == [("never", "in_doubt")]
    assert world.undone == [1]
    world.there.add(1)  # it lands after its undo
    clock.sleep(31)
    assert go.run(rein, "recover").complete
    assert world.there == set() and world.undone == [1, 1]
    assert go.run(rein, "recover").sessions == []
    assert rolled(go, rein, session).complete and world.undone == [1, 1]


def test_transactional_tools_settle_at_once(go: Any, make: Callable[..., Rein]) -> None:
    rein, world = make(), World()
    gone = rein.tool(world.never, undo=world.undo, probe=lambda n: False, settle_time=0)
    safe = rein.tool(world.act, undo=world.undo, undo_safe_to_repeat=True, settle_time=0)
    report = rolled(go, rein, acted(go, rein, (gone, 1), (safe, 2)))
    assert statuses(report) == [("act", "undone"), ("never", "absent")] and report.complete


def test_present_brings_the_lost_result(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[Any] = []

    @rein.tool(undo=lambda result: seen.append(result), probe=lambda n: Present({"id": n}))
    def create(n: int) -> dict[str, int]:
        raise ConnectionResetError

    report = rolled(go, rein, acted(go, rein, (create, 4)))
    assert report.complete and seen == [{"id": 4}]


def test_a_bare_present_cannot_stand_for_a_result(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[Any] = []

    @rein.tool(undo=lambda result: seen.append(result), probe=lambda: True)
    def create() -> int:
        raise ConnectionResetError

    report = rolled(go, rein, acted(go, rein, (create,)))
    assert statuses(report) == [("create", "not_undoable")] and seen == []
    assert "result" in report.actions[0].detail


def test_a_probe_that_needs_the_result_is_not_asked_without_it(
    go: Any, make: Callable[..., Rein]
) -> None:
    """It would have to guess; one with a default for `result` is asked."""
    rein = make()
    asked: list[Any] = []

    def needs(result: int) -> bool:
        asked.append(result)
        return False

    def can_do_without(n: int, result: Any = "unknown") -> bool:
        asked.append(result)
        return True

    def lost(n: int) -> int:
        raise ConnectionResetError

    one = rein.tool(lost, name="one", undo=lambda n: None, probe=needs)
    two = rein.tool(lost, name="two", undo=lambda n: None, probe=can_do_without)
    report = rolled(go, rein, acted(go, rein, (one, 1), (two, 2)))
    assert statuses(report) == [("two", "undone"), ("one", "needs_human")]
    assert asked == ["unknown"]


def test_a_raising_undo_is_asked_about_before_it_is_repeated(
    go: Any, make: Callable[..., Rein]
) -> None:
    """The undo works and its reply is lost: the probe keeps it from running twice."""
    rein, world = make(), World()

    def undo(n: int, result: int) -> None:
        world.undone.append(n)
        world.there.discard(result)
        raise ConnectionResetError

    def act(n: int) -> int:
        world.there.add(n + 10)
        return n + 10

    tool = rein.tool(act, undo=undo, probe=lambda result: result in world.there)
    report = rolled(go, rein, acted(go, rein, (tool, 1)))
    assert report.complete and world.undone == [1] and world.there == set()


def test_doubt_is_visible_in_a_dry_run(go: Any, make: Callable[..., Rein]) -> None:
    rein, world = make(), World()
    lost = rein.tool(world.act, undo=world.undo, probe=lambda n: True)
    plain = ledger(rein, "plain", lambda n: None)
    bare = rein.tool(lambda: None, name="bare")
    read = rein.tool(lambda: 1, name="look", effect="read")
    session = acted(go, rein, (plain, 1), (lost, 1), (bare,), (read,))
    row = rein.store.session(session)
    report = rolled(go, rein, session, dry_run=True)
    assert statuses(report) == [
        ("bare", "not_undoable"), ("act", "in_doubt"), ("plain", "planned"),
    ]  # fmt: skip
    assert report.actions[2].detail == "plain.undo" and world.undone == []
    after = rein.store.session(session)
    assert row is not None and after is not None and after.n == row.n and after.rollback == "none"


# -- plugins


def test_an_undo_is_a_call_that_plugins_see(go: Any, make: Callable[..., Rein]) -> None:
    class Watch(Plugin):
        def __init__(self) -> None:
            self.seen: list[tuple[str, str, dict[str, Any]]] = []

        def pre_call(self, call: Call) -> None:
            self.seen.append((call.kind, call.parent, dict(call.arguments)))

    watch = Watch()
    rein = make(watch)
    tool = ledger(rein, "act", lambda n: None)
    session = acted(go, rein, (tool, 5))
    rolled(go, rein, session)
    (kind, _, _), (undo, parent, arguments) = watch.seen
    assert (kind, undo, arguments) == ("tool", "undo", {"n": 5})
    intents = [e for e in rein.read(session).events() if e.kind == "intent"]
    assert parent == intents[0].call and intents[1].call == f"{parent}.undo.1"


def test_a_denied_undo_is_reported_as_left(go: Any, make: Callable[..., Rein]) -> None:
    class NoUndo(Plugin):
        denies = True

        def pre_call(self, call: Call) -> Deny | None:
            return Deny("not on a Sunday") if call.kind == "undo" and self.denies else None

    guard = NoUndo()
    rein = make(guard)
    seen: list[int] = []
    tool = ledger(rein, "act", lambda n: seen.append(n))
    session = acted(go, rein, (tool, 1), (tool, 2))
    report = rolled(go, rein, session)
    assert [a.status for a in report.left] == ["failed", "failed"] and seen == []
    assert "not on a Sunday" in report.left[0].detail
    guard.denies = False
    assert rolled(go, rein, session).complete and seen == [2, 1]


class Hook(Plugin):
    """Answers `on_rollback` as a test says."""

    def __init__(self, answer: Callable[[Call, Outcome, str], Any]) -> None:
        self.answer = answer
        self.causes: list[str] = []

    def on_rollback(self, call: Call, outcome: Outcome, cause: Any) -> Any:
        self.causes.append(cause)
        return self.answer(call, outcome, cause)


def test_a_plugin_skips(go: Any, make: Callable[..., Rein]) -> None:
    skip = {"on": True}
    hook = Hook(lambda call, outcome, cause: Skip("keep it") if skip["on"] else None)
    rein = make(hook)
    seen: list[int] = []
    tool = ledger(rein, "act", lambda n: seen.append(n))
    session = acted(go, rein, (tool, 1))
    report = rolled(go, rein, session)
    assert statuses(report) == [("act", "kept")] and report.left[0].detail == "keep it"
    assert seen == [] and not report.complete
    skip["on"] = False
    assert rolled(go, rein, session).complete and seen == [1]


@pytest.mark.parametrize("late", [False, True])
def test_a_plugin_supplies_a_missing_plan(go: Any, make: Callable[..., Rein], late: bool) -> None:
    """At the outcome, or first at the rollback; never instead of a declared one."""

    def answer(call: Call, outcome: Outcome, cause: str) -> Any:
        if late and cause == "plan":
            return None
        return Undo("remove", {"id": outcome.value["id"]})

    hook = Hook(answer)
    rein = make(hook)
    seen: list[int] = []
    rein.tool(lambda id: seen.append(id), name="remove")
    plain = rein.tool(lambda: {"id": 8}, name="plain")
    own = ledger(rein, "own", lambda n: seen.append(-n))
    session = acted(go, rein, (plain,), (own, 1))
    assert rolled(go, rein, session).complete
    assert seen == [-1, 8]
    assert hook.causes == ["plan", "explicit", "explicit"]


def test_a_hook_that_fails_keeps_no_stored_plan_from_running(
    go: Any, make: Callable[..., Rein], caplog: pytest.LogCaptureFixture
) -> None:
    def answer(call: Call, outcome: Outcome, cause: str) -> Any:
        raise ValueError

    rein = make(Hook(answer))
    seen: list[int] = []
    tool = ledger(rein, "act", lambda n: seen.append(n))
    with caplog.at_level(logging.ERROR, "checkrein"):
        assert rolled(go, rein, acted(go, rein, (tool, 1))).complete
    assert seen == [1] and "raised ValueError" in caplog.text
