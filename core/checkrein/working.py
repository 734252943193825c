"""What a worker does, round by round: finish, expire, escalate, forget; for a fleet of processes.

Several workers may run: sessions are shared by their fences, requests by the states of their
records, retention by whoever writes the hour first. Any of them may be killed at any time: what it
had in hand is taken up like that of any dead process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkrein.errors import CheckreinError, Conflict
from checkrein.store import Batch, Put, Record, SessionPut

if TYPE_CHECKING:
    from checkrein.recovery import RecoverReport
    from checkrein.rein import Rein

SESSION = "workers"
"""Its chain is that of no agent: rows of workers are written with it."""
HOUR = 3_600_000_000
"""Microseconds between two looks at what is old enough to be forgotten."""


@dataclass(slots=True)
class Round:
    """What one round did."""

    recovered: list[str] = field(default_factory=list)
    """Sessions that were rolled back or ended."""
    left: int = 0
    """Effects that stay, or may stay: people must look."""
    settles_in: float = 0.0
    """Seconds until what is in doubt can be decided; 0 if nothing is."""
    expired: int = 0
    escalated: int = 0
    forgotten: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Step -> why it could not be done. The others were."""


class Worker:
    """Rounds for one Rein, which knows the application's tools and channels."""

    def __init__(self, rein: Rein, forget_after: float | None = None) -> None:
        self.rein = rein
        self.forget_after = forget_after

    def round(self) -> Round:
        """Do what is to be done now. A step that fails is told, and the next ones are done."""
        done = Round()
        # What has expired first: the sessions that waited for it are then ended.
        steps: dict[str, Callable[[Round], None]] = {
            "expire": self._expire, "escalate": self._escalate, "recover": self._recover,
            "forget": self._forget,
        }  # fmt: skip
        for name, step in steps.items():
            try:
                step(done)
            except CheckreinError as error:
                done.failed[name] = str(error)
                self.rein.log.error("worker: %s: %s", name, error)
        return done

    def _recover(self, done: Round) -> None:
        report: RecoverReport = self.rein.recover()
        done.recovered = [one.session for one in report.sessions]
        done.left, done.settles_in = len(report.left), report.wait

    def _expire(self, done: Round) -> None:
        approvals = self.rein.approvals
        for record in self._undecided():
            if approvals.lapsed(record):
                try:
                    approvals.check(record)
                    approvals.expire(record)
                except Conflict as error:  # decided at this moment, or altered
                    self.rein.log.info("approval %s: %s", record.id, error)
                else:
                    done.expired += 1

    def _undecided(self) -> Iterator[Record]:
        for state in ("pending", "approved"):
            after: str | None = None
            while True:
                page = self.rein.store.records("approval", state=state, after=after, limit=500)
                yield from page.rows
                after = page.next
                if after is None:
                    break

    def _escalate(self, done: Round) -> None:
        done.escalated = len(self.rein.approvals.escalate())

    def _forget(self, done: Round) -> None:
        if self.forget_after is not None and self._my_hour():
            done.forgotten = self.rein.forget(older_than=self.forget_after).sessions

    def _my_hour(self) -> bool:
        """Whether nobody has looked in this hour; then nobody else will."""
        store, now = self.rein.store, self.rein.clock()
        hour = str(now // HOUR)
        last = store.record("worker", "forget")
        before = "" if last is None else last.state
        if before == hour:
            return False
        if store.session(SESSION) is None:
            body = {"agent": SESSION, "parent": "", "root": SESSION}
            put = SessionPut(create=True, state="COMPLETED", owner="", body=body)
            with contextlib.suppress(Conflict):  # another worker was faster
                store.commit(Batch(SESSION, (), now, session_put=put))
        try:
            row = Put("worker", "forget", hour, {}, if_state=(before,))
            store.commit(Batch(SESSION, (), now, puts=(row,)))
        except Conflict:
            return False
        return True
