"""Going on with a run that waited for an approval, in this process or another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langgraph.types import Command

from checkrein._io import finish
from checkrein.errors import ApprovalPending, ConfigError, Conflict, SessionClosed
from checkrein.session import ACTIVE, Session
from checkrein_integrations.langchain.keys import THREAD

if TYPE_CHECKING:
    from types import TracebackType

    from checkrein import Rein

_PATIENCE = 3600.0
"""Seconds that a second resumer waits for the first."""
_lock = threading.Lock()
_at_work: set[tuple[int, str]] = set()
"""(id of a Rein, session) pairs that a thread of this process is resuming."""


def resume(rein: Rein, token: str, target: Any, config: Mapping[str, Any] | None = None) -> Any:
    """Go on with the run of `target` (an agent or graph) that waits for approval `token`.

    Returns what `target.invoke` returns. Whoever comes second waits, and gets the state that
    the run ended in: the model is never entered twice. Raises `Conflict` for an unknown token,
    `ApprovalPending` while nobody has decided, and what the run raises.
    """
    found = _Found(rein, token, config)
    with _lease(rein, found.session) as lease:
        if lease is None:
            finish(
                rein.sync_io.wait(
                    found.settled, time.monotonic() + _PATIENCE, f"the run of {found.thread}"
                )
            )
            return target.get_state(found.config).values
        interrupt = _interrupt(target.get_state(found.config), token)
        if interrupt is None:
            return target.get_state(found.config).values
        with lease:
            return target.invoke(Command(resume={interrupt: True}), found.config)


async def aresume(
    rein: Rein, token: str, target: Any, config: Mapping[str, Any] | None = None
) -> Any:
    """The async twin of `resume`."""
    found = _Found(rein, token, config)
    with _lease(rein, found.session) as lease:
        if lease is None:
            await rein.async_io.wait(
                found.settled, time.monotonic() + _PATIENCE, f"the run of {found.thread}"
            )
            return (await target.aget_state(found.config)).values
        interrupt = _interrupt(await target.aget_state(found.config), token)
        if interrupt is None:
            return (await target.aget_state(found.config)).values
        async with lease:
            return await target.ainvoke(Command(resume={interrupt: True}), found.config)


def _mark(rein: Rein, session: str) -> tuple[int, str]:
    return id(rein), session


class _Found:
    """The run that a token belongs to."""

    def __init__(self, rein: Rein, token: str, config: Mapping[str, Any] | None) -> None:
        request = rein.approvals.get(token)
        if request is None:
            raise Conflict(f"approval {token} is unknown here; `checkrein approvals` lists them")
        if request.state == "pending" and request.expires > rein.clock():
            raise ApprovalPending(token, call_id=request.call, tool=request.tool)
        self._rein = rein
        self.session = request.session
        self.thread = ""
        for event in rein.store.events(call=request.call, kinds=("approval_requested",)):
            payload = rein.store.payload(event.seq)
            if event.view.get("id") == token and isinstance(payload, dict):
                self.thread = payload["labels"].get(THREAD, "")
        if not self.thread:
            raise ConfigError(
                f"approval {token} was not asked for in a checkpointed graph: use "
                "rein.resume(token)"
            )
        given = dict(config or {})
        self.config: Any = {
            **given,
            "configurable": {**(given.get("configurable") or {}), "thread_id": self.thread},
        }

    def settled(self) -> bool:
        """Whether nobody is running the session any more."""
        row = self._rein.store.session(self.session)
        with _lock:
            busy = _mark(self._rein, self.session) in _at_work
        return not busy and (row is None or row.state != "ACTIVE" or not row.owner)


class _Opened:
    """A session that is open in this process: entered for a block, left as it is."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: Session | None = None

    def __enter__(self) -> None:
        self._before = ACTIVE.get()
        ACTIVE.set(self._session)

    def __exit__(self, *exc: object) -> None:
        ACTIVE.set(self._before)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__()


class _Taken:
    """A session that was claimed for this resume; ended, or suspended again, at its end."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session._activate()  # noqa: SLF001 - opened already, to know who was first

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.__exit__(kind, error, trace)

    async def __aenter__(self) -> None:
        self._session._activate()  # noqa: SLF001 - as above

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, trace)


@contextlib.contextmanager
def _lease(rein: Rein, id: str) -> Iterator[Any]:
    """The right to go on with a session's run; None if somebody else has it."""
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


def _interrupt(state: Any, token: str) -> str | None:
    """Id of the pause that waits for the token; None if the run has gone on already."""
    for interrupt in state.interrupts:
        if isinstance(interrupt.value, dict) and interrupt.value.get("token") == token:
            return str(interrupt.id)
    return None
