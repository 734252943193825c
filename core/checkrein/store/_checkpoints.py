"""Checkpoints in the background: copying the write-ahead log into the database file.

What is indexed late (see `_marks`) is indexed here as well.

On the caller's path they would make single commits 20 times slower (p99.9 of 5.9 ms against
0.3 ms); without any, the log grows without end.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

from checkrein.store._marks import fold

EVERY = 500
"""Commits of this process after which the log is looked at: about 4 MB of it."""

PAUSE = 0.1
"""Seconds between two checkpoints of one process at least."""

PATIENCE = 1.0
"""Seconds that marking events waits for a turn to write; the next time does for both."""

RESTART_ABOVE = 8000
"""Pages of the log (16 MB) above which writers are held up for a moment, so that it can begin anew:
under steady writing it would never be read out to its end."""

_log = logging.getLogger("checkrein.store")


class Checkpoints:
    """Counts commits and wakes a daemon thread that checkpoints. Started when first needed."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._count = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None

    def count(self) -> None:
        """Note a commit. Two threads that count at once may lose one: no harm."""
        self._count += 1
        if self._count >= EVERY:
            self._count = 0
            self._wake.set()
            if self._thread is None:
                self._begin()

    def _begin(self) -> None:
        with self._start:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(
                    target=self._run, name="checkrein-checkpoints", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no more threads: not a reason to fail a commit
                    _log.warning("no thread for checkpoints: the store's log grows")
                    return
                self._thread = thread

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            while True:
                self._wake.wait()
                if self._stop.is_set():
                    return
                self._wake.clear()
                try:
                    # Kept open: opening one costs more than a checkpoint.
                    connection = connection or self._connect()
                    connection.execute("PRAGMA busy_timeout = 0")
                    fold(connection, PATIENCE)
                    checkpoint(connection)
                except sqlite3.Error as error:
                    # The log stays longer; what is in it is safe. A disk that is really broken
                    # also fails the next commit, and that one is reported to its caller.
                    _log.warning("checkpoint of the store failed: %s", error)
                if self._stop.wait(PAUSE):
                    return
        finally:
            if connection is not None:
                connection.close()

    def before_fork(self) -> None:
        """End the thread: its connection must not be inherited."""
        self._start.acquire()
        self._end()

    def after_fork(self) -> None:
        """In the parent: the thread may start again."""
        self._stop.clear()
        self._start.release()

    def _end(self) -> None:
        self._stop.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)

    def close(self) -> None:
        """End the thread after what it is doing."""
        with self._start:
            self._end()


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy what can be copied without holding anybody up; a long log to its end."""
    connection.execute("PRAGMA busy_timeout = 50")
    busy, pages, _done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if not busy and pages > RESTART_ABOVE:
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
