"""The part of a call that acts: run the tool on a frozen copy, whatever comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from checkrein._io import Abandoned, finish, in_thread, is_awaitable
from checkrein.call import Call, Outcome, Usage, new_outcome
from checkrein.codec import decode_arguments
from checkrein.counting import counted
from checkrein.entry import CURRENT, OPTIONS, Entry
from checkrein.errors import (
    CheckreinError,
    ConfigError,
    Conflict,
    StoreUnavailable,
    Unencodable,
)
from checkrein.journal import Journal
from checkrein.recording import Recording
from checkrein.store import HoldRow
from checkrein.undo import MISSING, NotUndoable

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.manager import Impl
    from checkrein.rein import Rein

_UNREADABLE = Usage(input_tokens=-1)


class Execution:
    """Runs and records attempts, for one Rein."""

    def __init__(self, rein: Rein, journal: Journal, recording: Recording) -> None:
        self.rein = rein
        self.journal = journal
        self.recording = recording
        self.store = rein.store
        self.observers = rein.observers
        self.direct = not rein.store.blocking
        self.take(rein.plugins.chains)

    def take(self, chains: Mapping[str, Sequence[Impl]]) -> None:
        """Use these hooks from the next call on."""
        self.measures = chains["measure"]
        self.undoers = chains["on_rollback"]

    def timeout(self, entry: Entry, call: Call) -> float | None:
        """Seconds that the tool may take. Raises `ConfigError` where it cannot have a limit."""
        options = OPTIONS.get()
        if call.tool.timeout is None and entry.timeout is None and not options:
            return None
        limits = [
            limit
            for limit in (call.tool.timeout, entry.timeout, options.get("timeout"))
            if limit is not None
        ]
        if limits and entry.tool.thread_affine and not entry.tool.is_async:
            raise ConfigError(
                f"{call.name}: a timeout needs a worker thread, and the tool is declared "
                "thread_affine=True; nothing was run"
            )
        return min(limits) if limits else None

    async def run(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        exact: dict[str, Any],
        timeout: float | None,
        rows: Sequence[HoldRow],
    ) -> Outcome:
        """Run the tool with `exact`, which nobody else has, and commit the outcome at once."""
        tool = entry.tool
        before = CURRENT.get()
        late: list[Any] = []
        value: Any = None
        error: BaseException | None = None
        abandoned = False
        CURRENT.set((call.session, call.id, before, call.kind))
        started = time.perf_counter()
        try:
            if timeout is None and entry.run is None and tool.simple and not tool.is_async:
                value = tool.fn(**exact)  # type: ignore[misc]  # entries of declared-only tools
                # are refused when they are built
                if is_awaitable(value):
                    value = await self._awaited(io, value)
            elif entry.stream is not None:
                own = dict(exact) if exact is tree else exact
                value = await entry.stream(call, own, timeout)
            else:
                value = await io.call(
                    self._thunk(entry, call, exact, tree),
                    timeout=timeout,
                    is_async=entry.is_async or (entry.run is None and tool.is_async),
                    late=late.append,
                )
        except Abandoned:
            abandoned = True
            error = TimeoutError(
                f"{call.name} {call.id} gave no answer in {timeout:g} s; its effect is unknown"
            )
        except BaseException as raised:  # noqa: BLE001 - every way out of a tool must be recorded
            error = raised
        finally:
            # Never by token: the coroutine may be closed in another context.
            CURRENT.set(before)
        elapsed = time.perf_counter() - started
        if error is not None and entry.left is not None:
            left = entry.left()
            if left is not None and not left.done():
                late = [left]
        if late and not entry.guard:
            # A guard's question has no effect that anybody would have to wait for.
            entry.session.late.add(entry.mark)
        try:
            return await self._end(io, entry, call, tree, elapsed, value, error, rows, abandoned)
        finally:
            for future in late:
                self._when_late(entry, call, tree, future)

    async def _awaited(self, io: IO, pending: Any) -> Any:
        return await io.call(lambda: pending, timeout=None, is_async=False, late=_no_late)

    async def end(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        started: float,
        value: Any,
        error: BaseException | None,
        rows: Sequence[HoldRow],
    ) -> Outcome:
        """Record how a plain call ended; its value is awaited where it has to be."""
        if is_awaitable(value):
            try:
                value = await self._awaited(io, value)
            except BaseException as raised:  # noqa: BLE001 - recorded, and raised by the caller
                value, error = None, raised
        elapsed = time.perf_counter() - started
        return await self._end(io, entry, call, tree, elapsed, value, error, rows)

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
        abandoned: bool = False,
    ) -> Outcome:
        """Commit what became of an attempt."""
        tool = entry.tool
        state = "done"
        if error is not None:
            known = not abandoned and isinstance(error, tool.no_effect_on)
            state = "not_done" if known else "unknown"
        outcome = new_outcome(state, value, error, None, None, None, elapsed, call.attempt, "call")
        try:
            outcome = self._measured(entry, call, outcome)
        except BaseException:
            # Interrupted while it was measured: the effect is recorded all the same.
            if not entry.unrecorded:
                batch = self.recording.ending(entry, call, outcome, rows, None, "")
                self.recording.record(batch, call, outcome)
            raise
        if entry.unrecorded:
            return outcome
        at_once = self.direct or not io.is_async
        if at_once and tool.undo is None and not self.undoers and error is None:
            batch = self.recording.ending(entry, call, outcome, rows, None, "")
            committed = self.recording.record(batch, call, outcome)
            if committed.rollback != "none":
                await self._undo_late(io, entry, call, outcome)
        else:
            await self._land(io, entry, call, tree, outcome, rows)
        return outcome

    def _measured(self, entry: Entry, call: Call, outcome: Outcome) -> Outcome:
        """An outcome with what the call used, as far as it and the plugins say."""
        usage = None
        value = outcome.value
        if outcome.error is not None:
            if entry.paid is not None:
                usage = self._usage(entry, entry.paid)
        elif (read := entry.usage or entry.tool.usage) is not None:
            report = read
            usage = self._usage(entry, lambda: report(value))
        if entry.said is not None and not entry.unreadable and (text := entry.said()) is not None:
            usage = counted(call.arguments, text, usage)
        if usage is not None:
            outcome = outcome.replace(usage=usage)
        return self.journal.measured(self.measures, call, outcome) if self.measures else outcome

    def _usage(self, entry: Entry, read: Callable[[], Usage | None]) -> Usage | None:
        try:
            usage = read()
        except Exception:  # noqa: BLE001 - the effect has happened: a usage report that cannot be
            # read costs the hold in full
            usage = _UNREADABLE
        found: object = usage
        if found is None or (isinstance(found, Usage) and found.sound()):
            return usage
        self.rein.log.warning(
            "usage of %s could not be read: it is charged at its hold",
            entry.name or entry.tool.info.name,
        )
        entry.unreadable = True
        return None

    def _thunk(
        self, entry: Entry, call: Call, exact: dict[str, Any], tree: dict[str, Any]
    ) -> Callable[[], Any]:
        run = entry.run
        if run is not None:
            # Flat arguments are their own record: what runs gets a copy that it may change.
            own = dict(exact) if exact is tree else exact
            return lambda: run(call, own)
        fn = entry.tool.fn
        assert fn is not None
        args, kwargs = entry.tool.spread(exact)
        return lambda: fn(*args, **kwargs)

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
        error = outcome.error
        interrupted = error is not None and not isinstance(error, Exception)
        try:
            plan, why = await self._plan(io, entry, call, tree, outcome, ask=not interrupted)
        except BaseException:
            # Cancelled while plugins were asked for an undo: the effect is recorded all the same.
            self.recording.record(
                self.recording.ending(entry, call, outcome, rows, None, "", kind), call, outcome
            )
            raise
        batch = self.recording.ending(entry, call, outcome, rows, plan, why, kind)
        if self.store.blocking and io.is_async and not interrupted:
            try:
                committed = await io.commit(batch)
            except StoreUnavailable as problem:
                raise self.recording.unrecorded(call, outcome, problem) from problem
            except (Conflict, Unencodable) as problem:
                committed = self.recording.record_less(batch, call, outcome, problem)
            else:
                self.observers.notify(committed, batch)
        else:
            # Also where the call was cancelled: no wait may come between effect and record.
            committed = self.recording.record(batch, call, outcome)
        if committed.rollback != "none":
            await self._undo_late(io, entry, call, outcome)

    async def _undo_late(self, io: IO, entry: Entry, call: Call, outcome: Outcome) -> None:
        """The session was rolled back while the call ran: undo it at once."""
        if entry.kind != "undo" and outcome.state != "not_done":
            await self.rein.rollbacks.late(io, call.session, call.id)

    async def _plan(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        outcome: Outcome,
        *,
        ask: bool,
    ) -> tuple[dict[str, Any] | None, str]:
        """The stored undo plan, or why there is none. `ask`: plugins may be awaited for one."""
        if entry.kind != "tool" or outcome.state == "not_done":
            return None, ""
        plan = entry.tool.undo
        if plan is None and (not self.undoers or not ask):
            return None, ""
        if plan is None:
            return await self.rein.rollbacks.supplied(io, call, outcome, "plan")
        try:
            exact = decode_arguments(tree, entry.tool.classes, entry.arguments)
            value = MISSING
            if outcome.state == "done":
                value = outcome.value if entry.raw is None else entry.raw(outcome.value)
            return plan.stored(exact, value, entry.before), ""
        except (NotUndoable, CheckreinError) as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - attributes of a result may be anybody's code;
            # the outcome is recorded all the same
            return None, f"undo {plan.name}: {type(error).__name__} while it was bound"

    def _when_late(self, entry: Entry, call: Call, tree: dict[str, Any], future: Any) -> None:
        """A tool that was given up comes back: record it, and undo it if need be."""
        session, mark = entry.session, entry.mark

        def landed(done: Any) -> None:
            try:
                # What our own cancellation ended tells nothing that is not recorded.
                if not done.cancelled():
                    error = done.exception()
                    value = None if error is not None else done.result()
                    state = "done" if error is None else "unknown"
                    outcome = new_outcome(
                        state, value, error, None, None, None, 0.0, call.attempt, "late"
                    )
                    io = self.rein.sync_io
                    finish(self._land(io, entry, call, tree, outcome, (), "late"))
            except CheckreinError as problem:
                self.rein.log.error("late result of %s %s: %s", call.name, call.id, problem)
            finally:
                session.late.discard(mark)
                session.running.discard(mark)
                if session.rollback_wanted:
                    engine = self.rein.engine
                    finish(engine.deferred(self.rein.sync_io, session, call.id))

        # On a thread of its own: the future may end on a loop, and undoing takes time.
        def apart(done: Any) -> None:
            in_thread(lambda: landed(done), "checkrein-late")

        if future.done():
            apart(future)
        elif isinstance(future, Future):
            future.add_done_callback(apart)
        else:
            # A task on the portal, or on the caller's loop: another thread must not touch it.
            future.get_loop().call_soon_threadsafe(future.add_done_callback, apart)


def _no_late(future: Any) -> None:
    """Nothing is abandoned without a timeout."""
