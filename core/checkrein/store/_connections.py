"""Connections to one SQLite file: one that writes, a few that read, and what their errors mean."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import getpid
from pathlib import Path

from checkrein.errors import ConfigError, StoreBusy, StoreUnavailable
from checkrein.store import _fork, _turns
from checkrein.store._checkpoints import Checkpoints
from checkrein.store._marks import LATE, fold, late
from checkrein.store._schema import PAGE_SIZE, migrate
from checkrein.store._turns import is_busy, name_of, nap

READERS = 4
"""Reading connections at most: more threads wait for one of them, for well under 1 ms."""

FORK_PATIENCE = 10.0
"""Seconds that a fork waits for statements of other threads."""

CLOSING_PATIENCE = 0.5
"""Seconds that closing waits for a turn to write, to bring what is written late up to date."""

_MINIMUM = (3, 37)
"""First SQLite with STRICT tables."""

_left_behind: list[object] = []
"""Connections that came over a fork: closing them here would harm the parent's."""


def unavailable(error: sqlite3.Error, path: str) -> StoreUnavailable:
    """Say what an error of SQLite means here, and what to do."""
    name = name_of(error)
    if is_busy(error):
        why = "stays locked by another process: find the one that holds it, or try again"
    elif name.startswith("SQLITE_READONLY"):
        why = "cannot be written: give this user write access to the file and its directory"
    elif name == "SQLITE_FULL":
        why = "cannot grow, the disk is full or a size limit is reached: make room and try again"
    elif name.startswith("SQLITE_NOTADB"):
        why = "is not a SQLite database: restore it from a backup, or name another file"
    elif name.startswith("SQLITE_CORRUPT"):
        why = "is damaged: restore it from a backup (`checkrein doctor` says more)"
    elif name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        why = "cannot be opened: check that its directory exists and that this user may use it"
    elif name.startswith("SQLITE_IOERR"):
        why = f"cannot be read or written ({name}): check the disk"
    else:
        why = f"refused a statement ({name or type(error).__name__}: {error})"
    return StoreUnavailable(f"store {path} {why}")


class Connections:
    """The connections of one process to one file. Safe in several threads and over forks."""

    def __init__(
        self, path: Path, *, power: bool, busy_timeout: float, max_pages: int | None
    ) -> None:
        if sqlite3.sqlite_version_info < _MINIMUM:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old: the store needs 3.37 or later"
            )
        self.path = path
        self._name = str(path)
        self._power = power
        self._busy_timeout = busy_timeout
        self._max_pages = max_pages
        self._closed = False
        self._renew()
        create_file(path)
        with self.errors():
            self._prepare_file()
        _fork.register(self)

    def _renew(self) -> None:
        self._pid = getpid()
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Cursor | None = None
        self._full_sync = False
        self._idle: list[sqlite3.Connection] = []
        self._slots = threading.Semaphore(READERS)
        self._watch_lock = threading.Lock()
        self._watcher: sqlite3.Connection | None = None
        self._generation = random.getrandbits(30)
        self._rested = (False, 0, False)
        self._checkpoints = Checkpoints(self.open)

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"store {self.path} was closed: open it again")
        if self._pid != getpid():
            # A fork that Python was not told of: nothing of the parent may be used or closed.
            _left_behind.append((self._writer, self._idle, self._watcher))
            self._renew()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, and what it cannot be asked for."""
        try:
            yield
        except sqlite3.Error as error:
            raise unavailable(error, self._name) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise ConfigError(f"store {self._name}: {error}") from error

    def open(self) -> sqlite3.Connection:
        """A new connection. It waits for locks as long as the store was told to."""
        connection = sqlite3.connect(
            self._name,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=128,
        )
        try:
            # NORMAL: a commit survives a killed process. Checkpoints have their own thread.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            if self._max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_file(self) -> None:
        connection = self.open()
        try:
            # Changing the journal mode does not wait for locks as other statements do.
            connection.execute("PRAGMA busy_timeout = 0")
            deadline = time.monotonic() + self._busy_timeout
            while True:
                try:
                    # Has an effect on a new file only.
                    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                    connection.execute("PRAGMA journal_mode = WAL")
                    migrate(connection, self._name)
                    return
                except sqlite3.OperationalError as error:
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                    nap(0.001, 0.01)
        finally:
            connection.close()

    # -- writing ---------------------------------------------------------------------------

    def enter(self, *, wait: bool = True, durable: bool = False) -> sqlite3.Cursor:
        """Shut out other threads. Whoever gets the cursor ends with `finish`, whatever happens.

        Single statements commit themselves; `begin` opens a transaction. With `wait=False`,
        raises `StoreBusy` at once where another thread writes; else `StoreUnavailable` when it
        goes on for too long.
        """
        if self._closed or self._pid != getpid():
            self._check()
        lock = self._write_lock
        # Without a time-out first: it costs less, and nearly always does it.
        if not lock.acquire(False) and not (wait and lock.acquire(True, self._busy_timeout)):
            if not wait:
                raise StoreBusy(f"store {self.path} is being written by another thread")
            raise StoreUnavailable(
                f"store {self.path} stays locked by another thread of this process"
            )
        try:
            cursor = self._writer
            if cursor is None:
                connection = self.open()
                connection.execute("PRAGMA busy_timeout = 0")
                if late(connection) > LATE:
                    fold(connection, self._busy_timeout)
                cursor = self._writer = connection.cursor()
                self._full_sync = False
            if self._power and durable is not self._full_sync:
                cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._full_sync = durable
            return cursor
        except BaseException:
            lock.release()
            raise

    def begin(self, cursor: sqlite3.Cursor, *, wait: bool = True) -> None:
        """Open a transaction that writes, and with it shut out other processes.

        With `wait=False`, raises `StoreBusy` at once where another one writes.
        """
        try:
            _turns.begin(cursor, self._busy_timeout if wait else 0.0)
        except sqlite3.OperationalError as error:
            if wait or not is_busy(error):
                raise
            raise StoreBusy(f"store {self.path} is being written by another process") from error

    def finish(self, cursor: sqlite3.Cursor) -> None:
        """Undo a transaction that was not committed, and let the next writer in."""
        try:
            # SQLite ends a transaction itself on some errors (full disk).
            if cursor.connection.in_transaction:
                cursor.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection is of no more use, and closing it rolls back. The error that led
            # here is on its way to the caller.
            self._writer = None
            cursor.connection.close()
        finally:
            self._write_lock.release()
            self._checkpoints.count()

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sqlite3.Cursor]:
        """A transaction for the length of the block, committed at its end."""
        with self.errors():
            cursor = self.enter(durable=durable)
            try:
                self.begin(cursor)
                yield cursor
                cursor.execute("COMMIT")
            finally:
                self.finish(cursor)

    # -- reading ---------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with, for the length of the block."""
        self._check()
        slots, idle = self._slots, self._idle
        with slots, self.errors():
            connection = idle.pop() if idle else self.open()
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if self._closed:
                    connection.close()
                else:
                    idle.append(connection)

    def version(self) -> int:
        """A number that changes with every commit to the file, by whomever."""
        self._check()
        with self._watch_lock, self.errors():
            if self._watcher is None:
                self._watcher = self.open()
                self._generation += 1
            found = self._watcher.execute("PRAGMA data_version").fetchone()[0]
        return self._generation << 32 | int(found)

    def truncate_log(self) -> bool:
        """Copy the write-ahead log into the file and empty it; False if somebody reads it."""
        connection = self.open()
        try:
            busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            return not busy
        finally:
            connection.close()

    # -- forks and the end -------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close every connection: a child must inherit neither locks nor SQLite's idea of them."""
        if self._closed or self._pid != getpid():
            return
        self._checkpoints.before_fork()
        deadline = time.monotonic() + FORK_PATIENCE

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        writing = self._write_lock.acquire(timeout=left())
        reading = sum(self._slots.acquire(timeout=left()) for _ in range(READERS))
        watching = self._watch_lock.acquire(timeout=left())
        self._rested = (writing, reading, watching)
        # What did not come to rest is used by its thread: closing it would pull it away.
        if writing and watching and reading == READERS:
            self._close_all()

    def after_fork(self, *, child: bool) -> None:
        """Go on: connections are opened again when they are needed."""
        if self._closed:
            return
        if child:
            _left_behind.append((self._writer, self._idle, self._watcher))
            self._renew()
        elif self._pid == os.getpid():
            writing, reading, watching = self._rested
            if watching:
                self._watch_lock.release()
            if reading:
                self._slots.release(reading)
            if writing:
                self._write_lock.release()
            self._checkpoints.after_fork()

    def _close_all(self) -> None:
        if self._writer is not None:
            self._writer.connection.close()
            self._writer = None
        while self._idle:
            self._idle.pop().close()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def close(self) -> None:
        """Close everything, after what is being written."""
        if self._closed:
            return
        if self._pid != getpid():
            self._closed = True
            return
        self._checkpoints.close()
        with self._write_lock, self._watch_lock:
            self._closed = True
            if self._writer is not None:
                # Whoever reads the file next finds it in order.
                with suppress(sqlite3.Error):
                    fold(self._writer.connection, CLOSING_PATIENCE)
            self._close_all()

    def __del__(self) -> None:
        # Nobody closed the store, and nobody can use it any more: no lock is needed.
        if not getattr(self, "_closed", True) and self._pid == getpid():
            self._closed = True
            self._close_all()


def create_file(path: Path) -> None:
    """Make the file (mode 0600) and its directory (0700) if they are not there.

    SQLite gives its companions (`-wal`, `-shm`) the mode of the file. Raises
    `StoreUnavailable` where that cannot be, or where an existing file cannot be written.
    """
    try:
        for directory in reversed(path.parents):
            if not directory.exists():
                directory.mkdir(mode=0o700, exist_ok=True)
        if path.is_dir():
            raise ConfigError(f"store {path} is a directory: name a file in it")
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailable(
            f"store {path} cannot be opened for writing ({error.strerror}): "
            "give this user write access to the file and its directory"
        ) from error
    if not os.access(path.parent, os.W_OK):
        raise StoreUnavailable(
            f"store {path}: its directory cannot be written, and SQLite keeps files beside it: "
            "give this user write access to the directory"
        )
