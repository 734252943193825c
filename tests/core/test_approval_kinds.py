"""Before a call, after it and before its undo: what a yes, a no and no answer lead to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Ask, Call, Deny, Plugin, Rein, errors
from checkrein.refused_answers import MOST, SESSION
from checkrein.testing import Clock
from checkrein.verdicts import Approved, Rejected


@pytest.fixture
def sqlite(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


class Asks(Plugin):
    """Asks about calls of one kind."""

    def __init__(self, kind: str = "tool", **ask: Any) -> None:
        self.kind = kind
        self.ask = ask

    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", rule="r", **self.ask) if call.kind == self.kind else None


class Reviews(Plugin):
    def post_call(self, call: Call, outcome: Any) -> Any:
        return Ask("look") if call.kind == "tool" and outcome.source == "call" else None


class Boss(Plugin):
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def on_approval(self, call: Call, request: Any) -> Any:
        self.asked.append(request)
        return self.answer(request) if callable(self.answer) else self.answer


class Hides(Plugin):
    def view(self, call: Call, value: Any, sink: str) -> Any:
        return {**value, "to": "[EMAIL]"} if isinstance(value, dict) and "to" in value else value


class Desk:
    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.there: list[int] = []

        @rein.tool(undo=lambda amount: self.there.remove(amount))
        def pay(amount: int, to: str = "x") -> str:
            self.there.append(amount)
            return f"paid {amount}"

        self.pay: Callable[..., str] = pay

    def waiting(self, go: Any, amount: int = 5) -> str:
        with (
            pytest.raises(errors.ApprovalPending) as pending,
            self.rein.session("a", wait="suspend"),
        ):
            go.call(self.rein, self.pay, amount)
        return pending.value.token


def events(rein: Rein, kind: str) -> list[Any]:
    return [event.view for event in rein.store.events(kinds=(kind,))]


# before an undo


@pytest.mark.parametrize("ending", ["approve", "reject", "expire"])
def test_an_undo_that_waits_for_a_person_holds_up_no_rollback(go, sqlite, ending) -> None:
    clock = Clock()
    with Rein(plugins=[Asks("undo", expires=60.0)], store=sqlite, clock=clock) as rein:
        desk = Desk(rein)

        @rein.tool(undo=lambda: desk.there.remove(0))
        def free() -> None:
            desk.there.append(0)

        with rein.session() as session:
            go.call(rein, desk.pay, 5)
            report = go.run(rein, "rollback", session.id)
        (action,) = report.left
        assert action.status == "waiting"
        (request,) = rein.approvals.pending()
        assert (request.kind, request.status, request.rule) == ("undo", "PENDING_APPROVAL", "r")
        assert request.id in action.detail
        assert desk.there == [5]
        if ending == "expire":
            clock.advance(61)
        else:
            getattr(rein.approvals, ending)(request.id, by="anna")
        if ending == "approve":
            for _ in range(2):
                assert go.run(rein, "resume", request.id).status == "undone"
            assert desk.there == []
            assert rein.store.session(session.id).rollback == "rolled_back"
            assert rein.approvals.get(request.id).status == "CLEARED"
            return
        refused = {"reject": errors.ApprovalRejected, "expire": errors.ApprovalExpired}[ending]
        with pytest.raises(refused):
            go.run(rein, "resume", request.id)
        assert rein.approvals.get(request.id).status == "DECLINED"
        (again,) = go.run(rein, "rollback", session.id).left
        assert again.status == "declined"
        assert len(events(rein, "undo_declined")) == 1
        assert desk.there == [5]
        assert rein.store.session(session.id).rollback == "partial"


def test_the_other_effects_are_undone_where_one_is_declined(go, sqlite) -> None:
    class Big(Plugin):
        def pre_call(self, call: Call) -> Any:
            big = call.kind == "undo" and call.arguments.get("amount") == 9
            return Ask("big one") if big else None

    with Rein(plugins=[Big(), Boss(Rejected("anna", "keep it"))], store=sqlite) as rein:
        desk = Desk(rein)
        with rein.session() as session:
            for amount in (1, 9, 2):
                go.call(rein, desk.pay, amount)
            report = go.run(rein, "rollback", session.id)
        assert [a.status for a in report.actions] == ["undone", "declined", "undone"]
        assert "keep it" in report.left[0].detail
        assert desk.there == [9]


def test_an_approver_of_this_process_decides_on_an_undo_at_once(go) -> None:
    with Rein(plugins=[Asks("undo"), Boss(Approved("anna"))]) as rein:
        desk = Desk(rein)
        with rein.session() as session:
            go.call(rein, desk.pay, 5)
            assert go.run(rein, "rollback", session.id).complete
        assert desk.there == []


def test_an_undo_that_is_asked_about_cannot_be_edited(go, sqlite) -> None:
    with Rein(plugins=[Asks("undo")], store=sqlite) as rein:
        desk = Desk(rein)
        with rein.session() as session:
            go.call(rein, desk.pay, 5)
            go.run(rein, "rollback", session.id)
        (request,) = rein.approvals.pending()
        with pytest.raises(errors.Conflict, match="cannot be edited"):
            rein.approvals.approve(request.id, by="anna", arguments={"amount": 7})


# after the call


def test_a_review_that_says_no_takes_back_its_action_and_not_the_session(go, sqlite) -> None:
    class One(Plugin):
        def post_call(self, call: Call, outcome: Any) -> Any:
            return Ask("look") if call.arguments.get("amount") == 2 else None

    with Rein(plugins=[One(), Boss(Rejected("anna"))], store=sqlite) as rein:
        desk = Desk(rein)
        session = rein.session()

        def agent() -> None:
            with session:
                go.call(rein, desk.pay, 1)
                go.call(rein, desk.pay, 2)

        with pytest.raises(errors.ApprovalRejected):
            agent()
        assert desk.there == [1]
        assert rein.store.session(session.id).rollback == "none"


def test_a_review_that_nobody_made_takes_back_nothing(go, sqlite) -> None:
    clock = Clock()
    with Rein(plugins=[Reviews()], store=sqlite, clock=clock) as rein:
        desk = Desk(rein)
        token = desk.waiting(go)
        clock.advance(100_000)
        with pytest.raises(errors.ApprovalExpired, match="stays done"):
            go.run(rein, "resume", token)
        assert desk.there == [5]
        assert rein.approvals.get(token).status == "SUCCESS"


def test_the_states_have_the_names_that_people_know(go, sqlite) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        desk = Desk(rein)
        one, other = desk.waiting(go, 1), desk.waiting(go, 2)
        assert rein.approvals.get(one).status == "PENDING_APPROVAL"
        rein.approvals.approve(one, by="anna")
        rein.approvals.reject(other, by="anna")
        assert rein.approvals.get(one).status == "CLEARED"
        assert rein.approvals.get(other).status == "FAILED"
        go.run(rein, "resume", one)
        assert rein.approvals.get(one).status == "CLEARED"


# answers that are refused


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"id": "ap-unknown"}, "unknown"),
        ({"by": "eve"}, "may be answered by anna, not by eve"),
        ({"by": ""}, "say who decides"),
        ({"arguments": {"tool": "other"}}, "no argument 'tool'"),
        ({"expired": True}, "has expired"),
        ({"used": True}, "already"),
        ({"masked_ok": False}, "masked"),
        ({"altered": True}, "altered"),
        ({"quorum": True}, "has the yes of anna already"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_is_refused_changes_nothing_and_is_recorded(sqlite, go, answer, why) -> None:
    clock = Clock()
    asks = Asks(who=("anna", "ben"), quorum=2) if "quorum" in answer else Asks(who=("anna",))
    with Rein(plugins=[asks, Hides()], store=sqlite, clock=clock) as rein:
        desk = Desk(rein)
        token = desk.waiting(go)
        given = {"id": token, "by": "anna", "masked_ok": True, **answer}
        if given.pop("expired", False):
            clock.advance(100_000)
        if given.pop("used", False) or given.pop("quorum", False):
            rein.approvals.approve(token, by="anna", masked_ok=True)
        if given.pop("altered", False):
            text = json.dumps({"amount": 1, "to": "[EMAIL]"})
            with rein.store._connections.writing() as cursor:
                cursor.execute(
                    "UPDATE records SET body = json_set(body, '$.arguments', json(?))", (text,)
                )
        before = rein.store.record("approval", token)
        with pytest.raises(errors.Conflict, match=why):
            rein.approvals.approve(given.pop("id"), **given)
        after = rein.store.record("approval", token)
        assert after.state == ("expired" if "expired" in answer else before.state)
        (refused,) = events(rein, "approval_refused")
        assert why in refused["reason"]
        assert desk.there == []


def test_nonsense_does_not_fill_the_disk(sqlite) -> None:
    with Rein(store=sqlite) as rein:
        for n in range(MOST + 20):
            with pytest.raises(errors.Conflict):
                rein.approvals.reject(f"ap-{n}", by="eve")
        assert len(rein.store.events(session=SESSION, kinds=("approval_refused",))) == MOST


def test_an_approver_that_does_not_see_everything_has_to_say_so(go, sqlite) -> None:
    for answer, ran in ((Approved("anna"), []), (Approved("anna", masked_ok=True), [5])):
        plugins = [Asks(), Hides(), Boss(answer)]
        with Rein(plugins=plugins, store=sqlite, approvals="channels") as rein:
            desk = Desk(rein)
            if ran:
                with rein.session():
                    go.call(rein, desk.pay, 5)
                assert events(rein, "approval_decided")[-1]["masked_ok"] is True
            else:
                with pytest.raises(errors.ApprovalRejected), rein.session():
                    go.call(rein, desk.pay, 5)
                assert "masked" in events(rein, "approval_refused")[0]["reason"]
            assert desk.there == ran


def test_what_an_approver_edited_stands_in_the_journal(go, sqlite) -> None:
    with Rein(plugins=[Asks(), Hides()], store=sqlite) as rein:
        desk = Desk(rein)
        token = desk.waiting(go)
        edits = {"amount": 7, "to": "casey@example.org"}
        rein.approvals.approve(token, by="anna", arguments=edits, masked_ok=True)
        assert events(rein, "approval_decided")[0]["edited"] == {"amount": 7, "to": "[EMAIL]"}
        go.run(rein, "resume", token)
        assert desk.there == [7]


def test_an_edit_that_policy_forbids_has_no_effect(go, sqlite) -> None:
    class Limit(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Deny("never more than 100") if call.arguments["amount"] > 100 else None

    with Rein(plugins=[Asks(), Limit()], store=sqlite) as rein:
        desk = Desk(rein)
        token = desk.waiting(go)
        rein.approvals.approve(token, by="anna", arguments={"amount": 101})
        with pytest.raises(errors.Denied, match="never more"):
            go.run(rein, "resume", token)
        assert events(rein, "denied")[0]["reason"] == "never more than 100"
        assert desk.there == []


# the ends of a question


def test_what_a_session_that_failed_was_to_do_is_void(go, sqlite) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        desk = Desk(rein)

        def agent() -> None:
            with rein.session(wait="suspend"):
                try:
                    go.call(rein, desk.pay, 5)
                except errors.ApprovalPending:
                    raise ValueError("what is this token?") from None

        with pytest.raises(ValueError, match="token"):
            agent()
        assert rein.approvals.pending() == []
        (record,) = rein.store.records("approval").rows
        assert record.state == "void"
        with pytest.raises(errors.Conflict, match="already void"):
            rein.approvals.approve(record.id, by="anna")
        with pytest.raises(errors.ApprovalExpired, match="void"):
            go.run(rein, "resume", record.id)


def test_a_yes_that_is_not_used_lapses(go, sqlite) -> None:
    clock = Clock()
    with Rein(plugins=[Asks()], store=sqlite, clock=clock, approval_use=600) as rein:
        desk = Desk(rein)
        token = desk.waiting(go)
        clock.advance(3600)
        rein.approvals.approve(token, by="anna")
        clock.advance(601)
        with pytest.raises(errors.ApprovalExpired, match="not used in time"):
            go.run(rein, "resume", token)
        assert desk.there == []
        assert rein.approvals.get(token).state == "expired"


def test_a_review_that_said_yes_holds_for_good(go, sqlite) -> None:
    clock = Clock()
    with Rein(plugins=[Reviews()], store=sqlite, clock=clock, approval_use=600) as rein:
        token = Desk(rein).waiting(go)
        rein.approvals.approve(token, by="anna")
        clock.advance(100_000)
        assert go.run(rein, "resume", token) == "paid 5"


def test_a_step_of_the_wall_clock_does_not_change_an_expiry(go, sqlite, monkeypatch) -> None:
    with Rein(plugins=[Asks()], store=sqlite, approval_expires=600) as rein:
        desk = Desk(rein)
        ahead = desk.waiting(go)
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
        assert [r.id for r in rein.approvals.pending()] == [ahead]
        assert rein.approvals.approve(ahead, by="anna") == "approved"
        late = desk.waiting(go, 6)
        monkeypatch.setattr(time, "time_ns", lambda: now() - 3600 * 10**9)
        from checkrein import expiry

        steady = expiry.steady
        monkeypatch.setattr(expiry, "steady", lambda: steady() + 601 * 10**6)
        with pytest.raises(errors.Conflict, match="expired"):
            rein.approvals.approve(late, by="anna")


def test_a_time_zone_does_not_change_an_expiry(go, sqlite, monkeypatch) -> None:
    with Rein(plugins=[Asks()], store=sqlite, approval_expires=600) as rein:
        token = Desk(rein).waiting(go)
        monkeypatch.setenv("TZ", "Pacific/Kiritimati")
        time.tzset()
        try:
            assert rein.approvals.approve(token, by="anna") == "approved"
        finally:
            monkeypatch.undo()
            time.tzset()


# others are asked later


def test_after_a_while_others_may_answer_and_all_channels_are_told(go, sqlite) -> None:
    clock = Clock()
    boss = Boss(None)
    asks = Asks(who=("anna",), then=("ben",), after=60.0)
    with Rein(plugins=[asks, boss], store=sqlite, clock=clock) as rein:
        desk = Desk(rein)
        token = desk.waiting(go)
        with pytest.raises(errors.Conflict, match="by anna, not by ben"):
            rein.approvals.approve(token, by="ben")
        clock.advance(61)
        for _ in range(1000):
            if len(boss.asked) == 2:
                break
            time.sleep(0.01)
        assert [(r.who, r.escalated) for r in boss.asked] == [
            (("anna",), False), (("anna", "ben"), True)
        ]  # fmt: skip
        assert events(rein, "approval_escalated") == [{"id": token, "who": ["ben"]}]
        assert rein.approvals.approve(token, by="ben") == "approved"


def test_where_the_one_who_asked_has_ended_another_process_tells_the_others(go, sqlite) -> None:
    clock = Clock()
    asks = Asks(who=("anna",), then=("ben",), after=60.0)
    with Rein(plugins=[asks], store=sqlite, clock=clock) as rein:
        token = Desk(rein).waiting(go)
        assert rein.approvals.escalate() == []
    clock.advance(61)
    told = [Boss(None), Boss(None)]
    for boss, expected in zip(told, ([token], []), strict=True):
        with Rein(plugins=[boss], store=sqlite, clock=clock) as rein:
            Desk(rein)
            assert rein.approvals.escalate() == expected
    assert [r.who for r in told[0].asked] == [("anna", "ben")]
    assert told[1].asked == []
    with Rein(store=sqlite) as rein:
        assert len(events(rein, "approval_escalated")) == 1


@pytest.mark.parametrize("ask", [{"then": ("ben",)}, {"after": 5.0}, {"then": "ben", "after": 1.0}])
def test_an_escalation_that_is_half_is_no_verdict(go, sqlite, ask) -> None:
    with Rein(plugins=[Asks(**ask)], store=sqlite) as rein:
        desk = Desk(rein)
        with pytest.raises(errors.Denied, match="wrong"), rein.session():
            go.call(rein, desk.pay, 5)
        assert desk.there == []
