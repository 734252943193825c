"""The store in memory: for one process, and gone with it.

Trees are kept as they are, and hashes are computed when events are read: a commit of one event
must cost about a microsecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from checkrein.errors import CheckreinError, ConfigError, StoreUnavailable
from checkrein.store import (
    SAME,
    Appended,
    Batch,
    Committed,
    Erased,
    Event,
    NewEvent,
    OwnerRow,
    Page,
    Record,
    SessionRow,
    StoreOptions,
    Tree,
    _fork,
)
from checkrein.store._journal import Journal, Kept, Session, keep, refusal
from checkrein.store._ledger import Ledger
from checkrein.store._listeners import Listeners
from checkrein.store._memory_keeping import MemoryKeeping
from checkrein.store._records import Records
from checkrein.store._rules import (
    SINGLE,
    check_batch,
    check_create,
    check_state,
    claim_conflict,
    closed,
    duplicate,
    fenced_out,
)


class MemoryStore(Ledger, MemoryKeeping):
    """Implements `checkrein.store.Store` in memory. Safe in several threads.

    After a fork, parent and child each have their own copy.
    """

    blocking = False

    def __init__(self, url: str = "memory:", options: StoreOptions | None = None) -> None:
        for name in (options or StoreOptions()).extra:
            raise ConfigError(f"store option {name!r}: memory stores have none")
        if url != "memory:":
            raise ConfigError("store: an address that begins with memory: has nothing after it")
        self.url = url
        self.key = os.urandom(32)
        super().__init__()
        self._journal = Journal()
        # What every commit touches, at hand.
        self._sessions = self._journal.sessions
        self._log = self._journal.log
        self._log_owners = self._journal.owners
        self._single: set[tuple[str, str, int]] = set()
        self._records = Records()
        self._owners: dict[str, OwnerRow] = {}
        self._version = 0
        self._closed = False
        self._listeners = Listeners()
        _fork.register(self)

    def before_fork(self) -> None:
        """Let no thread be in the middle of a commit."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on."""
        self._lock.release()

    # -- writing ---------------------------------------------------------------------------

    def commit(self, batch: Batch, *, wait: bool = True) -> Committed:
        """Write one batch. Waits for nothing but another thread's commit."""
        events = batch.events
        if (
            len(events) == 1
            and events[0].at == batch.at
            and not (batch.session_put is not None or batch.holds or batch.settles or batch.puts)
            and not batch.costs
        ):
            one = events[0]
            return Committed(
                *self.append(
                    batch.session, one.kind, one.call, one.at, one.view, one.payload, one.attempt,
                    batch.fence, batch.admit,
                )
            )  # fmt: skip
        kept = [keep(event) for event in events]
        with self._lock:
            done = self._commit_all(batch, self._sessions.get(batch.session), kept)
        if self._listeners.some:
            self._listeners.tell()
        return done

    def append(
        self,
        session: str,
        kind: str,
        call: str,
        at: int,
        view: Tree,
        payload: Tree | None = None,
        attempt: int = 0,
        fence: int | None = None,
        admit: bool = False,
        durable: bool = False,
    ) -> Appended:
        """Commit one event and nothing else."""
        if payload is SAME and kind and call.isascii():
            # As `keep` does it, without the call: this is the path of a plain call.
            kept: Kept = (call, kind, attempt, at, view, SAME)
        else:
            kept = keep(NewEvent(kind, call, at, view, payload, attempt))
        lock = self._lock
        lock.acquire()
        try:
            if self._closed:
                self._check_open()
            known = self._sessions.get(session)
            if (
                known is None
                or (fence is not None and fence < known.fence)
                or (admit and not known.open)
            ):
                raise refusal(Batch(session, (NewEvent(kind, call, at, view),), at, fence), known)
            if kind in SINGLE:
                # One look into the set, not two: did it grow?
                single = self._single
                before = len(single)
                single.add(kept[:3])
                if len(single) == before:
                    raise duplicate(*kept[:3])
            log = self._log
            log.append(kept)
            self._log_owners.append(known)
            seq = len(log)
            numbers = known.numbers
            numbers.append(seq)
            known.updated = at
            self._version += 1
            done = (seq, len(numbers) + 1, known.rollback)
        finally:
            lock.release()
        if self._listeners.some:
            self._listeners.tell()
        return done

    def commit_many(self, batches: Sequence[Batch]) -> list[Committed | Exception]:
        """Write several batches; each stands or falls alone."""
        results: list[Committed | Exception] = []
        for batch in batches:
            try:
                results.append(self.commit(batch))
            except CheckreinError as error:
                results.append(error)
        return results

    def _commit_all(self, batch: Batch, session: Session | None, kept: Sequence[Kept]) -> Committed:
        """A batch of any shape, under the lock: all of it, or nothing."""
        self._check_open()
        check_batch(batch)
        undo: list[Callable[[], object]] = []
        try:
            session = self._write(batch, session, kept, undo)
        except BaseException:
            for step in reversed(undo):
                step()
            raise
        self._version += 1
        return Committed(len(self._log), len(session.numbers) + 1, session.rollback)

    def _write(
        self,
        batch: Batch,
        session: Session | None,
        kept: Sequence[Kept],
        undo: list[Callable[[], object]],
    ) -> Session:
        # The order is that of the SQLite store: session, fence, admission, events, settles,
        # holds, rows. Events are appended last, because nothing can fail after that.
        change = batch.session_put
        if session is None or (change is not None and change.create):
            session = self._journal.create(batch, check_create(batch, session is not None), undo)
        if batch.fence is not None and batch.fence < session.fence:
            raise fenced_out(batch, session.fence)
        if batch.admit and not session.open:
            raise closed(batch, session.state, session.rollback, session.stopped)
        check_state(batch, session.state)
        self._reserve(batch, undo)
        for settle in batch.settles:
            self._accounts.settle(settle, batch.at, undo)
        for index, hold in enumerate(batch.holds):
            self._accounts.take(hold, index, batch.at, undo)
        for put in batch.puts:
            self._records.put(put, batch.at, undo)
        for event in kept:
            self._log.append(event)
            self._log_owners.append(session)
            session.numbers.append(len(self._log))
        for row in batch.costs:
            row.at = batch.at
            self._costs.append(row)
        if change is not None:
            session.change(change)
        if change is not None or batch.events:
            session.updated = batch.at
        return session

    def _reserve(self, batch: Batch, undo: list[Callable[[], object]]) -> None:
        added: list[tuple[str, str, int]] = []
        undo.append(lambda: self._single.difference_update(added))
        for event in batch.events:
            key = (event.call, event.kind, event.attempt)
            if event.kind in SINGLE:
                if key in self._single:
                    raise duplicate(*key)
                self._single.add(key)
                added.append(key)

    # -- reading ---------------------------------------------------------------------------

    def session(self, id: str) -> SessionRow | None:
        """One session, or None."""
        with self._lock:
            self._check_open()
            session = self._sessions.get(id)
            return None if session is None else self._journal.row(session)

    def sessions(
        self,
        *,
        state: str | None = None,
        rollback: str | None = None,
        owner: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Sessions, newest first."""
        wanted = {
            "state": state, "rollback": rollback, "owner": owner, "parent": parent, "agent": agent
        }  # fmt: skip
        with self._lock:
            self._check_open()
            return self._journal.page(wanted, after, limit)

    def events(
        self,
        *,
        session: str | None = None,
        call: str | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        before: int | None = None,
        reverse: bool = False,
        limit: int = 1000,
    ) -> list[Event]:
        """Events in the order of `seq`."""
        with self._lock:
            self._check_open()
            return self._journal.select(session, call, kinds, after, before, reverse, limit)

    def payload(self, seq: int) -> Tree | Erased | None:
        """The payload of an event."""
        with self._lock:
            self._check_open()
            return self._journal.payload(seq)

    def erase(self, seqs: Iterable[int]) -> int:
        """Drop payloads."""
        with self._lock:
            self._check_open()
            self._version += 1
            return self._journal.erase(seqs)

    def record(self, kind: str, id: str) -> Record | None:
        """One record, or None."""
        with self._lock:
            self._check_open()
            return self._records.get(kind, id)

    def records(
        self,
        kind: str,
        *,
        state: str | None = None,
        session: str | None = None,
        label: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Records of one kind, oldest first."""
        with self._lock:
            self._check_open()
            return self._records.page(kind, state, session, label, after, limit)

    # -- ownership -------------------------------------------------------------------------

    def beat(self, owner: OwnerRow) -> None:
        """Write a process's lease."""
        with self._lock:
            self._check_open()
            self._owners[owner.id] = owner

    def owner(self, id: str) -> OwnerRow | None:
        """A process's lease, or None."""
        with self._lock:
            self._check_open()
            return self._owners.get(id)

    def owners(self) -> list[OwnerRow]:
        """All leases."""
        with self._lock:
            self._check_open()
            return list(self._owners.values())

    def drop_owner(self, id: str) -> None:
        """Remove a process's lease."""
        with self._lock:
            self._check_open()
            self._owners.pop(id, None)

    def claim(self, session: str, owner: str, *, expect: int, at: int) -> int:
        """Become the owner of a session whose fence is `expect`; returns the new fence."""
        with self._lock:
            self._check_open()
            known = self._sessions.get(session)
            if known is None or known.fence != expect:
                raise claim_conflict(session, expect)
            known.owner = owner
            known.fence += 1
            known.updated = at
            self._version += 1
            return known.fence

    # -- the whole -------------------------------------------------------------------------

    def changed(self, topic: str = "", after: int = -1) -> int:
        """The number of changes so far."""
        return self._version

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every commit; returns how to stop that."""
        return self._listeners.add(callback)

    def verify(self, session: str) -> Event | None:
        """The first event of a session that is not what was hashed, or None."""
        with self._lock:
            self._check_open()
            return self._journal.verify(session)

    def rebuild(self, *, repair: bool = False) -> list[str]:
        """Compare account totals with the holds and bookings that they are made of."""
        with self._lock:
            self._check_open()
            return self._accounts.check(repair=repair)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("store memory: was closed, and its content is gone")

    def close(self) -> None:
        """Take nothing more. Can be repeated."""
        with self._lock:
            self._closed = True
