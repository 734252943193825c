"""Waking those who wait for a person: at once in this process, soon after another one decided.

All waiters of a Rein share one thread. It asks the store whether anything was committed, or is
told by one that can; reads the decisions among what is new, and wakes who waits for them. With
nobody waiting it ends.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from checkrein import expiry
from checkrein._locks import Lock
from checkrein.errors import CheckreinError
from checkrein.store._hearing import Ear, Hearing

if TYPE_CHECKING:
    from checkrein.rein import Rein

POLL = 0.025
"""Seconds between two looks: what a decision of another process takes to get here, at most."""
SLOW = 1.0
"""Seconds between two looks at what time alone changes."""
LINGER = 2.0
"""Seconds that the thread stays with nobody waiting."""

DECIDED = ("approval_decided", "approval_quorum", "approval_expired", "approval_void")


class Waiters:
    """Who waits for which request, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self._lock = Lock()
        self._waiting: dict[str, dict[object, Callable[[], None]]] = {}
        self._due: dict[object, tuple[str, Mapping[str, Any], Callable[[], object]]] = {}
        self._pid = 0
        self._running = False
        self._closed = False
        self._kick = threading.Event()
        rein.approvals.listeners.append(self.wake)

    def wake(self, id: str) -> None:
        """Let those who wait for `id` look again."""
        with self._lock:
            some = list(self._waiting.get(id, {}).values())
        for wake in some:
            with contextlib.suppress(RuntimeError):  # its event loop was closed at this moment
                wake()

    def watch(self, id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever the request may have been decided; returns how to stop that."""
        key = object()
        self._start()
        with self._lock:
            self._waiting.setdefault(id, {})[key] = wake
        self._kick.set()

        def stop() -> None:
            with self._lock:
                some = self._waiting.get(id, {})
                some.pop(key, None)
                if not some:
                    self._waiting.pop(id, None)

        return stop

    def when(self, name: str, body: Mapping[str, Any], act: Callable[[], object]) -> object:
        """Call `act` once, when the time that field `name` of a row says has come.

        Returns what `never` takes.
        """
        key = object()
        self._start()
        with self._lock:
            self._due[key] = (name, body, act)
        return key

    def never(self, key: object) -> None:
        """Do not call it any more."""
        with self._lock:
            self._due.pop(key, None)

    def close(self) -> None:
        """Wake everybody a last time, and nobody any more."""
        self._closed = True
        self._kick.set()
        with self._lock:
            ids = list(self._waiting)
        for id in ids:
            self.wake(id)

    def _start(self) -> None:
        with self._lock:
            if self._running and self._pid == os.getpid():
                return
            if self._pid != os.getpid():
                # A fork has neither the thread nor those who waited.
                self._waiting.clear()
                self._due.clear()
                self._kick = threading.Event()
            self._running, self._pid = True, os.getpid()
            # Read before anybody looks at a record: nothing falls in between.
            newest = self.store.events(reverse=True, limit=1)
            seq = newest[0].seq if newest else 0
        threading.Thread(
            target=self._work, args=(seq,), name="checkrein-waiters", daemon=True
        ).start()

    def _work(self, seq: int) -> None:
        ear = self.store.ear() if isinstance(self.store, Hearing) else None
        try:
            self._look(seq, ear)
        finally:
            if ear is not None:
                ear.close()

    def _look(self, seq: int, ear: Ear | None) -> None:
        mark = -1
        looked = alone = time.monotonic()
        by_clock = self.rein.clock is not self.rein.real_clock
        while not self._closed:
            if self._waiting or by_clock:
                if ear is None or by_clock or not ear.wait(SLOW):
                    time.sleep(POLL)
            else:
                # Only the time is waited for, or nothing: until somebody comes.
                self._kick.wait(SLOW)
                self._kick.clear()
            now = time.monotonic()
            with contextlib.suppress(CheckreinError):  # a store that is busy or away: next time
                change = self.store.changed()
                if change != mark:
                    mark = change
                    seq = self._decided(seq)
            if by_clock or now - looked >= SLOW:
                looked = now
                self._by_time()
            with self._lock:
                if self._waiting or self._due:
                    alone = now
                elif now - alone > LINGER:
                    self._running = False
                    return

    def _decided(self, seq: int) -> int:
        """Wake who waits for what was decided since `seq`."""
        newest = self.store.events(after=seq, reverse=True, limit=1)
        if not newest:
            return seq
        end = newest[0].seq
        while seq < end:
            page = self.store.events(after=seq, before=end + 1, kinds=DECIDED, limit=1000)
            for event in page:
                self.wake(str(event.view.get("id", "")))
            seq = page[-1].seq if len(page) == 1000 else end
        return end

    def _by_time(self) -> None:
        with self._lock:
            due = [
                key
                for key, (name, body, _) in self._due.items()
                if expiry.left(self.rein, body, name) <= 0
            ]
            acts = [self._due.pop(key)[2] for key in due]
        for act in acts:
            try:
                act()
            except Exception:
                # One that fails must not keep the others from theirs.
                self.rein.log.exception("what was to be done at a time failed")
