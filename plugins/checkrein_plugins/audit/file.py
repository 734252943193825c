"""A file that follows the store: every event once, in order, whoever is killed when."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from checkrein import export
from checkrein.errors import CheckreinError, ConfigError
from checkrein.store import Store

POLL = 0.2
"""Seconds between looks at what other processes have written."""
DRAIN = 10.0
"""Seconds that the last rows get when the Rein closes."""
_CHUNK = 65_536
_log = logging.getLogger("checkrein.audit")


class Follower:
    """Appends the store's events to a file of JSON lines.

    One process at a time holds the file's lock and writes for all; when it ends or dies, another
    goes on. Where to go on is read from the file's own last line, so a kill neither loses an
    event nor writes one twice: a line that was cut is written anew.
    """

    def __init__(self, path: str, *, bare: bool) -> None:
        self._path = Path(path)
        self._bare = bare
        self._file: int | None = None
        self._after = 0
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._unwatch: Callable[[], None] = lambda: None

    def start(self, store: Store) -> None:
        """Begin. Raises `ConfigError` for a file that cannot be used."""
        try:
            self._open(store)
        except OSError as error:
            raise ConfigError(f"audit.file {self._path}: {error.strerror}") from error
        self._unwatch = store.watch(self._wake.set)
        self._thread = threading.Thread(
            target=self._follow, args=(store,), name="checkrein-audit", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Write what is still missing, and let go of the file."""
        if self._thread is None:
            return
        self._ending = True
        self._unwatch()
        self._wake.set()
        self._thread.join(DRAIN)
        if self._thread.is_alive():
            _log.error("audit file %s: not all events were written in time", self._path)

    def _open(self, store: Store) -> bool:
        """Take the file, if nobody else has it; true if it is ours."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        try:
            self._after = _resume(file, store, self._path)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    def _follow(self, store: Store) -> None:
        seen = -1
        while True:
            ending = self._ending
            try:
                if self._file is None and not self._open(store):
                    if ending:
                        return  # whoever has the file writes for us too
                else:
                    now = store.changed()
                    if now != seen or ending:
                        self._write(store)
                        seen = now
            except (CheckreinError, OSError) as error:
                _log.error("audit file %s: %s: it is tried again", self._path, error)
            if ending:
                if self._file is not None:
                    os.close(self._file)
                    self._file = None
                return
            self._wake.wait(POLL)
            self._wake.clear()

    def _write(self, store: Store) -> None:
        assert self._file is not None
        lines: list[bytes] = []
        size = 0
        last = self._after
        for row in export.rows(store, after=self._after, metadata_only=self._bare):
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            lines.append(line)
            last = row["seq"]
            size += len(line)
            if size >= _CHUNK:
                self._append(b"".join(lines), last)
                lines, size = [], 0
        if lines:
            self._append(b"".join(lines), last)

    def _append(self, data: bytes, last: int) -> None:
        assert self._file is not None
        view = memoryview(data)
        before = os.fstat(self._file).st_size
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, before)  # a full disk must not leave half a line behind
            raise
        self._after = last


def _resume(file: int, store: Store, path: Path) -> int:
    """The number of the last event in the file; a cut last line is taken away."""
    size = os.fstat(file).st_size
    tail, start = b"", size
    while start > 0 and tail.count(b"\n") < 2:
        begin = max(0, start - _CHUNK)
        tail = os.pread(file, start - begin, begin) + tail
        start = begin
    whole = tail[: tail.rfind(b"\n") + 1]
    if len(whole) < len(tail):
        os.ftruncate(file, size - (len(tail) - len(whole)))
    lines = whole.splitlines()
    if not lines:
        return 0
    try:
        row = json.loads(lines[-1])
        seq, digest = int(row["seq"]), str(row["hash"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"audit.file {path}: its last line is no row of an audit log") from None
    found = store.events(after=seq - 1, before=seq + 1, limit=1)
    if found and found[0].hash != digest:
        raise ConfigError(f"audit.file {path}: it belongs to another store; name another file")
    newest = store.events(reverse=True, limit=1)
    if not newest or newest[0].seq < seq:
        raise ConfigError(
            f"audit.file {path}: it ends at event {seq}, and the store has no such event: it "
            "belongs to another store, or the store lost its end (checkrein audit verify)"
        )
    return seq
