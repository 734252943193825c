"""A sink that may be slow or down: it has a thread and a queue of its own."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

DRAIN = 10.0
"""Seconds that a sink gets to take what waits when the Rein closes."""
_log = logging.getLogger("checkrein.audit")


class Queue:
    """Rows on their way to one sink. What does not fit is dropped and counted, nothing waits."""

    def __init__(self, sink: Callable[[dict[str, Any]], Any], most: int) -> None:
        self._sink = sink
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(max(1, most))
        self._thread: threading.Thread | None = None
        self._missed = 0
        self._told: set[str] = set()

    @property
    def dropped(self) -> int:
        """Rows that the sink did not get."""
        return self._missed + int(getattr(self._sink, "refused", 0))

    def start(self) -> None:
        """Begin to hand rows on."""
        self._thread = threading.Thread(target=self._run, name="checkrein-audit", daemon=True)
        self._thread.start()

    def put(self, row: dict[str, Any]) -> None:
        """Take a row; drop it where too many wait."""
        try:
            self._waiting.put_nowait(row)
        except queue.Full:
            self._miss()

    def close(self) -> None:
        """Let the sink take what waits, for a while."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=DRAIN)
        except queue.Full:
            self._missed += self._waiting.qsize()
        self._thread.join(DRAIN)
        end = getattr(self._sink, "close", None)
        if end is not None:
            end()
        if self.dropped:
            _log.error("audit: a sink did not get %d events; the store has them", self.dropped)

    def _run(self) -> None:
        while (row := self._waiting.get()) is not None:
            try:
                self._sink(row)
            except Exception as error:  # noqa: BLE001 - a sink is somebody else's code: whatever
                # it raises, the run goes on and the loss is counted
                self._miss(type(error).__name__)

    def _miss(self, why: str = "it is too slow") -> None:
        self._missed += 1
        if why not in self._told or not self._missed % 1000:
            self._told.add(why)
            _log.warning("audit: a sink has missed %d events: %s", self._missed, why)
