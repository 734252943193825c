"""Sessions from outside: their states, pause and stop, restart, crash loops, what is forgotten."""

# What must not run stands inside the block that raises.
# ruff: noqa: PT012

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Call, Hold, Plugin, Rein, errors
from checkrein.store import Batch, SessionPut


class AskAll(Plugin):
    def pre_call(self, call: Call) -> Ask | None:
        return Ask("may it?") if call.name == "act" and call.kind == "tool" else None


def world(rein: Rein) -> tuple[Callable[[str], Any], list[str]]:
    log: list[str] = []
    tool = rein.tool(
        lambda name: log.append(name), name="act", undo=lambda name: log.append(f"-{name}")
    )
    return tool, log


def displays(rein: Rein, **wanted: Any) -> dict[str, str]:
    return {s.row.id: s.display for s in rein.sessions(**wanted).sessions}


def forsake(rein: Rein, session: str) -> None:
    """As if the process of a session had died."""
    from checkrein import owner

    ghost = owner.this_process(rein.clock())
    dead = type(ghost)(ghost.id, ghost.host, ghost.boot, 2**22 + 1, "1", ghost.beat)
    rein.store.beat(dead)
    row = rein.store.session(session)
    assert row is not None
    rein.store.claim(session, dead.id, expect=row.fence, at=rein.clock())
    opened = rein.opened(session)
    if opened is not None:
        rein.untrack(opened)


# -- lists


def test_pages_and_counts_with_display_states(make: Callable[..., Rein]) -> None:
    rein = make(AskAll(), approvals="store", on_error="rollback", undo_tries=1)
    act, _ = world(rein)
    log: list[str] = []
    plain = rein.tool(lambda n: log.append(n), name="plain", undo=lambda n: log.remove(n))
    lost = rein.tool(lambda: None, name="lost")
    ids: dict[str, str] = {}
    with rein.session() as session:
        plain(1)
    ids["COMPLETED"] = session.id
    with pytest.raises(KeyError), rein.session() as session:
        plain(1)
        raise KeyError
    ids["REVERTED"] = session.id
    with rein.session() as session:
        lost()
        plain(2)
    session.rollback()
    ids["PARTIALLY_REVERTED"] = session.id
    with rein.session() as session:
        plain(3)
    log.clear()
    session.rollback()
    ids["ROLLBACK_FAILED"] = session.id
    with pytest.raises(KeyError), rein.session(on_error="keep") as session:
        raise KeyError
    ids["FAILED"] = session.id
    with pytest.raises(errors.ApprovalPending), rein.session(wait="suspend") as session:
        act("x")
    ids["AWAITING_APPROVAL"] = session.id
    with rein.session() as session:
        ids["ACTIVE"] = session.id
        assert displays(rein) == {id: state for state, id in ids.items()}
        assert rein.session_counts() == dict.fromkeys(sorted_by_states(ids), 1)
        rein.pause(session.id)
        assert rein.sessions(state="PAUSED").sessions[0].row.id == session.id
        rein.stop(session.id)
        assert rein.session_counts()["STOPPED"] == 1
    first = rein.sessions(limit=3)
    rest = rein.sessions(limit=100, after=first.next)
    assert len(first.sessions) == 3 and len(rest.sessions) == 4 and rest.next is None
    assert [s.row.id for s in rein.sessions(state="REVERTED", limit=1).sessions] == [
        ids["REVERTED"]
    ]
    with pytest.raises(errors.ConfigError, match="not one of"):
        rein.sessions(state="GONE")


def sorted_by_states(ids: dict[str, str]) -> list[str]:
    from checkrein.standing import STATES

    return [state for state in STATES if state in ids]


# -- pause, continue, stop


def test_a_paused_session_goes_on_later(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback")
    act, log = world(rein)
    with pytest.raises(errors.Paused) as caught, rein.session() as session:
        go.call(rein, act, "a")
        assert rein.pause(session.id) == 1 and rein.pause(session.id) == 0
        go.call(rein, act, "b")
    assert f"checkrein continue {session.id}" in str(caught.value)
    # It is open, nothing was rolled back, and nobody can go on with it yet.
    assert (session.state, log) == ("ACTIVE", ["a"])
    with pytest.raises(errors.Paused), rein.session(id=session.id):
        pass
    assert rein.unpause(session.id) == 1 and rein.unpause(session.id) == 0
    with rein.session(id=session.id):
        go.call(rein, act, "b")
    assert (session.state, log) == ("COMPLETED", ["a", "b"])


def test_who_is_stopped_is_not_paused(make: Callable[..., Rein]) -> None:
    rein = make()
    act, _ = world(rein)
    with rein.session("a") as one, rein.session("b", detached=True) as other:
        assert rein.pause(agent="a") == 1 and rein.pause(all=True) == 1
        rein.stop(one.id)
        assert rein.pause(one.id) == 0 and rein.unpause(all=True) == 1
        act("x")
        with rein.session("a"):
            pass
        with pytest.raises(errors.Halted, match="stopped"):
            one.bind(act)("x")
        for wrong in ({}, {"session_id": other.id, "all": True}):
            with pytest.raises(errors.ConfigError, match="name one of"):
                rein.pause(**wrong)
        with pytest.raises(errors.Conflict, match="unknown"):
            rein.pause("nope")


def test_paused_from_another_process(child: Any, go: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(store=url, on_error="keep") as rein:
        act, log = world(rein)
        with rein.session() as session:
            go.call(rein, act, "a")
            text = "import sys; from checkrein import Rein; Rein(store=sys.argv[1])."
            done = child(f"{text}pause(sys.argv[2])", url, session.id)
            assert done.wait() == 0, done.stderr.read()
            with pytest.raises(errors.Paused):
                go.call(rein, act, "b")
            done = child(f"{text}unpause(sys.argv[2])", url, session.id)
            assert done.wait() == 0, done.stderr.read()
            go.call(rein, act, "c")
        assert log == ["a", "c"]


# -- restart


def test_a_session_is_restarted_under_what_it_began_with(make: Callable[..., Rein]) -> None:
    rein = make()
    with (
        pytest.raises(KeyError),
        rein.session("desk", "refunds", user="ann", tenant="t", labels={"team": "x"}) as session,
    ):
        session.put_payload({"page": 3})
        raise KeyError
    new = rein.restart(session.id)
    assert new != session.id and displays(rein)[new] == "SUSPENDED"
    with rein.session(id=new) as again:
        assert (again.agent, again.user, again.tenant, again.labels, again.payload) == (
            "desk", "ann", "t", {"team": "x"}, {"page": 3},
        )  # fmt: skip
        with pytest.raises(errors.Conflict, match="not over"):
            rein.restart(new)
        rein.stop(new)
        assert rein.restart(new)
    started = next(e for e in again.events() if e.kind == "session_started")
    assert started.view["restarts"] == session.id and started.view["intent"] == "refunds"
    with pytest.raises(errors.Conflict, match="unknown"):
        rein.restart("nope")


# -- crash loops


def test_a_session_that_crashes_again_and_again_fails(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(on_error="rollback", max_resumes=2)
    act, log = world(rein)
    with rein.session() as session:
        go.call(rein, act, "a")
        forsake(rein, session.id)
    for _ in range(2):
        with rein.session(id=session.id):
            forsake(rein, session.id)
    told = pytest.raises(errors.SessionClosed, match=r"crash loop: taken up 2 times .*restart")
    with told, rein.session(id=session.id):
        pass
    assert session.state == "FAILED"
    report = go.run(rein, "recover")
    assert log == ["a", "-a"] and report.complete
    ended = [e.view["error"] for e in session.events() if e.kind == "session_ended"]
    assert len(ended) == 1 and "crash loop" in ended[0]


def test_a_session_has_its_own_limit_and_leaving_it_open_is_no_crash(
    make: Callable[..., Rein],
) -> None:
    rein = make(AskAll(), approvals="store")
    act, _ = world(rein)
    with (
        pytest.raises(errors.ApprovalPending),
        rein.session(wait="suspend", max_resumes=0) as session,
    ):
        act("a")
    with pytest.raises(errors.ApprovalPending), rein.session(id=session.id, wait="suspend"):
        act("a")
    forsake(rein, session.id)
    with pytest.raises(errors.SessionClosed, match="limit 0"), rein.session(id=session.id):
        pass
    with pytest.raises(errors.ConfigError, match="max_resumes"):
        rein.session(max_resumes=-1)


def test_what_counts_is_as_it_was_after_a_resume(make: Callable[..., Rein]) -> None:
    class Three(Plugin):
        def pre_call(self, call: Call) -> Hold:
            return Hold(f"calls:{call.session}", 1, "calls", 3, settle="keep")

    rein = make(Three())
    with rein.session() as session:
        rein.call(len, "a")
        rein.call(len, "b")
        forsake(rein, session.id)
    with rein.session(id=session.id):
        rein.call(len, "c")
        with pytest.raises(errors.BudgetExceeded):
            rein.call(len, "d")
        assert session.spend().calls == 3


# -- stateless


def test_a_stateless_session_is_not_taken_up(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(AskAll(), approvals="store", on_error="rollback")
    log: list[str] = []
    plain = rein.tool(log.append, name="plain", undo=lambda object: log.append("undone"))
    with rein.session(stateless=True) as session:
        go.call(rein, plain, "a")
        forsake(rein, session.id)
    with pytest.raises(errors.SessionClosed, match="stateless"), rein.session(id=session.id):
        pass
    go.run(rein, "recover")
    assert log == ["a", "undone"]
    with rein.session(stateless=True) as session:
        rein.stop(session.id)
        with pytest.raises(errors.Halted):
            go.call(rein, plain, "b")


# -- payload


def test_a_payload_is_plain_data_up_to_a_megabyte(make: Callable[..., Rein], url: str) -> None:
    rein = make()
    with rein.session() as session:
        assert session.payload is None
        given = {"done": [1, 2], "next": ("a", b"b")}
        session.put_payload(given)
        given["done"].append(3)
        found = session.payload
        assert found == {"done": [1, 2], "next": ("a", b"b")}
        found["done"].clear()
        assert session.payload["done"] == [1, 2]
        session.put_payload("x" * 999_000)
        for wrong in ("x" * 1_000_001, {"a": object()}):
            with pytest.raises(errors.ConfigError, match="payload"):
                session.put_payload(wrong)
        assert len(session.payload) == 999_000
        # What people see of it is its size.
        shown = [e.view for e in session.events() if e.kind == "payload"]
        assert shown[-1] == {"bytes": 999_002}
    if url != "memory:":
        with Rein(store=url) as other:
            assert len(other.session(id=session.id).payload) == 999_000


# -- idle ones


def test_a_session_that_nobody_goes_on_with_is_abandoned(
    go: Any, make: Callable[..., Rein], clock: Any
) -> None:
    rein = make(AskAll(), approvals="store", approval_expires=1e6)
    act, log = world(rein)
    plain = rein.tool(log.append, name="plain", undo=lambda object: log.append("undone"))
    with pytest.raises(errors.Paused), rein.session() as session:
        plain("a")
        rein.pause(session.id)
        plain("b")
    with pytest.raises(errors.ApprovalPending), rein.session(wait="suspend") as asked:
        act("a")
    with rein.session() as mine:
        go.run(rein, "recover")
        assert displays(rein)[session.id] == "PAUSED"
        clock.sleep(86_401)
        go.run(rein, "recover")
        assert displays(rein) == {
            session.id: "ABANDONED", asked.id: "AWAITING_APPROVAL", mine.id: "ACTIVE",
        }  # fmt: skip
    with pytest.raises(errors.SessionClosed, match="ABANDONED"), rein.session(id=session.id):
        pass
    # What it did is there, and can be taken back.
    assert log == ["a"]
    session.rollback()
    assert log == ["a", "undone"] and session.state == "ROLLED_BACK"


# -- refused while nobody was there


@pytest.mark.parametrize("how", ["rejected", "expired"])
@pytest.mark.parametrize("who", ["recover", "resume"])
def test_a_suspended_session_whose_call_is_refused_fails(
    go: Any, make: Callable[..., Rein], clock: Any, how: str, who: str
) -> None:
    rein = make(AskAll(), approvals="store", on_error="rollback", approval_expires=60)
    act, log = world(rein)
    plain = rein.tool(log.append, name="plain", undo=lambda object: log.append("undone"))
    with pytest.raises(errors.ApprovalPending) as caught, rein.session(wait="suspend") as session:
        plain("a")
        act("b")
    if how == "rejected":
        rein.approvals.reject(caught.value.token, by="ann")
    else:
        clock.sleep(61)
    if who == "recover":
        report = go.run(rein, "recover")
        assert [r.session for r in report.sessions] == [session.id]
    else:
        kind = errors.ApprovalRejected if how == "rejected" else errors.ApprovalExpired
        with pytest.raises(kind):
            go.run(rein, "resume", caught.value.token)
    assert log == ["a", "undone"] and session.state == "ROLLED_BACK"
    assert go.run(rein, "recover").sessions == []


def test_one_refused_call_of_several_that_were_suspended(make: Callable[..., Rein]) -> None:
    rein = make(AskAll(), approvals="store", on_error="rollback")
    act, log = world(rein)
    with pytest.raises(errors.ApprovalPending), rein.session(wait="suspend") as session:
        with pytest.raises(errors.ApprovalPending) as first:
            act("a")
        rein.approvals.reject(first.value.token, by="ann")
        with pytest.raises(errors.ApprovalPending) as second:
            act("b")
        raise second.value
    rein.approvals.approve(second.value.token, by="ann")
    rein.resume(second.value.token)
    assert log == ["b"] and rein.recover().sessions != []
    with pytest.raises(errors.ApprovalPending), rein.session(wait="suspend", on_error="keep") as s:
        act("c")
    rein.approvals.reject(rein.approvals.pending()[0].id, by="ann")
    rein.recover()
    assert (s.state, log) == ("FAILED", ["b", "-b"])
    assert session.state == "ROLLED_BACK"


# -- forgetting


def test_old_sessions_are_forgotten_and_chains_verify(
    make: Callable[..., Rein], clock: Any, url: str, tmp_path: Path
) -> None:
    rein = make()
    big = rein.tool(lambda n: "secret" * 20_000, name="big", undo=lambda n: None)
    with rein.session("a", "my intent", user="ann") as old:
        big(1)
    clock.sleep(100)
    with rein.session() as new, pytest.raises(KeyError), rein.session() as failed:
        big(2)
        raise KeyError
    with rein.session() as running:
        done = rein.forget(older_than=50, payloads_only=True)
        assert (done.sessions, done.payloads > 0) == (1, True)
        assert rein.store.verify(old.id) is None
        assert [e.kind for e in old.events()][1:3] == ["intent", "outcome"]
        report = old.rollback(dry_run=True)
        assert report is not None and report.actions[0].status == "not_undoable"
        assert rein.forget(older_than=50).sessions == 1
        assert rein.forget(older_than=50).sessions == 0
        assert rein.forget(older_than=0).sessions == 2
        running_row = rein.store.session(running.id)
        assert running_row is not None and running_row.n == 1
    for session in (old, new, failed, running):
        assert rein.store.verify(session.id) is None
    assert [e.kind for e in old.events()] == ["session_forgotten"]
    row = rein.store.session(old.id)
    assert row is not None and row.body == {
        "forgotten": True, "agent": "a", "parent": "", "root": old.id, "detached": False,
        "on_error": "keep",
    }  # fmt: skip
    assert rein.store.rebuild() == []
    with pytest.raises(errors.Conflict, match="forgotten"):
        rein.restart(old.id)
    if url != "memory:":
        db = sqlite3.connect(tmp_path / "store.db")
        assert db.execute("SELECT count(*) FROM events WHERE place = 'file'").fetchone() == (0,)
        db.close()
        assert b"secretsecret" not in (tmp_path / "store.db").read_bytes()
        assert not list((tmp_path / "store.db.payloads").iterdir())


def test_what_is_in_doubt_is_not_forgotten(make: Callable[..., Rein], clock: Any) -> None:
    rein = make()

    def lose() -> None:
        raise OSError

    tool = rein.tool(lose, undo=lambda: None, probe=lambda: False, settle_time=1e6)
    with rein.session() as session, pytest.raises(OSError):
        tool()
    session.rollback()
    clock.sleep(100)
    assert rein.forget(older_than=1).sessions == 0
    rein.store.commit(Batch(session.id, (), 1, session_put=SessionPut(rollback="rolling_back")))
    assert rein.forget(older_than=1).sessions == 0
    with pytest.raises(errors.ConfigError, match="older_than"):
        rein.forget(older_than=-1)


def test_what_runs_inside_a_session_is_stopped_with_it(make: Callable[..., Rein]) -> None:
    rein = make()
    act, log = world(rein)
    with rein.session("boss") as outer:
        with rein.session("clerk"):
            act("a")
            assert rein.pause(outer.id) == 2
            with pytest.raises(errors.Paused):
                act("b")
            with pytest.raises(errors.Paused), rein.session("clerk"):
                pass
            assert rein.unpause(outer.id) == 2
            act("c")
            assert rein.stop(outer.id) == 2
            with pytest.raises(errors.Halted):
                act("d")
        with pytest.raises(errors.Halted), rein.session("clerk"):
            act("e")
        with rein.session(detached=True):
            act("f")
    assert log == ["a", "c", "f"]


def test_nothing_begins_inside_a_session_that_was_rolled_back(make: Callable[..., Rein]) -> None:
    rein = make()
    act, log = world(rein)
    with rein.session() as outer:
        act("a")
        outer.rollback()
        with pytest.raises(errors.SessionClosed), rein.session():
            act("b")
    assert log == ["a", "-a"]
    with rein.session() as ended:
        later = ended.bind(lambda: rein.session().__enter__().__exit__(None, None, None))
    later()  # one that ended well: a task that outlived it goes on


def test_an_undo_may_open_a_session(make: Callable[..., Rein]) -> None:
    rein = make()
    _, log = world(rein)
    clean = rein.tool(lambda name: log.append(f"clean {name}"), name="clean", effect="read")

    def undo(name: str) -> None:
        with rein.session("janitor"):
            clean(name)

    act = rein.tool(lambda name: log.append(name), name="act2", undo=undo)
    with rein.session() as session:
        act("a")
        report = session.rollback()
        assert report is not None and report.complete
    assert log == ["a", "clean a"]


def test_a_session_cannot_pass_for_the_anchors(make: Callable[..., Rein]) -> None:
    rein = make()
    with pytest.raises(errors.ConfigError, match="taken by the audit"):
        rein.session(id="anchors")
    assert rein.store.session("anchors") is None
