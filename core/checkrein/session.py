"""A session: the calls of one run, undone together."""

from __future__ import annotations

import contextvars
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from checkrein._io import finish
from checkrein.call import NANO
from checkrein.errors import ConfigError, SessionClosed
from checkrein.settings import check_numbers, check_texts
from checkrein.store import Event
from checkrein.store._rules import ANCHORS
from checkrein.telemetry import enter, leave, place, use

if TYPE_CHECKING:
    from types import TracebackType

    from checkrein.call import Usage
    from checkrein.pinning import Pinned
    from checkrein.rein import Rein
    from checkrein.report import RollbackReport
    from checkrein.sandbox import Planned, Sandbox

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
    """Calls of which the price is not known: they are not free. What a budget charged for them
    is counted; without a budget nothing is."""
    estimated: int = 0
    """Calls whose cost is an estimate, or what a budget charged."""

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
        on_failed: str | None = None,
        drain: float | None = None,
        max_resumes: int | None = None,
        stateless: bool = False,
        sandbox: bool | str = False,
    ) -> None:
        self.rein = rein
        self.id = id
        self.agent = agent
        self.intent = intent
        self.user = user or ""
        self.tenant = tenant or ""
        self.task = task
        self.labels = labels_of(labels or {})
        self.detached = detached
        self.wait = wait or rein.wait
        self.on_error = on_error or rein.on_error
        self.keeps_setting = on_error is not None
        """Whether `on_error` was given: a session that is taken up goes by what it began with."""
        self.on_rejected = on_rejected or rein.on_rejected
        self.on_failed = on_failed or rein.on_failed
        numbers = {"drain": drain, "max_resumes": max_resumes}
        check_numbers({key: value for key, value in numbers.items() if value is not None})
        self.max_resumes = rein.max_resumes if max_resumes is None else max_resumes
        self.stateless = stateless
        """It ends with its process: nobody takes it up again."""
        self.sandbox: Sandbox | None = None
        """Nothing runs: its calls are answered by this."""
        if sandbox:
            self.play(sandbox)
        self.drain = rein.drain if drain is None else float(drain)
        check_texts({"agent": agent, "session id": id}, names=True)
        if id == ANCHORS:
            # The audit's own: nothing in it is covered by an anchor.
            raise ConfigError(f"session id {id!r} is taken by the audit: name another one")
        check_texts({"intent": intent, "user": self.user, "tenant": self.tenant, "task": task})
        self.pid = os.getpid()
        """The process that entered it: a child that was forked inside the block ends nothing."""
        self.parent = ""
        self.root = id
        """The outermost session that it lies in: the run."""
        self.steps = itertools.count(1)
        self.running: set[str] = set()
        """Marks of the calls that this process is executing: see `runs`."""
        self.late: set[str] = set()
        """Ids of calls that were given up and may still act."""
        self.fence: int | None = None
        self.rollback_wanted = ""
        self.rollback_by = ""
        """Id of the call at whose end the rollback is done that was asked for inside it."""
        self.rollback_to: int | None = None
        self.pinned: Pinned | None = None
        """What it began under and this process does not have: asked beside its own plugins."""
        self.taken_up = False
        """It was suspended before, perhaps by another process."""
        self.waiting: set[str] = set()
        """What a framework paused this run for: leaving it without an error then suspends it."""
        self.tokens: set[str] = set()
        """Approvals for which calls of this block were suspended."""
        self.before: Session | None = None
        """The session that was active around this one."""
        self._span: Any = None
        self._span_before: Any = None

    def __repr__(self) -> str:
        return f"Session({self.id!r}, agent={self.agent!r})"

    def play(self, recorded: bool | str) -> None:
        """Be a sandbox, unless it is one: nothing runs. `recorded`: a session, if it answers."""
        if self.sandbox is None:
            from checkrein.sandbox import Sandbox

            self.sandbox = Sandbox(self.rein, recorded if isinstance(recorded, str) else None)

    def calls(self) -> set[str]:
        """Ids of the calls that this process is executing, or gave up and may still act."""
        return {mark.partition("#")[0] for mark in list(self.running)}

    def runs(self, call: str) -> bool:
        """Whether this process is executing a call, or still waits for one that it gave up."""
        mark = f"{call}#"
        return any(r == call or r.startswith(mark) for r in list(self.running))

    # -- entering and leaving

    def __enter__(self) -> Self:
        self._begin()
        try:
            finish(self.rein.lifecycle.open(self.rein.sync_io, self))
        except BaseException as error:
            self.end_span(error)
            raise
        self._activate()
        return self

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            await self.rein.lifecycle.open(self.rein.async_io, self)
        except BaseException as error:
            self.end_span(error)
            raise
        self._activate()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deactivate()
        try:
            if not self._is_copy():
                finish(self.rein.lifecycle.leave(self.rein.sync_io, self, error))
        finally:
            self.end_span(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deactivate()
        try:
            if not self._is_copy():
                await self.rein.lifecycle.leave(self.rein.async_io, self, error)
        finally:
            self.end_span(error)

    def _begin(self) -> None:
        if self.rein.opened(self.id) is not None:
            raise SessionClosed(
                f"session {self.id} is open already: a session is entered once; "
                "rein.session(id=...) takes a suspended one up again"
            )
        self.pid = os.getpid()

    def _is_copy(self) -> bool:
        """Whether this is a forked child's copy of a session: its parent still runs it."""
        if self.pid == os.getpid():
            return False
        self.rein.untrack(self)
        return True

    def _activate(self) -> None:
        self.before = ACTIVE.get()
        ACTIVE.set(self)
        if self._span is not None:
            self._span_before = enter(self._span)

    def _deactivate(self) -> None:
        # Never by token: the block may be left in another context than it was entered in.
        if ACTIVE.get() is self:
            ACTIVE.set(self.before)

    def begin_span(self, trace_parent: str = "") -> str:
        """Start the run's span; where it stands in its trace, for the process that resumes it."""
        self._span = self.rein.telemetry.session(self.agent, self.id, trace_parent)
        return place(self._span)

    def in_span(self) -> AbstractContextManager[Any]:
        """Inside the run's span: for a call of a session that nobody has entered."""
        return nullcontext() if self._span is None else use(self._span)

    def end_span(self, error: BaseException | None) -> None:
        """After the rollback, whose undos belong to the run."""
        if self._span is not None:
            leave(self._span, self._span_before)
            self.rein.telemetry.finish(self._span, None, error)
            self._span = self._span_before = None

    def bind(self, fn: F) -> F:
        """`fn` as a function whose calls belong to this session, on whatever thread it runs.

        For executor threads, callbacks and generators, which do not carry the context along.
        """
        return bound(self, fn)

    # -- acting

    def rollback(
        self, *, to: int | None = None, action: str | None = None, dry_run: bool = False
    ) -> RollbackReport | None:
        """Undo this session's effects, newest first: see `Rein.rollback`.

        Inside a call of the session it is deferred to the outermost call, and None returned.
        """
        return finish(
            self.rein.rollbacks.request(
                self.rein.sync_io, self.id, dry_run=dry_run, session=self, to=to, action=action
            )
        )

    async def arollback(
        self, *, to: int | None = None, action: str | None = None, dry_run: bool = False
    ) -> RollbackReport | None:
        """The async twin of `rollback`."""
        return await self.rein.rollbacks.request(
            self.rein.async_io, self.id, dry_run=dry_run, session=self, to=to, action=action
        )

    def fail(self, reason: str) -> RollbackReport | None:
        """Report that the run failed, without an error: it takes no more calls, and ends FAILED.

        It is rolled back, unless `on_failed="keep"`. Inside a call of the session that is deferred
        to the outermost call, and None returned.
        """
        return finish(self.rein.lifecycle.fail(self.rein.sync_io, self, reason))

    async def afail(self, reason: str) -> RollbackReport | None:
        """The async twin of `fail`."""
        return await self.rein.lifecycle.fail(self.rein.async_io, self, reason)

    def record_usage(self, usage: Usage, *, model: str) -> None:
        """Put a model call that ran elsewhere on the bill.

        What has been spent is booked whatever the limits say; `BudgetExceeded` is raised
        afterwards if it went over one.
        """
        finish(self.rein.lifecycle.record_usage(self.rein.sync_io, self, usage, model))

    async def arecord_usage(self, usage: Usage, *, model: str) -> None:
        """The async twin of `record_usage`."""
        await self.rein.lifecycle.record_usage(self.rein.async_io, self, usage, model)

    @property
    def payload(self) -> Any:
        """What `put_payload` kept, of whatever process: plain data, None if there is none.

        Agents write it: treat it as you treat what a user typed.
        """
        return self.rein.control.payload(self.id)

    def put_payload(self, value: Any) -> None:
        """Keep plain data with the session, up to 1 MB, in place of what was kept before.

        Raises `ConfigError` for anything else, and for more.
        """
        self.rein.control.put_payload(self, value)

    # -- looking

    @property
    def plan(self) -> tuple[Planned, ...]:
        """What the calls of a sandbox session would have done so far."""
        return tuple(self.sandbox.plan) if self.sandbox is not None else ()

    @property
    def verdict(self) -> str:
        """What the judge said of its intent: VERIFIED, DRIFT_DETECTED, UNVERIFIED; or empty."""
        record = self.rein.store.record("intent", self.id)
        return record.state if record is not None else ""

    def events(self) -> Iterator[Event]:
        """All events of this session, oldest first, read page by page."""
        return self.rein.read(self.id).events()

    def spend(self) -> Spend:
        """What this session and its sub-sessions used so far."""
        return self.rein.read(self.id).spend()

    @property
    def state(self) -> str:
        """The stored state: ACTIVE, COMPLETED, FAILED, ROLLED_BACK or ABANDONED."""
        row = self.rein.store.session(self.id)
        return row.stored if row is not None else ""


def labels_of(labels: object) -> dict[str, str]:
    """Labels as they are stored. Raises `ConfigError` for other than texts by name."""
    if not isinstance(labels, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in labels.items()
    ):
        raise ConfigError("labels: must be texts by name, such as {'team': 'billing'}")
    return dict(labels)


def active(rein: Rein) -> Session | None:
    """The innermost session of `rein` that this context is in; others may lie around it."""
    session = ACTIVE.get()
    while session is not None and session.rein is not rein:
        session = session.before
    return session


def bound(session: Session, fn: F) -> F:
    """See `Session.bind`."""
    from checkrein.binding import bind

    return bind(session, fn)
