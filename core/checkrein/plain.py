"""The life of a call that no plugin has more to say about than a hold, in one piece.

Where there is no span, no timeout, no undo and nothing to wait for, a supervised call is two
records around a function call, and `pre_call` hooks that answer None or a Hold. This module
writes exactly the events that the engine would write (a test compares them), without what only
other verdicts need: it is what makes a call with an idle supervision layer, or with budgets
that have room, cheap. Everything else goes to the engine, with what the plugins have said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns, time_ns
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from checkrein.accounts import hold_rows, unmeasured
from checkrein.call import Call, Outcome, new_call
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

_CHEAP = frozenset(("pre_call", "start", "close"))
"""Hooks that a plain call can have."""

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
        self.pre = engine.pre
        self.possible = (
            all(
                not (impl.external or impl.is_async or impl.timeout is not None)
                for impl in self.pre
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
        if self.pre:
            given: list[Any] = []
            call = self._call(tool, dict(arguments), session, call_id, step, parent)
            plugins: list[str] = []
            wanted = _asked(self.pre, call, given, plugins)
            if wanted is None or call.arguments != arguments:
                return self._engine(tool, arguments, session, call, given)
            if wanted:
                holds = hold_rows(call, wanted, 1)
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
            raise
        token = CURRENT.set((id, call_id, current, "tool"))
        started = perf_counter_ns()
        try:
            value = fn(**arguments)
        except BaseException as error:  # every way out of a tool must be recorded
            CURRENT.reset(token)
            try:
                self._ended(
                    tool, arguments, session, call_id, step, parent, started, None, error, holds
                )
            finally:
                running.discard(call_id)
            raise
        CURRENT.reset(token)
        try:
            if not is_flat_value(value):
                return self._ended(
                    tool, arguments, session, call_id, step, parent, started, value, None, holds
                )
            elapsed = perf_counter_ns() - started
            end: dict[str, Any] = {"state": "done", "us": elapsed // 1000}
            at = time_ns() // 1000 if real else self.now()
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
        return finish(
            self.engine.execution.end(
                self.engine.rein.sync_io, entry, call, arguments, started / 1e9, value, error, holds
            )
        )

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
                or part.on_refused != "deny"
                or part.unit not in ("calls", "seconds")  # what it costs goes on the bill
                or part.settle not in ("keep", "release", "measured")  # records of their own
                or malformed(part)
            ):
                return None
            holds.append(part)
            plugins.append(impl.plugin)
    return holds
