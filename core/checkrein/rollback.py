"""Rollback and recovery: which sessions are undone, by whom, and in what order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein import owner
from checkrein.call import Absent, Call, Outcome, Present
from checkrein.effects import descendants, effect_of, newest_first, unended
from checkrein.engine import Entry, inside
from checkrein.errors import CheckreinError, Conflict, FencedOut
from checkrein.session import Session
from checkrein.store import Batch, Put, SessionPut, SessionRow
from checkrein.undoing import LEFT, Action, Undoing
from checkrein.verdicts import Cause

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


@dataclass(slots=True)
class RollbackReport:
    """What a rollback did, effect by effect."""

    session: str
    cause: str
    actions: list[Action] = field(default_factory=list)
    """Newest effect first."""
    dry_run: bool = False

    @property
    def left(self) -> list[Action]:
        """Effects that stay, or may stay."""
        return [a for a in self.actions if a.status in LEFT]

    @property
    def complete(self) -> bool:
        """Whether nothing is left."""
        return not self.left

    def summary(self) -> str:
        """One line: how many of each status."""
        counts: dict[str, int] = {}
        for action in self.actions:
            counts[action.status] = counts.get(action.status, 0) + 1
        told = ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing to undo"
        names = ", ".join(f"{a.name} {a.call}" for a in self.left)
        return f"rollback: {told}" + (f"; left: {names}" if names else "")


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


class Rollbacks:
    """Rollback and recovery for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self.undoing = Undoing(rein)
        self._draining: set[str] = set()
        self._sessions: dict[str, Session] = {}

    def session_of(self, id: str) -> Session:
        """The open session, or a stand-in that undo calls of another process's session run in."""
        session = self.rein.opened(id) or self._sessions.get(id)
        if session is None:
            row = self.store.session(id)
            body = row.body if row is not None else {}
            session = self.rein.session(
                body.get("agent", ""), id=id, user=body.get("user", ""),
                tenant=body.get("tenant", ""), task=body.get("task", ""), on_error="keep",
            )  # fmt: skip
            self._sessions = {**dict(list(self._sessions.items())[-63:]), id: session}
        return session

    async def supplied(
        self, io: IO, call: Call, outcome: Outcome, cause: Cause
    ) -> tuple[dict[str, Any] | None, str]:
        """A plan from `on_rollback` plugins."""
        return await self.undoing.supplied(io, call, outcome, cause)

    async def request(
        self, io: IO, session_id: str, *, dry_run: bool = False, session: Session | None = None
    ) -> RollbackReport | None:
        """Roll back now, or at the end of the outermost call if asked for inside one."""
        if not dry_run and inside(session_id):
            if session is None:
                session = self.session_of(session_id)
            session.rollback_wanted = "explicit"
            return None
        return await self.run(io, session_id, cause="explicit", dry_run=dry_run, session=session)

    async def deferred(self, io: IO, session: Session) -> None:
        """Do what was asked for inside a call that has ended now."""
        cause, session.rollback_wanted = session.rollback_wanted, ""
        if cause:
            report = await self.run(
                io, session.id, cause="rejected" if cause == "rejected" else "explicit",
                session=session,
            )  # fmt: skip
            if not report.complete:
                self.rein.log.warning("session %s: %s", session.id, report.summary())

    async def run(
        self,
        io: IO,
        session_id: str,
        *,
        cause: Cause,
        dry_run: bool = False,
        session: Session | None = None,
        expect: int | None = None,
    ) -> RollbackReport:
        """Undo a session and its descendants, newest effect first.

        A failing undo is retried, then left, and the rest goes on. Raises `Conflict` if
        somebody else is rolling the session back, or takes it over on the way.
        """
        report = RollbackReport(session_id, cause, dry_run=dry_run)
        ids = descendants(self.store, session_id)
        if self.store.session(session_id) is None:
            raise Conflict(f"session {session_id} is unknown here")
        fences: dict[str, int | None] = dict.fromkeys(ids)
        if not dry_run:
            for id in ids:
                fences[id] = await self._take(io, id, cause, expect if id == session_id else None)
            self._draining.update(ids)
            try:
                await self._drain(io, ids, session)
            finally:
                self._draining.difference_update(ids)
        try:
            for intent in newest_first(self.store, ids):
                effect = effect_of(self.store, intent.call)
                if effect is not None:
                    report.actions.append(
                        await self.undoing.undo(
                            io, effect, cause, fences[effect.session], dry_run=dry_run
                        )
                    )
            if not dry_run:
                for id in ids:
                    await self._close(io, id, report, fences[id])
        except FencedOut as error:
            raise Conflict(
                f"session {session_id}: another process took the rollback over; it goes on there"
            ) from error
        return report

    async def _take(self, io: IO, id: str, cause: Cause, expect: int | None) -> int:
        """Own the session, and close it to new calls of anybody."""
        row = self.store.session(id)
        if row is None:
            raise Conflict(f"session {id} is unknown here")
        mine = self.rein.owner_id()
        fence = row.fence
        if row.owner != mine or expect is not None:
            busy = row.rollback == "rolling_back" and self._alive(row)
            if busy and row.owner != mine:
                raise Conflict(f"session {id} is being rolled back by another process")
            fence = self.store.claim(
                id, mine, expect=row.fence if expect is None else expect, at=self.rein.clock()
            )
        session = self.rein.opened(id)
        if session is not None:
            session.fence = fence
        event = self.rein.journal.event("rollback_started", cause=cause)
        put = SessionPut(
            rollback="rolling_back", state="FAILED" if row.state == "ACTIVE" else None
        )
        batch = Batch(id, (event,), event.at, fence, session_put=put)
        self.rein.notify(await io.commit(batch), batch)
        return fence

    def _alive(self, row: SessionRow) -> bool:
        return bool(row.owner) and owner.alive(self.store.owner(row.owner), self.rein.clock())

    async def _drain(self, io: IO, ids: Sequence[str], session: Session | None) -> None:
        """Wait for running calls, `drain` seconds at most."""
        limit = self.rein.drain if session is None else session.drain
        local = [s for s in (self.rein.opened(id) for id in ids) if s is not None]
        if any(s.running for s in local):
            await io.wait(
                lambda: not any(s.running for s in local),
                time.monotonic() + limit,
                "the end of the session's running calls",
            )

    async def _close(self, io: IO, id: str, report: RollbackReport, fence: int | None) -> None:
        own = [a for a in report.actions if a.session == id]
        left = [a for a in own if a.status in LEFT]
        doubt = any(a.status == "in_doubt" for a in own)
        event = self.rein.journal.event(
            "rollback_finished",
            cause=report.cause,
            undone=sum(a.status == "undone" for a in own),
            left=[{"call": a.call, "name": a.name, "status": a.status} for a in left],
        )
        put = SessionPut(rollback="partial" if left else "rolled_back", owner="")
        puts = (Put("doubt", id, "open" if doubt else "closed", {}, id),)
        batch = Batch(id, (event,), event.at, fence, session_put=put, puts=puts)
        self.rein.notify(await io.commit(batch), batch)

    async def one(self, io: IO, session_id: str, call: str, cause: Cause) -> Action | None:
        """Undo one effect and leave the session as it is."""
        effect = effect_of(self.store, call)
        if effect is None:
            return None
        return await self.undoing.undo(io, effect, cause, None)

    async def late(self, io: IO, session_id: str, call: str) -> None:
        """A result landed in a session that is rolled back: undo it at once."""
        if session_id in self._draining:
            return
        try:
            action = await self.one(io, session_id, call, "error")
        except CheckreinError as error:
            self.rein.log.error("late result of call %s: %s", call, error)
            return
        if action is not None and action.status in LEFT:
            self.rein.log.error(
                "late result of %s %s in a rolled back session: %s (%s)",
                action.name, call, action.status, action.detail,
            )  # fmt: skip

    async def ask(self, io: IO, call: Call, entry: Entry) -> Outcome | bool | None:
        """Resolve a call in doubt for a resumed run: its outcome, False = never ran, None."""
        effect = effect_of(self.store, call.id)
        if effect is None:
            return False
        answer = await self.undoing.probe(io, effect)
        if isinstance(answer, Absent) and self.undoing.settling(effect, effect.last_at) <= 0:
            await self.undoing.resolve(io, effect, "not_done", None)
            return False
        if isinstance(answer, Present):
            await self.undoing.resolve(io, effect, "done", None, result=answer.result)
            value = answer.result
            return Outcome("done", value, source="probe")
        return None

    # -- recovery

    async def recover(self, io: IO, *, settle: bool = False) -> RecoverReport:
        """Finish what dead processes left behind."""
        report = RecoverReport()
        done: dict[str, RollbackReport] = {}
        while True:
            report.waiting = []
            for row in self._abandoned(report.waiting):
                found = await self._recover_one(io, row)
                if found is not None:
                    done[row.id] = found
            report.sessions = list(done.values())
            wait = report.wait
            if not settle or wait <= 0:
                break
            await io.sleep(wait + 0.01)
        self._forget_owners()
        return report

    def _abandoned(self, waiting: list[str]) -> list[SessionRow]:
        """Sessions that a dead process owned, and those with calls still in doubt."""
        now = self.rein.clock()
        found: dict[str, SessionRow] = {}
        for lease in self.store.owners():
            if owner.alive(lease, now):
                continue
            after: str | None = None
            while True:
                page = self.store.sessions(owner=lease.id, after=after, limit=500)
                for row in page.rows:
                    if self._asked(row.id):
                        waiting.append(row.id)
                    else:
                        found[row.id] = row
                after = page.next
                if after is None:
                    break
        doubts = self.store.records("doubt", state="open", limit=1000)
        for record in doubts.rows:
            row = self.store.session(record.id)
            if row is not None and not self._alive(row):
                found.setdefault(row.id, row)
        inner = {row.body.get("parent", "") for row in found.values()}
        # Outer sessions first: their rollback walks the inner ones in the right order.
        return sorted(found.values(), key=lambda r: (r.id not in inner, r.created))

    def _asked(self, session: str) -> bool:
        """Whether a person is still being asked about a call of the session."""
        now = self.rein.clock()
        for state in ("pending", "approved"):
            page = self.store.records("approval", state=state, session=session, limit=10)
            if any(r.body["expires"] > now for r in page.rows):
                return True
        return False

    async def _recover_one(self, io: IO, row: SessionRow) -> RollbackReport | None:
        current = self.store.session(row.id)
        if current is None or (current.rollback == "rolled_back"):
            return None
        try:
            if current.body.get("on_error") == "keep" and current.rollback == "none":
                return await self._keep(io, current)
            report = await self.run(io, row.id, cause="recover", expect=current.fence)
        except Conflict as error:
            # Somebody else recovers the session at this moment.
            self.rein.log.info("recover: %s", error)
            return None
        for id in descendants(self.store, row.id):
            await self._settle_models(io, id)
        return report

    async def _keep(self, io: IO, row: SessionRow) -> RollbackReport:
        """A session whose effects stay: resolve what is in doubt, and end it."""
        report = RollbackReport(row.id, "recover")
        fence = self.store.claim(
            row.id, self.rein.owner_id(), expect=row.fence, at=self.rein.clock()
        )
        for intent in list(unended(self.store, row.id)):
            effect = effect_of(self.store, intent.call)
            if effect is None or intent.view.get("kind") != "tool":
                continue
            if intent.view.get("effect") == "read":
                continue
            answer = await self.undoing.probe(io, effect)
            wait = self.undoing.settling(effect, effect.last_at)
            if isinstance(answer, Present):
                await self.undoing.resolve(io, effect, "done", fence, result=answer.result)
            elif isinstance(answer, Absent) and wait <= 0:
                await self.undoing.resolve(io, effect, "not_done", fence)
            else:
                status = "in_doubt" if isinstance(answer, Absent) else "needs_human"
                report.actions.append(
                    Action(effect.call, effect.name, row.id, status, "its effect is unknown",
                           wait if status == "in_doubt" else 0.0)
                )  # fmt: skip
        await self._settle_models(io, row.id)
        doubt = any(a.status == "in_doubt" for a in report.actions)
        event = self.rein.journal.event("session_ended", state="FAILED", error="owner died")
        put = SessionPut(state="FAILED" if row.state == "ACTIVE" else None, owner="")
        puts = (Put("doubt", row.id, "open" if doubt else "closed", {}, row.id),)
        batch = Batch(row.id, (event,), event.at, fence, session_put=put, puts=puts)
        self.rein.notify(await io.commit(batch), batch)
        return report

    async def _settle_models(self, io: IO, session: str) -> None:
        """Charge in full what a dead process had started and nobody can measure."""
        for intent in list(unended(self.store, session)):
            reads = intent.view.get("kind") == "model" or intent.view.get("effect") == "read"
            if not reads:
                continue
            effect = effect_of(self.store, intent.call)
            if effect is not None:
                await self.undoing.resolve(io, effect, "unknown", None)

    def _forget_owners(self) -> None:
        now = self.rein.clock()
        for lease in self.store.owners():
            if owner.alive(lease, now) or self.store.sessions(owner=lease.id, limit=1).rows:
                continue
            self.store.drop_owner(lease.id)
