"""A store that cannot be reached, sessions in which nothing runs, and judges of intents."""

# What must not run stands inside the block that raises.
# ruff: noqa: PT012

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Ask, Call, Deny, Hold, Plugin, Rein, errors
from checkrein.intent import Done, Judgement
from checkrein.store import Store

# -- failure modes


class Broken:
    """A store that can be cut off."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or name in ("close", "watch"):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.cut:
                raise errors.StoreUnavailable("the disk is gone")
            return found(*args, **kwargs)

        return call


@pytest.fixture
def broken(make: Callable[..., Rein]) -> Any:
    def build(*plugins: Any, **settings: Any) -> tuple[Rein, Broken]:
        store = Broken(make().store)
        return make(*plugins, store=store, **settings), store

    return build


def test_closed_refuses(go: Any, broken: Any) -> None:
    rein, store = broken()
    log: list[str] = []
    session = rein.session()
    with pytest.raises(errors.StoreUnavailable), session:
        go.call(rein, log.append, "a")
        store.cut = True
        go.call(rein, log.append, "b")
    with pytest.raises(errors.StoreUnavailable), rein.session():
        go.call(rein, log.append, "c")
    assert log == ["a"]


def test_open_runs_unrecorded_and_says_so(
    go: Any, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rein, store = broken(failure_mode="open", on_error="rollback")
    log: list[str] = []
    put = rein.tool(log.append, name="put", undo=lambda object: log.remove(object))
    with rein.session() as session:
        assert go.call(rein, put, "a") is None
        store.cut = True
        assert go.call(rein, lambda: "b") == "b"
        go.call(rein, put, "c")
        with pytest.raises(KeyError):
            go.call(rein, {}.pop, "x")
        store.cut = False
        go.call(rein, put, "d")
    told = [r.message for r in caplog.records if "RUNS UNRECORDED" in r.message]
    assert len(told) == 3 and "cannot be undone" in told[0]
    session.rollback()
    # What was not recorded stays; nobody promised otherwise.
    assert log == ["c"]


def test_a_session_that_begins_without_a_store(
    go: Any, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rein, store = broken(failure_mode="open")
    store.cut = True
    with rein.session() as session:
        assert go.call(rein, lambda: 1) == 1
        store.cut = False
        assert go.call(rein, lambda: 2) == 2
    assert rein.store.session(session.id) is None
    assert any("IS NOT RECORDED" in r.message for r in caplog.records)
    with rein.session() as after:
        go.call(rein, lambda: 3)
    assert rein.store.session(after.id) is not None


def test_open_keeps_limits_and_denials(go: Any, broken: Any) -> None:
    class Guard(Plugin):
        def pre_call(self, call: Call) -> Any:
            if call.name == "bad":
                return Deny("no")
            return Hold("calls", 1, "calls", 5) if call.name == "counted" else None

    rein, store = broken(Guard(), failure_mode="open")
    log: list[str] = []
    bad = rein.tool(lambda: log.append("bad"), name="bad")
    counted = rein.tool(lambda: log.append("counted"), name="counted")
    with rein.session():
        store.cut = True
        with pytest.raises(errors.CheckreinError):
            go.call(rein, bad)
        with pytest.raises(errors.StoreUnavailable):
            go.call(rein, counted)
    with rein.session():
        with pytest.raises(errors.StoreUnavailable, match="limit or an approval"):
            go.call(rein, counted)
        with pytest.raises(errors.Denied):
            go.call(rein, bad)
    assert log == []


# -- sandbox


def test_nothing_runs_in_a_sandbox(
    go: Any, make: Callable[..., Rein], capsys: pytest.CaptureFixture[str]
) -> None:
    class Asks(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Ask("may it?") if call.name == "pay" else None

    rein = make(Asks())
    log: list[str] = []
    pay = rein.tool(
        lambda amount: log.append("paid"), name="pay", undo="none", irreversible="money is gone",
        example=lambda amount: {"receipt": amount},
    )  # fmt: skip
    put = rein.tool(lambda name: log.append(name), name="put", undo=lambda name: None, example=7)
    look = rein.tool(lambda: log.append("look"), name="look", effect="read", example=None)
    other = rein.tool(lambda: log.append("other"), name="other")
    with rein.session(sandbox=True) as session:
        assert go.call(rein, pay, 5) == {"receipt": 5}
        assert go.call(rein, put, "a") == 7 and go.call(rein, look) is None
        with pytest.raises(errors.Denied, match="no recorded result of other") as refused:
            go.call(rein, other)
        assert refused.value.code == "no_example"
    assert log == [] and [p.name for p in session.plan] == ["pay", "put", "look", "other"]
    assert [p.undo for p in session.plan][:2] == ["none: money is gone", "put.undo"]
    printed = capsys.readouterr().err
    assert '1. pay {"amount":5}  [undo: none: money is gone]' in printed
    assert "3. look {}  [changes nothing]" in printed and "4. other {}  [not undoable]" in printed
    kinds = [e.kind for e in session.events()]
    assert "intent" not in kinds and kinds.count("answered") == 3
    report = session.rollback()
    assert report is not None and report.actions == []


def test_a_sandbox_answers_from_a_recorded_session(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    count = [0]

    def price(item: str) -> int:
        count[0] += 1
        return count[0]

    tool = rein.tool(price, example=99)
    with rein.session() as recorded:
        assert [go.call(rein, tool, "a"), go.call(rein, tool, "a"), go.call(rein, tool, "b")] == [
            1, 2, 3,
        ]  # fmt: skip
    with rein.session(sandbox=recorded.id):
        found = [go.call(rein, tool, item) for item in ("b", "a", "a", "a", "c")]
    assert found == [3, 1, 2, 2, 99] and count == [3]
    with pytest.raises(errors.Conflict, match="unknown"):
        rein.session(sandbox="nope")


def test_policies_decide_in_a_sandbox(make: Callable[..., Rein]) -> None:
    class No(Plugin):
        def pre_call(self, call: Call) -> Deny:
            return Deny("not here")

    rein = make(No())
    tool = rein.tool(lambda: 1, name="x", example=1)
    with rein.session(sandbox=True) as session, pytest.raises(errors.Denied, match="not here"):
        tool()
    assert session.plan == ()


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize("how", ["itself", "inside", "taken up", "restarted"])
def test_a_sandbox_stays_one(make: Callable[..., Rein], how: str, mode: str) -> None:
    class No(Plugin):
        name = "no"

        def pre_call(self, call: Call) -> Deny | None:
            return Deny("never") if mode == "observe" else None

    rein = make(No(), mode=mode)
    log: list[str] = []
    put = rein.tool(log.append, name="put", example="as if")
    with rein.session(sandbox=True) as session:
        if how == "itself":
            assert put("a") == "as if"
        elif how == "inside":
            with rein.session() as inner:
                assert put("a") == "as if"
            assert [p.name for p in session.plan] == ["put"] and inner.plan == session.plan
        else:
            session.waiting.add("somebody")
    if how in ("taken up", "restarted"):
        id = session.id
        if how == "restarted":
            rein.stop(id)
            id = rein.restart(id)
        with rein.session(id=id) as again:
            assert put("a") == "as if"
        assert [p.name for p in again.plan] == ["put"]
    assert log == []


def test_models_are_not_called_in_a_sandbox(make: Callable[..., Rein]) -> None:
    rein = make()
    with rein.session(sandbox=True), pytest.raises(errors.Denied, match="sandbox"):
        rein.model_call(lambda **_: pytest.fail("called"), model="m", messages=[])


# -- intents


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("VERIFIED", "VERIFIED"),
        (Judgement("DRIFT_DETECTED", "it mailed"), "DRIFT_DETECTED"),
        ("UNVERIFIED", "UNVERIFIED"),
        ("yes", "UNVERIFIED"),
        (KeyError("x"), "UNVERIFIED"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_judge_is_asked(
    make: Callable[..., Rein], said: Any, verdict: str, is_async: bool
) -> None:
    seen: list[Any] = []

    def judge(intent: str, actions: Any) -> Any:
        seen.append((intent, [(a.name, a.state) for a in actions]))
        assert all(isinstance(a, Done) for a in actions)
        if isinstance(said, Exception):
            raise said
        return said

    async def later(intent: str, actions: Any) -> Any:
        return judge(intent, actions)

    rein = make(judge=later if is_async else judge)
    log: list[str] = []
    put = rein.tool(log.append, name="put", undo=lambda object: log.remove(object))
    with rein.session(intent="send the invoices") as session:
        put("a")
    assert seen == [("send the invoices", [("put", "done")])]
    assert session.verdict == verdict and session.state == "COMPLETED" and log == ["a"]
    event = next(e.view for e in session.events() if e.kind == "intent_checked")
    assert event["verdict"] == verdict
    failing = rein.session(intent="x", on_error="keep")
    with rein.session() as without, pytest.raises(KeyError), failing:
        raise KeyError
    assert len(seen) == 1 and without.verdict == ""


def test_drift_may_roll_back(make: Callable[..., Rein], caplog: pytest.LogCaptureFixture) -> None:
    rein = make(judge=lambda intent, actions: "DRIFT_DETECTED", on_drift="rollback")
    log: list[str] = []
    put = rein.tool(log.append, name="put", undo=lambda object: log.remove(object))
    with caplog.at_level(logging.WARNING), rein.session(intent="look only") as session:
        put("a")
    assert log == [] and session.state == "ROLLED_BACK" and session.verdict == "DRIFT_DETECTED"
    assert "drifted from its intent" in caplog.text
    with pytest.raises(errors.ConfigError, match="judge"):
        make(judge=5)
