"""Who is called after every commit of this process."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger("checkrein.store")


class Listeners:
    """Callbacks, called in the committing thread after its locks are free."""

    __slots__ = ("some",)

    def __init__(self) -> None:
        self.some: tuple[Callable[[], None], ...] = ()
        """Replaced, never changed: nobody needs a lock to go through it."""

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from now on; returns how to stop that."""

        # A new object each time: the same function may be added twice, and stopped once.
        def entry() -> None:
            callback()

        def stop() -> None:
            self.some = tuple(known for known in self.some if known is not entry)

        self.some = (*self.some, entry)
        return stop

    def tell(self) -> None:
        """Call them all."""
        for callback in self.some:
            try:
                callback()
            except Exception:  # noqa: BLE001 - the commit stands, whatever a listener does
                _log.exception("a listener of the store failed")
