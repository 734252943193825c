"""Being told that another process has committed, where a backend can."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Ear(Protocol):
    """Hears of changes of records and sessions, for one thread."""

    def wait(self, seconds: float) -> bool:
        """Return when something was committed, or the time is over; False: ask the store instead.

        The first time, and after a connection was lost, at once: something may have been missed.
        """
        ...

    def close(self) -> None:
        """Hear no more."""
        ...


@runtime_checkable
class Hearing(Protocol):
    """A store that tells."""

    def ear(self) -> Ear:
        """A new ear; it connects when it first waits."""
        ...
