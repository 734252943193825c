"""A session: the calls of one run, undone together."""

from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from checkrein._io import finish
from checkrein.call import NANO
from checkrein.errors import ApprovalPending, CheckreinError
from checkrein.store import Event

if TYPE_CHECKING:
    from types import TracebackType

    from checkrein._io import IO
    from checkrein.call import Usage
    from checkrein.rein import Rein
    from checkrein.rollback import RollbackReport
    from checkrein.store import SessionPut
    from checkrein.verdicts import Cause

F = TypeVar("F", bound=Callable[..., Any])

ACTIVE: contextvars.ContextVar[Session | None] = contextvars.ContextVar(
    "checkrein_session", default=None
)
"""The session that calls of this context belong to."""


@dataclass(frozen=True, slots=True)
class Spend:
    """What a session used, its sub-sessions included."""

    nano_usd: int = 0
    tokens: int = 0
    calls: int = 0
    """Attempts that were started."""
    unpriced: int = 0
    """Calls of which the price is not known: they are not free, they are not counted."""

    @property
    def usd(self) -> float:
        """Dollars, for display; sums are kept in integer nano-dollars."""
        return self.nano_usd / NANO


class Session:
    """One run of an agent. Enter it with `with` or `async with`."""

    def __init__(
        self,
        rein: Rein,
        id: str,
        *,
        agent: str = "",
        intent: str = "",
        user: str | None = None,
        tenant: str | None = None,
        task: str = "",
        labels: Mapping[str, str] | None = None,
        detached: bool = False,
        wait: str | None = None,
        on_error: str | None = None,
        on_rejected: str | None = None,
        drain: float | None = None,
    ) -> None:
        self.rein = rein
        self.id = id
        self.agent = agent
        self.intent = intent
        self.user = user or ""
        self.tenant = tenant or ""
        self.task = task
        self.labels = dict(labels or {})
        self.detached = detached
        self.wait = wait or rein.wait
        self.on_error = on_error or rein.on_error
        self.keeps_setting = on_error is not None
        """Whether `on_error` was given: a session that is taken up goes by what it began with."""
        self.on_rejected = on_rejected or rein.on_rejected
        self.drain = rein.drain if drain is None else drain
        self.parent = ""
        self.steps = itertools.count(1)
        self.running: set[str] = set()
        """Ids of calls that this process is executing."""
        self.late: set[str] = set()
        """Ids of calls that were given up and may still act."""
        self.waiting: set[str] = set()
        """What a framework paused this run for: leaving it without an error then suspends it."""
        self.fence: int | None = None
        self.rollback_wanted = ""
        self.rollback_by = ""
        """Id of the call at whose end the rollback is done that was asked for inside it."""
        self.before: Session | None = None
        """The session that was active when this one was entered."""
        self._span: Any = None
        self._span_use: Any = None

    def __repr__(self) -> str:
        return f"Session({self.id!r}, agent={self.agent!r})"

    # -- entering and leaving

    def __enter__(self) -> Session:
        finish(self.rein.lifecycle.open(self.rein.sync_io, self))
        self._activate()
        return self

    async def __aenter__(self) -> Session:
        await self.rein.lifecycle.open(self.rein.async_io, self)
        self._activate()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deactivate()
        finish(self.rein.lifecycle.leave(self.rein.sync_io, self, error))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deactivate()
        await self.rein.lifecycle.leave(self.rein.async_io, self, error)

    def _activate(self) -> None:
        self.before = ACTIVE.get()
        ACTIVE.set(self)

    def _deactivate(self) -> None:
        # Never by token: the block may be left in another context than it was entered in.
        if ACTIVE.get() is self:
            ACTIVE.set(self.before)

    def bind(self, fn: F) -> F:
        """`fn` as a function whose calls belong to this session, on whatever thread it runs.

        For executor threads and callbacks, which do not inherit the context.
        """
        if inspect.isasyncgenfunction(fn):

            async def stream(*args: Any, **kwargs: Any) -> Any:
                iterator = fn(*args, **kwargs)
                while True:
                    before = ACTIVE.get()
                    ACTIVE.set(self)
                    try:
                        item = await anext(iterator)
                    except StopAsyncIteration:
                        return
                    finally:
                        ACTIVE.set(before)
                    yield item

            return cast("F", functools.wraps(fn)(stream))
        if inspect.iscoroutinefunction(fn):

            async def later(*args: Any, **kwargs: Any) -> Any:
                before = ACTIVE.get()
                ACTIVE.set(self)
                try:
                    return await fn(*args, **kwargs)
                finally:
                    ACTIVE.set(before)

            return cast("F", functools.wraps(fn)(later))

        @functools.wraps(fn)
        def now(*args: Any, **kwargs: Any) -> Any:
            before = ACTIVE.get()
            ACTIVE.set(self)
            try:
                return fn(*args, **kwargs)
            finally:
                ACTIVE.set(before)

        return cast("F", now)

    # -- acting

    def rollback(self, *, dry_run: bool = False) -> RollbackReport | None:
        """Undo this session's effects, newest first.

        Inside a call of the session it is deferred to the outermost call, and None returned.
        """
        return finish(
            self.rein.rollbacks.request(self.rein.sync_io, self.id, dry_run=dry_run, session=self)
        )

    async def arollback(self, *, dry_run: bool = False) -> RollbackReport | None:
        """The async twin of `rollback`."""
        return await self.rein.rollbacks.request(
            self.rein.async_io, self.id, dry_run=dry_run, session=self
        )

    def record_usage(self, usage: Usage, *, model: str) -> None:
        """Put a model call that ran elsewhere on the bill; limits count it like any other."""
        finish(self.rein.lifecycle.record_usage(self.rein.sync_io, self, usage, model))

    # -- looking

    def events(self) -> Iterator[Event]:
        """All events of this session, oldest first, read page by page."""
        return self.rein.read(self.id).events()

    def spend(self) -> Spend:
        """What this session and its sub-sessions used so far."""
        return self.rein.read(self.id).spend()

    @property
    def state(self) -> str:
        """The stored state: ACTIVE, COMPLETED, FAILED or ABANDONED."""
        row = self.rein.store.session(self.id)
        return row.state if row is not None else ""


class Lifecycle:
    """Opening and ending sessions, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein

    async def open(self, io: IO, session: Session) -> None:
        """Write the session's row, or take up a suspended one."""
        from checkrein.store import Batch, SessionPut

        rein = self.rein
        outer = ACTIVE.get()
        if outer is not None and outer.rein is rein and not session.parent:
            session.parent = outer.id
        row = rein.store.session(session.id)
        if row is not None:
            await self._reopen(io, session, row)
            return
        event = rein.journal.event(
            "session_started",
            agent=session.agent,
            intent=rein.journal.view(_session_call(session), session.intent, "journal"),
        )
        body = {
            "agent": session.agent,
            "user": session.user,
            "tenant": session.tenant,
            "task": session.task,
            "intent": event.view["intent"],
            "parent": session.parent,
            "detached": session.detached,
            "on_error": session.on_error,
            "labels": session.labels,
            "policy": rein.policy,
            "mode": rein.mode,
        }
        put = SessionPut(create=True, state="ACTIVE", owner=rein.owner_id(), body=body)
        committed = await io.commit(Batch(session.id, (event,), event.at, session_put=put))
        session.fence = 1
        rein.track(session)
        rein.notify_if_observed(committed, session.id)

    async def _reopen(self, io: IO, session: Session, row: Any) -> None:
        from checkrein import owner
        from checkrein.errors import SessionClosed

        rein = self.rein
        if row.state != "ACTIVE" or row.rollback != "none":
            raise SessionClosed(
                f"session {session.id} is {row.state}"
                + (f" ({row.rollback})" if row.rollback != "none" else "")
                + ": it takes no more calls; open a new one"
            )
        mine = rein.owner_id()
        if row.owner and row.owner != mine and owner.alive(rein.store.owner(row.owner), rein.clock()):
            raise SessionClosed(
                f"session {session.id} is being run by another process (pid "
                f"{getattr(rein.store.owner(row.owner), 'pid', '?')}); wait for it or stop it"
            )
        session.fence = (
            row.fence
            if row.owner == mine
            else rein.store.claim(session.id, mine, expect=row.fence, at=rein.clock())
        )
        body = row.body
        session.agent = session.agent or body.get("agent", "")
        session.user = session.user or body.get("user", "")
        session.tenant = session.tenant or body.get("tenant", "")
        session.parent = body.get("parent", "")
        session.task = session.task or body.get("task", "")
        session.labels = {**body.get("labels", {}), **session.labels}
        if not session.keeps_setting:
            session.on_error = body.get("on_error", session.on_error)
        last = rein.store.events(session=session.id, kinds=("intent",), reverse=True, limit=1)
        session.steps = itertools.count(last[0].view.get("step", 0) + 1 if last else 1)
        rein.track(session)

    async def leave(self, io: IO, session: Session, error: BaseException | None) -> None:
        """End the session: completed, suspended, or failed and rolled back."""
        rein = self.rein
        if error is None and session.waiting:
            await self._suspend(io, session)
        elif error is None or isinstance(error, GeneratorExit):
            await self._end(io, session, "COMPLETED", "")
        elif isinstance(error, ApprovalPending) or _is_signal(error, rein):
            await self._suspend(io, session)
        else:
            await self._end(io, session, "FAILED", type(error).__name__)
            if session.on_error == "rollback" and not session.rollback_wanted:
                await self._rolled(io, session, error)
        rein.untrack(session)

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

    async def _end(self, io: IO, session: Session, state: Any, error: str) -> None:
        from checkrein.store import SessionPut

        keeps = state == "COMPLETED" or session.on_error == "keep"
        put = SessionPut(state=state, owner="" if keeps else None)
        await self._change(io, session, put, "session_ended", state=state, error=error)

    async def _suspend(self, io: IO, session: Session) -> None:
        from checkrein.store import SessionPut

        await self._change(io, session, SessionPut(owner=""), "session_suspended")

    async def _change(
        self, io: IO, session: Session, put: SessionPut, kind: str, **view: Any
    ) -> None:
        """Change the row of an active session that is still ours."""
        from checkrein.errors import Conflict, FencedOut
        from checkrein.store import Batch

        put.if_state = ("ACTIVE",)
        event = self.rein.journal.event(kind, **view)
        batch = Batch(session.id, (event,), event.at, session.fence, session_put=put)
        try:
            committed = await io.commit(batch)
        except FencedOut:
            # Somebody took it over while this process stood still: it is theirs to end.
            self.rein.log.warning("session %s is run by another process now", session.id)
            return
        except Conflict:
            return  # it was ended or rolled back from elsewhere: that stands
        self.rein.notify_if_observed(committed, session.id)

    async def release(self, io: IO, session: Session) -> None:
        """Leave a session that was taken up for one call: it stays open, nobody owns it."""
        row = self.rein.store.session(session.id)
        if row is not None and row.state == "ACTIVE" and row.owner == self.rein.owner_id():
            await self._suspend(io, session)
        self.rein.untrack(session)

    def stop(self, session_id: str | None, agent: str | None, all: bool) -> int:
        """Mark sessions as stopped: their next call is refused, in whatever process."""
        from checkrein.errors import ConfigError, Conflict
        from checkrein.store import Batch, SessionPut

        if sum((session_id is not None, agent is not None, all)) != 1:
            raise ConfigError("stop: name one of session_id, agent= or all=True")
        store = self.rein.store
        if session_id is not None:
            ids = [session_id]
            if store.session(session_id) is None:
                raise Conflict(f"session {session_id} is unknown here")
        else:
            ids = []
            after: str | None = None
            while True:
                page = store.sessions(state="ACTIVE", agent=agent, after=after, limit=1000)
                ids += [row.id for row in page.rows]
                after = page.next
                if after is None:
                    break
        for id in ids:
            event = self.rein.journal.event("session_stopped")
            batch = Batch(id, (event,), event.at, session_put=SessionPut(stopped=True))
            self.rein.notify(store.commit(batch), batch)
        return len(ids)

    async def record_usage(
        self, io: IO, session: Session, usage: Usage, model: str
    ) -> None:
        """A model call that ran elsewhere: measured and settled like any other."""
        from checkrein.call import ToolInfo
        from checkrein.engine import Entry
        from checkrein.tools import Tool

        entry = Entry(
            tool=Tool(ToolInfo(model, effect="read"), None),
            arguments={"system": None, "messages": [], "tools": []},
            session=session,
            kind="model",
            name=model,
            run=lambda call, exact: None,
            usage=lambda value: usage,
        )
        await self.rein.engine.run(io, entry)


def _session_call(session: Session) -> Any:
    """A call to hand to `view` for text that belongs to a session, not to a call."""
    from checkrein.call import Call, ToolInfo

    return Call("", session.id, "tool", "", {}, ToolInfo(""), agent=session.agent)


def _is_signal(error: BaseException, rein: Rein) -> bool:
    return isinstance(error, tuple(rein.pause_signals))


def _refused(error: BaseException) -> bool:
    from checkrein.errors import ApprovalExpired, ApprovalRejected

    return isinstance(error, (ApprovalRejected, ApprovalExpired))
