"""Any order of answers, waits and resumes, against a model that fits on a page."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from checkrein import Ask, Call, Plugin, Rein, errors
from checkrein.testing import Clock

PEOPLE = ("anna", "ben", "carl", "eve")
ANSWER, USE, LATER = 100, 1000, 50


class Asks(Plugin):
    def __init__(self, **ask: Any) -> None:
        self.ask = ask

    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", expires=float(ANSWER), **self.ask)


class Answers(RuleBasedStateMachine):
    """One request; `yes` has who said yes, `state` what it must be."""

    @initialize(
        quorum=st.integers(1, 3), who=st.sets(st.sampled_from(PEOPLE[:3])), later=st.booleans()
    )
    def ask(self, quorum: int, who: set[str], later: bool) -> None:
        self.quorum = quorum
        self.who = who
        self.then = {"carl"} - who if who and later else set()
        more = {"then": tuple(self.then), "after": float(LATER)} if self.then else {}
        self.clock = Clock()
        plugins = [Asks(quorum=quorum, who=tuple(sorted(who)), **more)]
        self.rein = Rein(plugins=plugins, clock=self.clock, approvals="store", approval_use=USE)
        self.ran = 0
        self.state = "pending"
        self.yes: set[str] = set()
        self.age = 0
        self.used_by = 0

        @self.rein.tool
        def pay() -> str:
            self.ran += 1
            return "paid"

        try:
            with self.rein.session(wait="suspend"):
                pay()
        except errors.ApprovalPending as pending:
            self.token = pending.token

    def _may(self, by: str) -> bool:
        later = self.then if self.age >= LATER else set()
        return not self.who or by in self.who | later

    def _lapse(self) -> None:
        if self.state == "pending" and self.age >= ANSWER:
            self.state = "expired"
        if self.state == "approved" and self.age >= self.used_by:
            self.state = "expired"

    @rule(by=st.sampled_from(PEOPLE))
    def approve(self, by: str) -> None:
        self._lapse()
        fits = self.state == "pending" and self._may(by) and by not in self.yes
        try:
            found = self.rein.approvals.approve(self.token, by=by)
        except errors.Conflict:
            assert not fits
            return
        assert fits
        self.yes.add(by)
        if len(self.yes) >= self.quorum:
            self.state = "approved"
            self.used_by = self.age + USE
        assert found == self.state

    @rule(by=st.sampled_from(PEOPLE))
    def reject(self, by: str) -> None:
        self._lapse()
        fits = self.state == "pending" and self._may(by)
        with contextlib.suppress(errors.Conflict):
            self.rein.approvals.reject(self.token, by=by)
            assert fits
            self.state = "rejected"
        assert not fits or self.state == "rejected"

    @rule(seconds=st.sampled_from([1, LATER, ANSWER, USE]))
    def wait(self, seconds: int) -> None:
        self.age += seconds
        self.clock.advance(seconds)

    @rule()
    def resume(self) -> None:
        self._lapse()
        try:
            found = self.rein.resume(self.token)
        except errors.ApprovalPending:
            assert self.state == "pending"
        except errors.ApprovalRejected:
            assert self.state == "rejected"
        except errors.ApprovalExpired:
            assert self.state == "expired"
        else:
            assert self.state in ("approved", "done")
            assert found == "paid"
            self.state = "done"

    @invariant()
    def it_ran_once_if_it_may_and_never_else(self) -> None:
        if hasattr(self, "ran"):
            assert self.ran == (self.state == "done")

    def teardown(self) -> None:
        if hasattr(self, "rein"):
            self.rein.close()


TestAnswers = Answers.TestCase
TestAnswers.settings = settings(stateful_step_count=20)
