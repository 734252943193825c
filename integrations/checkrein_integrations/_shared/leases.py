"""The right to go on with a session's run: one resumer has it, the others wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from checkrein._io import finish
from checkrein.errors import Conflict, SessionClosed
from checkrein.session import ACTIVE, Session, active

if TYPE_CHECKING:
    from types import TracebackType

    from checkrein import Rein

_lock = threading.Lock()
_at_work: set[tuple[int, str]] = set()
"""(id of a Rein, session) pairs that a thread of this process is resuming."""


def _mark(rein: Rein, session: str) -> tuple[int, str]:
    return id(rein), session


def settled(rein: Rein, session: str) -> bool:
    """Whether nobody is running the session any more."""
    row = rein.store.session(session)
    with _lock:
        busy = _mark(rein, session) in _at_work
    return not busy and (row is None or row.state != "ACTIVE" or not row.owner)


def _refuse_other_tenant(rein: Rein, id: str) -> None:
    around, row = active(rein), rein.store.session(id)
    if around is None or not around.tenant or row is None:
        return
    if str(row.body.get("tenant") or "") != around.tenant:
        raise Conflict(f"session {id} belongs to another tenant than the one that resumes it")


class _Opened:
    """A session that is open in this process: entered for a block, left as it is."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._before: Session | None = None

    def __enter__(self) -> None:
        self._before = ACTIVE.get()
        ACTIVE.set(self.session)

    def __exit__(self, *exc: object) -> None:
        ACTIVE.set(self._before)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__()


class _Taken:
    """A session that was claimed for this resume; ended, or suspended again, at its end."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> None:
        self.session._activate()  # noqa: SLF001 - opened already, to know who was first

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.session.__exit__(kind, error, trace)

    async def __aenter__(self) -> None:
        self.session._activate()  # noqa: SLF001 - as above

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.session.__aexit__(kind, error, trace)


@contextlib.contextmanager
def lease_on(rein: Rein, id: str) -> Iterator[Any]:
    """The right to go on with a session's run; None if somebody else has it.

    Raises `Conflict` inside a session of another tenant.
    """
    _refuse_other_tenant(rein, id)
    mark = _mark(rein, id)
    with _lock:
        free = mark not in _at_work
        if free:
            _at_work.add(mark)
    if not free:
        yield None
        return
    try:
        session = rein.opened(id)
        if session is not None:
            yield _Opened(session)
            return
        row = rein.store.session(id)
        body: Mapping[str, Any] = row.body if row is not None else {}
        session = rein.session(id=id, on_error=body.get("on_error") or None)
        try:
            finish(rein.lifecycle.open(rein.sync_io, session))
        except (SessionClosed, Conflict):
            # Over already, or being run by another process.
            with _lock:
                _at_work.discard(mark)
            yield None
            return
        try:
            yield _Taken(session)
        finally:
            if rein.opened(id) is session:
                # The run had gone on already: nothing was entered.
                finish(rein.lifecycle.release(rein.sync_io, session))
    finally:
        with _lock:
            _at_work.discard(mark)
