"""Opening, taking up, suspending and ending sessions."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from checkrein import owner
from checkrein._locks import Lock
from checkrein.call import Call, ToolInfo, Usage
from checkrein.entry import Entry
from checkrein.errors import (
    ApprovalExpired,
    ApprovalPending,
    ApprovalRejected,
    CheckreinError,
    ConfigError,
    Conflict,
    Denied,
    FencedOut,
    Paused,
    SessionClosed,
    StoreUnavailable,
)
from checkrein.parts import last_step
from checkrein.session import active
from checkrein.settings import check_texts
from checkrein.store import Batch, Put, SessionPut, SessionRow
from checkrein.tools import Tool

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein
    from checkrein.report import RollbackReport
    from checkrein.session import Session
    from checkrein.verdicts import Cause


class Lifecycle:
    """Opening and ending sessions, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self._lock = Lock()
        self._taken: dict[str, int] = {}
        """How many calls of this process have taken up a suspended session."""

    async def open(self, io: IO, session: Session) -> None:
        """Write the session's row, or take up a suspended one."""
        try:
            await self._open(io, session)
        except StoreUnavailable as problem:
            if self.rein.failure_mode != "open":
                raise
            self.rein.log.error(
                "session %s IS NOT RECORDED (failure_mode=open): its calls run without record and "
                "cannot be undone: %s", session.id, problem,
            )  # fmt: skip
            self.rein.unrecorded.add(session.id)
            self.rein.track(session)

    async def _open(self, io: IO, session: Session) -> None:
        rein = self.rein
        outer = active(rein)
        if outer is not None and not session.parent:
            session.parent, session.root = outer.id, outer.root
        if outer is not None and session.sandbox is None:
            session.sandbox = outer.sandbox
        row = rein.store.session(session.id)
        if row is not None:
            if not self._reopen(session, row):
                raise self.busy(session.id)
            return
        rein.control.admit_inner(outer, session)
        pins = rein.pinning
        trace_parent = session.begin_span()
        event = rein.journal.event(
            "session_started", "", pins.kept(),
            agent=session.agent,
            intent=session.intent
            and rein.journal.view(session_call(session), session.intent, "journal"),
            **({"pins": pins.digest} if pins.digest else {}),
        )  # fmt: skip
        body = {
            "agent": session.agent,
            "user": session.user,
            "tenant": session.tenant,
            "task": session.task,
            "intent": event.view["intent"],
            "parent": session.parent,
            "root": session.root,
            "detached": session.detached,
            "on_error": session.on_error,
            "labels": session.labels,
            "policy": rein.policy,
            "pins": pins.digest,
            "mode": rein.mode,
            "max_resumes": session.max_resumes,
        }
        if session.stateless:
            body["stateless"] = True
        if session.sandbox is not None:
            body["sandbox"] = session.sandbox.recorded or True
        if trace_parent:
            body["trace"] = trace_parent
        put = SessionPut(create=True, state="ACTIVE", owner=rein.lease.id(), body=body)
        committed = await io.commit(Batch(session.id, (event,), event.at, session_put=put))
        session.fence = 1
        rein.control.admit_inner(outer, session)
        rein.track(session)
        rein.observers.notify_one(committed, session.id)

    def _reopen(self, session: Session, row: SessionRow) -> bool:
        """Take up a session that nobody runs; False if another process does."""
        rein = self.rein
        if row.state != "ACTIVE" or row.rollback != "none":
            raise SessionClosed(
                f"session {session.id} is {row.state}"
                + (f" ({row.rollback})" if row.rollback != "none" else "")
                + ": it takes no more calls; open a new one"
            )
        if row.paused:
            raise Paused(
                f"session {session.id} is paused: checkrein continue {session.id} lets it go on"
            )
        mine = rein.lease.id()
        crashed = bool(row.owner) and row.owner != mine
        if crashed and owner.alive(rein.store.owner(row.owner), rein.clock()):
            return False
        if row.body.get("stateless"):
            raise SessionClosed(
                f"session {session.id} is stateless: it ends with the process that began it; open "
                "a new one"
            )
        if row.body.get("sandbox"):
            session.play(row.body["sandbox"])
        resumes = self._resumes(row) if crashed else 0
        session.fence = (
            row.fence
            if row.owner == mine
            else rein.store.claim(session.id, mine, expect=row.fence, at=rein.clock())
        )
        if crashed:
            self._note_crash(session, row, resumes + 1)
        rein.pinning.take_up(session, row)
        body = row.body
        session.agent = session.agent or body.get("agent", "")
        session.user = session.user or body.get("user", "")
        session.tenant = session.tenant or body.get("tenant", "")
        session.parent = body.get("parent", "")
        session.root = body.get("root") or session.id
        session.task = session.task or body.get("task", "")
        session.labels = {**body.get("labels", {}), **session.labels}
        if not session.keeps_setting:
            session.on_error = body.get("on_error", session.on_error)
        session.steps = itertools.count(last_step(rein.store, session.id) + 1)
        session.taken_up = True
        session.begin_span(body.get("trace", ""))
        rein.track(session)
        return True

    def _resumes(self, row: SessionRow) -> int:
        """How often a session was taken up after a crash. Raises `SessionClosed` at the limit."""
        record = self.rein.store.record("resumes", row.id)
        count = int(record.body["count"]) if record is not None else 0
        limit = int(row.body.get("max_resumes", self.rein.max_resumes))
        if count < limit:
            return count
        why = f"crash loop: taken up {count} times after a crash (limit {limit})"
        event = self.rein.journal.event("session_ended", state="FAILED", error=why)
        put = SessionPut(state="FAILED", if_state=("ACTIVE",))
        # Its owner stays the dead one: `recover` finds it, and undoes what it did.
        batch = Batch(row.id, (event,), event.at, row.fence, session_put=put)
        with contextlib.suppress(Conflict):  # somebody else has ended it
            self.rein.observers.notify(self.rein.store.commit(batch), batch)
        raise SessionClosed(
            f"session {row.id} has failed: {why}; mend the cause, then checkrein restart {row.id}"
        )

    def _note_crash(self, session: Session, row: SessionRow, count: int) -> None:
        event = self.rein.journal.event("session_resumed", crashes=count)
        puts = (Put("resumes", row.id, "open", {"count": count}, row.id),)
        batch = Batch(row.id, (event,), event.at, session.fence, puts=puts)
        self.rein.observers.notify(self.rein.store.commit(batch), batch)

    def busy(self, id: str) -> SessionClosed:
        """The error for a session that another process runs."""
        row = self.rein.store.session(id)
        lease = self.rein.store.owner(row.owner) if row is not None else None
        return SessionClosed(
            f"session {id} is being run by another process"
            + (f" (pid {lease.pid})" if lease is not None else "")
            + "; wait for it or stop it"
        )

    def take(self, id: str) -> Session | None:
        """Take up a suspended session for one call; shared with other calls of this process.

        None if another process runs it. Raises `SessionClosed`, and `Conflict` if somebody was
        faster.
        """
        with self._lock:
            session = self.rein.opened(id)
            if session is None:
                row = self.rein.store.session(id)
                if row is None:
                    raise SessionClosed(f"session {id} is unknown here")
                session = self.rein.session(id=id)
                if not self._reopen(session, row):
                    return None
                self._taken[id] = 0
            if id in self._taken:
                self._taken[id] += 1
            return session

    def put_back(self, session: Session) -> None:
        """Give back what `take` gave: the last one leaves the session open, owned by nobody."""
        with self._lock:
            if session.id not in self._taken:
                return
            self._taken[session.id] -= 1
            if self._taken[session.id] > 0:
                return
            del self._taken[session.id]
            if self.rein.opened(session.id) is not session:
                return
            self.rein.untrack(session)
            session.end_span(None)
            with contextlib.suppress(Conflict):  # ended or taken over meanwhile: that stands
                batch = self._suspended(session)
                self.rein.observers.notify(self.rein.store.commit(batch), batch)

    async def release(self, io: IO, session: Session) -> None:
        """Leave a session that was opened for one call: it stays open, nobody owns it."""
        row = self.rein.store.session(session.id)
        if row is not None and row.state == "ACTIVE" and row.owner == self.rein.lease.id():
            await self._suspend(io, session)
        self.rein.untrack(session)
        session.end_span(None)

    def _suspended(self, session: Session) -> Batch:
        event = self.rein.journal.event("session_suspended")
        put = SessionPut(owner="", if_state=("ACTIVE",))
        return Batch(session.id, (event,), event.at, session.fence, session_put=put)

    async def leave(self, io: IO, session: Session, error: BaseException | None) -> None:
        """End the session: completed, suspended, or failed and rolled back."""
        rein = self.rein
        outer = active(rein)
        if session.sandbox is not None and (outer is None or outer.sandbox is not session.sandbox):
            session.sandbox.tell()
        if session.id in rein.unrecorded:
            rein.untrack(session)
            rein.unrecorded.discard(session.id)
            return
        try:
            if isinstance(error, (ApprovalPending, Paused, *rein.pause_signals)):
                await self._suspend(io, session)
            elif error is None or isinstance(error, GeneratorExit):
                if error is None and (session.waiting or self._waits(session)):
                    await self._suspend(io, session)
                else:
                    await self._well(io, session, judged=error is None)
            else:
                await self._end(io, session, "FAILED", type(error).__name__)
                rein.approvals.void(session.id, "its session failed")
                if (
                    session.on_error == "rollback"
                    and not session.rollback_wanted
                    # A review that said no has taken back its one action.
                    and not (isinstance(error, Denied) and error.review)
                ):
                    await self._rolled(io, session, error)
        except CheckreinError as problem:
            if error is None:
                if rein.failure_mode == "closed" or not isinstance(problem, StoreUnavailable):
                    raise
                rein.log.error("the end of session %s IS NOT RECORDED: %s", session.id, problem)
            else:
                error.add_note(f"checkrein: the end of session {session.id}: {problem}")
        finally:
            rein.untrack(session)

    async def _well(self, io: IO, session: Session, *, judged: bool) -> None:
        """End a session without an error; where it did something else than meant, by setting."""
        found = None
        if judged and self.rein.judge is not None and session.sandbox is None:
            from checkrein.intent import check

            row = self.rein.store.session(session.id)
            if row is not None and row.state == "ACTIVE":
                found = await check(self.rein, io, session)
        drift = found is not None and found.verdict == "DRIFT_DETECTED"
        if not drift or self.rein.on_drift == "keep":
            await self._end(io, session, "COMPLETED", "")
            return
        await self._end(io, session, "FAILED", "drift from its intent", keeps=False)
        report = await self.rein.rollbacks.run(io, session.id, cause="error", session=session)
        self.rein.log.warning(
            "session %s drifted from its intent: %s", session.id, report.summary()
        )

    def _waits(self, session: Session) -> bool:
        """Whether a call of this session still waits for a person: it must stay open for it."""
        store = self.rein.store
        records = [store.record("approval", id) for id in session.tokens]
        if session.taken_up:
            for state in ("pending", "approved"):
                records += store.records("approval", state=state, session=session.id).rows
        return any(
            record is not None
            and record.body["kind"] == "before"
            and record.state in ("pending", "approved")
            and not self.rein.approvals.lapsed(record)
            for record in records
        )

    async def _rolled(self, io: IO, session: Session, error: BaseException) -> None:
        """Roll back after a failure; what is left is told beside the error, never instead."""
        cause: Cause = "rejected" if _refused(error) else "error"
        try:
            report = await self.rein.rollbacks.run(io, session.id, cause=cause, session=session)
        except CheckreinError as problem:
            error.add_note(f"checkrein: the rollback of session {session.id} failed: {problem}")
            return
        if report.actions:
            error.add_note(f"checkrein: session {session.id}: {report.summary()}")

    async def fail(self, io: IO, session: Session, reason: str) -> RollbackReport | None:
        """A reported failure: end the session, and roll it back unless its effects are kept."""
        check_texts({"reason": reason})
        row = self.rein.store.session(session.id)
        if row is None or row.state != "ACTIVE":
            raise SessionClosed(
                f"session {session.id} is {row.state if row is not None else 'not open'}: "
                "it cannot fail any more"
            )
        shown = str(self.rein.journal.view(session_call(session), reason, "journal"))
        keeps = session.on_failed == "keep"
        await self._end(io, session, "FAILED", shown, keeps=keeps)
        if keeps:
            return None
        return await self.rein.rollbacks.request(io, session.id, session=session)

    async def _end(
        self, io: IO, session: Session, state: Any, error: str, *, keeps: bool | None = None
    ) -> None:
        if keeps is None:
            keeps = state == "COMPLETED" or session.on_error == "keep"
        put = SessionPut(state=state, owner="" if keeps else None, if_state=("ACTIVE",))
        if keeps and self.rein.store.record("reverted", session.id) is not None:
            # Some of it was taken back while it ran: it has not simply ended well.
            put.rollback = "partial"
        event = self.rein.journal.event("session_ended", state=state, error=error)
        batch = Batch(session.id, (event,), event.at, session.fence, session_put=put)
        await self._change(io, session, batch)

    async def _suspend(self, io: IO, session: Session) -> None:
        await self._change(io, session, self._suspended(session))

    async def _change(self, io: IO, session: Session, batch: Batch) -> None:
        """Change the row of an active session that is still ours."""
        try:
            committed = await io.commit(batch)
        except FencedOut:
            # Somebody took it over while this process stood still: it is theirs to end.
            self.rein.log.warning("session %s is run by another process now", session.id)
        except Conflict:
            return  # it was ended or rolled back from elsewhere: that stands
        else:
            self.rein.observers.notify(committed, batch)

    async def record_usage(self, io: IO, session: Session, usage: Usage, model: str) -> None:
        """A model call that ran elsewhere: measured and settled like any other."""
        given: object = usage
        if not isinstance(given, Usage) or not given.sound():
            raise ConfigError("record_usage: usage must be a Usage with whole counts, 0 or more")
        entry = Entry(
            Tool(ToolInfo(model, effect="read"), None),
            {"system": None, "messages": [], "tools": []},
            session,
            kind="model",
            name=model,
            run=lambda call, exact: None,
            usage=lambda value: usage,
            happened=True,
        )
        await self.rein.engine.run(io, entry)
        if entry.refusal is not None:
            raise entry.refusal


def session_call(session: Session) -> Any:
    """A call to hand to `view` for text that belongs to a session, not to a call."""
    return Call("", session.id, "tool", "", {}, ToolInfo(""), agent=session.agent)


def _refused(error: BaseException) -> bool:
    return isinstance(error, (ApprovalRejected, ApprovalExpired))
