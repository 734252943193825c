"""Sessions and events in memory. Hashes are computed when somebody reads them."""

from __future__ import annotations

import marshal
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeAlias

from checkrein.codec import SCALARS, dumps, is_flat
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
    payload_of,
    same_key,
)
from checkrein.store._paging import page_of, place_of
from checkrein.store._rules import (
    GENESIS,
    bare_body,
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
has to walk again and again. They never leave the process. Where the payload is a part of the view
(`SAME`, `Store.append`) the view is kept without that part, and the payload is the part: where no
container lies in it, both are as they are (dicts of scalars are nothing to the garbage collector
either, as long as they do not lie in one another), else both are marshalled, and the part is in a
tuple of one.
"""

WIDTH = 7
"""Places that an event takes in the log: what is kept of it, and its session."""


def _thaw(kept: Any) -> Tree:
    return marshal.loads(kept)  # noqa: S302 - our own bytes, which never left the process


def _copy(tree: Any) -> Tree:
    """A tree that its reader may change."""
    return _thaw(marshal.dumps(tree))


def _is_frozen(shown: Any) -> bool:
    """Whether nobody can change what the view of a plain call shows: no container lies in it."""
    return is_flat(shown) if type(shown) is dict else type(shown) in SCALARS


def keep(event: NewEvent) -> Kept:
    """What is kept of an event. Raises `Unencodable` for a view or payload that is no tree."""
    if not event.kind or not event.call.isascii():
        check_event(event)
    view: Any = event.view
    payload = event.payload
    try:
        if payload is SAME:
            # The rest of the view is its writer's own: nobody can change it any more.
            view = dict(view)
            payload = view.pop(same_key(event.kind))
            if not _is_frozen(payload):
                view, payload = marshal.dumps(view), (marshal.dumps(payload),)
        else:
            view = marshal.dumps(view)
            payload = None if payload is None else marshal.dumps(payload_of(event))
    except ValueError as error:
        raise Unencodable(f"event {event.kind} of call {event.call}", "tree", str(error)) from None
    return event.call, event.kind, event.attempt, event.at, view, payload


def _same(view: Any, part: Any, kind: str) -> dict[str, Tree] | None:
    """The payload, where it is a part that the kept view is without."""
    if type(part) is tuple:
        part = _thaw(part[0])
    elif type(view) is not dict:
        return None
    return {same_key(kind): part}


def _whole(view: Any, same: dict[str, Tree] | None) -> dict[str, Tree]:
    """A kept view with the part that it is without."""
    rest: Any = view if type(view) is dict else _thaw(view)
    return rest if same is None else {**rest, **same}


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
        "agent", "body", "created", "events", "fence", "id", "n", "numbers", "open", "owner",
        "parent", "rollback", "state", "stopped", "updated",
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
        self.n = 0
        """How many events it has."""
        self.numbers: list[int] = []
        """Numbers of its events, store-wide, as far as somebody has asked for them."""
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
        self.log: list[Any] = []
        """The events, `WIDTH` places for each: one list and no tuples, so that there is nothing
        that the garbage collector goes through again and again."""
        self._calls: dict[str, list[int]] = {}
        self._calls_upto = 0
        self._numbers_upto = 0
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
            max(known.updated, events[-1].at if events else 0), known.body, known.stopped == 2,
        )  # fmt: skip

    def page(
        self, wanted: dict[str, str | None], prefix: str | None, after: str | None, limit: int
    ) -> Page:
        """Sessions, newest first."""
        tests = [(attrgetter(name), value) for name, value in wanted.items() if value is not None]
        place = place_of(after)
        start = len(self._order) if place is None else min(place, len(self._order))
        found: list[tuple[int, Session]] = []
        for index in range(start - 1, -1, -1):
            known = self._order[index]
            if known.id.startswith(prefix or "") and all(
                get(known) == value for get, value in tests
            ):
                found.append((index, known))
                if len(found) > limit:
                    break
        return page_of(found, limit, lambda row: self.row(row[1]))

    @property
    def last(self) -> int:
        """The number of the last event."""
        return len(self.log) // WIDTH

    def _at(self, seq: int) -> list[Any]:
        """What is kept of an event, and its session."""
        return self.log[(seq - 1) * WIDTH : seq * WIDTH]

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
        seqs: Sequence[int] = range(1, self.last + 1)
        if call is not None:
            seqs = self._of_call(call)
        elif session is not None:
            known = self.sessions.get(session)
            seqs = self.numbers(known) if known else ()
        low = bisect_left(seqs, after + 1)
        high = len(seqs) if before is None else bisect_left(seqs, before)
        found: list[Event] = []
        for place in range(high - 1, low - 1, -1) if reverse else range(low, high):
            if len(found) >= limit:
                break
            _, kind, _, _, _, _, owner = self._at(seqs[place])
            if not kind:
                continue  # forgotten
            if (kinds is None or kind in kinds) and session in (None, owner.id):
                events = self.read(owner)
                found.append(events[bisect_left(events, seqs[place], key=_seq_of)])
        return found

    def numbers(self, session: Session) -> list[int]:
        """The numbers of a session's events."""
        # As with calls: a commit does not pay for it.
        for seq in range(self._numbers_upto + 1, self.last + 1):
            self.log[seq * WIDTH - 1].numbers.append(seq)
        self._numbers_upto = self.last
        session.n = len(session.numbers)  # an interrupt may have come between event and count
        return session.numbers

    def _of_call(self, call: str) -> Sequence[int]:
        # Indexed when somebody asks: a commit does not pay for it.
        for index in range(self._calls_upto, self.last):
            self._calls.setdefault(self.log[index * WIDTH], []).append(index + 1)
        self._calls_upto = self.last
        return self._calls.get(call, ())

    def read(self, session: Session) -> list[Event]:
        """The session's events, with the hashes that are not computed yet."""
        done, numbers = session.events, self.numbers(session)
        for n in range(len(done) + 1, len(numbers) + 1):
            seq = numbers[n - 1]
            call, kind, attempt, at, kept, part, _ = self._at(seq)
            view = _copy(_whole(kept, _same(kept, part, kind)))
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
        if not 0 < seq <= self.last:
            return None
        if seq in self._erased:
            return ERASED
        _, kind, _, _, view, payload, _ = self._at(seq)
        if (same := _same(view, payload, kind)) is not None:
            return _copy(same)
        return None if payload is None else _thaw(payload)

    def erase(self, seqs: Iterable[int]) -> int:
        """Drop payloads; returns how many there were."""
        erased = 0
        for seq in seqs:
            if self.payload(seq) is None or seq in self._erased:
                continue
            _, kind, _, _, view, payload, owner = self._at(seq)
            self.read(owner)  # the hash needs the payload once
            if (same := _same(view, payload, kind)) is not None:
                view = marshal.dumps(_whole(view, same))
            self.log[seq * WIDTH - 3 : seq * WIDTH - 1] = view, None
            self._erased.add(seq)
            erased += 1
        return erased

    def forget(self, id: str) -> tuple[int, str]:
        """Drop a session's events; how many there were, and the hash of the last."""
        session = self.sessions[id]
        events = self.read(session)
        length, head = len(events), events[-1].hash if events else GENESIS.hex()
        for number in self.numbers(session):
            self.log[(number - 1) * WIDTH : number * WIDTH - 1] = "", "", 0, 0, b"", None
        session.n, session.numbers, session.events = 0, [], []
        session.body = bare_body(session.body)
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
