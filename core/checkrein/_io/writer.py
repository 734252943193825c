"""Group commit: many async calls share one sync of the store."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.store import Batch, Committed, Store


class Writer:
    """A thread that commits what waits as one group: many async calls share one sync."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._queue: list[tuple[Batch, Future[Committed]]] = []
        self._running = False
        self._pid = os.getpid()

    @property
    def busy(self) -> bool:
        """Whether batches wait: a new one must queue behind them."""
        return bool(self._queue)

    def submit(self, batch: Batch) -> Future[Committed]:
        future: Future[Committed] = Future()
        if self._pid != os.getpid():
            self._lock, self._queue, self._running = threading.Lock(), [], False
            self._pid = os.getpid()
        with self._lock:
            self._queue.append((batch, future))
            start = not self._running
            self._running = True
        if start:
            threading.Thread(target=self._work, name="checkrein-writer", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                group = self._queue[:64]
                if not group:
                    self._running = False
                    return
            try:
                results: list[Any] = list(self._store.commit_many([b for b, _ in group]))
            except Exception as error:  # noqa: BLE001 - goes to everyone who waits
                results = [error] * len(group)
            with self._lock:
                del self._queue[: len(group)]
            for (_, future), result in zip(group, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
