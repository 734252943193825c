"""The store in memory: for one process, and gone with it.

Trees are kept as they are, and hashes are computed when events are read: a commit of one event
must cost about a microsecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from checkrein.errors import CheckreinError, ConfigError, StoreUnavailable
from checkrein.store import (
    Batch,
    Committed,
    Erased,
    Event,
    HoldRow,
    NewEvent,
    OwnerRow,
    Page,
    Put,
    Record,
    Rollback,
    SessionRow,
    SettleRow,
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
    check_amounts,
    check_batch,
    check_create,
    check_state,
    check_text,
    claim_conflict,
    closed,
    duplicate,
    fenced_out,
)


class MemoryStore(Ledger, MemoryKeeping):
    """Implements `checkrein.store.Store`, in several threads; a child has its own copy."""

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
        self._marks: dict[str, int] = {}
        """What there is of each call: see `append`."""
        self._records = Records()
        self._owners: dict[str, OwnerRow] = {}
        self._version = 0
        """The number of changes without an event."""
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
        kept = [keep(event) for event in batch.events]
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
        view: dict[str, Tree],
        part: Tree,
        attempt: int = 0,
        fence: int | None = None,
        admit: bool = False,
        durable: bool = False,
        holds: Sequence[HoldRow] = (),
        settles: Sequence[SettleRow] = (),
        puts: Sequence[Put] = (),
    ) -> Rollback:
        """Commit one event of a plain call, and its holds or settles."""
        if not call.isascii():
            check_text("event", call)
        if holds or settles:
            check_amounts(holds, settles)
        # One bit for each attempt and kind: for a call that has just begun, the look-up is warm.
        bit = (1 if kind == "intent" else 2) << 2 * attempt
        new: list[str] | None = None
        lock = self._lock
        lock.acquire()
        try:
            known = self._sessions.get(session)
            if (
                self._closed
                or known is None
                or (fence is not None and fence < known.fence)
                or (admit and not known.open)
            ):
                self._check_open()
                raise refusal(Batch(session, (NewEvent(kind, call, at, view),), at, fence), known)
            marks = self._marks
            seen = marks.get(call, 0)
            if seen & bit:
                raise duplicate(call, kind, attempt)
            for settle in settles:
                self._accounts.settle(settle, at)
            if holds:
                new = self._accounts.take_all(holds, at)
            for put in puts:
                self._records.put(put, at, [])
            marks[call] = seen | bit
            self._log += (call, kind, attempt, at, view, part, known)
            known.n += 1
            new = None
            rollback = known.rollback
        finally:
            if new is not None:  # interrupted
                self._accounts.give_back(holds, new)
            lock.release()
        if self._listeners.some:
            self._listeners.tell()
        return rollback

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
        if len(kept) == 1 and session is not None and self._write_one(batch, session, kept[0]):
            return Committed(self._journal.last, session.n + 1)
        check_batch(batch)
        undo: list[Callable[[], object]] = []
        try:
            session = self._write(batch, session, kept, undo)
        except BaseException:
            for step in reversed(undo):
                step()
            raise
        self._version += not kept
        return Committed(self._journal.last, session.n + 1, session.rollback)

    def _write_one(self, batch: Batch, session: Session, kept: Kept) -> bool:
        """Write an intent or outcome and its costs, where nothing stands against it."""
        call, kind, attempt, at = kept[:4]
        if (
            kind not in SINGLE or at != batch.at or session.rollback != "none"
            or (batch.fence is not None and batch.fence < session.fence)
            or (batch.admit and not session.open)
            or batch.holds or batch.settles or batch.puts
            or batch.session_put is not None
        ):  # fmt: skip
            return False
        bit = (1 if kind == "intent" else 2) << 2 * attempt
        seen = self._marks.get(call, 0)
        if seen & bit or not batch.session.isascii() or not call.isascii():
            return False
        self._marks[call] = seen | bit
        self._log += (*kept, session)
        session.n += 1
        self._book(batch)
        return True

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
        accounts = self._accounts
        for settle in batch.settles:
            settled = accounts.settle(settle, batch.at)
            if settled is not None:
                undo.append(partial(accounts.reopen, settled))
        if batch.holds:
            new = accounts.take_all(batch.holds, batch.at)
            undo.append(partial(accounts.give_back, batch.holds, new))
        for put in batch.puts:
            self._records.put(put, batch.at, undo)
        for event in kept:
            self._log += (*event, session)
            session.n += 1
        self._book(batch)
        if change is not None:
            session.change(change)
        if change is not None or (batch.events and batch.events[-1].at != batch.at):
            session.updated = max(session.updated, batch.at)
        return session

    def _reserve(self, batch: Batch, undo: list[Callable[[], object]]) -> None:
        for event in batch.events:
            if event.kind in SINGLE:
                bit = (1 if event.kind == "intent" else 2) << 2 * event.attempt
                seen = self._marks.get(event.call, 0)
                if seen & bit:
                    raise duplicate(event.call, event.kind, event.attempt)
                undo.append(partial(self._marks.__setitem__, event.call, seen))
                self._marks[event.call] = seen | bit

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
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Sessions, newest first."""
        wanted = {
            "state": state, "rollback": rollback, "owner": owner, "parent": parent, "agent": agent
        }  # fmt: skip
        with self._lock:
            self._check_open()
            return self._journal.page(wanted, prefix, after, limit)

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
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Records of one kind, oldest first."""
        with self._lock:
            self._check_open()
            return self._records.page(kind, state, session, label, prefix, after, limit)

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
            known.updated = max(known.updated, at)
            self._version += 1
            return known.fence

    # -- the whole -------------------------------------------------------------------------

    def changed(self, topic: str = "", after: int = -1) -> int:
        """The number of changes and events so far."""
        return self._version + self._journal.last

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
