"""Resuming: one effect, whoever resumes, in whatever process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Call, Deny, Plugin, Rein, errors
from checkrein.entry import Entry
from checkrein.testing import Clock
from checkrein.verdicts import Approved

APP = """
import os, pathlib, sys, time
from checkrein import Rein, Plugin, Ask, Deny, errors

class Asks(Plugin):
    def pre_call(self, call):
        if os.environ.get("POLICY") == "deny":
            return Deny("not any more")
        return Ask("sure?", rule="r")

store, log = sys.argv[1], pathlib.Path(sys.argv[2])
rein = Rein(plugins=[Asks()], store=store)

@rein.tool(description=os.environ.get("TEXT", "Pays."))
def pay(amount: int, note: list) -> dict:
    with log.open("a") as file:
        file.write(f"{amount} {note}\\n")
    time.sleep(0.1)
    return {"paid": amount}
"""
ASK = (
    APP
    + """
try:
    with rein.session(agent="a", wait="suspend"):
        pay(5, note=["x", (1, 2)])
except errors.ApprovalPending as pending:
    print(pending.token, flush=True)
if len(sys.argv) > 3:
    time.sleep(60)
os._exit(0)
"""
)
RESUME = (
    APP
    + """
print("ready", flush=True)
sys.stdin.readline()
try:
    print(rein.resume(sys.argv[3]))
except errors.CheckreinError as error:
    print(type(error).__name__, error)
rein.close()
"""
)
DECIDE = """
import sys
from checkrein import Rein
with Rein(store=sys.argv[1]) as rein:
    request = rein.approvals.get(sys.argv[2])
    assert request.arguments["amount"] == 5, request
    edits = {"amount": int(sys.argv[4])} if len(sys.argv) > 4 else None
    args = {"arguments": edits} if edits else {}
    print(getattr(rein.approvals, sys.argv[3])(sys.argv[2], by="anna", **args))
"""


class Asks(Plugin):
    def __init__(self) -> None:
        self.deny = False

    def pre_call(self, call: Call) -> Any:
        return Deny("not any more") if self.deny else Ask("sure?", rule="r")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def asked(child: Any, url: str, log: Path, *more: str) -> tuple[str, Any]:
    process = child(ASK, url, log, *more)
    token = process.stdout.readline().strip()
    assert token.startswith("ap-"), process.stderr.read()
    return token, process


def decided(child: Any, url: str, token: str, what: str, *edit: int) -> str:
    process = child(DECIDE, url, token, what, *edit)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return str(out.strip())


def resumed(child: Any, url: str, log: Path, token: str, count: int = 1, **env: str) -> list[str]:
    processes = [child(RESUME, url, log, token, env=env) for _ in range(count)]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0].strip() for process in processes]


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


# three processes


def test_one_process_asks_another_answers_a_third_runs_it_once(child, url, tmp_path) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log)
    process.wait(30)
    assert lines(log) == []
    assert decided(child, url, token, "approve") == "approved"
    assert resumed(child, url, log, token) == ["{'paid': 5}"]
    assert resumed(child, url, log, token) == ["{'paid': 5}"]
    assert lines(log) == ["5 ['x', (1, 2)]"]


def test_the_one_who_asked_may_be_killed(child, url, tmp_path) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log, "stay")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert decided(child, url, token, "approve") == "approved"
    assert resumed(child, url, log, token) == ["{'paid': 5}"]
    assert lines(log) == ["5 ['x', (1, 2)]"]


def test_four_processes_that_race_give_one_effect_and_all_get_the_result(
    child, url, tmp_path
) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log)
    process.wait(30)
    decided(child, url, token, "approve")
    assert resumed(child, url, log, token, count=4) == ["{'paid': 5}"] * 4
    assert len(lines(log)) == 1


def test_an_edit_made_elsewhere_is_what_runs(child, url, tmp_path) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log)
    process.wait(30)
    decided(child, url, token, "approve", 3)
    assert resumed(child, url, log, token) == ["{'paid': 3}"]
    assert lines(log) == ["3 ['x', (1, 2)]"]


def test_a_no_from_elsewhere_runs_nothing(child, url, tmp_path) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log)
    process.wait(30)
    decided(child, url, token, "reject")
    (answer,) = resumed(child, url, log, token)
    assert answer.startswith("ApprovalRejected")
    assert lines(log) == []


def test_the_policy_of_the_resumer_may_say_no(child, url, tmp_path) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log)
    process.wait(30)
    decided(child, url, token, "approve")
    (answer,) = resumed(child, url, log, token, POLICY="deny")
    assert "not any more" in answer
    assert lines(log) == []


def test_another_definition_of_the_tool_voids_the_approval(child, url, tmp_path) -> None:
    log = tmp_path / "log"
    token, process = asked(child, url, log)
    process.wait(30)
    decided(child, url, token, "approve")
    (answer,) = resumed(child, url, log, token, TEXT="Sends money somewhere else.")
    assert answer.startswith("Conflict")
    assert "void" in answer
    assert lines(log) == []


def test_a_waiting_caller_is_answered_from_another_process(child, go, url) -> None:
    from checkrein_plugins.approvers import CallableApprover  # noqa: F401 - not used: the store is

    paid: list[int] = []
    decision = """
import sys, time
from checkrein import Rein
with Rein(store=sys.argv[1]) as rein:
    while not (found := rein.approvals.pending()):
        time.sleep(0.02)
    print(rein.approvals.approve(found[0].id, by="anna"))
"""
    with Rein(plugins=[Asks()], store=url) as rein:
        process = child(decision, url)
        with rein.session():
            go.call(rein, paid.append, 5)
        assert process.communicate(timeout=60)[0] == "approved\n"
    assert paid == [5]


# one process


def suspended(rein: Rein, go: Any, fn: Any, *args: Any) -> str:
    with pytest.raises(errors.ApprovalPending) as pending, rein.session(wait="suspend"):
        go.call(rein, fn, *args)
    return pending.value.token


def test_eight_threads_that_race_give_one_effect_and_all_get_the_result(url) -> None:
    ran: list[int] = []
    go_on = threading.Barrier(8)

    def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {amount}"

    with Rein(plugins=[Asks()], store=url) as rein:
        for _ in range(3):
            ran.clear()
            with pytest.raises(errors.ApprovalPending) as pending, rein.session(wait="suspend"):
                rein.call(pay, 5)
            token = pending.value.token
            rein.approvals.approve(token, by="anna")
            got: list[Any] = []

            def resume(token: str = token, got: list[Any] = got) -> None:
                go_on.wait(30)
                try:
                    got.append(rein.resume(token))
                except errors.CheckreinError as error:
                    got.append(error)

            threads = [threading.Thread(target=resume) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert got == ["paid 5"] * 8
            assert ran == [5]
            (row,) = [
                r for r in rein.store.sessions().rows if r.id == pending.value.session_id
            ] or [rein.store.sessions().rows[0]]
            assert row.owner == ""


def test_tasks_that_race_give_one_effect(url) -> None:
    ran: list[int] = []

    async def pay(amount: int) -> str:
        ran.append(amount)
        await asyncio.sleep(0.05)
        return f"paid {amount}"

    async def main() -> list[str]:
        with Rein(plugins=[Asks()], store=url) as rein:
            with pytest.raises(errors.ApprovalPending) as pending:
                async with rein.session(wait="suspend"):
                    await rein.acall(pay, 5)
            rein.approvals.approve(pending.value.token, by="anna")
            return await asyncio.gather(*(rein.aresume(pending.value.token) for _ in range(8)))

    assert asyncio.run(main()) == ["paid 5"] * 8
    assert ran == [5]


def test_two_calls_of_one_session_are_resumed_beside_each_other(url) -> None:
    inside = threading.Barrier(2)

    def pay(amount: int) -> int:
        inside.wait(30)
        return amount

    with Rein(plugins=[Asks()], store=url) as rein:
        tokens = []
        session = rein.session(wait="suspend")
        with session:
            for amount in (1, 2):
                with pytest.raises(errors.ApprovalPending) as pending:
                    rein.call(pay, amount)
                tokens.append(pending.value.token)
        assert rein.store.session(session.id).state == "ACTIVE"
        got: list[int] = []
        for token in tokens:
            rein.approvals.approve(token, by="anna")
        threads = [
            threading.Thread(target=lambda token=token: got.append(rein.resume(token)))
            for token in tokens
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(got) == [1, 2]
        assert rein.store.session(session.id).owner == ""


def test_a_blocked_caller_and_a_resumer_share_one_effect(url) -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    with Rein(plugins=[Asks()], store=url) as rein:
        got: list[str] = []
        with rein.session() as session:
            thread = threading.Thread(target=session.bind(lambda: got.append(rein.call(pay, 5))))
            thread.start()
            while not (waiting := rein.approvals.pending()):
                pass
            rein.approvals.approve(waiting[0].id, by="anna")
            got.append(rein.resume(waiting[0].id))
            thread.join(30)
    assert got == ["paid", "paid"]
    assert ran == [5]


def test_tokens_that_cannot_be_resumed(go, url, tmp_path) -> None:
    clock = Clock()
    other = f"sqlite:///{tmp_path}/other.db"
    with Rein(plugins=[Asks()], store=url, clock=clock) as rein:
        token = suspended(rein, go, lambda: 1)
        with pytest.raises(errors.ApprovalPending):
            go.run(rein, "resume", token)
        for unknown in ("ap-0", "", "x" * 1000):
            with pytest.raises(errors.Conflict, match="unknown"):
                go.run(rein, "resume", unknown)
        with Rein(plugins=[Asks()], store=other) as foreign:  # noqa: SIM117 - the order of endings is the point
            with pytest.raises(errors.Conflict, match="unknown"):
                go.run(foreign, "resume", token)
        clock.advance(10**6)
        for _ in range(2):
            with pytest.raises(errors.ApprovalExpired):
                go.run(rein, "resume", token)


def test_a_process_without_the_tool_says_so(go, url) -> None:
    with Rein(plugins=[Asks()], store=url) as rein:
        token = suspended(rein, go, lambda: 1)
        rein.approvals.approve(token, by="anna")
    with Rein(plugins=[Asks()], store=url) as rein:
        with pytest.raises(errors.ConfigError, match="not a tool of this process"):
            go.run(rein, "resume", token)
        assert rein.approvals.get(token).state == "approved"


def test_two_functions_of_one_name_are_not_taken_for_each_other(go, url) -> None:
    def one() -> Any:
        def pay() -> str:
            return "mine"

        return pay

    with Rein(plugins=[Asks()], store=url) as rein:
        token = suspended(rein, go, one())
        rein.approvals.approve(token, by="anna")
        with pytest.raises(errors.ApprovalPending), rein.session(wait="suspend"):
            go.call(rein, one())
        with pytest.raises(errors.ConfigError, match="several functions"):
            go.run(rein, "resume", token)


def test_a_session_that_is_over_is_not_resumed(go, url) -> None:
    ran: list[int] = []
    with Rein(plugins=[Asks()], store=url) as rein:
        token = suspended(rein, go, ran.append, 1)
        rein.approvals.approve(token, by="anna")
        session = rein.approvals.get(token).session
        rein.stop(session)
        with pytest.raises(errors.Halted):
            go.run(rein, "resume", token)
        rein.rollback(session)
        with pytest.raises(errors.SessionClosed):
            go.run(rein, "resume", token)
    assert ran == []


def test_what_cannot_be_stored_cannot_be_resumed_and_says_so(go, url) -> None:
    with Rein(plugins=[Asks()], store=url) as rein:

        @rein.tool(opaque=("handle",))
        def use(handle: object, n: int) -> int:
            return n

        token = suspended(rein, go, use, object(), 1)
        rein.approvals.approve(token, by="anna")
        with pytest.raises(errors.Undecodable, match="handle"):
            go.run(rein, "resume", token)


def test_a_call_that_fails_after_its_approval_is_not_run_again(go, url) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)
        raise OSError("lost")

    with Rein(plugins=[Asks()], store=url) as rein:
        token = suspended(rein, go, pay, 5)
        rein.approvals.approve(token, by="anna")
        with pytest.raises(OSError, match="lost"):
            go.run(rein, "resume", token)
        for _ in range(2):
            with pytest.raises(errors.CallFailed, match="OSError: lost") as failed:
                go.run(rein, "resume", token)
            assert (failed.value.error, failed.value.state) == ("OSError", "unknown")
    assert ran == [5]


def test_calls_of_no_session_can_wait_for_a_person_too(go, url) -> None:
    def pay(amount: int) -> int:
        return amount

    with Rein(plugins=[Asks()], store=url, wait="suspend") as rein:  # noqa: SIM117 - the order of endings is the point
        with pytest.raises(errors.ApprovalPending) as pending:
            go.call(rein, pay, 5)
    with Rein(plugins=[Asks()], store=url) as rein:
        rein.declare("pay", fn=pay)
        rein.approvals.approve(pending.value.token, by="anna")
        assert go.run(rein, "resume", pending.value.token) == 5


# a framework that enters a call again


def entered(go: Any, rein: Rein, entry: Entry) -> Any:
    if go.mode == "sync":
        return rein.enter(entry).value
    return asyncio.run(rein.aenter(entry)).value


def test_a_call_with_a_key_runs_once_and_is_told_once(go, url) -> None:
    ran: list[int] = []
    told: list[str] = []

    class Tells(Plugin):
        def on_approval(self, call: Call, request: Any) -> Any:
            told.append(request.id)

    with Rein(plugins=[Asks(), Tells()], store=url) as rein:
        tool = rein.declare("pay", fn=lambda amount: ran.append(amount) or "paid")

        def again() -> Any:
            with rein.session(id="one", wait="suspend") as session:
                return entered(
                    go, rein, Entry(tool, {"amount": 5}, session, call_id="k", keyed=True)
                )

        for _ in range(3):
            with pytest.raises(errors.ApprovalPending) as pending:
                again()
        assert len(told) == 1
        assert len(rein.approvals.pending()) == 1
        rein.approvals.approve(pending.value.token, by="anna")
        with rein.session(id="one") as session:
            for _ in range(3):
                entry = Entry(tool, {"amount": 5}, session, call_id="k", keyed=True)
                assert entered(go, rein, entry) == "paid"
    assert ran == [5]


def test_a_rejection_is_what_a_framework_finds_again(go, url) -> None:
    with Rein(plugins=[Asks()], store=url) as rein, rein.session(on_error="keep") as session:
        tool = rein.declare("pay", fn=lambda amount: "paid")
        for _ in range(2):
            entry = Entry(tool, {"amount": 5}, session, call_id="k", keyed=True, wait="suspend")
            with pytest.raises(errors.ApprovalPending) as pending:
                entered(go, rein, entry)
        rein.approvals.reject(pending.value.token, by="anna")
        for _ in range(3):
            entry = Entry(tool, {"amount": 5}, session, call_id="k", keyed=True, wait="suspend")
            with pytest.raises(errors.ApprovalRejected):
                entered(go, rein, entry)


def test_a_result_waits_for_its_reviewer_each_time_it_is_found(go, url) -> None:
    class Reviews(Plugin):
        def post_call(self, call: Call, outcome: Any) -> Any:
            return Ask("look") if outcome.source == "call" else None

    with Rein(plugins=[Reviews()], store=url) as rein, rein.session(on_error="keep") as session:
        tool = rein.declare("pay", fn=lambda amount: "paid", undo=lambda amount: None)

        def again() -> Any:
            entry = Entry(tool, {"amount": 5}, session, call_id="k", keyed=True, wait="suspend")
            return entered(go, rein, entry)

        for _ in range(2):
            with pytest.raises(errors.ApprovalPending) as pending:
                again()
        rein.approvals.reject(pending.value.token, by="anna")
        for _ in range(2):
            with pytest.raises(errors.ApprovalRejected):
                again()
        assert len(rein.store.events(kinds=("intent",))) == 2


def test_a_key_that_two_threads_enter_runs_once(url) -> None:
    ran: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(n: int) -> int:
        ran.append(n)
        begun.set()
        go_on.wait(30)
        return n

    with Rein(store=url) as rein, rein.session() as session:
        tool = rein.declare("slow", fn=slow)
        got: list[Any] = []

        def enter() -> None:
            entry = Entry(tool, {"n": 1}, session, call_id="k", keyed=True)
            got.append(rein.enter(entry).value)

        threads = [threading.Thread(target=enter) for _ in range(4)]
        threads[0].start()
        begun.wait(30)
        for thread in threads[1:]:
            thread.start()
        go_on.set()
        for thread in threads:
            thread.join(30)
    assert (ran, got) == ([1], [1] * 4)


def test_the_decision_of_a_channel_is_recorded_like_any_other(go, url) -> None:
    class Yes(Plugin):
        def on_approval(self, call: Call, request: Any) -> Any:
            return Approved("anna")

    with Rein(plugins=[Asks(), Yes()], store=url) as rein, rein.session() as session:
        go.call(rein, lambda: 1)
        (record,) = rein.read(session.id).records("approval")
        assert (record.state, record.body["by"]) == ("done", "anna")
        told = [e.kind for e in session.events()]
    assert told[1:] == ["approval_requested", "approval_decided", "intent", "outcome"]
    assert json.dumps(record.body)
