"""Telling `on_event` of what was committed. Observers have no say: their errors are logged."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from logging import Logger
from typing import TYPE_CHECKING, Any

from checkrein._io import is_awaitable

if TYPE_CHECKING:
    from concurrent.futures import Future

    from checkrein._io import Portal
    from checkrein.manager import Impl
    from checkrein.store import Batch, Committed, Store

CLOSING = 5.0
"""Seconds that asynchronous observers get to end when the Rein closes."""


class Observers:
    """The plugins that look on, of one Rein."""

    def __init__(self, impls: Sequence[Impl], store: Store, portal: Portal, log: Logger) -> None:
        self.any = bool(impls)
        self._impls = impls
        self._store = store
        self._portal = portal
        self._log = log
        self._looking: set[Future[Any]] = set()

    def notify(self, committed: Committed, batch: Batch) -> None:
        """Tell of what was committed. Errors are logged, never raised."""
        if self.any:
            self._tell(batch.session, committed.seq, committed.n - 1 - len(batch.events))

    def notify_one(self, committed: Committed, session: str) -> None:
        """As `notify`, for one event."""
        if self.any:
            self._tell(session, committed.seq, committed.n - 2)

    def _tell(self, session: str, seq: int, after_n: int) -> None:
        events = [
            event
            for event in reversed(
                self._store.events(session=session, before=seq + 1, reverse=True, limit=16)
            )
            if event.n > after_n
        ]
        for event in events:
            for impl in self._impls:
                try:
                    waiting = impl(event)
                    if is_awaitable(waiting):
                        self._observe(impl.plugin, waiting)
                except Exception as error:  # noqa: BLE001 - an observer has no say
                    self._unheard(impl.plugin, error)

    def _observe(self, plugin: str, waiting: Awaitable[Any]) -> None:
        """Let an asynchronous observer look; nobody waits for it before the Rein closes."""
        future = self._portal.submit(waiting)
        self._looking.add(future)

        def done(future: Future[Any]) -> None:
            self._looking.discard(future)
            if not future.cancelled():
                self._unheard(plugin, future.exception())

        future.add_done_callback(done)

    def _unheard(self, plugin: str, error: BaseException | None) -> None:
        if error is not None:
            self._log.error("on_event of plugin %s raised %s", plugin, type(error).__name__)

    def close(self) -> None:
        """Wait for those that are still looking."""
        if self._looking:
            from concurrent.futures import wait

            wait(set(self._looking), timeout=CLOSING)
