"""Lines of a terminal or a scripted stream, read so that the reader can give up."""

from __future__ import annotations

import atexit
import io
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

POLL = 0.1
"""Seconds between two looks at whether an answer is still wanted."""

_PART = 4096

_INTERRUPT = b"\x03"
"""What Ctrl-C types."""


class Closed(Exception):
    """The input has ended."""


class Interrupted(Exception):
    """Ctrl-C was typed in place of an answer."""


class Lines:
    """Reads lines from `stream`; waits on its descriptor if it has one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pending = b""
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, io.UnsupportedOperation, AttributeError):
            self._descriptor = None

    def forget(self) -> None:
        """Drop what was typed before the question was shown: it answers nothing."""
        if self._descriptor is None or not os.isatty(self._descriptor):
            return
        import termios

        self._pending = b""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    @contextmanager
    def question(self) -> Iterator[None]:
        """While a question stands, a terminal hands Ctrl-C to the reader, not to the process.

        The signal would go to the main thread alone. That may be waiting for the very thread
        which waits for the answer, as an agent framework's pool does: neither would end.
        """
        if self._descriptor is None or not os.isatty(self._descriptor):
            yield
            return
        import termios

        descriptor = self._descriptor
        before = termios.tcgetattr(descriptor)
        changed = termios.tcgetattr(descriptor)
        signs = changed[6]
        # The sign neither interrupts nor joins a line: it ends one, so that it is read at once.
        signs[termios.VINTR], signs[termios.VEOL] = b"\0", _INTERRUPT

        def restore() -> None:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

        # Prompts run on daemon threads: at the end of the process no `finally` of theirs does.
        atexit.register(restore)
        termios.tcsetattr(descriptor, termios.TCSANOW, changed)
        try:
            yield
        finally:
            atexit.unregister(restore)
            restore()

    def read(self, wanted: Callable[[], bool]) -> str | None:
        """The next line without its end; None once `wanted()` is false.

        Raises `Closed` at the end of the input, and `Interrupted` for Ctrl-C.
        """
        if self._descriptor is None:
            line = self._stream.readline() if wanted() else ""
            if not line:
                if wanted():
                    raise Closed
                return None
            return line.rstrip("\r\n")
        while b"\n" not in self._pending:
            if not wanted():
                return None
            ready, _, _ = select.select([self._descriptor], [], [], POLL)
            if not ready:
                continue
            part = os.read(self._descriptor, _PART)
            if not part:
                # A last line without an end is not an answer somebody finished.
                self._pending = b""
                raise Closed
            if _INTERRUPT in part and os.isatty(self._descriptor):
                self._pending = b""
                raise Interrupted
            self._pending += part
        if not wanted():
            return None
        line_bytes, _, self._pending = self._pending.partition(b"\n")
        return line_bytes.decode("utf-8", "replace").rstrip("\r")


def shown(text: str) -> str:
    """`text` for a terminal: nothing in it can move the cursor, colour or reorder what is read."""
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else (f"\\U{code:08x}")
    )
