"""Recovery: what dead processes left behind is finished, and nothing of the living touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkrein import owner
from checkrein.call import Absent, Present
from checkrein.effects import descendants, effect_of, root_of, unended
from checkrein.errors import Conflict
from checkrein.journal import is_effect
from checkrein.questions import refusal_of
from checkrein.report import Action, RollbackReport
from checkrein.singles import doubt_of
from checkrein.store import Batch, Record, SessionPut, SessionRow, SettleRow

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


@dataclass(slots=True)
class RecoverReport:
    """What a recovery did, session by session."""

    sessions: list[RollbackReport] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Sessions of dead processes that wait for a person: they are left alone."""

    @property
    def left(self) -> list[Action]:
        """Effects that stay, or may stay."""
        return [a for report in self.sessions for a in report.left]

    @property
    def complete(self) -> bool:
        """Whether nothing is left."""
        return not self.left

    @property
    def wait(self) -> float:
        """Seconds until every probe's answer is final; 0 if none is open."""
        return max((a.wait for a in self.left), default=0.0)


class Recovery:
    """Recovery for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self.rollbacks = rein.rollbacks
        self.undoing = rein.rollbacks.undoing

    async def run(self, io: IO, *, settle: bool = False) -> RecoverReport:
        """Finish what dead processes left behind; with `settle`, until nothing is in doubt."""
        report = RecoverReport()
        done: dict[str, RollbackReport] = {}
        while True:
            report.waiting = []
            for row in self._abandoned(report.waiting):
                found = await self._one(io, row)
                if found is not None:
                    done[row.id] = found
            report.sessions = list(done.values())
            if not settle or report.wait <= 0:
                break
            await io.sleep(report.wait + 0.01)
        await self._tidy(io, report)
        self._forget_owners()
        return report

    async def _tidy(self, io: IO, report: RecoverReport) -> None:
        """Open sessions that nobody runs: refused ones fail, forsaken ones are abandoned."""
        idle = self.rein.clock() - round(self.rein.idle_limit * 1e6)
        for row in list(self.rein.control.rows(state="ACTIVE")):
            if self.rollbacks.alive(row):
                continue
            refused = self.refused(row.id)
            if refused is not None:
                found = await self.fail(io, row, refused)
                if found is not None:
                    report.sessions.append(found)
            elif not row.owner and row.updated < idle and not self._asked(row.id):
                self._abandon(row)

    def refused(self, session: str) -> Record | None:
        """A refused approval of a suspended call that nobody was told of, and nobody waits for.

        A framework's own run is told when it is resumed; it is not looked at here.
        """
        found: Record | None = None
        after: str | None = None
        while True:
            page = self.store.records("approval", session=session, after=after, limit=100)
            for record in page.rows:
                if record.body["kind"] != "before" or record.body["keyed"]:
                    continue
                if record.state == "pending" and record.body["expires"] <= self.rein.clock():
                    record = self.rein.approvals.fresh(record.id)  # noqa: PLW2901 - as it is now
                if record.state in ("pending", "approved"):
                    return None
                told = ("denied", "intent")
                if record.state in ("rejected", "expired") and not self.store.events(
                    call=record.body["call"], kinds=told, limit=1
                ):
                    found = record
            after = page.next
            if after is None:
                return found

    async def fail(self, io: IO, row: SessionRow, refused: Record) -> RollbackReport | None:
        """End a session whose call was refused while nobody ran it, as the refusal would have.

        None if somebody took it up, or its effects are kept.
        """
        error = refusal_of(refused)
        event = self.rein.journal.event(
            "session_ended", refused.body["call"], state="FAILED", error=type(error).__name__
        )
        keeps = row.body.get("on_error") == "keep"
        put = SessionPut(state="FAILED", owner="" if keeps else None, if_state=("ACTIVE",))
        batch = Batch(row.id, (event,), event.at, row.fence, session_put=put)
        try:
            self.rein.observers.notify(await io.commit(batch), batch)
            if keeps:
                return None
            return await self.rollbacks.run(io, row.id, cause="rejected", expect=row.fence)
        except Conflict as problem:
            self.rein.log.info("session %s: %s", row.id, problem)
            return None

    def _abandon(self, row: SessionRow) -> None:
        event = self.rein.journal.event(
            "session_ended", state="ABANDONED", error=f"idle for {self.rein.idle_limit:g} s"
        )
        put = SessionPut(state="ABANDONED", if_state=("ACTIVE",))
        batch = Batch(row.id, (event,), event.at, row.fence, session_put=put)
        try:
            self.rein.observers.notify(self.store.commit(batch), batch)
        except Conflict as problem:
            # Somebody took it up at this moment.
            self.rein.log.info("session %s: %s", row.id, problem)

    def _abandoned(self, waiting: list[str]) -> list[SessionRow]:
        """Sessions that a dead process owned, and those with calls still in doubt."""
        found: dict[str, SessionRow] = {}
        for row in self._ownerless():
            if row.id in found or self.rollbacks.alive(row):
                continue
            if self._asked(row.id):
                waiting.append(row.id)
            else:
                found[row.id] = row
        # Outer sessions first: their rollback walks the inner ones in the right order.
        inner = {row.id for row in found.values() if row.body.get("parent", "") in found}
        return sorted(found.values(), key=lambda row: (row.id in inner, row.created))

    def _ownerless(self) -> Iterator[SessionRow]:
        now = self.rein.clock()
        for lease in self.store.owners():
            if not owner.alive(lease, now):
                yield from self.rein.control.rows(owner=lease.id)
        # A lease may be gone altogether, where its process broke off in a rollback.
        yield from self.rein.control.rows(rollback="rolling_back")
        after: str | None = None
        while True:
            page = self.store.records("doubt", state="open", after=after, limit=500)
            for record in page.rows:
                row = self.store.session(record.id)
                if row is not None:
                    yield row
            after = page.next
            if after is None:
                return

    def _asked(self, session: str) -> bool:
        """Whether a person is still being asked about a call of the run it belongs to."""
        for id in descendants(self.store, root_of(self.store, session)):
            for state in ("pending", "approved"):
                page = self.store.records("approval", state=state, session=id, limit=100)
                if any(not self.rein.approvals.lapsed(r) for r in page.rows):
                    return True
        return False

    async def _one(self, io: IO, row: SessionRow) -> RollbackReport | None:
        current = self.store.session(row.id)
        if current is None or (current.fence, current.owner) != (row.fence, row.owner):
            # Somebody took it up since, or it went with its outer session.
            return None
        try:
            if current.body.get("on_error") == "keep" and current.rollback == "none":
                report = await self._keep(io, current)
            else:
                report = await self.rollbacks.run(io, row.id, cause="recover", expect=current.fence)
        except Conflict as error:
            # Somebody else recovers the session at this moment.
            self.rein.log.info("recover: %s", error)
            return None
        for id in report.sessions:
            await self._settle(io, id)
        return report

    async def _keep(self, io: IO, row: SessionRow) -> RollbackReport:
        """A session whose effects stay: resolve what is in doubt, and end it."""
        report = RollbackReport(row.id, "recover", sessions=[row.id])
        fence = self.store.claim(
            row.id, self.rein.lease.id(), expect=row.fence, at=self.rein.clock()
        )
        for intent in list(unended(self.store, row.id)):
            effect = effect_of(self.store, intent.call)
            if effect is None or effect.state != "unknown":
                continue
            answer = await self.undoing.probe(io, effect)
            wait = self.undoing.settling(effect, effect.intent.at)
            if isinstance(answer, Present):
                await self.undoing.resolve(io, effect, "done", fence, result=answer.result)
            elif not isinstance(answer, Absent):
                why = "nobody can tell whether it took effect"
                report.actions.append(await self.undoing.needs_human(io, effect, fence, why))
            elif wait > 0:
                why = "not there yet; it may still land"
                report.actions.append(
                    Action(effect.call, effect.name, row.id, "in_doubt", why, wait)
                )
            else:
                await self.undoing.resolve(io, effect, "not_done", fence)
        event = self.rein.journal.event("session_ended", state="FAILED", error="owner died")
        put = SessionPut(state="FAILED" if row.state == "ACTIVE" else None, owner="")
        await self.rollbacks.finish(io, row.id, event, fence, put, doubt_of(report.actions))
        return report

    async def _settle(self, io: IO, session: str) -> None:
        """Charge in full what a dead process had started and nobody can measure."""
        for hold in self.store.holds(session=session):
            effect = effect_of(self.store, hold.call)
            if effect is not None and not is_effect(effect.intent):
                await self.undoing.resolve(io, effect, "unknown", None)
            elif effect is None or hold.settle in ("release", "streak"):
                # Nothing runs any more; what may have acted stays charged until it is known.
                batch = Batch(session, (), self.rein.clock(), settles=(SettleRow(hold.id, 0),))
                await io.commit(batch)

    def _forget_owners(self) -> None:
        now = self.rein.clock()
        for lease in self.store.owners():
            if owner.alive(lease, now) or self.store.sessions(owner=lease.id, limit=1).rows:
                continue
            self.store.drop_owner(lease.id)
