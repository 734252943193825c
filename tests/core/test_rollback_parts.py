"""Rolling back a part, reported failures, declined undos, and what is settled by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from checkrein import Ask, Call, Plugin, Present, Rein, Rejected, Skip, errors
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


def statuses(report: RollbackReport) -> list[str]:
    return [a.status for a in report.actions]


def calls(rein: Rein, session: str) -> list[str]:
    return [e.call for e in rein.read(session).events() if e.kind == "intent"]


# -- to a step


def test_a_rollback_to_a_step_undoes_what_came_after(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        for name in "abcd":
            go.call(rein, world.act, name)
    plan = go.run(rein, "rollback", session.id, to=2, dry_run=True)
    assert statuses(plan) == ["planned", "planned", "kept", "kept"] and len(world.log) == 4
    assert row(rein, session.id).rollback == "none"

    report = go.run(rein, "rollback", session.id, to=2)
    assert world.log[4:] == ["-d", "-c"]
    assert statuses(report) == ["undone", "undone", "kept", "kept"]
    assert report.complete and report.to == 2 and report.actions[2].detail == "not after step 2"
    assert row(rein, session.id).rollback == "partial"

    rest = go.run(rein, "rollback", session.id)
    assert world.log[6:] == ["-b", "-a"] and statuses(rest) == ["undone"] * 4
    assert row(rein, session.id).rollback == "rolled_back" and session.state == "ROLLED_BACK"


def test_inner_sessions_go_with_the_step_after_which_they_came(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        world.act("a")
        with rein.session():
            world.act("inner of 1")
        world.act("b")
        with rein.session():
            world.act("inner of 2")
    rein.rollback(session.id, to=2)
    assert world.log[4:] == ["-inner of 2"]
    rein.rollback(session.id, to=1)
    assert world.log[5:] == ["-b", "-inner of 1"]


@pytest.mark.parametrize(
    ("step", "error", "told"),
    [
        (0, errors.ConfigError, "1 or more"),
        (True, errors.ConfigError, "1 or more"),
        (2, errors.Conflict, "no effect after step 2"),
        (9, errors.Conflict, "its last is 2"),
    ],
)
def test_a_step_that_is_not_there(
    go: Any, make: Callable[..., Rein], step: Any, error: type[Exception], told: str
) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        world.act("a")
        world.act("b")
    with pytest.raises(error, match=told):
        go.run(rein, "rollback", session.id, to=step)
    assert world.log == ["a", "b"] and row(rein, session.id).rollback == "none"


def test_a_rollback_to_a_step_inside_a_call_is_deferred(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)

    def agent() -> None:
        world.act("b")
        assert session.rollback(to=1) is None
        world.act("c")

    with rein.session() as session:
        world.act("a")
        rein.call(agent)
    assert world.log == ["a", "b", "c", "-c", "-b"]


# -- one action


def test_one_action_is_undone_and_the_session_goes_on(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        for name in "abc":
            go.call(rein, world.act, name)
        second = calls(rein, session.id)[1]
        plan = go.run(rein, "rollback", session.id, action=second, dry_run=True)
        assert statuses(plan) == ["planned"]
        report = go.run(rein, "rollback", session.id, action=second)
        assert statuses(report) == ["undone"] and world.log[3:] == ["-b"]
        assert row(rein, session.id).state == "ACTIVE"
        go.call(rein, world.act, "d")
    # It ended well, and not all of what it did is there.
    assert (row(rein, session.id).state, row(rein, session.id).rollback) == (
        "COMPLETED", "partial",
    )  # fmt: skip
    again = go.run(rein, "rollback", session.id, action=second)
    assert statuses(again) == ["undone"] and world.log[4:] == ["d"]
    go.run(rein, "rollback", session.id)
    assert world.log[5:] == ["-d", "-c", "-a"] and session.state == "ROLLED_BACK"


def test_one_action_of_a_session_that_is_over(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        world.act("a")
    rein.rollback(session.id, action=calls(rein, session.id)[0])
    assert world.log == ["a", "-a"] and row(rein, session.id).rollback == "partial"


def test_actions_that_are_not_the_session_s(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    look = rein.tool(lambda: 1, name="look", effect="read")
    with rein.session() as one:
        world.act("a")
        look()
    with rein.session() as other:
        world.act("b")
    for wrong in ("nope", calls(rein, other.id)[0]):
        with pytest.raises(errors.Conflict, match="has no call"):
            go.run(rein, "rollback", one.id, action=wrong)
    with pytest.raises(errors.ConfigError, match="one of"):
        go.run(rein, "rollback", one.id, action="x", to=1)
    assert statuses(go.run(rein, "rollback", one.id, action=calls(rein, one.id)[1])) == ["absent"]
    assert world.log == ["a", "b"]


# -- reported failures


def test_a_reported_failure_rolls_back(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as session:
        go.call(rein, world.act, "a")
        report = go.run(session, "fail", "the total is wrong")
        assert statuses(report) == ["undone"]
        with pytest.raises(errors.SessionClosed):
            go.call(rein, world.act, "b")
        with pytest.raises(errors.SessionClosed, match="cannot fail"):
            go.run(session, "fail", "again")
    assert world.log == ["a", "-a"] and session.state == "ROLLED_BACK"
    ended = [e.view for e in session.events() if e.kind == "session_ended"]
    assert ended == [{"state": "FAILED", "error": "the total is wrong"}]


def test_a_reported_failure_may_keep_effects(make: Callable[..., Rein]) -> None:
    rein = make(on_failed="keep")
    world = World(rein)
    with rein.session() as session:
        world.act("a")
        assert session.fail("never mind") is None
    assert world.log == ["a"] and session.state == "FAILED" and row(rein, session.id).owner == ""
    with pytest.raises(errors.ConfigError, match="on_failed"):
        rein.session(on_failed="no")  # type: ignore[arg-type]


def test_a_failure_reported_inside_a_call_is_deferred(make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein)

    def agent() -> str:
        world.act("a")
        assert session.fail("enough") is None
        return "done"

    with rein.session() as session:
        assert rein.call(agent) == "done"
    assert world.log == ["a", "-a"]


# -- declined


class AskForUndos(Plugin):
    """A person has to allow every undo, and does not."""

    def pre_call(self, call: Call) -> Ask | None:
        return Ask("undo it?", rule="undos") if call.kind == "undo" else None

    def on_approval(self, call: Call, request: Any) -> Rejected | None:
        return Rejected("ann", "it is right as it is") if call.arguments["name"] == "b" else None


def test_an_undo_that_a_person_refuses_is_declined(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(AskForUndos(), approval_expires=0.05, approvals="channels", clock=None)
    world = World(rein)
    with rein.session() as session:
        for name in "ab":
            go.call(rein, world.act, name)
    report = go.run(rein, "rollback", session.id)
    assert [(a.status, a.asked) for a in report.actions] == [("declined", True)] * 2
    assert "it is right as it is" in report.actions[0].detail
    assert not report.complete and "2 declined" in report.summary() and world.log == ["a", "b"]
    assert row(rein, session.id).rollback == "partial"
    found = [e.view["why"] for e in session.events() if e.kind == "undo_declined"]
    assert len(found) == 2 and "expired" in found[1]
    # A declined undo is no trouble: it is how a person wanted it.
    assert rein.store.record("doubt", session.id) is None


def test_what_a_plugin_skips_is_kept_and_no_success(make: Callable[..., Rein]) -> None:
    class Leave(Plugin):
        def on_rollback(self, call: Call, outcome: Any, cause: str) -> Skip | None:
            return Skip("sent") if call.arguments["name"] == "b" else None

    rein = make(Leave())
    world = World(rein)
    with rein.session() as session:
        for name in "ab":
            world.act(name)
    report = session.rollback()
    assert report is not None and statuses(report) == ["kept", "undone"] and not report.complete


# -- by hand


def doubtful(rein: Rein, **settings: Any) -> tuple[str, str, list[str]]:
    """A call that raised, so nobody knows whether it acted: (session, call, log)."""
    log: list[str] = []

    def pay(name: str) -> None:
        log.append(name)
        raise OSError

    tool = rein.tool(pay, undo=lambda name: log.append(f"-{name}"), **settings)
    with rein.session() as session, pytest.raises(OSError):
        tool("a")
    return session.id, calls(rein, session.id)[0], log


@pytest.mark.parametrize(
    ("said", "status", "log", "rollback"),
    [
        ("done", "undone", ["a", "-a"], "rolled_back"),
        ("not_done", "absent", ["a"], "rolled_back"),
        ("undone", "undone", ["a"], "rolled_back"),
    ],
)
def test_what_nobody_can_tell_is_settled_by_hand(
    go: Any, make: Callable[..., Rein], said: str, status: str, log: list[str], rollback: str
) -> None:
    rein = make()
    session, call, found = doubtful(rein)
    report = go.run(rein, "rollback", session)
    assert statuses(report) == ["needs_human"] and row(rein, session).rollback == "partial"
    go.run(rein, "settle", call, said, by="ann", note="looked at the bank")
    if said == "done":
        assert row(rein, session).rollback == "partial"
    else:
        assert row(rein, session).rollback == rollback
    report = go.run(rein, "rollback", session)
    assert statuses(report) == [status] and found == log
    assert row(rein, session).rollback == rollback
    event = next(e.view for e in rein.read(session).events() if e.kind == "resolved")
    assert (event["by"], event["note"], event["state"]) == ("ann", "looked at the bank", said)


def test_an_undo_in_doubt_is_settled_by_hand(make: Callable[..., Rein]) -> None:
    rein = make(undo_tries=1)
    log: list[str] = []
    hang = [True]

    def undo(name: str) -> None:
        log.append(f"-{name}")
        if hang:
            hang.clear()
            raise TimeoutError

    tool = rein.tool(lambda name: log.append(name), name="put", undo=undo)
    with rein.session() as session:
        tool("a")
    report = session.rollback()
    assert report is not None and statuses(report) == ["needs_human"]
    call = calls(rein, session.id)[0]
    rein.settle(call, "done", by="ann")
    report = session.rollback()
    assert report is not None and statuses(report) == ["undone"] and log == ["a", "-a", "-a"]


def test_what_failed_is_settled_by_hand(make: Callable[..., Rein]) -> None:
    rein = make(undo_tries=1)

    def refuse(name: str) -> None:
        raise KeyError

    tool = rein.tool(lambda name: name, name="act", undo=refuse)
    with rein.session() as session:
        tool("a")
    session.rollback()
    record = rein.store.record("doubt", session.id)
    assert record is not None and record.state == "failed"
    rein.settle(calls(rein, session.id)[0], "undone", by="ann")
    record = rein.store.record("doubt", session.id)
    assert session.state == "ROLLED_BACK" and record is not None and record.state == "closed"


def test_what_is_known_cannot_be_settled(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    world = World(rein, probe=lambda name: Present())
    look = rein.tool(lambda: 1, name="look", effect="read")
    with rein.session() as session:
        world.act("a")
        look()
        first, second = calls(rein, session.id)
    for call, state, told in (
        ("nope", "done", "unknown"),
        (second, "undone", "changes nothing"),
        (first, "done", "in place"),
        (first, "not_done", "taken effect"),
    ):
        with pytest.raises(errors.Conflict, match=told):
            go.run(rein, "settle", call, state, by="ann")
    with pytest.raises(errors.ConfigError, match="not one of"):
        go.run(rein, "settle", first, "gone", by="ann")
    with pytest.raises(errors.ConfigError, match="who"):
        go.run(rein, "settle", first, "undone", by=" ")
    session.rollback()
    with pytest.raises(errors.Conflict, match="undone already"):
        go.run(rein, "settle", first, "undone", by="ann")


def test_a_call_that_may_still_run_cannot_be_settled(make: Callable[..., Rein]) -> None:
    rein = make()
    told: list[str] = []

    def slow() -> None:
        call = calls(rein, session.id)[0]
        with pytest.raises(errors.Conflict, match="may still run"):
            rein.settle(call, "undone", by="ann")
        report = session.rollback(action=call)
        assert report is not None
        told.extend(statuses(report))

    tool = rein.tool(slow, undo=lambda: None)
    with rein.session() as session:
        tool()
    assert told == ["in_doubt"]


def test_a_store_that_is_none_is_refused() -> None:
    for wrong in (5, None, object()):
        with pytest.raises(errors.ConfigError, match="is no store"):
            Rein(store=wrong)  # type: ignore[arg-type]


def test_steps_go_on_after_the_highest_where_a_session_is_taken_up(
    make: Callable[..., Rein],
) -> None:
    first, second, third = make(), make(), make()
    if first.store.url == "memory:":
        second = third = first
    worlds = {rein: World(rein) for rein in {first, second, third}}
    with first.session() as session:
        for name in "abcde":
            worlds[first].act(name)
        session.waiting.add("somebody")
    # Whoever takes one action back runs its undo outside of the session.
    second.rollback(session.id, action=calls(second, session.id)[1])
    with third.session(id=session.id) as again:
        for name in "fgh":
            worlds[third].act(name)
        steps = [e.view["step"] for e in again.events() if e.view.get("name") == "act"]
        assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
        third.rollback(again.id, to=6)
    assert worlds[third].log[-2:] == ["-h", "-g"]


@pytest.mark.parametrize("payloads_only", [False, True])
def test_what_failed_is_not_forgotten_before_it_is_rolled_back(
    make: Callable[..., Rein], payloads_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rein = make(on_error="rollback")
    world = World(rein)
    roll, found = rein.rollbacks.run, []

    def forgetful(*given: Any, **more: Any) -> Any:
        found.append(rein.forget(payloads_only=payloads_only).sessions)
        return roll(*given, **more)

    monkeypatch.setattr(rein.rollbacks, "run", forgetful)
    session = rein.session()
    with suppress(KeyError), session:
        world.act("a")
        raise KeyError
    assert found == [0] and world.log == ["a", "-a"] and session.state == "ROLLED_BACK"
    assert rein.forget(payloads_only=payloads_only).sessions == 1


def test_what_may_still_be_undone_is_not_forgotten(make: Callable[..., Rein]) -> None:
    class Review(Plugin):
        def post_call(self, call: Call, outcome: Any) -> Ask | None:
            return Ask("look") if call.arguments.get("name") == "c" else None

    rein = make(Review(), approvals="store", wait="suspend")
    world = World(rein)
    with rein.session() as outer:
        with rein.session():
            world.act("a")
        with rein.session(detached=True):
            world.act("b")
        with rein.session() as reviewed, pytest.raises(errors.ApprovalPending) as waits:
            world.act("c")
        assert reviewed.state == "COMPLETED"
        assert rein.forget(payloads_only=True).sessions == 1  # the one that stands alone
        assert rein.forget().sessions == 1
        rein.approvals.reject(waits.value.token, by="ann", reason="no")
        outer.rollback()
    assert world.log[3:] == ["-c", "-a"]
    assert rein.forget().sessions == 3


@pytest.mark.parametrize("first", ["rollback", "session"])
def test_no_session_slips_into_a_rollback(
    make: Callable[..., Rein], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rein = make()
    world = World(rein)
    with rein.session() as outer:
        world.act("a")
        inner = rein.session()
        if first == "rollback":
            # It begins, and acts, after the rollback has looked for inner ones.
            tree = rein.rollbacks._tree

            def looked(*given: Any) -> list[str]:
                found = tree(*given)
                monkeypatch.undo()
                inner.__enter__()
                world.act("b")
                return found

            monkeypatch.setattr(rein.rollbacks, "_tree", looked)
            report = outer.rollback()
            assert report is not None and report.sessions == [outer.id, inner.id]
            with pytest.raises(errors.SessionClosed):
                inner.bind(world.act)("c")
            inner.__exit__(None, None, None)
            assert world.log == ["a", "b", "-b", "-a"]
        else:
            # It has looked at the outer session when that is rolled back.
            admit = rein.control.admit

            def admitted(*given: Any, **more: Any) -> None:
                admit(*given, **more)
                monkeypatch.undo()
                outer.rollback()

            monkeypatch.setattr(rein.control, "admit", admitted)
            with pytest.raises(errors.SessionClosed), inner:
                world.act("b")
            assert world.log == ["a", "-a"] and row(rein, inner.id).state == "FAILED"
    assert rein.opened(inner.id) is None
