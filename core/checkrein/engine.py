"""The life of one call: bind, check, approve, commit the intent, execute, commit the outcome.

One `async def` engine for sync and async entries (see `_io`). Everything that must hold on
every road to a tool is here and nowhere else; adapters only build an `Entry` and translate
what comes back.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from checkrein import accounts
from checkrein._io import Abandoned
from checkrein.call import Call, CallKind, Outcome, Usage, new_call, new_outcome
from checkrein.checks import Checked, PreFold, fold_post
from checkrein.codec import decode_arguments, encode, encode_arguments, is_flat, is_flat_value
from checkrein.errors import (
    CheckreinError,
    Conflict,
    Denied,
    FencedOut,
    HoldRefused,
    InDoubt,
    SessionClosed,
    StoreUnavailable,
)
from checkrein.journal import Journal
from checkrein.store import Batch, Committed, HoldRow, Put
from checkrein.telemetry import use
from checkrein.undo import MISSING, NotUndoable

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.manager import Impl
    from checkrein.rein import Rein
    from checkrein.session import Session
    from checkrein.tools import Tool

CURRENT: contextvars.ContextVar[tuple[str, str, Any] | None] = contextvars.ContextVar(
    "checkrein_call", default=None
)
"""(session, call, the same of the enclosing call) that this code runs inside."""


def outermost(session: str) -> str:
    """The outermost call of `session` that this code runs inside; empty if there is none."""
    found = ""
    current = CURRENT.get()
    while current is not None:
        if current[0] == session:
            found = current[1]
        current = current[2]
    return found


def inside(session: str) -> bool:
    """Whether this code runs inside a call of `session`, at any depth."""
    return outermost(session) != ""


def undone_around() -> str:
    """Session whose effect the undo takes back that this code runs inside; empty if none."""
    current = CURRENT.get()
    while current is not None:
        if ".undo." in current[1]:
            return str(current[0])
        current = current[2]
    return ""


_EMPTY: Mapping[str, str] = MappingProxyType({})
_UNREADABLE = Usage(input_tokens=-1)
OPTIONS: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "checkrein_options", default=_EMPTY
)
"""Settings for the calls inside a block (`rein.options`)."""


class Entry:
    """One way into the engine: what an adapter, `rein.call` or a rollback wants run.

    A plain class with defaults on the class: an entry of `rein.call` then sets three fields
    instead of twenty.
    """

    def __init__(
        self, tool: Tool, arguments: dict[str, Any], session: Session, **settings: Any
    ) -> None:
        self.tool = tool
        self.arguments = arguments
        self.session = session
        for name, value in settings.items():
            if not hasattr(Entry, name):
                raise TypeError(f"Entry has no setting {name!r}")
            setattr(self, name, value)

    kind: CallKind = "tool"
    name: str = ""
    """Model name for `kind="model"`; the tool's name otherwise."""
    run: Callable[[Call, dict[str, Any]], Any] | None = None
    """Executes the final call; None = the tool's own function."""
    is_async: bool = False
    """Whether `run` gives an awaitable."""
    call_id: str = ""
    """Derived from the framework's own ids, so that a resumed run finds its earlier self."""
    keyed: bool = False
    """`call_id` is such a key: a finished call with it is answered from the journal."""
    parent: str = ""
    task: str = ""
    labels: Mapping[str, str] = _EMPTY
    wait: str = ""
    """`block`, `suspend`, or empty for the session's setting."""
    can_suspend: bool = False
    """The framework can pause a run here (`auto` then suspends)."""
    timeout: float | None = None
    signals: tuple[type[BaseException], ...] = ()
    """Control-flow exceptions of the framework: passed through, recorded as paused."""
    dump: Callable[[Any], Any] | None = None
    """Plain data for a result of the framework's own type; `load` is its inverse."""
    load: Callable[[Any], Any] | None = None
    raw: Callable[[Any], Any] | None = None
    """The tool's own result behind the value that the framework gives: undo plans use it."""
    usage: Callable[[Any], Usage | None] | None = None
    """Reads what a model call used from its result."""
    approved: tuple[str, ...] = ()
    """Ids of the approvals under which this call runs."""
    admit: bool = True
    fence: int | None = -1
    """-1: the session's own; None: not checked."""


def seen(outcome: Outcome) -> Outcome:
    """The outcome as its caller sees it: an error is raised."""
    if outcome.error is not None:
        raise outcome.error
    return outcome


class Engine:
    """Runs entries for one Rein."""

    def __init__(self, rein: Rein, journal: Journal) -> None:
        self.rein = rein
        self.journal = journal
        self.store = rein.store
        self.now = rein.clock
        self.telemetry = rein.telemetry
        self.observe = rein.mode == "observe"
        self.ids = rein.ids
        self.direct = not rein.store.blocking
        self.take(rein.plugins.chains)

    def take(self, chains: Mapping[str, Sequence[Impl]]) -> None:
        """Use these hooks from the next call on."""
        self.pre = chains["pre_call"]
        self.post = chains["post_call"]
        self.measures = chains["measure"]
        self.undoers = chains["on_rollback"]
        self.external = any(impl.external for impl in self.pre)
        self.hooked = any(chains.values())

    async def run(self, io: IO, entry: Entry) -> Outcome:
        """Run one entry to its end; raise what its caller has to see."""
        return seen(await self.outcome(io, entry))

    async def outcome(self, io: IO, entry: Entry) -> Outcome:
        """As `run`, but an error that the tool raised is in the outcome."""
        session = entry.session
        tool = entry.tool
        if CURRENT.get() is not None and undone_around() == session.id:
            # Part of an undo: let into a session that is closed, and never itself undone.
            entry.kind = "undo" if entry.kind == "tool" else entry.kind
            entry.admit, entry.fence = False, None
        tree = shown = entry.arguments
        flat = is_flat(tree)
        if not flat:
            tree = encode_arguments(entry.arguments, tool.opaque)
            shown = self._thaw(tree, entry)
        elif self.hooked:
            # What a plugin changes in place must reach neither the record nor the tool.
            shown = dict(tree)
        call_id = entry.call_id or self.ids.new()
        current = CURRENT.get()
        parent = entry.parent or (
            current[1] if current is not None and current[0] == session.id else ""
        )
        options = OPTIONS.get()
        call = new_call(
            call_id,
            session.id,
            entry.kind,
            entry.name or tool.info.name,
            shown,
            tool.info,
            session.agent,
            entry.task or session.task,
            session.user,
            session.tenant,
            next(session.steps),
            parent,
            1,
            {**session.labels, **entry.labels, **options.get("labels", _EMPTY)}
            if entry.labels or session.labels or options
            else _EMPTY,
        )
        if entry.keyed:
            earlier = await self.rein.recorded.earlier(io, entry, call, tree)
            if earlier is not None:
                return earlier
        span = self.telemetry.call(call)
        session.running.add(call_id)
        outcome: Outcome | None = None
        problem: BaseException | None = None
        try:
            if span is None:
                outcome = await self._life(io, entry, call, tree, flat, None)
            else:
                with use(span):
                    outcome = await self._life(io, entry, call, tree, flat, span)
            problem = outcome.error
            return outcome
        except BaseException as error:
            problem = error
            raise
        finally:
            if call_id not in session.late:
                session.running.discard(call_id)
            if span is not None:
                self.telemetry.finish(span, outcome, problem)
            if session.rollback_wanted:
                await self.deferred(io, session, call_id)

    async def deferred(self, io: IO, session: Session, call_id: str) -> None:
        """Roll back now what was asked for inside a call, if it was inside this one."""
        if session.rollback_wanted and session.rollback_by == call_id:
            await self.rein.rollbacks.deferred(io, session)

    def _thaw(self, tree: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
        """Exact arguments as fresh values: what a caller or plugin changes later is not seen."""
        return decode_arguments(tree, entry.tool.classes, entry.arguments)

    async def _life(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], flat: bool, span: Any
    ) -> Outcome:
        """Check, approve and run until nothing asks for another attempt."""
        given, first = tree, True
        attempt = self.journal.next_attempt(call) if entry.keyed else 1
        checked: Checked | None = None
        while True:
            if self.pre and first:
                checked = await self.check(io, entry, call, tree)
                for plugin, verdict in checked.notes:
                    self.telemetry.verdict(span, plugin, verdict)
                if not self.observe:
                    if checked.denied is not None:
                        await self.refuse(io, entry, call, tree, checked.denied)
                    if checked.call is not call:
                        call = checked.call
                        entry.arguments = dict(call.arguments)
                        tree = encode_arguments(call.arguments, entry.tool.opaque)
                        flat = is_flat(tree)
                    if checked.asks:
                        granted = await self.rein.approvals.obtain(io, entry, call, tree, checked)
                        entry.approved = granted.ids
                        if granted.arguments is not None:
                            # Edited: what the approver wrote is checked like any other call.
                            tree = granted.arguments
                            flat = is_flat(tree)
                            call = call.replace(arguments=self._thaw(tree, entry))
                            continue
                    if checked.answer is not None:
                        return await self._answer(io, entry, call, tree, checked)
            if attempt != call.attempt:
                call = call.replace(attempt=attempt)
            try:
                rows = await self._intend(io, entry, call, tree, flat, checked, first)
            except Conflict:
                if not entry.keyed and not entry.approved:
                    raise
                # Somebody else started this very call: its outcome is ours as well.
                return await self.rein.recorded.other(io, entry, call)
            outcome = await self._execute(io, entry, call, tree, flat, rows)
            error = outcome.error
            if error is not None:
                if not isinstance(error, Exception):
                    raise error
                if isinstance(error, entry.signals):
                    return outcome
            if not self.post:
                return outcome
            outcome, again = await self._after(io, entry, call, outcome)
            if again is None:
                return outcome
            attempt += 1
            first = isinstance(again, str)
            if isinstance(again, str):
                # The whole chain runs again for the other model, on the request as it came.
                entry.name, tree, flat = again, given, is_flat(given)
                call = call.replace(name=again, arguments=self._thaw(given, entry))
            else:
                await io.sleep(again)

    async def check(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any]
    ) -> Checked:
        """Fold `pre_call`."""
        if not self.external:
            return await PreFold(io, self.pre, self.rein.hook_timeout).run(call)
        recall, remember = self.rein.recorded.external(io, entry, call, tree)
        fold = PreFold(io, self.pre, self.rein.hook_timeout, recall, remember)
        return await fold.run(call)

    async def refuse(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], denied: Denied
    ) -> None:
        """Record a denial and raise it."""
        denied.session_id = call.session
        event = self.journal.denied(call, tree, denied)
        await self._commit(io, Batch(call.session, (event,), event.at))
        raise denied

    async def _answer(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        checked: Checked,
    ) -> Outcome:
        assert checked.answer is not None
        plugin, answer = checked.answer
        outcome = new_outcome(
            "not_done", answer.value, None, None, 0, "reported", 0.0, 0, answer.source or plugin
        )
        event = self.journal.answered(call, tree, outcome, checked, self._encoded(entry, outcome))
        puts = self._approval_puts(entry, "done", "approved")
        await self._commit(io, Batch(call.session, (event,), event.at, puts=puts))
        folded = await self._after(io, entry, call, outcome)
        return folded[0]

    async def _intend(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        flat: bool,
        checked: Checked | None,
        first: bool,
    ) -> Sequence[HoldRow]:
        """Commit the intent with its holds, in one transaction. Only then may anything run."""
        event = self.journal.intent(call, tree, flat, checked)
        fence = entry.session.fence if entry.fence == -1 else entry.fence
        holds = checked.holds if checked is not None else ()
        if not holds and not entry.approved:
            batch = Batch(
                call.session, (event,), event.at, fence, entry.admit, (), (), (), None, True
            )
            if self.direct:
                self._write(batch)
            else:
                await self._commit(io, batch)
            return ()
        rows = accounts.hold_rows(call, [h for _, h in holds], call.attempt)
        puts = self._approval_puts(entry, "started", "approved") if first else ()
        batch = Batch(
            call.session,
            (event,),
            event.at,
            fence,
            entry.admit,
            rows,
            (),
            puts,
            None,
            True,
        )
        swept = False
        deadline = time.monotonic() + self.rein.hold_wait
        while True:
            try:
                await self._commit(io, batch)
                return rows
            except HoldRefused as error:
                plugin, hold = holds[error.index]
                if self.observe:
                    self.journal.note_observed(event, plugin, "hold_refused")
                    rows = [r for r in rows if r is not batch.holds[error.index]]
                    holds = [h for h in holds if h[1] is not hold]
                    batch.holds = rows
                    continue
                if not swept:
                    swept = True
                    if self.rein.sweep(hold.account):
                        continue
                if hold.on_refused == "wait" and time.monotonic() < deadline:
                    mark = self.store.changed()
                    await io.wait(
                        lambda mark=mark: self.store.changed() != mark,  # type: ignore[misc]
                        deadline,
                        f"single flight on {hold.account}",
                    )
                    continue
                refusal = accounts.refused(call, hold, error, plugin)
                await self.refuse(io, entry, call, tree, refusal)

    async def _execute(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        flat: bool,
        rows: Sequence[HoldRow],
    ) -> Outcome:
        """Run the tool on a frozen copy, and commit what became of it at once."""
        exact = tree if flat else self._thaw(tree, entry)
        tool = entry.tool
        options = OPTIONS.get()
        timeout = (
            None
            if call.tool.timeout is None and entry.timeout is None and not options
            else self._timeout(entry, call, options)
        )
        token = CURRENT.set((call.session, call.id, CURRENT.get()))
        started = time.perf_counter()
        value: Any = None
        error: BaseException | None = None
        try:
            if timeout is None and entry.run is None and tool.simple and not tool.is_async:
                value = tool.fn(**exact)  # type: ignore[misc] - entries of declared-only tools
                # are refused when they are built
                if hasattr(value, "__await__"):
                    pending = value
                    value = await io.call(
                        lambda: pending, timeout=None, is_async=True, late=_no_late
                    )
            else:
                value = await io.call(
                    self._thunk(entry, call, exact),
                    timeout=timeout,
                    is_async=entry.is_async or (entry.run is None and tool.is_async),
                    late=lambda future: self._late(entry, call, tree, future),
                )
        except Abandoned:
            error = TimeoutError(
                f"{call.name} {call.id} gave no answer in {timeout:g} s; its effect is unknown"
            )
        except BaseException as raised:  # noqa: BLE001 - every way out of a tool must be recorded
            error = raised
        finally:
            CURRENT.reset(token)
        elapsed = time.perf_counter() - started
        return await self._end(io, entry, call, tree, elapsed, value, error, rows)

    async def end(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        started: float,
        value: Any,
        error: BaseException | None,
    ) -> Any:
        """Record how a plain call ended; its value, awaited where it has to be."""
        if hasattr(value, "__await__"):
            pending = value
            try:
                value = await io.call(
                    lambda: pending, timeout=None, is_async=True, late=_no_late
                )
            except BaseException as raised:  # noqa: BLE001 - recorded, and raised below
                value, error = None, raised
        elapsed = time.perf_counter() - started
        try:
            outcome = await self._end(io, entry, call, tree, elapsed, value, error, ())
        finally:
            entry.session.running.discard(call.id)
            await self.deferred(io, entry.session, call.id)
        if outcome.error is not None and outcome.error is not error:
            raise outcome.error
        return outcome.value

    async def _end(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        elapsed: float,
        value: Any,
        error: BaseException | None,
        rows: Sequence[HoldRow],
    ) -> Outcome:
        """Commit what became of an attempt."""
        tool = entry.tool
        state = "done"
        if error is not None:
            state = "not_done" if isinstance(error, tool.no_effect_on) else "unknown"
        usage = None
        if entry.usage is not None and error is None:
            usage = self._usage(entry, value)
        outcome = new_outcome(
            state, value, error, usage, None, None, elapsed, call.attempt, "call"
        )
        if self.measures:
            outcome = self.journal.measured(self.measures, call, outcome)
        if self.direct and tool.undo is None and not self.undoers and error is None:
            committed = self._record(self._ending(entry, call, outcome, rows, None, ""), call, outcome)
            if committed.rollback != "none":
                await self._undo_late(io, entry, call, outcome)
        else:
            await self._land(io, entry, call, tree, outcome, rows)
        return outcome

    def _usage(self, entry: Entry, value: Any) -> Usage | None:
        try:
            usage = entry.usage(value) if entry.usage is not None else None
        except Exception:
            # The effect has happened: a usage report that cannot be read costs the hold in full.
            usage = _UNREADABLE
        if usage is None or (isinstance(usage, Usage) and usage.sound()):
            return usage
        self.rein.log.warning(
            "usage of %s could not be read: it is charged at its hold",
            entry.name or entry.tool.info.name,
        )
        return None

    def _thunk(self, entry: Entry, call: Call, exact: dict[str, Any]) -> Callable[[], Any]:
        run = entry.run
        if run is not None:
            return lambda: run(call, exact)
        fn = entry.tool.fn
        assert fn is not None
        args, kwargs = entry.tool.spread(exact)
        return lambda: fn(*args, **kwargs)

    def _timeout(self, entry: Entry, call: Call, options: Mapping[str, Any]) -> float | None:
        limits = [t for t in (call.tool.timeout, entry.timeout) if t is not None]
        option = options.get("timeout")
        if option is not None:
            limits.append(option)
        return min(limits) if limits else None

    async def _land(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        outcome: Outcome,
        rows: Sequence[HoldRow],
        kind: str = "outcome",
    ) -> None:
        """Commit an outcome with its undo plan, and settle its holds."""
        plan, why = await self._plan(io, entry, call, tree, outcome)
        batch = self._ending(entry, call, outcome, rows, plan, why, kind)
        error = outcome.error
        if self.store.blocking and io.is_async and (error is None or isinstance(error, Exception)):
            try:
                committed = await io.commit(batch)
            except StoreUnavailable as problem:
                raise self.unrecorded(call, outcome, problem) from problem
            self.rein.notify(committed, batch)
        else:
            # Also where the call was cancelled: no wait may come between effect and record.
            committed = self._record(batch, call, outcome)
        if committed.rollback != "none":
            await self._undo_late(io, entry, call, outcome)

    def _ending(
        self,
        entry: Entry,
        call: Call,
        outcome: Outcome,
        rows: Sequence[HoldRow],
        plan: dict[str, Any] | None,
        why: str,
        kind: str = "outcome",
    ) -> Batch:
        """The one transaction that records an outcome and settles its holds."""
        paused = outcome.error is not None and isinstance(outcome.error, entry.signals)
        event = self.journal.outcome(
            call, outcome, self._encoded(entry, outcome), plan, why, rows, paused, kind
        )
        return Batch(
            call.session,
            (event,),
            event.at,
            settles=accounts.settle_rows(rows, outcome) if rows else (),
            puts=()
            if paused or not entry.approved or kind != "outcome"
            else self._approval_puts(entry, "done", "started"),
        )

    def _record(self, batch: Batch, call: Call, outcome: Outcome) -> Committed:
        try:
            return self._write(batch)
        except StoreUnavailable as error:
            raise self.unrecorded(call, outcome, error) from error

    def unrecorded(self, call: Call, outcome: Outcome, error: StoreUnavailable) -> InDoubt:
        """The error for an effect that has happened and could not be recorded."""
        return InDoubt(
            f"{call.name} {call.id} ran, but the store failed before its outcome was recorded "
            f"({error}); run `checkrein recover` once the store is back",
            call_id=call.id,
            outcome=outcome,
        )

    async def _undo_late(self, io: IO, entry: Entry, call: Call, outcome: Outcome) -> None:
        """The session was rolled back while the call ran: undo it at once."""
        if entry.kind != "undo" and outcome.state != "not_done":
            await self.rein.rollbacks.late(io, call.session, call.id)

    async def _plan(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], outcome: Outcome
    ) -> tuple[dict[str, Any] | None, str]:
        """The stored undo plan, or why there is none."""
        if entry.kind != "tool" or outcome.state == "not_done":
            return None, ""
        plan = entry.tool.undo
        if plan is None and not self.undoers:
            return None, ""
        if plan is not None:
            try:
                exact = self._thaw(tree, entry)
                value = MISSING
                if outcome.state == "done":
                    value = outcome.value if entry.raw is None else entry.raw(outcome.value)
                return plan.stored(exact, value), ""
            except (NotUndoable, CheckreinError) as error:
                return None, str(error)
        return await self.rein.rollbacks.supplied(io, call, outcome, "plan")

    def _encoded(self, entry: Entry, outcome: Outcome) -> tuple[Any, bool]:
        """(tree of the result, whether it is complete): never fails the call."""
        value = outcome.value
        if is_flat_value(value):
            return value, True
        try:
            return encode(entry.dump(value) if entry.dump is not None else value, "result"), True
        except Exception:
            # The effect has happened; a result that cannot be recorded must not undo that.
            return None, False

    def _approval_puts(self, entry: Entry, state: str, before: str) -> tuple[Put, ...]:
        return self.rein.approvals.puts(entry.approved, state, before) if entry.approved else ()

    def _late(self, entry: Entry, call: Call, tree: dict[str, Any], future: Any) -> None:
        """A tool that was given up comes back: record it, and undo it if need be."""
        session = entry.session
        session.late.add(call.id)

        def landed(done: Any) -> None:
            from checkrein._io import finish

            error = done.exception() if not done.cancelled() else None
            value = None if error is not None or done.cancelled() else done.result()
            state = "unknown" if error is not None or done.cancelled() else "done"
            outcome = Outcome(state, value, error, attempts=call.attempt, source="late")
            try:
                finish(self._land(self.rein.sync_io, entry, call, tree, outcome, (), "late"))
            except CheckreinError as problem:
                self.rein.log.error("late result of %s %s: %s", call.name, call.id, problem)
            finally:
                session.late.discard(call.id)
                session.running.discard(call.id)
                if session.rollback_wanted:
                    finish(self.deferred(self.rein.sync_io, session, call.id))

        future.add_done_callback(landed)

    async def _after(
        self, io: IO, entry: Entry, call: Call, outcome: Outcome
    ) -> tuple[Outcome, float | str | None]:
        """Fold `post_call`: (what the caller sees, delay of a retry or name of a fallback)."""
        if not self.post:
            return outcome, None
        folded = await fold_post(io, self.post, self.rein.hook_timeout, call, outcome)
        if self.observe:
            if folded.notes:
                event = self.journal.observed(call, folded.notes)
                await self._commit(io, Batch(call.session, (event,), event.at))
            return outcome, None
        if folded.retry is not None and self._repeatable(entry):
            return outcome, float(folded.retry.after)
        if folded.fallback is not None and entry.kind == "model":
            return outcome, folded.fallback.model
        if folded.changed:
            event = self.journal.amended(
                call, folded.outcome, self._encoded(entry, folded.outcome), folded.notes
            )
            await self._commit(io, Batch(call.session, (event,), event.at))
        if folded.asks:
            await self.rein.approvals.after(io, entry, call, folded)
        return folded.outcome, None

    def _repeatable(self, entry: Entry) -> bool:
        return entry.kind == "model" or entry.tool.info.idempotent

    async def _commit(self, io: IO, batch: Batch) -> Committed:
        if self.direct or not io.is_async:
            return self._write(batch)
        try:
            committed = await io.commit(batch)
        except FencedOut as error:
            raise self.lost(batch.session) from error
        self.rein.notify(committed, batch)
        return committed

    def lost(self, session: str) -> SessionClosed:
        """The error for a session that somebody else owns now."""
        return SessionClosed(
            f"session {session} is owned by another process now; nothing was run"
        )

    def _write(self, batch: Batch) -> Committed:
        """Commit without awaiting: the store does not block, or the entry is sync."""
        try:
            committed = self.store.commit(batch)
        except FencedOut as error:
            raise self.lost(batch.session) from error
        if self.rein.observed:
            self.rein.notify(committed, batch)
        return committed


def _no_late(future: Any) -> None:
    """Nothing is abandoned without a timeout."""
