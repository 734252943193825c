"""Locks that are free in a forked child, whoever held them at the fork."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class Lock:
    """As `threading.Lock` (`reentrant`: `RLock`), but new in every forked child.

    The thread that held it at the fork is not there any more, so nobody would ever let go.
    """

    __slots__ = ("__weakref__", "_lock", "_reentrant")

    def __init__(self, *, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self.renew()
        _LOCKS.add(self)

    def renew(self) -> None:
        """Forget who holds it."""
        self._lock = threading.RLock() if self._reentrant else threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()


_LOCKS: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
