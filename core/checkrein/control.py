"""Sessions from outside: paused, stopped, started anew, forgotten; in whatever process they run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein.codec import dumps, encode
from checkrein.effects import descendants
from checkrein.entry import undone_around
from checkrein.errors import ConfigError, Conflict, SessionClosed, Unencodable
from checkrein.store import Batch, SessionPut, SessionRow
from checkrein.store._rules import ANCHORS, closed, closed_because

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.session import Session

REPLAY = "replay_prepared"
"""Kind of the event that keeps what a session's recorded steps are answered with instead."""

PAYLOAD_LIMIT = 1_000_000
"""Bytes of a session's payload, as it is stored."""

_CARRIED = (
    "agent", "user", "tenant", "task", "intent", "labels", "on_error", "policy", "pins", "mode",
    "max_resumes", "sandbox",
)  # fmt: skip
"""What a session that is started anew begins with."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted."""

    sessions: int
    """Whose events and records were deleted, or of which payloads were erased."""
    payloads: int
    """Payloads that were erased, where the events stay."""
    files: int
    """Files that nothing named any more."""


class Control:
    """Changes sessions of any process, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    # -- pause, stop, start anew

    def change(
        self, what: str, put: SessionPut, session_id: str | None, agent: str | None, all: bool
    ) -> int:
        """Mark sessions; the store asks for the mark at every call. How many were marked."""
        if sum((session_id is not None, agent is not None, all)) != 1:
            raise ConfigError(f"{what}: name one of session_id, agent= or all=True")
        if session_id is not None:
            row = self.store.session(session_id)
            if row is None:
                raise Conflict(f"session {session_id} is unknown here")
            # What runs inside a session is a part of it.
            inner = map(self.store.session, descendants(self.store, session_id)[1:])
            rows = [row, *(found for found in inner if found is not None)]
        else:
            rows = self._open(agent)
        ids = [row.id for row in rows if _differs(row, put)]
        for id in ids:
            event = self.rein.journal.event(what)
            batch = Batch(id, (event,), event.at, session_put=put)
            self.rein.observers.notify(self.store.commit(batch), batch)
        return len(ids)

    def admit_inner(self, outer: Session | None, session: Session) -> None:
        """Refuse to begin a session inside one that is stopped, or undone: see `admit`.

        A task that outlived a session that ended well may still begin one. It is asked before
        the row is written and after: a rollback looks for inner sessions once it has closed the
        outer one, so it finds this one, or this one finds out.
        """
        if outer is None or session.detached or outer.id in self.rein.unrecorded:
            return
        if undone_around():
            return  # a part of an undo
        try:
            self.admit(outer.id, outlived=True)
        except SessionClosed as error:
            if session.fence is not None:
                event = self.rein.journal.event("session_ended", state="FAILED", error=str(error))
                put = SessionPut(state="FAILED", owner="", if_state=("ACTIVE",))
                batch = Batch(session.id, (event,), event.at, session.fence, session_put=put)
                with suppress(Conflict):  # it is rolled back with the outer one
                    self.rein.observers.notify(self.store.commit(batch), batch)
            raise

    def admit(self, session_id: str, *, outlived: bool = False) -> None:
        """Refuse as the store would refuse a call of a session. Raises `SessionClosed`.

        `outlived`: what was begun in it may go on where it ended well.
        """
        row = self.store.session(session_id)
        if outlived and row is not None and (row.state, row.rollback) == ("COMPLETED", "none"):
            return
        state = ("ABANDONED", "none", 0)
        if row is not None:
            state = row.state, row.rollback, 1 if row.stopped else 2 * row.paused
        if closed_because(*state):
            raise closed(Batch(session_id, (), 0), *state)

    def _open(self, agent: str | None) -> list[SessionRow]:
        return list(self.rows(state="ACTIVE", agent=agent))

    def rows(self, **wanted: str | None) -> Iterator[SessionRow]:
        """All sessions that are as wanted, read page by page."""
        after: str | None = None
        while True:
            page = self.store.sessions(after=after, limit=500, **wanted)
            yield from page.rows
            after = page.next
            if after is None:
                return

    def restart(self, session_id: str, replays: Mapping[str, Any] | None = None) -> str:
        """A new session like one that is over or stopped; its id. Nobody owns it yet.

        `replays`: what the plugin `replay` answers in it, see `replay`.
        """
        row = self.store.session(session_id)
        if row is None:
            raise Conflict(f"session {session_id} is unknown here")
        if row.rollback == "rolling_back" or (row.state == "ACTIVE" and not row.stopped):
            raise Conflict(f"session {session_id} is not over: stop it before it is restarted")
        first = self.store.events(session=session_id, kinds=("session_started",), limit=1)
        if not first:
            raise Conflict(f"session {session_id} was forgotten: it cannot be restarted")
        view = {**first[0].view, "restarts": session_id}
        kept = self.store.payload(first[0].seq)
        if first[0].view.get("pins") and not isinstance(kept, dict):
            raise Conflict(
                f"session {session_id}: the policy that it ran under is not kept any more; open a "
                "new session"
            )
        new = os.urandom(16).hex()
        body = {key: row.body[key] for key in _CARRIED if key in row.body}
        body |= {"parent": "", "root": new, "detached": False, "restarts": session_id}
        event = self.rein.journal.event("session_started", "", kept or None, **view)
        events = [event]
        payload = self.payload(session_id)
        if payload is not None:
            events.append(self._payload_event(new, payload))
        if replays is not None:
            body["replays"] = {"session": session_id, "until": replays["until"]}
            edited = sorted(replays["edits"], key=int)
            events.append(
                self.rein.journal.event(
                    REPLAY, "", {"edits": replays["edits"]}, session=session_id,
                    until=replays["until"], edited=edited,
                )
            )  # fmt: skip
        put = SessionPut(create=True, state="ACTIVE", owner="", body=body)
        batch = Batch(new, events, event.at, session_put=put)
        self.rein.observers.notify(self.store.commit(batch), batch)
        return new

    def replay(self, session_id: str, step: int, edits: Mapping[int, Any]) -> str:
        """A new session in which the steps up to `step` are answered from the record."""
        self._check_step(session_id, step)
        trees = {}
        for number, value in edits.items():
            if not 1 <= number <= step:
                raise ConfigError(f"edits: step {number} is not among the steps 1 to {step}")
            self._check_step(session_id, number)
            try:
                trees[str(number)] = encode(value, f"edits[{number}]")
            except Unencodable as error:
                raise ConfigError(f"edits: step {number} must be plain data: {error}") from error
        return self.restart(session_id, {"until": step, "edits": trees})

    def _check_step(self, session_id: str, step: int) -> None:
        from checkrein.replay import Replay  # looking back is loaded by who looks back

        Replay(self.rein.read(session_id)).frame(step)

    # -- what an agent keeps with its session

    def _payload_event(self, id: str, value: Any) -> Any:
        try:
            tree = encode(value, "payload")
        except Unencodable as error:
            raise ConfigError(f"session {id}: its payload must be plain data: {error}") from error
        size = len(dumps(tree).encode())
        if size > PAYLOAD_LIMIT:
            raise ConfigError(
                f"session {id}: its payload would have {size} bytes, and {PAYLOAD_LIMIT} are "
                "allowed; keep large things elsewhere, and their names here"
            )
        return self.rein.journal.event("payload", f"{id}.payload", {"payload": tree}, bytes=size)

    def put_payload(self, session: Session, value: Any) -> None:
        """Keep a value with a session, in place of the one before."""
        event = self._payload_event(session.id, value)
        batch = Batch(session.id, (event,), event.at, session.fence)
        self.rein.observers.notify(self.store.commit(batch), batch)

    def payload(self, id: str) -> Any:
        """The value that was kept last; None if there is none (any more). Plain data only."""
        from checkrein.codec import decode

        last = self.store.events(call=f"{id}.payload", kinds=("payload",), reverse=True, limit=1)
        kept = self.store.payload(last[0].seq) if last else None
        return decode(kept["payload"], {}) if isinstance(kept, dict) else None

    # -- the end of what is kept

    def forget(
        self, older_than: float, *, payloads_only: bool, user: str | None = None
    ) -> Forgotten:
        """Delete what sessions left that ended `older_than` seconds ago; chains still verify."""
        limit = self.rein.clock() - round(older_than * 1e6)
        sessions = payloads = 0
        for row in list(self.rows()):
            if row.id == ANCHORS or (user is not None and row.body.get("user") != user):
                continue
            if self._needed(row, limit) or self._reviewed(row.id):
                continue
            if payloads_only:
                erased = self._erase(row.id)
                sessions += bool(erased)
                payloads += erased
            elif not row.body.get("forgotten"):
                with suppress(Conflict):  # somebody rolls it back since
                    sessions += self.store.forget(row.id, at=self.rein.clock())
        return Forgotten(sessions, payloads, self.store.sweep())

    def _needed(self, row: SessionRow | None, limit: int) -> bool:
        """Whether what a session left may still be undone with it, or with one around it."""
        seen: set[str] = set()
        while row is not None and row.id not in seen:
            open_ = row.state == "ACTIVE" or row.rollback == "rolling_back" or row.owner
            if open_ or row.updated >= limit:
                return True
            doubt = self.store.record("doubt", row.id)
            if doubt is not None and doubt.state == "open":
                return True
            seen.add(row.id)
            parent = "" if row.body.get("detached") else row.body.get("parent")
            row = self.store.session(parent) if parent else None
        return False

    def _reviewed(self, id: str) -> bool:
        """Whether a person is still to say of something that was done whether it stays."""
        page = self.store.records("approval", state="pending", session=id, limit=1000)
        return any(not self.rein.approvals.lapsed(record) for record in page.rows)

    def _erase(self, id: str) -> int:
        erased = 0
        after = 0
        while True:
            page = self.store.events(session=id, after=after, limit=500)
            seqs = [event.seq for event in page if event.ref]
            erased += self.store.erase(seqs) if seqs else 0
            if len(page) < 500:
                return erased
            after = page[-1].seq


def _differs(row: SessionRow, put: SessionPut) -> bool:
    """Whether the change can change anything of a session. To stop twice is to stop."""
    if put.stopped is not None:
        return True
    return row.state == "ACTIVE" and not row.stopped and row.paused != put.paused
