"""Sessions and events in memory. Hashes are computed when somebody reads them."""

from __future__ import annotations

import marshal
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeAlias

from checkrein.codec import dumps
from checkrein.errors import CheckreinError, Conflict, Unencodable
from checkrein.store import (
    ERASED,
    SAME,
    Batch,
    Erased,
    Event,
    NewEvent,
    Page,
    Rollback,
    SessionPut,
    SessionRow,
    SessionState,
    Tree,
    same_key,
)
from checkrein.store._paging import page_of, place_of
from checkrein.store._rules import (
    GENESIS,
    chain_body,
    chain_hash,
    check_event,
    closed,
    closed_because,
    fenced_out,
    halt_of,
    look_up,
    missing_event,
)

_seq_of = attrgetter("seq")

Kept: TypeAlias = tuple[Any, ...]
"""An event as it is kept: call, kind, attempt, time, view, payload.

View and payload are marshalled: bytes are frozen, small, and nothing that the garbage collector
has to walk again and again. They never leave the process.
"""


def _thaw(kept: Any) -> Tree:
    kept = kept if isinstance(kept, bytes) else marshal.dumps(kept)
    return marshal.loads(kept)  # noqa: S302 - our own bytes, which never left the process


def keep(event: NewEvent) -> Kept:
    """What is kept of an event. Raises `Unencodable` for a view or payload that is no tree."""
    if not event.kind or not event.call.isascii():
        check_event(event)
    payload = event.payload
    if payload is SAME:
        # What such a view shows is flat and its writer's own: nobody can change it any more.
        return (event.call, event.kind, event.attempt, event.at, event.view, SAME)
    try:
        return (
            event.call,
            event.kind,
            event.attempt,
            event.at,
            marshal.dumps(event.view),
            None if payload is None else marshal.dumps(payload),
        )
    except ValueError as error:
        raise Unencodable(f"event {event.kind} of call {event.call}", "tree", str(error)) from None


def refusal(batch: Batch, known: Session | None) -> CheckreinError:
    """What refuses one event."""
    if known is None:
        return Conflict(f"session {batch.session} is not in this store: create it first")
    if batch.fence is not None and batch.fence < known.fence:
        return fenced_out(batch, known.fence)
    return closed(batch, known.state, known.rollback, known.stopped)


class Session:
    """A session and the numbers of its events."""

    __slots__ = (
        "agent", "body", "created", "events", "fence", "id", "numbers", "open", "owner", "parent",
        "rollback", "state", "stopped", "updated",
    )  # fmt: skip

    def __init__(self, id: str, change: SessionPut, at: int) -> None:
        self.id = id
        self.state: SessionState = change.state or "ACTIVE"
        self.rollback: Rollback = change.rollback or "none"
        self.stopped = halt_of(change, 0)
        self.owner = change.owner or ""
        self.fence = int(bool(self.owner))
        self.created = self.updated = at
        self.body = change.body or {}
        self.parent, self.agent = look_up(self.body)
        self.numbers: list[int] = []
        """Numbers of its events, store-wide."""
        self.events: list[Event] = []
        """The first of them, as far as somebody has read: with hashes."""
        self.open = not closed_because(self.state, self.rollback, self.stopped)

    def change(self, change: SessionPut) -> None:
        """Take over what is set in `change`."""
        self.state = change.state or self.state
        self.rollback = change.rollback or self.rollback
        if change.owner == "":
            self.owner = ""
        self.stopped = halt_of(change, self.stopped)
        self.open = not closed_because(self.state, self.rollback, self.stopped)


class Journal:
    """All sessions and events. The owner holds its lock around every call."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._order: list[Session] = []
        # Two lists and not one of pairs: fewer objects for the garbage collector to go through.
        self.owners: list[Session] = []
        self.log: list[Kept] = []
        """Event number s, and in `owners` its session, stand at place s - 1."""
        self._calls: dict[str, list[int]] = {}
        self._calls_upto = 0
        self._erased: set[int] = set()

    def create(self, batch: Batch, change: SessionPut, undo: list[Callable[[], object]]) -> Session:
        """A new session."""
        session = Session(batch.session, change, batch.at)
        self.sessions[batch.session] = session
        self._order.append(session)
        undo.append(self._order.pop)
        undo.append(lambda: self.sessions.pop(batch.session))
        return session

    def row(self, known: Session) -> SessionRow:
        """A session as others see it."""
        events = self.read(known)
        return SessionRow(
            known.id, known.state, known.rollback, known.stopped == 1, known.owner, known.fence,
            len(events), events[-1].hash if events else GENESIS.hex(), known.created,
            known.updated, known.body, known.stopped == 2,
        )  # fmt: skip

    def page(self, wanted: dict[str, str | None], after: str | None, limit: int) -> Page:
        """Sessions, newest first."""
        tests = [(attrgetter(name), value) for name, value in wanted.items() if value is not None]
        place = place_of(after)
        start = len(self._order) if place is None else min(place, len(self._order))
        found: list[tuple[int, Session]] = []
        for index in range(start - 1, -1, -1):
            known = self._order[index]
            if all(get(known) == value for get, value in tests):
                found.append((index, known))
                if len(found) > limit:
                    break
        return page_of(found, limit, lambda row: self.row(row[1]))

    def select(
        self,
        session: str | None,
        call: str | None,
        kinds: Sequence[str] | None,
        after: int,
        before: int | None,
        reverse: bool,
        limit: int,
    ) -> list[Event]:
        """Events in the order of their numbers."""
        seqs: Sequence[int] = range(1, len(self.log) + 1)
        if call is not None:
            seqs = self._of_call(call)
        elif session is not None:
            known = self.sessions.get(session)
            seqs = known.numbers if known else ()
        low = bisect_left(seqs, after + 1)
        high = len(seqs) if before is None else bisect_left(seqs, before)
        found: list[Event] = []
        for place in range(high - 1, low - 1, -1) if reverse else range(low, high):
            if len(found) >= limit:
                break
            owner, kind = self.owners[seqs[place] - 1], self.log[seqs[place] - 1][1]
            if not kind:
                continue  # forgotten
            if (kinds is None or kind in kinds) and session in (None, owner.id):
                events = self.read(owner)
                found.append(events[bisect_left(events, seqs[place], key=_seq_of)])
        return found

    def _of_call(self, call: str) -> Sequence[int]:
        # Indexed when somebody asks: a commit does not pay for it.
        for index in range(self._calls_upto, len(self.log)):
            self._calls.setdefault(self.log[index][0], []).append(index + 1)
        self._calls_upto = len(self.log)
        return self._calls.get(call, ())

    def read(self, session: Session) -> list[Event]:
        """The session's events, with the hashes that are not computed yet."""
        done = session.events
        for n in range(len(done) + 1, len(session.numbers) + 1):
            seq = session.numbers[n - 1]
            call, kind, attempt, at, kept, _ = self.log[seq - 1]
            view = _thaw(kept)
            payload = self.payload(seq)
            ref = b""
            if payload is not None:
                ref = sha256(os.urandom(16) + dumps(payload).encode()).digest()
            prev = bytes.fromhex(done[-1].hash) if done else GENESIS
            body = chain_body(session.id, kind, call, dumps(view))
            digest = chain_hash(prev, seq, n, attempt, at, ref, body)
            done.append(
                Event(
                    seq,
                    session.id,
                    n,
                    kind,
                    call,
                    attempt,
                    at,
                    view,
                    ref.hex(),
                    prev.hex(),
                    digest.hex(),
                )
            )
        return done

    def payload(self, seq: int) -> Tree | Erased | None:
        """The payload of an event."""
        if not 0 < seq <= len(self.log):
            return None
        if seq in self._erased:
            return ERASED
        _, kind, _, _, view, payload = self.log[seq - 1]
        if payload is None:
            return None
        if payload is SAME:
            key = same_key(kind)
            return {key: _thaw(view)[key]}
        return _thaw(payload)

    def erase(self, seqs: Iterable[int]) -> int:
        """Drop payloads; returns how many there were."""
        erased = 0
        for seq in seqs:
            if self.payload(seq) is None or seq in self._erased:
                continue
            self.read(self.owners[seq - 1])  # the hash needs the payload once
            self.log[seq - 1] = (*self.log[seq - 1][:5], None)
            self._erased.add(seq)
            erased += 1
        return erased

    def forget(self, id: str) -> tuple[int, str]:
        """Drop a session's events; how many there were, and the hash of the last."""
        session = self.sessions[id]
        events = self.read(session)
        length, head = len(events), events[-1].hash if events else GENESIS.hex()
        for number in session.numbers:
            self.log[number - 1] = ("", "", 0, 0, None, None)
        session.numbers, session.events = [], []
        self._calls, self._calls_upto = {}, 0
        return length, head

    def verify(self, id: str) -> Event | None:
        """The first event of a session that is not what was hashed."""
        session = self.sessions.get(id)
        if session is None:
            return missing_event(id, 1, "")
        prev = GENESIS
        for event in self.read(session):
            body = chain_body(id, event.kind, event.call, dumps(event.view))
            ref = bytes.fromhex(event.ref)
            digest = chain_hash(prev, event.seq, event.n, event.attempt, event.at, ref, body)
            if event.prev != prev.hex() or event.hash != digest.hex():
                return event
            prev = digest
        return None
