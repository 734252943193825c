"""The session of a graph's run: opened, found again on resume, released while it waits.

A node of a graph runs in a copy of the caller's context, so what `before_agent` sets there is
not seen by later nodes. The session's id therefore travels in the graph's state, and with a
checkpointer in the checkpoint: a resumed run finds its session by its thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from checkrein._io import finish
from checkrein.engine import inside
from checkrein.errors import CheckreinError, ConfigError
from checkrein.session import ACTIVE, Session
from checkrein_integrations.langchain.signals import ending, is_signal
from checkrein_integrations.langchain.standing import Standing

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein._io import IO

STATE = "checkrein_session"
"""Key of the graph's state that holds the session's id."""
RUN = "run"
"""Entry of `Session.waiting` while a checkpointed run is not at its end."""

SessionFactory: TypeAlias = Callable[[Any, Any], Session]
"""Given the graph's state and runtime; returns `rein.session(...)`, not entered."""


class Runs:
    """The sessions of one adapter's runs."""

    def __init__(
        self, rein: Rein, factory: SessionFactory | None = None, standing: Standing | None = None
    ) -> None:
        self.rein = rein
        self.standing = standing or Standing()
        """Where the middleware stands whose runs these are."""
        self.ends = standing is not None
        """The adapter is told of the end of a run."""
        self._factory = factory
        self._lock = threading.Lock()
        self._busy: dict[str, int] = {}
        self._paused: dict[str, set[str]] = {}
        """Ids of the calls that a session's run waits for."""
        self._failed: dict[str, BaseException] = {}

    def active(self) -> Session | None:
        """The session that the caller opened around the run."""
        session = ACTIVE.get()
        return session if session is not None and session.rein is self.rein else None

    # -- beginning and end of a run

    async def begin(self, io: IO, state: Any, runtime: Any, agent: str, kept: bool) -> str:
        """The id of the run's session: the caller's, or a new one."""
        old = state.get(STATE)
        if old:
            await self._give_up(io, old)
        session = self.active()
        if session is None:
            if self._factory is not None:
                made: Any = self._factory(state, runtime)
                if not isinstance(made, Session) or made.rein is not self.rein:
                    raise ending(
                        ConfigError("session=: must return rein.session(...) of the same Rein")
                    )
                session = made
            else:
                session = self.rein.session(agent=agent)
            await self.rein.lifecycle.open(io, session)
        if kept and not inside(session.id):
            session.waiting.add(RUN)
        return session.id

    async def end(self, io: IO, state: Any) -> None:
        """The run came to its end: complete the session, if it is not the caller's."""
        id = state.get(STATE)
        active = self.active()
        if active is not None:
            if not inside(active.id):
                active.waiting.clear()
            return
        if not id:
            return
        session = self._open(id)
        session.waiting.clear()
        self._forget(id)
        await self.rein.lifecycle.leave(io, session, None)

    async def _give_up(self, io: IO, id: str) -> None:
        """A new run begins on a thread whose last run was ended by an error."""
        with self._lock:
            error = self._failed.pop(id, None)
        session = self.rein.opened(id)
        if error is not None and session is not None and session is not self.active():
            await self._end(io, session, error)

    async def failed(
        self, io: IO, session: Session, error: BaseException, kind: str, kept: bool
    ) -> None:
        """An error leaves our hook of a tool or model call (`kind`).

        `kept`: a checkpointer keeps the run.

        One that nothing can take up ends the session at once, and rolls it back. Any other may
        be handled by a middleware outside ours, or its step may be done again: the session stays
        open until its next call, or until the thread's next run begins.
        """
        if is_signal(error) or inside(session.id):
            return
        session.waiting.discard(RUN)
        if session is self.active() or not _is_run(session):
            return
        last = isinstance(error, CheckreinError) or not isinstance(error, Exception)
        if last or (not kept and self.standing.outermost(kind)):
            self._forget(session.id)
            await self._end(io, session, error)
        else:
            with self._lock:
                self._failed[session.id] = error

    async def _end(self, io: IO, session: Session, error: BaseException) -> None:
        try:
            await self.rein.lifecycle.leave(io, session, error)
        except CheckreinError as problem:
            error.add_note(f"checkrein: session {session.id} could not be ended: {problem}")

    # -- calls of a run

    def session(self, state: Any) -> Session:
        """The session that a call made in this state belongs to.

        Raises `SessionClosed` where it is over, or where calls outside a session are refused.
        """
        active = self.active()
        if active is not None:
            return active
        id = state.get(STATE) if isinstance(state, dict) else getattr(state, STATE, None)
        return self._open(id) if id else self.rein.current_session()

    def _open(self, id: str) -> Session:
        session = self.rein.opened(id)
        if session is not None:
            return session
        with self._lock:
            session = self.rein.opened(id)
            if session is None:
                session = self.rein.session(id=id)
                finish(self.rein.lifecycle.open(self.rein.sync_io, session))
            return session

    def enter(self, session: Session) -> None:
        """A call begins."""
        with self._lock:
            self._busy[session.id] = self._busy.get(session.id, 0) + 1
            self._failed.pop(session.id, None)

    def leave(self, session: Session, key: str, paused: bool) -> bool:
        """A call is over; whether the session has to be released because the run waits now.

        Nobody owns a session whose run waits for a person: another process may take it up, and
        `recover` leaves it alone. Siblings of a paused call may still come and go.
        """
        with self._lock:
            left = self._busy.get(session.id, 1) - 1
            if left:
                self._busy[session.id] = left
            else:
                self._busy.pop(session.id, None)
            waiting = self._paused.get(session.id)
            if paused:
                if waiting is None:
                    waiting = self._paused[session.id] = set()
                waiting.add(key)
            elif waiting is None:
                return False
            else:
                waiting.discard(key)
                if not waiting:
                    del self._paused[session.id]
            if left or not waiting:
                return False
        return session is not self.active() and _is_run(session)

    def _forget(self, id: str) -> None:
        with self._lock:
            self._busy.pop(id, None)
            self._paused.pop(id, None)
            self._failed.pop(id, None)


def _is_run(session: Session) -> bool:
    """Whether it is the session of a run, not the account of calls that belong to none."""
    return not session.id.startswith("unattributed-")
