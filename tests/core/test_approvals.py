"""Approvals: who is asked, what a decision is bound to, and its one use."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Answer, Ask, Call, Deny, Plugin, Rein, Rewrite, errors
from checkrein.testing import Clock
from checkrein.verdicts import Approved, Rejected


@pytest.fixture
def sqlite(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


class Asks(Plugin):
    def __init__(self, ask: Ask | None = None, *, above: int = 0) -> None:
        self.ask = ask or Ask("sure?", rule="r")
        self.above = above

    def pre_call(self, call: Call) -> Any:
        return self.ask if call.arguments.get("amount", 1) > self.above else None


class Boss(Plugin):
    """An approver without a console."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def on_approval(self, call: Call, request: Any) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(request) if callable(self.answer) else self.answer


class Desk:
    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int, to: str = "x") -> str:
        self.paid.append(amount)
        return f"paid {amount}"


def wait_for(ready: Callable[[], Any]) -> Any:
    for _ in range(1000):
        if found := ready():
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def kinds(rein: Rein) -> list[str]:
    return [e.kind for e in rein.store.events()]


# asking in one process


def test_a_yes_runs_it_and_a_no_does_not(go, store) -> None:
    for answer, ran in ((Approved("anna"), [5]), (Rejected("anna", "too much"), [])):
        desk, boss = Desk(), Boss(answer)
        with Rein(plugins=[Asks(), boss], store=store) as rein, rein.session(on_error="keep"):
            if ran:
                assert go.call(rein, desk.pay, 5) == "paid 5"
            else:
                with pytest.raises(errors.ApprovalRejected, match="too much") as rejected:
                    go.call(rein, desk.pay, 5)
                assert (rejected.value.by, rejected.value.rule) == ("anna", "r")
        assert desk.paid == ran
        assert len(boss.asked) == 1
        assert boss.asked[0].arguments == {"amount": 5, "to": "x"}
        assert (boss.asked[0].reason, boss.asked[0].tool) == ("sure?", "pay")


def test_the_reason_for_asking_is_kept_beside_the_reason_for_refusing(sqlite) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        with pytest.raises(errors.ApprovalPending) as pending, rein.session(wait="suspend"):
            rein.call(Desk().pay, 1)
        rein.approvals.reject(pending.value.token, by="anna", reason="no money")
        request = rein.approvals.get(pending.value.token)
        assert (request.reason, request.state) == ("sure?", "rejected")


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("x"),
        True,
        "yes",
        {"ok": True},
        Deny("x"),
        Approved(None),
        Approved("a", arguments="x"),
    ],
    ids=repr,
)
def test_an_approver_that_fails_never_approves(go, store, answer) -> None:
    desk = Desk()
    plugins = [Asks(), Boss(answer)]
    with (
        Rein(plugins=plugins, store=store, approvals="channels") as rein,
        pytest.raises(errors.ApprovalRejected, match="no approver"),
        rein.session(on_error="keep"),
    ):
        go.call(rein, desk.pay, 5)
    assert desk.paid == []


def test_another_approver_answers_where_one_fails(go) -> None:
    desk = Desk()
    with Rein(plugins=[Asks(), Boss(ValueError()), Boss(Approved("anna"))]) as rein, rein.session():
        assert go.call(rein, desk.pay, 5) == "paid 5"


def test_all_channels_are_told_at_once_and_the_first_answer_counts(go) -> None:
    open_prompt = threading.Event()
    closed: list[bool] = []

    def prompt(request: Any) -> Any:
        open_prompt.set()
        while request.is_open():
            time.sleep(0.01)
        closed.append(True)
        return Rejected("slow", "too late")

    def quick(request: Any) -> Any:
        open_prompt.wait(20)
        return Approved("quick")

    desk = Desk()
    with Rein(plugins=[Asks(), Boss(prompt), Boss(quick)]) as rein, rein.session():
        assert go.call(rein, desk.pay, 5) == "paid 5"
        wait_for(lambda: closed)


def test_an_async_approver_runs_on_the_callers_loop() -> None:
    async def main() -> str:
        answers: asyncio.Queue[Any] = asyncio.Queue()
        here = asyncio.get_running_loop()

        class Chat(Plugin):
            async def on_approval(self, call: Call, request: Any) -> Any:
                assert asyncio.get_running_loop() is here
                return await answers.get()

        with Rein(plugins=[Asks(), Chat()]) as rein:
            async with rein.session():
                task = asyncio.create_task(rein.acall(Desk().pay, 5))
                await asyncio.sleep(0.05)
                await answers.put(Approved("anna"))
                return await task

    assert asyncio.run(main()) == "paid 5"


def test_an_async_approver_serves_a_sync_caller() -> None:
    class Chat(Plugin):
        async def on_approval(self, call: Call, request: Any) -> Any:
            await asyncio.sleep(0.01)
            return Approved("anna")

    with Rein(plugins=[Asks(), Chat()]) as rein, rein.session():
        assert rein.call(Desk().pay, 5) == "paid 5"


def test_a_sync_call_on_a_loop_does_not_wait_for_a_person() -> None:
    boss = Boss(Approved("anna"))
    with Rein(plugins=[Asks(), boss]) as rein:

        async def main() -> None:
            with rein.session(on_error="keep"), pytest.raises(errors.WouldBlock):
                rein.call(Desk().pay, 5)

        asyncio.run(main())
        assert boss.asked == []
        assert rein.approvals.pending() == []


def test_a_suspended_sync_call_on_a_loop_needs_no_wait(sqlite) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:

        async def main() -> str:
            with pytest.raises(errors.ApprovalPending) as pending, rein.session(wait="suspend"):
                rein.call(Desk().pay, 5)
            return pending.value.token

        token = asyncio.run(main())
        assert [r.id for r in rein.approvals.pending()] == [token]


def test_nothing_is_held_while_a_person_decides(go, store) -> None:
    from checkrein import Hold

    class Caps(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Hold("a", 5, "usd", 5)

    held: list[Any] = []

    def look(request: Any) -> Any:
        held.append(rein.store.balance("a"))
        return Approved("anna")

    with Rein(plugins=[Asks(), Caps(), Boss(look)], store=store) as rein, rein.session():
        go.call(rein, Desk().pay, 1)
    assert held == [None]


def test_what_holds_after_the_wait_is_asked_once_more(go) -> None:
    """A window that closed while a person thought about it is closed."""
    is_open = [True]

    class Window(Plugin):
        def pre_call(self, call: Call) -> Any:
            return None if is_open[0] else Deny("the window is closed")

    def close(request: Any) -> Any:
        is_open[0] = False
        return Approved("anna")

    desk = Desk()
    with (
        Rein(plugins=[Asks(), Window(), Boss(close)]) as rein,
        pytest.raises(errors.Denied, match="window"),
        rein.session(on_error="keep"),
    ):
        go.call(rein, desk.pay, 5)
    assert desk.paid == []


def test_nobody_can_answer_is_a_no(go, store) -> None:
    desk = Desk()
    with Rein(plugins=[Asks()], store=store, approvals="channels") as rein:
        with pytest.raises(errors.Denied) as denied, rein.session(on_error="keep"):
            go.call(rein, desk.pay, 5)
        assert denied.value.code == "no_approver"
        assert kinds(rein).count("denied") == 1
    assert desk.paid == []


def test_a_rejection_rolls_back_where_that_is_asked_for(go, store) -> None:
    boss = Boss(Rejected("anna"))
    with Rein(plugins=[Asks(above=10), boss], store=store) as rein:
        undone: list[int] = []

        @rein.tool(undo=lambda amount: undone.append(amount))
        def pay(amount: int) -> None:
            return None

        with rein.session(on_rejected="rollback", on_error="keep") as session:
            go.call(rein, pay, 1)
            with pytest.raises(errors.ApprovalRejected):
                go.call(rein, pay, 11)
            assert undone == [1]
            with pytest.raises(errors.SessionClosed):
                go.call(rein, pay, 2)
        assert rein.store.session(session.id).rollback == "rolled_back"


# time


def test_a_request_expires_and_cannot_be_answered_any_more(go, sqlite) -> None:
    clock = Clock()
    desk = Desk()
    with Rein(plugins=[Asks(Ask("sure?", expires=60))], store=sqlite, clock=clock) as rein:
        with pytest.raises(errors.ApprovalPending) as pending, rein.session(wait="suspend"):
            go.call(rein, desk.pay, 5)
        token = pending.value.token
        clock.advance(61)
        assert rein.approvals.pending() == []
        for decide in (rein.approvals.approve, rein.approvals.reject):
            with pytest.raises(errors.Conflict, match="expired"):
                decide(token, by="anna")
        with pytest.raises(errors.ApprovalExpired):
            go.run(rein, "resume", token)
    assert desk.paid == []


def test_a_caller_that_waits_is_told_when_it_expires(go, sqlite) -> None:
    desk = Desk()
    with Rein(plugins=[Asks(Ask("sure?", expires=0.2))], store=sqlite) as rein:
        with pytest.raises(errors.ApprovalExpired), rein.session(on_error="keep"):
            go.call(rein, desk.pay, 5)
        (record,) = rein.store.records("approval").rows
        assert record.state == "expired"
        with pytest.raises(errors.Conflict):
            rein.approvals.approve(record.id, by="anna")
    assert desk.paid == []


def test_a_clock_that_stands_still_does_not_leave_the_request_open(go, sqlite) -> None:
    clock = Clock()
    with Rein(plugins=[Asks(Ask("sure?", expires=0.2))], store=sqlite, clock=clock) as rein:
        with pytest.raises(errors.ApprovalExpired), rein.session(on_error="keep"):
            go.call(rein, Desk().pay, 5)
        assert rein.store.records("approval").rows[0].state == "expired"


# who, and how many


def pending(rein: Rein, go: Any, amount: int = 5) -> str:
    with pytest.raises(errors.ApprovalPending) as raised, rein.session(wait="suspend"):
        go.call(rein, Desk().pay, amount)
    return raised.value.token


def test_only_the_named_may_answer(go, sqlite) -> None:
    with Rein(plugins=[Asks(Ask("sure?", who=("anna", "ben")))], store=sqlite) as rein:
        token = pending(rein, go)
        for decide in (rein.approvals.approve, rein.approvals.reject):
            with pytest.raises(errors.Conflict, match="not by carl"):
                decide(token, by="carl")
        assert rein.approvals.approve(token, by="ben") == "approved"


def test_rules_that_ask_different_people_and_share_one(go, sqlite) -> None:
    one, two = Asks(Ask("a", who=("anna", "ben"))), Asks(Ask("b", who=("ben", "carl")))
    with Rein(plugins=[one, two], store=sqlite) as rein:
        token = pending(rein, go)
        assert rein.approvals.get(token).who == ("ben",)


def test_rules_that_share_nobody_are_refused(go, sqlite) -> None:
    one, two = Asks(Ask("a", who=("anna",))), Asks(Ask("b", who=("ben",)))
    with Rein(plugins=[one, two], store=sqlite) as rein, rein.session(on_error="keep"):
        with pytest.raises(errors.ConfigError, match="nobody"):
            go.call(rein, Desk().pay, 1)
        assert "intent" not in kinds(rein)


def test_a_quorum_takes_different_people(go, sqlite) -> None:
    desk = Desk()
    with Rein(plugins=[Asks(Ask("sure?", quorum=2))], store=sqlite) as rein:
        rein.declare("pay", fn=desk.pay)
        token = pending(rein, go)
        assert rein.approvals.approve(token, by="anna") == "pending"
        with pytest.raises(errors.Conflict):
            rein.approvals.approve(token, by="anna")
        with pytest.raises(errors.ApprovalPending):
            go.run(rein, "resume", token)
        assert rein.approvals.approve(token, by="ben") == "approved"


def test_one_rejection_ends_a_quorum(go, sqlite) -> None:
    with Rein(plugins=[Asks(Ask("sure?", quorum=3))], store=sqlite) as rein:
        token = pending(rein, go)
        rein.approvals.approve(token, by="anna")
        assert rein.approvals.reject(token, by="ben") == "rejected"
        with pytest.raises(errors.Conflict, match="already rejected"):
            rein.approvals.approve(token, by="carl")


def test_a_decision_needs_a_name_and_an_open_request(sqlite, go) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = pending(rein, go)
        with pytest.raises(errors.Conflict, match="by="):
            rein.approvals.approve(token, by="")
        with pytest.raises(errors.Conflict, match="unknown"):
            rein.approvals.approve("ap-0", by="anna")
        rein.approvals.approve(token, by="anna")
        for decide in (rein.approvals.approve, rein.approvals.reject):
            with pytest.raises(errors.Conflict, match="already approved"):
                decide(token, by="ben")


# what a decision is bound to


def test_edited_arguments_run_and_are_checked_whole(go, store) -> None:
    class Limit(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Deny("never") if call.arguments["amount"] > 100 else None

    for edit, ran in ((7, [7]), (101, [])):
        desk, boss = Desk(), Boss(Approved("anna", {"amount": edit}))
        refused = contextlib.nullcontext() if ran else pytest.raises(errors.Denied, match="never")
        with (
            Rein(plugins=[Asks(), Limit(), boss], store=store) as rein,
            rein.session(on_error="keep"),
            refused,
        ):
            go.call(rein, desk.pay, 5)
        assert desk.paid == ran
        assert len(boss.asked) == 1


def test_an_edit_that_another_rule_asks_about_asks_again(go) -> None:
    desk = Desk()
    answers = [Approved("anna", {"amount": 50}), Approved("ben")]
    boss = Boss(lambda request: answers[len(boss.asked) - 1])
    plugins = [Asks(Ask("first", rule="1")), Asks(Ask("second", rule="2"), above=10), boss]
    with Rein(plugins=plugins) as rein, rein.session():
        assert go.call(rein, desk.pay, 5) == "paid 50"
    assert [r.reason for r in boss.asked] == ["first", "second"]
    assert [r.arguments["amount"] for r in boss.asked] == [5, 50]


@pytest.mark.parametrize("edit", [{"amont": 5}, {"self": 1}])
def test_an_edit_of_what_is_not_there_is_refused(go, sqlite, edit) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = pending(rein, go)
        with pytest.raises(errors.Conflict, match="no argument"):
            rein.approvals.approve(token, by="anna", arguments=edit)
        assert rein.approvals.get(token).state == "pending"


def test_an_edit_that_cannot_be_recorded_is_refused(go, sqlite) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = pending(rein, go)
        with pytest.raises(errors.Unencodable, match="amount"):
            rein.approvals.approve(token, by="anna", arguments={"amount": object()})
        assert rein.approvals.get(token).state == "pending"


def test_other_arguments_need_another_decision(go, sqlite) -> None:
    """The plugin that rewrites what was approved has to ask again."""
    drift = [0]

    class Drifts(Plugin):
        def pre_call(self, call: Call) -> Any:
            if drift[0] and call.arguments["amount"] != drift[0]:
                return Rewrite(call.replace(arguments={**call.arguments, "amount": drift[0]}))
            return None

    desk = Desk()

    def yes(request: Any) -> Any:
        drift[0] = 1_000_000 if len(boss.asked) == 1 else drift[0]
        return Approved("anna") if request.arguments["amount"] < 100 else Rejected("anna")

    boss = Boss(yes)
    with (
        Rein(plugins=[Drifts(), Asks(), boss]) as rein,
        pytest.raises(errors.ApprovalRejected),
        rein.session(on_error="keep"),
    ):
        go.call(rein, desk.pay, 5)
    assert desk.paid == []
    assert [r.arguments["amount"] for r in boss.asked] == [5, 1_000_000]


def test_each_call_needs_its_own_decision(go) -> None:
    desk, boss = Desk(), Boss(Approved("anna"))
    with Rein(plugins=[Asks(), boss]) as rein, rein.session():
        go.call(rein, desk.pay, 5)
        go.call(rein, desk.pay, 5)
    assert desk.paid == [5, 5]
    assert len(boss.asked) == 2


class Hides(Plugin):
    def view(self, call: Call, value: Any, sink: str) -> Any:
        if isinstance(value, dict) and "to" in value:
            return {**value, "to": "[EMAIL]"}
        return value


def test_masked_fields_are_marked_and_not_approved_in_silence(go, sqlite) -> None:
    with Rein(plugins=[Asks(), Hides()], store=sqlite) as rein:
        token = pending(rein, go)
        request = rein.approvals.get(token)
        assert request.arguments == {"amount": 5, "to": "[EMAIL]"}
        assert request.masked == ("to",)
        with pytest.raises(errors.Conflict, match="masked"):
            rein.approvals.approve(token, by="anna")
        rein.approvals.approve(token, by="anna", masked_ok=True)
        decided = rein.store.events(kinds=("approval_decided",))
        assert decided[-1].view["masked_ok"] is True


def test_a_person_sees_all_of_a_long_argument(go, sqlite) -> None:
    class Mails(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Ask("sure?")

    text = "a" * 30_000 + "rm -rf"
    with Rein(plugins=[Mails()], store=sqlite) as rein:
        with pytest.raises(errors.ApprovalPending) as raised, rein.session(wait="suspend"):
            go.call(rein, lambda text: text, text)
        request = rein.approvals.get(raised.value.token)
        assert request.arguments == {"text": text}
        assert request.masked == ()
        with pytest.raises(errors.ApprovalPending) as raised, rein.session(wait="suspend"):
            go.call(rein, lambda text: text, text * 10)
        request = rein.approvals.get(raised.value.token)
        assert request.masked == ("text",)


def test_an_answer_beside_a_question_uses_the_approval_up(go, sqlite) -> None:
    class Cached(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Answer("cached")

    with Rein(plugins=[Asks(), Cached(), Boss(Approved("anna"))], store=sqlite) as rein:
        with rein.session():
            assert go.call(rein, Desk().pay, 5) == "cached"
        assert rein.store.records("approval").rows[0].state == "done"


# after the call


class Reviews(Plugin):
    def post_call(self, call: Call, outcome: Any) -> Any:
        return Ask("look at this") if call.name == "pay" and outcome.source == "call" else None


@pytest.mark.parametrize("ending", ["approved", "rejected", "expired", "nobody"])
def test_a_review_takes_back_what_it_does_not_want(go, store, ending) -> None:
    undone: list[int] = []
    answer = {"approved": Approved("anna"), "rejected": Rejected("anna")}.get(ending)
    plugins: list[Any] = [Reviews()]
    if ending != "nobody":
        plugins.append(Boss(answer))
    with Rein(plugins=plugins, store=store, approvals="channels", approval_expires=0.3) as rein:

        @rein.tool(undo=lambda amount: undone.append(amount))
        def pay(amount: int) -> str:
            return "paid"

        with rein.session(on_error="keep") as session:
            if ending == "approved":
                assert go.call(rein, pay, 5) == "paid"
            else:
                kind = {
                    "rejected": errors.ApprovalRejected, "expired": errors.ApprovalExpired
                }.get(ending, errors.Denied)  # fmt: skip
                with pytest.raises(kind):
                    go.call(rein, pay, 5)
            assert rein.store.session(session.id).state == "ACTIVE"
        assert rein.store.events(kinds=("outcome",))[0].view["state"] == "done"
    # Nobody said no to what has expired: it stays, and its result is withheld.
    assert undone == ([5] if ending in ("rejected", "nobody") else [])


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_review_that_was_suspended_is_resumed(go, sqlite, decision) -> None:
    undone: list[int] = []
    with Rein(plugins=[Reviews()], store=sqlite) as rein:

        @rein.tool(undo=lambda amount: undone.append(amount))
        def pay(amount: int) -> str:
            return "paid"

        with pytest.raises(errors.ApprovalPending) as raised, rein.session(wait="suspend"):
            go.call(rein, pay, 5)
        token = raised.value.token
        assert undone == []
        with pytest.raises(errors.Conflict, match="edited"):
            rein.approvals.approve(token, by="anna", arguments={"amount": 1})
        getattr(rein.approvals, decision)(token, by="anna")
        for _ in range(2):
            if decision == "approve":
                assert go.run(rein, "resume", token) == "paid"
            else:
                with pytest.raises(errors.ApprovalRejected, match="undone"):
                    go.run(rein, "resume", token)
        assert len(rein.store.events(kinds=("intent",))) == (1 if decision == "approve" else 2)
    assert undone == ([] if decision == "approve" else [5])
