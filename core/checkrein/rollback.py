"""Rollback: which sessions are undone, by whom, and in what order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkrein._locks import Lock
from checkrein.call import Call, Outcome
from checkrein.effects import descendants, effect_of, newest_first, unended
from checkrein.engine import outermost
from checkrein.errors import CheckreinError, ConfigError, Conflict, FencedOut, SessionClosed
from checkrein.parts import Part
from checkrein.report import Action, RollbackReport
from checkrein.session import Session
from checkrein.singles import Singles, doubt_of
from checkrein.store import Batch, Put, SessionPut, SessionRow
from checkrein.verdicts import Cause

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


class Rollbacks(Singles):
    """Rollback for one Rein."""

    def __init__(self, rein: Rein) -> None:
        super().__init__(rein)
        self._lock = Lock()
        self._rolling: set[str] = set()
        """Sessions that this process rolls back now."""
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

    # -- asking for it

    async def request(
        self,
        io: IO,
        session_id: str,
        *,
        dry_run: bool = False,
        session: Session | None = None,
        to: int | None = None,
        action: str | None = None,
    ) -> RollbackReport | None:
        """Roll back now, or at the end of the outermost call if asked for inside one."""
        if action is not None:
            if to is not None:
                raise ConfigError("rollback: name one of to= (a step) and action= (a call)")
            return await self.single(io, session_id, action, dry_run=dry_run)
        call = outermost(session_id)
        if call and session is not None and not session.runs(call):
            # A task or thread that outlived its call: nobody is left to do it later.
            call = ""
        if dry_run or not call:
            return await self.run(
                io, session_id, cause="explicit", dry_run=dry_run, session=session, to=to
            )
        if session_id not in self._rolling:
            if session is None:
                session = self.session_of(session_id)
            if to is not None:
                Part(self.store, session_id, to, descendants(self.store, session_id))
            session.rollback_wanted, session.rollback_by = "explicit", call
            session.rollback_to = to
        return None

    async def deferred(self, io: IO, session: Session) -> None:
        """Do what was asked for inside a call that has ended now."""
        cause, session.rollback_wanted, session.rollback_by = session.rollback_wanted, "", ""
        to, session.rollback_to = session.rollback_to, None
        try:
            report = await self.run(
                io, session.id, cause="rejected" if cause == "rejected" else "explicit",
                session=session, to=to,
            )  # fmt: skip
        except CheckreinError as error:
            # The call that asked has ended, with a result or an error of its own to deliver.
            self.rein.log.error("session %s was not rolled back: %s", session.id, error)
            return
        if not report.complete:
            self.rein.log.warning("session %s: %s", session.id, report.summary())

    # -- doing it

    async def run(
        self,
        io: IO,
        session_id: str,
        *,
        cause: Cause,
        dry_run: bool = False,
        session: Session | None = None,
        expect: int | None = None,
        to: int | None = None,
    ) -> RollbackReport:
        """Undo a session and its descendants, newest effect first; with `to`, what came after.

        A failing undo is retried, then left, and the rest goes on. Raises `Conflict` if
        somebody else is rolling the session back, or takes it over on the way, and
        `WouldBlock` where running calls would have to be waited for.
        """
        row = self.store.session(session_id)
        if row is None:
            raise Conflict(f"session {session_id} is unknown here")
        ids = self._tree(session_id, cause)
        part = Part(self.store, session_id, to, ids)
        report = RollbackReport(session_id, cause, dry_run=dry_run, sessions=ids, to=to)
        if dry_run or self._over(ids):
            await self._walk(io, report, part, {}, frozenset(), planned=True)
            return report
        with self._lock:
            if self._rolling.intersection(ids):
                raise Conflict(f"session {session_id} is being rolled back in this process")
            self._rolling.update(ids)
            self._draining.update(ids)
        fences: dict[str, int] = {}
        try:
            if any(s.running for s in self._local(ids)):
                io.may_wait("the end of the session's running calls")
            running = self._running_elsewhere(ids)
            taken = ids
            while taken:
                for id in taken:
                    own = expect if id == session_id else None
                    fences[id] = await self._take(io, id, cause, own)
                # What was begun inside before they were closed: see `Control.admit_inner`.
                taken = self._begun(session_id, cause, fences)
                running |= self._running_elsewhere(taken)
                ids += taken
            limit = self.rein.drain if session is None else session.drain
            busy = await self._drain(io, ids, running, limit)
            with self.rein.telemetry.rollback(session_id, cause, row.body.get("trace", "")):
                await self._walk(io, report, part, fences, busy)
            for id in ids:
                await self._close(io, id, report, fences[id])
        except (FencedOut, SessionClosed) as error:
            raise Conflict(
                f"session {session_id}: another process took the rollback over; it goes on there"
            ) from error
        except BaseException:
            self._interrupted(fences)
            raise
        finally:
            with self._lock:
                self._draining.difference_update(ids)
                self._rolling.difference_update(ids)
        return report

    def _tree(self, session_id: str, cause: Cause) -> list[str]:
        """The session and its descendants; a recovery leaves out those that others run."""
        ids = descendants(self.store, session_id)
        if cause != "recover":
            return ids
        return [id for id in ids if id == session_id or not self._others(self.store.session(id))]

    def _begun(self, session_id: str, cause: Cause, known: Mapping[str, int]) -> list[str]:
        """Sessions of the tree that are not known yet; from now on this process rolls them back."""
        with self._lock:
            found = [
                id
                for id in self._tree(session_id, cause)
                if id not in known and id not in self._rolling
            ]
            self._rolling.update(found)
            self._draining.update(found)
        return found

    def _over(self, ids: Sequence[str]) -> bool:
        rows = [self.store.session(id) for id in ids]
        return all(row is not None and row.rollback == "rolled_back" for row in rows)

    def _local(self, ids: Sequence[str]) -> list[Session]:
        return [s for s in (self.rein.opened(id) for id in ids) if s is not None]

    def _others(self, row: SessionRow | None) -> bool:
        """Whether a living process other than this one owns the session."""
        return row is not None and row.owner != self.rein.lease.id() and self.alive(row)

    def _running_elsewhere(self, ids: Sequence[str]) -> set[str]:
        """Calls that living processes may be executing now."""
        return {
            intent.call
            for id in ids
            if self._others(self.store.session(id))
            for intent in unended(self.store, id)
        }

    async def _take(self, io: IO, id: str, cause: Cause, expect: int | None) -> int:
        """Own the session, and close it to new calls of anybody."""
        row = self.store.session(id)
        if row is None:
            raise Conflict(f"session {id} is unknown here")
        mine = self.rein.lease.id()
        fence = row.fence
        if self._others(row):
            if row.rollback == "rolling_back":
                raise Conflict(f"session {id} is being rolled back by another process")
            if cause != "explicit":
                raise Conflict(f"session {id} is run by another process now")
        if row.owner != mine or expect is not None:
            fence = self.store.claim(
                id, mine, expect=row.fence if expect is None else expect, at=self.rein.clock()
            )
        session = self.rein.opened(id)
        if session is not None:
            session.fence = fence
        event = self.rein.journal.event("rollback_started", cause=cause)
        put = SessionPut(rollback="rolling_back", state="FAILED" if row.state == "ACTIVE" else None)
        batch = Batch(id, (event,), event.at, fence, session_put=put)
        self.rein.observers.notify(await io.commit(batch), batch)
        self.rein.approvals.void(id, "its session is rolled back")
        return fence

    async def _drain(
        self, io: IO, ids: Sequence[str], running: set[str], limit: float
    ) -> frozenset[str]:
        """Wait for running calls, `limit` seconds at most; those that still run."""
        local = self._local(ids)

        def still() -> set[str]:
            done = {call for call in running if self._ended(call)}
            running.difference_update(done)
            return running.union(*(s.calls() for s in local))

        if still():
            await io.wait(
                lambda: not still(),
                time.monotonic() + limit,
                "the end of the session's running calls",
            )
        busy = frozenset(still())
        # From here on a result that lands late is undone by whoever brings it.
        self._draining.difference_update(ids)
        return busy

    def _ended(self, call: str) -> bool:
        effect = effect_of(self.store, call)
        return effect is None or effect.ended or effect.state != "unknown"

    async def _walk(
        self,
        io: IO,
        report: RollbackReport,
        part: Part,
        fences: Mapping[str, int],
        busy: frozenset[str],
        *,
        planned: bool = False,
    ) -> None:
        tried: set[str] = set()
        for intent in newest_first(self.store, report.sessions, tried):
            effect = effect_of(self.store, intent.call, tried=intent.call in tried)
            if effect is None:
                continue
            if not part.holds(intent):
                action = self.undoing.kept(effect, part.outside)
            elif effect.call in busy and not effect.ended:
                detail = "it still runs; its result is undone when it lands"
                action = Action(effect.call, effect.name, effect.session, "in_doubt", detail)
            else:
                action = await self.undoing.undo(
                    io, effect, report.cause, fences.get(effect.session), dry_run=planned
                )
            report.actions.append(action)

    async def _close(self, io: IO, id: str, report: RollbackReport, fence: int) -> None:
        """Record how it ended; an outer session is only rolled back if its inner ones are."""
        tree = set(descendants(self.store, id)) if len(report.sessions) > 1 else {id}
        left = [a for a in report.left if a.session in tree]
        own = [a for a in report.actions if a.session == id]
        whole = not left and all(a.asked or a.status == "absent" for a in own)
        event = self.rein.journal.event(
            "rollback_finished",
            cause=report.cause,
            undone=sum(a.status == "undone" for a in own),
            left=[{"call": a.call, "name": a.name, "status": a.status} for a in left],
        )
        if report.to is not None:
            event.view["to"] = report.to
        put = SessionPut(rollback="rolled_back" if whole else "partial", owner="")
        await self.finish(io, id, event, fence, put, doubt_of(left))

    def _interrupted(self, fences: Mapping[str, int]) -> None:
        """A rollback that was broken off is finished by the next `recover`, of any process."""
        for id, fence in fences.items():
            event = self.rein.journal.event("rollback_finished", interrupted=True)
            put = SessionPut(rollback="partial", owner="")
            puts = (Put("doubt", id, "open", {}, id),)
            try:
                self.store.commit(Batch(id, (event,), event.at, fence, session_put=put, puts=puts))
            except CheckreinError as error:
                self.rein.log.error("session %s stays in rollback: %s", id, error)
