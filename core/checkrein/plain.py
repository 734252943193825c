"""The life of a call that no plugin has more to say about than a hold, in one piece.

Where there is no span, no timeout, no undo and nothing to wait for, a supervised call is two
records around a function call, `pre_call` hooks that answer None or a Hold, and `post_call` hooks
that answer None. This module writes exactly the events that the engine would write (a test
compares them), without what only other verdicts need: it is what makes a call with an idle
supervision layer, or with limits that have room, cheap. Everything else goes to the engine, with
what the plugins have said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns, time_ns
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from checkrein.accounts import closing, hold_rows, unmeasured
from checkrein.call import Call, Outcome, new_call, new_outcome
from checkrein.codec import is_flat, is_flat_value
from checkrein.entry import CURRENT, OPTIONS, Entry, seen, undone_around
from checkrein.errors import FencedOut, HoldRefused, StoreUnavailable
from checkrein.judging import HookFailed, asked, malformed
from checkrein.recording import lost
from checkrein.session import ACTIVE
from checkrein.store import HoldRow, SettleRow
from checkrein.verdicts import Hold

if TYPE_CHECKING:
    from checkrein.engine import Engine
    from checkrein.manager import Impl
    from checkrein.session import Session
    from checkrein.tools import Tool

_CHEAP = frozenset(
    ("pre_call", "post_call", "measure", "open_stream", "on_approval", "start", "close")
)
"""Hooks that a plain call can have, or has no use for."""

_EMPTY: Mapping[str, str] = MappingProxyType({})


class Plain:
    """Runs plain calls for one Rein."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rein = engine.rein
        self.by_function = engine.rein.tools.by_function
        self.general = engine.rein.call
        """The way that every call can go."""
        self.append = engine.store.append
        self.now = engine.rein.clock
        self.real_time = self.now is engine.rein.real_clock
        self.tracer = engine.telemetry.tracer
        self.none = engine.telemetry.none
        """What the global provider is where nothing can be recorded: then `tracer` need not be
        asked."""
        self.ids = engine.ids
        self.noted: dict[tuple[str, ...], list[list[str]]] = {}
        self.take()

    def take(self) -> None:
        """Use the engine's hooks from the next call on."""
        engine = self.engine
        self.pre, self.post = engine.pre, engine.post
        self.measures = engine.execution.measures
        self.later = bool(self.post or self.measures)
        """Whether plugins look at outcomes."""
        self.possible = (
            all(
                not (impl.external or impl.is_async or impl.timeout is not None)
                for impl in (*self.pre, *self.post)
            )
            and not any(impls for hook, impls in engine.chains.items() if hook not in _CHEAP)
            and not engine.observe
            and engine.journal.record == "all"
            and engine.rein.failure_mode == "closed"
        )

    def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`Rein.call`: the short way where that will do.

        Only functions that were called before are taken: the engine declares them.
        """
        if type(fn) is not FunctionType or not self.possible:
            return self.general(fn, *args, **kwargs)
        tool = self.by_function.get(fn)
        if tool is None or not tool.plain or tool.fn is not fn:
            return self.general(fn, *args, **kwargs)
        if self.later and tool.info.idempotent:  # it may be tried again
            return self.general(fn, *args, **kwargs)
        session = ACTIVE.get()
        if session is None or session.rein is not self.rein:
            session = self.rein.current_session()
        if session.labels or session.task or session.pinned or session.sandbox or OPTIONS.get():
            return self.general(fn, *args, **kwargs)
        provider: object
        try:
            provider = trace._TRACER_PROVIDER  # noqa: SLF001 - where it is gone, we ask each time
        except AttributeError:
            provider = self
        if provider is not self.none and self.tracer() is not None:
            return self.general(fn, *args, **kwargs)
        try:
            arguments: dict[str, Any] = tool.binder(*args, **kwargs)  # type: ignore[misc]  # plain
        except TypeError:
            return self.general(fn, *args, **kwargs)
        if not is_flat(arguments):
            return self.general(fn, *args, **kwargs)
        info = tool.info
        id = session.id
        current = CURRENT.get()
        if current is not None and undone_around():
            return self.general(fn, *args, **kwargs)
        parent = current[1] if current is not None and current[0] == id else ""
        call_id = self.ids.new()
        step = next(session.steps)
        holds: Sequence[HoldRow] = ()
        view: dict[str, Any] = {
            "kind": "tool",
            "name": info.name,
            "effect": info.effect,
            "step": step,
        }
        if parent:
            view["parent"] = parent
        later = self.later
        call: Any = None
        given: list[Any] = []
        if self.pre or later:
            call = self._call(tool, dict(arguments), session, call_id, step, parent)
            plugins: list[str] = []
            wanted = _asked(self.pre, call, given, plugins)
            if wanted is None or call.arguments != arguments:
                return self._engine(tool, arguments, session, call, given)
            if wanted:
                holds = hold_rows(call, wanted, 1)
                for row in holds:
                    if row.settle in ("once", "streak"):  # they leave records
                        later = True
                view["verdicts"] = self._noted(tuple(plugins))
        real = self.real_time
        at = time_ns() // 1000 if real else self.now()
        running = session.running
        # Before the intent: a rollback that sees it must know that it is being executed.
        running.add(call_id)
        try:
            self.append(
                id, "intent", call_id, at, view, arguments, 1, session.fence, True, True, holds
            )
        except BaseException as error:
            running.discard(call_id)
            if isinstance(error, HoldRefused):
                return self._engine(tool, arguments, session, call, given)
            if isinstance(error, FencedOut):
                raise lost(id) from error
            if not isinstance(error, Exception):
                # Interrupted, perhaps when it was on disk already: nothing is run.
                call = self._call(tool, arguments, session, call_id, step, parent)
                self.engine.recording.void(Entry(tool, arguments, session), call, error)
            raise
        token = CURRENT.set((id, call_id, current, "tool"))
        started = perf_counter_ns()
        try:
            value = fn(**arguments)
        except BaseException as error:  # noqa: BLE001 - every way out of a tool must be recorded
            CURRENT.reset(token)
            return self._ended(
                tool, arguments, session, call_id, step, parent, started, None, error, holds
            )
        CURRENT.reset(token)
        try:
            if not is_flat_value(value):
                return self._ended(
                    tool, arguments, session, call_id, step, parent, started, value, None, holds
                )
            elapsed = perf_counter_ns() - started
            end: dict[str, Any] = {"state": "done", "us": elapsed // 1000}
            at = time_ns() // 1000 if real else self.now()
            if later:
                return self._looked_at(
                    tool, arguments, session, call, at, end, elapsed, value, holds
                )
            try:
                if holds:
                    settles: list[SettleRow] = []
                    for row in holds:
                        actual = unmeasured(row, elapsed / 1e9)
                        if actual > row.amount:
                            end.setdefault("overrun", []).append(row.account)
                        settles.append(SettleRow(row.id, actual))
                    rollback = self.append(
                        id, "outcome", call_id, at, end, value, 1, None, False, False, (), settles
                    )
                else:
                    rollback = self.append(id, "outcome", call_id, at, end, value, 1)
            except StoreUnavailable as error:
                call = self._call(tool, arguments, session, call_id, step, parent)
                raise self.engine.recording.unrecorded(
                    call, Outcome("done", value), error
                ) from error
            if rollback != "none" or session.rollback_wanted:
                self._after(session, call_id, rollback)
            return value
        finally:
            running.discard(call_id)

    def _noted(self, plugins: tuple[str, ...]) -> list[list[str]]:
        """Holds as an event shows them: the same lists each time, which nobody changes."""
        known = self.noted.get(plugins)
        if known is None:
            known = self.noted[plugins] = [[plugin, "hold"] for plugin in plugins]
        return known

    def _call(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        session: Session,
        call_id: str,
        step: int,
        parent: str,
    ) -> Call:
        return new_call(
            call_id, session.id, "tool", tool.info.name, arguments, tool.info, session.agent,
            session.task, session.user, session.tenant, step, parent, 1, _EMPTY,
            session.root,
        )  # fmt: skip

    def _ended(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        session: Session,
        call_id: str,
        step: int,
        parent: str,
        started: int,
        value: Any,
        error: BaseException | None,
        holds: Sequence[HoldRow],
    ) -> Any:
        """An error, an awaitable or a result that has to be encoded: the engine's own end."""
        from checkrein._io import finish

        call = self._call(tool, arguments, session, call_id, step, parent)
        entry = Entry(tool, arguments, session)
        return seen(finish(self._end(entry, call, started / 1e9, value, error, holds))).value

    async def _end(
        self,
        entry: Entry,
        call: Call,
        started: float,
        value: Any,
        error: BaseException | None,
        holds: Sequence[HoldRow],
    ) -> Outcome:
        engine, io, session = self.engine, self.rein.sync_io, entry.session
        try:
            outcome = await engine.execution.end(
                io, entry, call, entry.arguments, started, value, error, holds
            )
            if self.post and (outcome.error is None or isinstance(outcome.error, Exception)):
                session.running.discard(call.id)
                outcome, _ = await engine.after(io, entry, call, outcome, [call.name])
            return outcome
        finally:
            session.running.discard(call.id)
            await engine.deferred(io, session, call.id)

    def _looked_at(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        session: Session,
        call: Call,
        at: int,
        end: dict[str, Any],
        elapsed: int,
        value: Any,
        holds: Sequence[HoldRow],
    ) -> Any:
        """Record an outcome that plugins measure, see, or keep a record of; the value."""
        from checkrein._io import finish

        engine, id = self.engine, call.id
        outcome = new_outcome("done", value, None, None, None, None, elapsed / 1e9, 1, "call")
        if self.measures:
            try:
                outcome = engine.journal.measured(self.measures, call, outcome)
            except BaseException:
                # Interrupted while it was measured: the effect is recorded all the same.
                entry = Entry(tool, arguments, session)
                batch = engine.recording.ending(entry, call, outcome, holds, None, "")
                engine.recording.record(batch, call, outcome)
                raise
        if outcome.cost_state is None and outcome.usage is None:
            settles, puts, over = closing(holds, outcome)
            if over:
                end["overrun"] = over
            try:
                rollback = self.append(
                    session.id, "outcome", id, at, end, value, 1, None, False, False, (), settles,
                    puts,
                )  # fmt: skip
            except StoreUnavailable as error:
                raise engine.recording.unrecorded(call, outcome, error) from error
        else:  # it goes on the bill
            entry = Entry(tool, arguments, session)
            batch = engine.recording.ending(entry, call, outcome, holds, None, "")
            rollback = engine.recording.record(batch, call, outcome).rollback
        if rollback != "none":
            finish(self.rein.rollbacks.late(self.rein.sync_io, session.id, id))
        session.running.discard(id)
        said: list[Any] = []
        try:
            for impl in self.post:
                try:
                    said.append(asked(impl, call, outcome))
                except HookFailed as error:
                    said.append(error)
                if said[-1] is not None:
                    entry = Entry(tool, arguments, session)
                    after = engine.after(self.rein.sync_io, entry, call, outcome, [call.name], said)
                    return seen(finish(after)[0]).value
        finally:
            if session.rollback_wanted:
                finish(engine.deferred(self.rein.sync_io, session, id))
        return value

    def _engine(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        session: Session,
        call: Call,
        given: list[Any],
    ) -> Any:
        """What the plugins have begun to say is the engine's to fold. No hook runs twice."""
        from checkrein._io import finish

        entry = Entry(tool, arguments, session, begun=(call, given))
        return seen(finish(self.engine.outcome(self.rein.sync_io, entry))).value

    def _after(self, session: Session, call_id: str, rollback: str) -> None:
        from checkrein._io import finish

        rein = self.engine.rein
        if rollback != "none":
            finish(rein.rollbacks.late(rein.sync_io, session.id, call_id))
        session.running.discard(call_id)
        finish(self.engine.deferred(rein.sync_io, session, call_id))


def _asked(
    chain: Sequence[Impl], call: Call, given: list[Any], plugins: list[str]
) -> list[Hold] | None:
    """The holds that plugins want; None where one of them wants anything else.

    `given` gets what each has answered, in order, or what it raised; `plugins` who wants what.
    """
    holds: list[Hold] = []
    for impl in chain:
        try:
            verdict = asked(impl, call)
        except HookFailed as error:
            given.append(error)
            return None
        given.append(verdict)
        if verdict is None:
            continue
        for part in verdict if type(verdict) is tuple else (verdict,):
            if part is None:
                continue
            if (
                type(part) is not Hold
                # To be waited for, and perhaps answered by the call that runs now.
                or (part.on_refused == "wait" and part.settle == "release")
                or part.unit not in ("calls", "seconds")  # what it costs goes on the bill
                or malformed(part)
            ):
                return None
            holds.append(part)
            plugins.append(impl.plugin)
    return holds
