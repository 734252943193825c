"""Approvals: wait in the worker, or end the run and do it again without doing anything twice."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from crewai.tools import tool

from checkrein import Approved, Ask, Plugin
from checkrein.errors import ApprovalPending, ConfigError, Conflict, SessionClosed
from checkrein_integrations.crewai import aresume, resume, supervise

from .conftest import Rules, call, effects, states, told


@tool("note")
def note(text: str) -> str:
    """Write a note."""
    effects.append(("note", text))
    return f"noted {text}"


@tool("pay")
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(("pay", amount))
    return f"paid {amount}"


ask = Rules(lambda call: Ask("a person decides") if call.name == "pay" else None)


class Boss(Plugin):
    def on_approval(self, call, request):
        return Approved("boss", {"amount": 5})


def steps():
    return [[call("note", text="a")], [call("pay", amount=20)], "done"]


def test_a_call_waits_in_place_for_an_approver_who_may_edit(road, rein):
    llm = road.llm(*steps())
    result = road.run(rein(ask, Boss()), road.crew(llm, [note, pay]))
    assert result.raw == "done"
    assert effects == [("note", "a"), ("pay", 5)]
    assert told(llm)[-1] == "paid 5"


def test_a_call_waits_in_place_for_the_record(road, rein):
    r = rein(ask, approvals="store")
    llm = road.llm(*steps())

    def decide():
        while not (found := r.approvals.pending()):
            time.sleep(0.01)
        r.approvals.reject(found[0].id, by="ann", reason="not now")

    person = threading.Thread(target=decide)
    person.start()
    assert road.run(r, road.crew(llm, [note, pay])).raw == "done"
    person.join()
    assert effects == [("note", "a")]
    assert "rejected by ann: not now" in told(llm)[-1]


def suspended(road, r, llm):
    with pytest.raises(ApprovalPending) as caught:
        road.run(r, road.crew(llm, [note, pay]), session=r.session(wait="suspend"))
    assert states(r) == [("ACTIVE", "none")]
    return caught.value.token


def again(road, r, token, target):
    if road.mode == "sync":
        return resume(r, token, target)
    return asyncio.run(aresume(r, token, target))


def test_a_suspended_run_is_done_again_and_nothing_is_repeated(road, rein, tmp_path):
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    llm = road.llm(*steps()[:2])
    token = suspended(road, r, llm)
    assert effects == [("note", "a")]

    with pytest.raises(ApprovalPending):
        again(road, r, token, lambda: None)
    r.approvals.approve(token, by="ann")
    later = road.llm("done")
    assert again(road, r, token, lambda: road.crew(later, [note, pay])).raw == "done"
    assert effects == [("note", "a"), ("pay", 20)]
    assert len(llm.seen) == 2
    assert len(later.seen) == 1
    assert told(later)[-1] == "paid 20"
    assert states(r) == [("COMPLETED", "none")]
    row = r.store.sessions().rows[0]
    assert r.read(row.id).spend().tokens == 45
    with pytest.raises(Conflict, match="was used"):
        again(road, r, token, lambda: road.crew(road.llm(), []))


def test_the_same_crew_goes_on(road, rein, tmp_path):
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    llm = road.llm(*steps())
    crew = road.crew(llm, [note, pay])
    with pytest.raises(ApprovalPending) as caught:
        road.run(r, crew, session=r.session(wait="suspend"))
    r.approvals.approve(caught.value.token, by="ann")
    assert again(road, r, caught.value.token, crew).raw == "done"
    assert effects == [("note", "a"), ("pay", 20)]
    assert len(llm.seen) == 3
    assert states(r) == [("COMPLETED", "none")]


def test_a_rejected_run_goes_on_with_the_refusal(road, rein, tmp_path):
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    token = suspended(road, r, road.llm(*steps()[:2]))
    r.approvals.reject(token, by="ann", reason="no")
    later = road.llm("done")
    assert again(road, r, token, lambda: road.crew(later, [note, pay])).raw == "done"
    assert effects == [("note", "a")]
    assert "rejected by ann: no" in told(later)[-1]


def test_two_resumers_enter_the_model_once(road, rein, tmp_path):
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    token = suspended(road, r, road.llm(*steps()[:2]))
    r.approvals.approve(token, by="ann")
    later = road.llm("done", delay=0.2)
    found = []

    def go():
        try:
            found.append(str(again(road, r, token, lambda: road.crew(later, [note, pay]))))
        except Conflict as error:  # it came when all was over
            found.append(str(error))

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = f"approval {token} was used: its run has gone on and is COMPLETED"
    assert len(found) == 3
    assert set(found) <= {"done", used}
    assert "done" in found
    assert len(later.seen) == 1
    assert effects == [("note", "a"), ("pay", 20)]


def test_tokens_that_resume_nothing(rein, tmp_path):
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    with pytest.raises(Conflict, match="neither an approval nor a session"):
        resume(r, "ap-unknown", lambda: None)
    with r.session() as session:
        pass
    with pytest.raises(SessionClosed, match="COMPLETED"):
        resume(r, session.id, lambda: None)

    def pay(amount):
        return amount

    with pytest.raises(ApprovalPending) as caught, r.session(wait="suspend"):
        r.call(pay, 1)
    r.approvals.approve(caught.value.token, by="ann")
    with pytest.raises(ConfigError, match=r"rein\.resume"):
        resume(r, caught.value.token, lambda: None)


@pytest.mark.parametrize("other", ["", "{token}x", "{upper}"])
def test_altered_and_foreign_tokens_do_nothing(road, rein, tmp_path, other):
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    llm = road.llm(*steps())
    session = r.session(wait="suspend", tenant="a")
    with pytest.raises(ApprovalPending) as caught:
        road.run(r, road.crew(llm, [note, pay]), session=session)
    token = caught.value.token
    r.approvals.approve(token, by="ann")
    with pytest.raises(Conflict, match="neither an approval nor a session"):
        again(road, r, other.format(token=token, upper=token.upper()), lambda: None)
    with r.session(tenant="b"), pytest.raises(Conflict, match="another tenant"):
        again(road, r, token, lambda: None)
    assert effects == [("note", "a")]
    assert states(r)[1] == ("ACTIVE", "none")


def test_a_target_that_cannot_be_run(rein, tmp_path):
    r = rein(store=f"sqlite:///{tmp_path}/r.db")
    session = r.session(wait="suspend")
    with pytest.raises(ApprovalPending), supervise(r, session=session):
        raise ApprovalPending("x")
    with pytest.raises(ConfigError, match="pass a crew, a flow, or a function"):
        resume(r, session.id, 7)


def test_where_nobody_could_answer_the_run_says_so(road, rein):
    llm = road.llm(*steps())
    with pytest.raises(ConfigError, match="add an approver plugin"):
        road.run(rein(ask), road.crew(llm, [note, pay]))
    assert effects == [("note", "a")]
