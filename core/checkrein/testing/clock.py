"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

DEFAULT = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """Use as `Rein(clock=clock)`: calling it gives microseconds since the epoch.

    Expiry, windows, settle times and stored times follow it. Waiting does not: an entry that
    blocks, a timeout and `recover(settle=True)` take real time.
    """

    def __init__(self, start: datetime | float = DEFAULT) -> None:
        """`start`: a date with a time zone, or seconds since the epoch."""
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise ValueError("Clock: a start without a time zone is ambiguous")
            start = start.timestamp()
        self._micros = round(start * 1_000_000)
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Microseconds since the epoch."""
        return self._micros

    def advance(self, seconds: float) -> int:
        """Go forward (or back, with a negative number); the new time in microseconds."""
        with self._lock:
            self._micros += round(seconds * 1_000_000)
            return self._micros

    @property
    def now(self) -> datetime:
        """The time as a date, in UTC."""
        return datetime.fromtimestamp(self._micros / 1_000_000, UTC)
