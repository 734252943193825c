"""The life of a call that no plugin looks at, in one piece.

Where there is no hook, no span, no timeout, no undo and nothing to wait for, a supervised call
is two records around a function call. This module writes exactly the events that the engine
would write (a test compares them), without what only hooks need: it is what makes a call with
an idle supervision layer cheap. Everything else goes to the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from checkrein.call import Call, Outcome
from checkrein.codec import is_flat, is_flat_value
from checkrein.entry import CURRENT, OPTIONS, Entry, undone_around
from checkrein.errors import FencedOut, StoreUnavailable
from checkrein.recording import lost
from checkrein.session import ACTIVE
from checkrein.store import SAME

if TYPE_CHECKING:
    from checkrein.engine import Engine
    from checkrein.session import Session
    from checkrein.tools import Tool

NOT_PLAIN = object()


class Plain:
    """Runs plain calls for one Rein."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rein = engine.rein
        self.by_function = engine.rein.tools.by_function
        self.append = engine.store.append
        self.now = engine.now
        self.real_time = engine.now is engine.rein.real_clock
        self.tracer = engine.telemetry.tracer
        self.none = engine.telemetry.none
        """What the global provider is where nothing can be recorded: then `tracer` need not be
        asked."""
        self.ids = engine.ids
        self.possible = not engine.hooked and not engine.observe and engine.journal.record == "all"

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The tool's value, or `NOT_PLAIN`: then nothing has happened.

        Only functions that were called before are taken: the engine declares them.
        """
        if type(fn) is not FunctionType:
            return NOT_PLAIN
        tool = self.by_function.get(fn)
        if tool is None or not tool.plain or tool.fn is not fn:
            return NOT_PLAIN
        session = ACTIVE.get()
        if session is None or session.rein is not self.rein:
            session = self.rein.current_session()
        if session.labels or session.task or OPTIONS.get():
            return NOT_PLAIN
        if getattr(trace, "_TRACER_PROVIDER", self) is not self.none and self.tracer() is not None:
            return NOT_PLAIN
        try:
            arguments: dict[str, Any] = tool.binder(*args, **kwargs)  # type: ignore[misc]  # plain
        except TypeError:
            return NOT_PLAIN
        if not is_flat(arguments):
            return NOT_PLAIN
        info = tool.info
        id = session.id
        current = CURRENT.get()
        if current is not None and undone_around():
            return NOT_PLAIN
        parent = current[1] if current is not None and current[0] == id else ""
        call_id = self.ids.new()
        step = next(session.steps)
        view: dict[str, Any] = {
            "kind": "tool",
            "name": info.name,
            "arguments": arguments,
            "effect": info.effect,
            "step": step,
        }
        if parent:
            view["parent"] = parent
        real = self.real_time
        at = time_ns() // 1000 if real else self.now()
        running = session.running
        # Before the intent: a rollback that sees it must know that it is being executed.
        running.add(call_id)
        try:
            self.append(id, "intent", call_id, at, view, SAME, 1, session.fence, True, True)
        except BaseException as error:
            running.discard(call_id)
            if isinstance(error, FencedOut):
                raise lost(id) from error
            raise
        token = CURRENT.set((id, call_id, current))
        started = perf_counter()
        try:
            value = fn(**arguments)
        except BaseException as error:  # every way out of a tool must be recorded
            CURRENT.reset(token)
            try:
                self._ended(tool, arguments, session, call_id, step, parent, started, None, error)
            finally:
                running.discard(call_id)
            raise
        CURRENT.reset(token)
        try:
            if not is_flat_value(value):
                return self._ended(
                    tool, arguments, session, call_id, step, parent, started, value, None
                )
            elapsed = int((perf_counter() - started) * 1e6)
            end = {"state": "done", "us": elapsed, "result": value}
            at = time_ns() // 1000 if real else self.now()
            try:
                rollback = self.append(id, "outcome", call_id, at, end, SAME, 1)[2]
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

    def _call(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        session: Session,
        call_id: str,
        step: int,
        parent: str,
    ) -> Call:
        return Call(
            call_id, session.id, "tool", tool.info.name, arguments, tool.info, session.agent,
            session.task, session.user, session.tenant, step, parent,
        )  # fmt: skip

    def _ended(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        session: Session,
        call_id: str,
        step: int,
        parent: str,
        started: float,
        value: Any,
        error: BaseException | None,
    ) -> Any:
        """An error, an awaitable or a result that has to be encoded: the engine's own end."""
        from checkrein._io import finish

        call = self._call(tool, arguments, session, call_id, step, parent)
        entry = Entry(tool, arguments, session)
        return finish(
            self.engine.execution.end(
                self.engine.rein.sync_io, entry, call, arguments, started, value, error
            )
        )

    def _after(self, session: Session, call_id: str, rollback: str) -> None:
        from checkrein._io import finish

        rein = self.engine.rein
        if rollback != "none":
            finish(rein.rollbacks.late(rein.sync_io, session.id, call_id))
        session.running.discard(call_id)
        finish(self.engine.deferred(rein.sync_io, session, call_id))
