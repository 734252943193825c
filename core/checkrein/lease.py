"""This process's lease on its sessions: made with the first one, renewed, given back."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from logging import Logger
from typing import TYPE_CHECKING

from checkrein.store import Batch, SettleRow

if TYPE_CHECKING:
    from checkrein.store import OwnerRow, Store


class Lease:
    """Says in the store that this process is alive, for one Rein."""

    def __init__(self, store: Store, clock: Callable[[], int], log: Logger) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._id = ""
        self._stop: threading.Event | None = None
        self.pid = 0
        """The process that the lease is for; a fork has none yet."""

    def id(self) -> str:
        """The lease; made, and kept alive, from the first session on."""
        if self._id and self.pid == os.getpid():
            return self._id
        from checkrein import owner

        with owner.ONE:
            if not self._id or self.pid != os.getpid():
                row = owner.this_process(self._clock())
                self._store.beat(row)
                self._id, self.pid = row.id, os.getpid()
                if self._store.blocking:
                    self._beat(row)
        return self._id

    def _beat(self, row: OwnerRow) -> None:
        from checkrein import owner

        stop = self._stop = threading.Event()
        reference = weakref.ref(self)

        def work() -> None:
            while not stop.wait(owner.BEAT):
                lease = reference()
                if lease is None or os.getpid() != row.pid:
                    return
                try:
                    lease._store.beat(replace(row, beat=lease._clock()))  # noqa: SLF001 - itself
                except Exception:  # noqa: BLE001 - the next beat tries again, and a lease that is
                    # lost is found by the fence
                    lease._log.warning("the lease of this process could not be renewed")  # noqa: SLF001 - itself
                del lease

        threading.Thread(target=work, name="checkrein-heartbeat", daemon=True).start()

    def stop_beating(self) -> None:
        """Renew it no more."""
        if self._stop is not None:
            self._stop.set()

    def give_back(self) -> None:
        """Take it out of the store, unless a session still names it."""
        if self._id and self.pid == os.getpid():
            with contextlib.suppress(Exception):
                # A session that could not be rolled back is found by its owner's lease.
                if not self._store.sessions(owner=self._id, limit=1).rows:
                    self._store.drop_owner(self._id)

    def sweep(self, account: str) -> bool:
        """Release what dead processes hold only while running; whether there was anything."""
        from checkrein import owner

        freed = False
        store = self._store
        for hold in store.holds(account=account):
            if hold.settle not in ("release", "streak"):
                continue
            row = store.session(hold.session)
            if row is None or (row.owner and owner.alive(store.owner(row.owner), self._clock())):
                continue
            settles = (SettleRow(hold.id, 0),)
            store.commit(Batch(hold.session, (), self._clock(), settles=settles))
            freed = True
        return freed
