"""An adapter asks first whether a person has to decide, and runs the call afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Ask, Deny, Plugin, Rein
from checkrein.entry import Entry
from checkrein.errors import ApprovalPending, ApprovalRejected, Denied


class Rules(Plugin):
    def __init__(self, verdict: Any = None) -> None:
        self.verdict = verdict
        self.agents: list[str] = []

    def pre_call(self, call: Any) -> Any:
        self.agents.append(call.agent)
        return self.verdict


def entry_of(rein: Rein, session: Any, ran: list[Any], **settings: Any) -> Entry:
    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    tool = rein.tools.bind("pay", pay)
    return Entry(tool, {"amount": 1}, session, call_id="k1", keyed=True, **settings)


@pytest.mark.parametrize("plugins", [[], [Rules()]])
def test_a_call_that_nobody_asks_about_is_not_started_by_asking(plugins):
    ran: list[Any] = []
    with Rein(plugins=plugins) as rein, rein.session() as session:
        rein.enter(entry_of(rein, session, ran, asks_only=True))
        assert ran == []
        assert [e.kind for e in session.events()] == ["session_started"]
        assert rein.enter(entry_of(rein, session, ran)).value == "paid"
        assert ran == [1]


def test_a_denial_is_recorded_once():
    with Rein(plugins=[Rules(Deny("no"))]) as rein, rein.session() as session:
        for asks_only in (True, False):
            with pytest.raises(Denied, match="no"):
                rein.enter(entry_of(rein, session, [], asks_only=asks_only))
        assert [e.kind for e in session.events()].count("denied") == 1


@pytest.mark.parametrize("plugins", [[], [Rules()]])
def test_a_question_of_the_framework_is_decided_by_the_record(plugins):
    ran: list[Any] = []
    asks = (("sdk", Ask("the tool wants it")),)
    with Rein(plugins=plugins, approvals="store") as rein:
        session = rein.session()
        with session:
            for _ in range(2):
                with pytest.raises(ApprovalPending) as waits:
                    rein.enter(
                        entry_of(rein, session, ran, asks=asks, asks_only=True, wait="suspend")
                    )
            rein.approvals.approve(waits.value.token, by="ann")
            rein.enter(entry_of(rein, session, ran, asks=asks, asks_only=True, wait="suspend"))
            assert ran == []
            rein.enter(entry_of(rein, session, ran, asks=asks, wait="suspend"))
            assert ran == [1]


def test_a_rejected_question_of_the_framework_runs_nothing():
    ran: list[Any] = []
    asks = (("sdk", Ask("the tool wants it")),)
    with Rein(approvals="store") as rein, rein.session(on_error="keep") as session:
        with pytest.raises(ApprovalPending) as waits:
            rein.enter(entry_of(rein, session, ran, asks=asks, asks_only=True, wait="suspend"))
        rein.approvals.reject(waits.value.token, by="ann", reason="no")
        with pytest.raises(ApprovalRejected):
            rein.enter(entry_of(rein, session, ran, asks=asks, wait="suspend"))
    assert ran == []


def test_the_agent_that_acts_is_told():
    rules = Rules()
    with Rein(plugins=[rules]) as rein, rein.session(agent="outer") as session:
        rein.enter(entry_of(rein, session, [], agent="inner"))
    assert rules.agents == ["inner"]
