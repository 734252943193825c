"""Whoever edits rows in the file can approve nothing, and makes nothing else run or be undone."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Plugin, Rein
from checkrein.errors import ApprovalPending, Conflict, PayloadUnreadable


class Asking(Plugin):
    """Asks about everything, as long as it is on."""

    def __init__(self, quorum: int = 1) -> None:
        self.on = True
        self.quorum = quorum

    def pre_call(self, call: Any) -> Ask | None:
        return Ask("look at it", rule="r", quorum=self.quorum) if self.on else None


class Bank:
    """A Rein over a file, a tool that pays, and a waiting payment of 7."""

    def __init__(self, path: Path, quorum: int = 1) -> None:
        self.path = path
        self.guard = Asking(quorum)
        self.rein = Rein([self.guard], store=f"sqlite:///{path}", wait="suspend")
        self.paid: list[int] = []
        self.pay = self.rein.tool(self._pay, name="pay")
        with pytest.raises(ApprovalPending) as waits, self.rein.session() as session:
            self.pay(amount=7)
        self.session = session.id
        self.token = waits.value.token

    def _pay(self, amount: int) -> int:
        self.paid.append(amount)
        return amount

    def sql(self, statement: str, *values: Any) -> list[Any]:
        connection = sqlite3.connect(self.path)
        with connection:
            rows = connection.execute(statement, values).fetchall()
        connection.close()
        return rows

    def edit(self, kind: str, change: Callable[[Any], Any]) -> None:
        """Change an event's payload together with the reference that stands in the event."""
        seq, salt, data = self.sql(
            "SELECT seq, salt, data FROM events WHERE kind = ? ORDER BY seq DESC", kind
        )[0]
        tree = json.loads(data)
        change(tree)
        data = json.dumps(tree).encode()
        ref = hashlib.sha256(salt + data).digest()
        self.sql("UPDATE events SET data = ?, ref = ? WHERE seq = ?", data, ref, seq)

    def body(self, change: Callable[[Any], Any]) -> None:
        text = self.sql("SELECT body FROM records WHERE kind = 'approval'")[0][0]
        tree = json.loads(text)
        change(tree)
        self.sql("UPDATE records SET body = ? WHERE kind = 'approval'", json.dumps(tree))


@pytest.fixture
def bank(tmp_path: Path) -> Any:
    made = Bank(tmp_path / "bank.db")
    yield made
    made.rein.close()


@pytest.mark.parametrize("asks_again", [True, False])
def test_a_state_that_was_written_into_the_row_is_no_approval(bank: Bank, asks_again: bool) -> None:
    bank.guard.on = asks_again
    bank.sql("UPDATE records SET state = 'approved' WHERE kind = 'approval'")
    with pytest.raises(Conflict, match="altered"):
        bank.rein.resume(bank.token)
    assert bank.paid == []


@pytest.mark.parametrize("asks_again", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.update(digest="0" * 64),
        lambda b: b.update(edited_digest=b["digest"]),
        lambda b: b.update(asks=[]),
        lambda b: b.update(tool="other"),
        lambda b: b.update(session="other"),
        lambda b: b.pop("seal"),
        lambda b: b.clear(),
    ],
)
def test_an_approval_whose_row_was_changed_is_void(
    bank: Bank, change: Callable[[Any], Any], asks_again: bool
) -> None:
    bank.rein.approvals.approve(bank.token, by="ann")
    bank.guard.on = asks_again
    bank.body(change)
    with pytest.raises(Conflict, match="altered"):
        bank.rein.resume(bank.token)
    assert bank.paid == []


@pytest.mark.parametrize(
    "change", [lambda b: b.update(who=["mallory"]), lambda b: b.update(quorum=1)]
)
def test_who_may_answer_cannot_be_changed_in_the_row(
    tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    bank = Bank(tmp_path / "bank.db", quorum=2)
    bank.body(change)
    with pytest.raises(Conflict, match="altered"):
        bank.rein.approvals.approve(bank.token, by="mallory")
    bank.rein.close()


def test_a_vote_that_was_written_into_the_file_does_not_count(tmp_path: Path) -> None:
    bank = Bank(tmp_path / "bank.db", quorum=2)
    bank.sql(
        "INSERT INTO records (kind, id, state, session, label, created, updated, body) "
        "VALUES ('decision', ?, 'approved', ?, ?, 1, 1, ?)",
        f"{bank.token}/eve", bank.session, bank.token, json.dumps({"by": "eve"}),
    )  # fmt: skip
    assert bank.rein.approvals.approve(bank.token, by="ann") == "pending"
    assert bank.rein.approvals.approve(bank.token, by="bob") == "approved"
    bank.rein.close()


def test_an_edit_cannot_be_taken_back_behind_the_approver(bank: Bank) -> None:
    bank.rein.approvals.approve(bank.token, by="ann", arguments={"amount": 1})
    bank.body(lambda b: b.pop("edited_digest"))
    with pytest.raises(Conflict, match="altered"):
        bank.rein.resume(bank.token)
    assert bank.paid == []


@pytest.mark.parametrize("asks_again", [True, False])
def test_altered_arguments_never_run(bank: Bank, asks_again: bool) -> None:
    bank.rein.approvals.approve(bank.token, by="ann")
    bank.guard.on = asks_again
    bank.edit("approval_requested", lambda p: p["arguments"].update(amount=1_000_000))
    with pytest.raises(PayloadUnreadable, match="do not match"):
        bank.rein.resume(bank.token)
    assert bank.paid == []


def test_arguments_are_held_against_the_decision_even_where_hashes_were_made_anew(
    bank: Bank,
) -> None:
    bank.rein.approvals.approve(bank.token, by="ann")
    bank.guard.on = False
    record = bank.rein.store.record("approval", bank.token)
    assert record is not None
    kept = bank.rein.approvals.kept(record)
    kept["arguments"]["amount"] = 1_000_000
    bank.rein.approvals.kept = lambda record: kept  # type: ignore[method-assign]  # as if
    with pytest.raises(Conflict, match="not the one that was approved"):
        bank.rein.resume(bank.token)
    assert bank.paid == []


def test_a_broken_row_hides_no_other_request(bank: Bank) -> None:
    bank.body(lambda b: b.clear())
    with pytest.raises(ApprovalPending) as waits, bank.rein.session():
        bank.pay(amount=8)
    assert [r.id for r in bank.rein.approvals.pending()] == [waits.value.token]
    with pytest.raises(Conflict, match="altered"):
        bank.rein.approvals.get(bank.token)


def test_two_people_who_complete_a_quorum_together_have_both_approved(tmp_path: Path) -> None:
    bank = Bank(tmp_path / "bank.db", quorum=2)
    store = bank.rein.store
    approvals = bank.rein.approvals
    given = store.records

    def late(kind: str, **wanted: Any) -> Any:
        if kind == "decision" and "label" in wanted and not raced:
            raced.append(True)
            assert approvals.approve(bank.token, by="bob") == "approved"
        return given(kind, **wanted)

    raced: list[bool] = []
    store.records = late  # type: ignore[method-assign]  # the other one comes in between
    assert approvals.approve(bank.token, by="ann") == "approved"
    store.records = given  # type: ignore[method-assign]
    assert bank.rein.resume(bank.token) == 7
    bank.rein.close()


class Ledger:
    """Three bookings that can be taken back, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.booked: list[int] = []
        self.rein = Rein(store=f"sqlite:///{path}")
        self.book = self.rein.tool(self._book, name="book", undo=self._take_back)
        with self.rein.session() as session:
            for amount in (1, 2, 3):
                self.book(amount=amount)
        self.session = session.id

    def _book(self, amount: int) -> int:
        self.booked.append(amount)
        return amount

    def _take_back(self, amount: int) -> None:
        self.booked.remove(amount)

    def sql(self, statement: str) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            connection.execute(statement)
        connection.close()


def plan_changed(ledger: Ledger) -> None:
    connection = sqlite3.connect(ledger.path)
    with connection:
        seq, salt, data = connection.execute(
            "SELECT seq, salt, data FROM events WHERE kind = 'outcome' AND n = 5"
        ).fetchone()
        data = data.replace(b'"amount":2', b'"amount":1')
        ref = hashlib.sha256(salt + data).digest()
        connection.execute("UPDATE events SET data = ?, ref = ? WHERE seq = ?", (data, ref, seq))
    connection.close()


def bytes_changed(ledger: Ledger) -> None:
    ledger.sql(
        "UPDATE events SET data = CAST(data || ' ' AS BLOB) WHERE kind = 'outcome' AND n = 5"
    )


@pytest.mark.parametrize("damage", [plan_changed, bytes_changed])
def test_an_altered_plan_is_not_run_and_the_others_are(
    tmp_path: Path, damage: Callable[[Ledger], None]
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    damage(ledger)
    report = ledger.rein.rollback(ledger.session)
    assert report is not None
    assert [a.status for a in report.actions] == ["undone", "failed", "undone"]
    assert "altered" in report.actions[1].detail
    assert ledger.booked == [2]
    ledger.rein.close()


@pytest.mark.parametrize("ending", ["completed", "rolled back"])
def test_a_session_that_was_opened_again_in_its_row_is_found(tmp_path: Path, ending: str) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    if ending == "rolled back":
        ledger.rein.rollback(ledger.session)
    store = ledger.rein.store
    assert store.rebuild() == []
    ledger.sql("UPDATE sessions SET state = 'ACTIVE', rollback = 'none'")
    assert any("its row says ACTIVE" in told for told in store.rebuild())
    assert store.rebuild(repair=True) != []
    assert store.rebuild() == []
    row = store.session(ledger.session)
    assert row is not None
    assert row.state == "FAILED"
    assert (row.rollback != "none") == (ending == "rolled back")
    ledger.rein.close()


def test_doctor_names_approvals_that_were_altered(bank: Bank) -> None:
    from checkrein.cli.doctor import _approvals

    assert [f.status for f in _approvals(bank.rein)] == ["ok"]
    bank.sql("UPDATE records SET state = 'approved' WHERE kind = 'approval'")
    found = list(_approvals(bank.rein))
    assert [f.status for f in found] == ["fault"]
    assert bank.token in found[0].what
