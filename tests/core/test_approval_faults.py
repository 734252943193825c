"""Ways in which approvals of other systems were misused, and what happens here."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any

import pytest

from checkrein import Answer, Ask, Call, Deny, Plugin, Rein, errors
from checkrein.verdicts import Approved, Rejected
from checkrein_plugins.guardrails.scope import Scope


@pytest.fixture
def sqlite(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


class Asks(Plugin):
    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", rule="r")


class Boss(Plugin):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_approval(self, call: Call, request: Any) -> Any:
        return self.answer(call, request) if callable(self.answer) else self.answer


def suspended(go: Any, rein: Rein, tool: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(errors.ApprovalPending) as pending, rein.session("a", wait="suspend"):
        go.call(rein, tool, *args, **kwargs)
    return pending.value.token


# what was approved is what runs


def test_arguments_changed_by_their_owner_after_the_answer_do_not_run(go) -> None:
    """Approved was 10; the caller's own list says 1,000,000 by the time that it runs."""
    order = {"lines": [10]}
    ran: list[Any] = []

    def pay(order: dict[str, list[int]]) -> None:
        ran.append(order)

    def yes(call: Call, request: Any) -> Any:
        assert request.arguments == {"order": {"lines": [10]}}
        order["lines"][0] = 1_000_000
        return Approved("anna")

    with Rein(plugins=[Asks(), Boss(yes)]) as rein, rein.session():
        go.call(rein, pay, order)
    assert ran == [{"lines": [10]}]


def test_arguments_changed_by_the_approver_in_place_do_not_run(go) -> None:
    ran: list[Any] = []

    def pay(lines: list[int]) -> None:
        ran.append(lines)

    def yes(call: Call, request: Any) -> Any:
        call.arguments["lines"][0] = 1_000_000
        request.arguments["lines"][0] = 1_000_000
        return Approved("anna")

    with (
        Rein(plugins=[Asks(), Boss(yes)]) as rein,
        pytest.raises(errors.Denied),
        rein.session(),
    ):
        go.call(rein, pay, [10])
    assert ran == []


def test_another_function_does_not_run_under_the_same_approval(go, sqlite) -> None:
    ran: list[str] = []

    def look(path: str) -> None:
        """Look."""
        ran.append("look")

    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = suspended(go, rein, look, "/tmp")
        rein.approvals.approve(token, by="anna")

    def drop(path: str) -> None:
        """Drop everything."""
        ran.append("drop")

    with Rein(plugins=[Asks()], store=sqlite) as rein:
        rein.declare("look", fn=drop, description="Drop everything.")
        with pytest.raises(errors.Conflict, match=r"void here.*description was"):
            go.run(rein, "resume", token)
    assert ran == []


def test_beside_an_approved_call_the_next_one_of_the_tool_is_asked_about(sqlite) -> None:
    """No switch is thrown for the tool while an approved call runs."""

    async def main() -> None:
        go_on, begun = asyncio.Event(), asyncio.Event()
        ran: list[int] = []

        async def pay(amount: int) -> int:
            ran.append(amount)
            begun.set()
            await go_on.wait()
            return amount

        class First(Plugin):
            def on_approval(self, call: Call, request: Any) -> Any:
                return Approved("anna") if request.arguments["amount"] == 1 else Rejected("anna")

        with Rein(plugins=[Asks(), First()], store=sqlite) as rein:
            async with rein.session(on_error="keep"):
                first = asyncio.create_task(rein.acall(pay, 1))
                await begun.wait()
                with pytest.raises(errors.ApprovalRejected):
                    await rein.acall(pay, 2)
                go_on.set()
                assert await first == 1
                with pytest.raises(errors.ApprovalRejected):
                    await rein.acall(pay, 3)
        assert ran == [1]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["Delete_File", "delete_file ", "delete-file", "dеlete_file"])
def test_a_name_that_looks_alike_is_asked_about(go, name) -> None:
    ran: list[str] = []
    scope = Scope(rules=[{"tool": "delete_file", "action": "ask"}])
    with (
        Rein(plugins=[scope, Boss(Rejected("anna"))]) as rein,
        pytest.raises(errors.ApprovalRejected),
        rein.session(),
    ):
        go.call(rein, rein.tool(name=name)(lambda: ran.append(name)))
    assert ran == []


def test_methods_and_keyword_arguments_are_asked_about(go) -> None:
    """The documented way to call, by keyword, and the function as a method."""

    class Mail:
        def __init__(self) -> None:
            self.sent: list[str] = []

        def send_email(self, to: str, body: str = "") -> None:
            self.sent.append(to)

    mail = Mail()
    scope = Scope(rules=[{"tool": "send_email", "action": "ask"}])
    with Rein(plugins=[scope, Boss(Rejected("anna"))]) as rein:
        for args, kwargs in ((("a",), {}), ((), {"to": "a", "body": "x"})):
            with pytest.raises(errors.ApprovalRejected), rein.session():
                go.call(rein, mail.send_email, *args, **kwargs)
    assert mail.sent == []


# one decision, one use


def test_one_approval_is_one_execution_whoever_asks_for_it(go, sqlite) -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = suspended(go, rein, pay, 5)
        rein.approvals.approve(token, by="anna")
        with pytest.raises(errors.Conflict, match="already approved"):
            rein.approvals.approve(token, by="anna")
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda: results.append(rein.resume(token))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == ["paid"] * 8
        assert go.run(rein, "resume", token) == "paid"
        for decide in (rein.approvals.reject, rein.approvals.approve):
            with pytest.raises(errors.Conflict, match="already done"):
                decide(token, by="ben")
    assert ran == [5]


def test_a_no_does_not_become_a_yes(go, sqlite) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = suspended(go, rein, pay, 5)
        rein.approvals.reject(token, by="anna")
        with pytest.raises(errors.Conflict, match="already rejected"):
            rein.approvals.approve(token, by="anna")
        with pytest.raises(errors.Conflict, match="unknown"):
            rein.approvals.approve("9999", by="anna")
        with pytest.raises(errors.ApprovalRejected):
            go.run(rein, "resume", token)
    assert ran == []


def test_a_result_that_is_there_already_asks_nobody_again(go, sqlite) -> None:
    """Not at each retry of an approved step, and not for a stored result."""
    from checkrein.entry import Entry

    asked: list[str] = []

    def yes(call: Call, request: Any) -> Any:
        asked.append(request.id)
        return Approved("anna")

    def pay(amount: int) -> str:
        return "paid"

    with Rein(plugins=[Asks(), Boss(yes)], store=sqlite) as rein, rein.session() as session:
        tool = rein.declare("pay", fn=pay)
        for _ in range(3):
            entry = Entry(tool, {"amount": 5}, session, call_id="key-1", keyed=True)
            assert go.run(rein, "enter", entry).value == "paid"
    assert len(asked) == 1


# nobody answers, or nobody can


def test_a_store_that_fails_lets_nothing_through(go, sqlite, monkeypatch) -> None:
    ran: list[int] = []

    def delete(id: int) -> None:
        ran.append(id)

    with Rein(plugins=[Asks(), Boss(Approved("anna"))], store=sqlite) as rein:
        session = rein.session()
        with session:

            def fails(*args: Any, **kwargs: Any) -> Any:
                raise errors.StoreUnavailable("answered 500")

            for name in ("commit", "commit_many"):
                monkeypatch.setattr(rein.store, name, fails)
            with pytest.raises(errors.StoreUnavailable):
                go.call(rein, delete, 1)
            monkeypatch.undo()
    assert ran == []


@pytest.mark.parametrize("found", ["EXPIRED", "maybe", "APPROVED", ""])
def test_a_state_that_is_not_understood_is_no_yes(go, sqlite, tmp_path, found) -> None:
    ran: list[int] = []

    def delete(id: int) -> None:
        ran.append(id)

    with Rein(plugins=[Asks()], store=sqlite) as rein:
        token = suspended(go, rein, delete, 1)
        with sqlite3.connect(tmp_path / "s.db") as db:
            db.execute("UPDATE records SET state = ? WHERE kind = 'approval'", (found,))
        db.close()
        with pytest.raises(errors.CheckreinError):
            go.run(rein, "resume", token)
        with pytest.raises(errors.Conflict):
            rein.approvals.approve(token, by="anna")
    assert ran == []


def test_a_veto_that_came_since_is_stronger_than_the_answer(go, sqlite) -> None:
    """A plan approved under one policy does not run under another that blocks it."""
    blocked = [False]
    ran: list[int] = []

    class Blocks(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Deny("blocked by now") if blocked[0] else None

    def pay(amount: int) -> None:
        ran.append(amount)

    with Rein(plugins=[Asks(), Blocks()], store=sqlite) as rein:
        token = suspended(go, rein, pay, 5)
        rein.approvals.approve(token, by="anna")
        blocked[0] = True
        with pytest.raises(errors.Denied, match="blocked by now"):
            go.run(rein, "resume", token)
    assert ran == []


def test_a_long_argument_is_not_cut_before_it_is_approved(go) -> None:
    text = "x" * 5000 + " rm -rf /"

    def look(call: Call, request: Any) -> Any:
        assert request.arguments["script"] == text
        return Rejected("anna")

    with (
        Rein(plugins=[Asks(), Boss(look)]) as rein,
        pytest.raises(errors.ApprovalRejected),
        rein.session(),
    ):
        go.call(rein, lambda script: None, text)


def test_an_answer_of_a_plugin_asks_nobody_to_run_it(go) -> None:
    """A question beside a known answer is still asked: the stricter one counts."""

    class Knows(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Answer("known")

    with (
        Rein(plugins=[Knows(), Asks(), Boss(Rejected("anna"))]) as rein,
        pytest.raises(errors.ApprovalRejected),
        rein.session(),
    ):
        go.call(rein, lambda: "ran")
