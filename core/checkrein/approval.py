"""Approvals: the record of a question to a person, and its one use.

States: pending -> approved | rejected | expired | void -> started (with the intent) -> done.
The record decides, whoever wrote it and whatever a framework says. A decision is bound to the
exact call by a keyed digest: another call needs another decision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkrein import expiry, seals
from checkrein._io import finish
from checkrein.bound_call import BoundCalls
from checkrein.call import Call, ToolInfo
from checkrein.errors import CheckreinError, Conflict
from checkrein.refused_answers import RefusedAnswers
from checkrein.request import ApprovalRequest, may_answer, request_of
from checkrein.store import Batch, Put, Record

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.verdicts import Always

__all__ = ["ApprovalRequest", "Approvals", "masked_paths"]

LAPSED = 300
"""Requests that are marked as expired by one look at the list, at most."""


class Approvals(BoundCalls):
    """The approvals of one Rein."""

    def __init__(self, rein: Rein) -> None:
        super().__init__(rein)
        self.refused = RefusedAnswers(rein)
        self.listeners: list[Callable[[str], None]] = []
        """Called with the id of a request that has been decided here."""

    # -- for people

    def pending(self, limit: int = 100) -> list[ApprovalRequest]:
        """Requests that wait for an answer, oldest first."""
        found: list[ApprovalRequest] = []
        lapsed: list[Record] = []
        after: str | None = None
        while len(found) < limit:
            # Requests that have lapsed keep their state until somebody looks at them.
            page = self.store.records("approval", state="pending", after=after, limit=limit)
            for record in page.rows:
                if not self._whole(record):
                    continue
                if expiry.left(self.rein, record.body) <= 0:
                    lapsed.append(record)
                else:
                    found.append(request_of(self.rein, record))
            after = page.next
            if after is None:
                break
        for record in lapsed[:LAPSED]:
            with contextlib.suppress(Conflict):  # decided at this moment
                self.expire(record)
        return found[:limit]

    def get(self, id: str) -> ApprovalRequest | None:
        """One request, whatever its state. Raises `Conflict` for one that was altered."""
        record = self.store.record("approval", id)
        if record is None:
            return None
        self.check(record)
        return request_of(self.rein, record)

    def _whole(self, record: Record) -> bool:
        try:
            self.check(record)
        except Conflict as error:
            self.rein.log.error("%s", error)
            return False
        return True

    def approve(
        self,
        id: str,
        *,
        by: str,
        arguments: Mapping[str, Any] | None = None,
        masked_ok: bool = False,
        always: Always | None = None,
    ) -> str:
        """Say yes; the record's new state.

        `arguments` edits those that it names, `always` allows calls like this one from now on.

        Raises `Conflict`: unknown, decided or expired request, a person who may not answer, or
        masked fields without `masked_ok`. Such an answer changes nothing, and is recorded.
        """
        try:
            record = self._answerable(id, by)
            if record.body["masked"] and not masked_ok:
                raise Conflict(
                    f"approval {id}: {', '.join(record.body['masked'])} are masked in what you "
                    "see; look with --reveal, or approve with --masked-ok (masked_ok=True)"
                )
            tree = None if arguments is None else self.edited(record, arguments)
            drafted: Record | None = None
            if always is not None:
                exact = self.kept(record)["arguments"] if tree is None else tree
                drafted = self.rein.grants.draft(record, by, always, exact)
            state = self._decide(record, by, True, "", tree, masked_ok, arguments)
            if drafted is not None:
                self.rein.grants.give(drafted, record)
            return state
        except CheckreinError as error:
            self.refused.record(id, by, "approve", str(error))
            raise

    def reject(self, id: str, *, by: str, reason: str = "") -> str:
        """Say no; the record's new state. Raises `Conflict` as `approve` does."""
        try:
            return self._decide(self._answerable(id, by), by, False, reason)
        except CheckreinError as error:
            self.refused.record(id, by, "reject", str(error))
            raise

    def escalate(self) -> list[str]:
        """Tell the channels of this Rein of requests that others may answer by now; their ids.

        A process that lives does that for what it asked itself. This is for the others, from a
        timer. Each request is told of once.
        """
        return finish(self.rein.escalation.due(self.rein.sync_io))

    def _answerable(self, id: str, by: object) -> Record:
        if not isinstance(by, str) or not by.strip():
            raise Conflict(f"approval {id}: say who decides (by=, a text)")
        record = self.store.record("approval", id)
        if record is None:
            raise Conflict(f"approval {id} is unknown here; `checkrein approvals` lists them")
        self.check(record)
        if record.state == "pending" and expiry.left(self.rein, record.body) <= 0:
            self.expire(record)
            raise Conflict(f"approval {record.id} has expired: nothing was changed")
        if record.state != "pending":
            whose = f" (by {record.body['by']})" if record.body.get("by") else ""
            raise Conflict(f"approval {id} is already {record.state}{whose}: nothing was changed")
        who = may_answer(self.rein, record.body)
        if who and by not in who:
            raise Conflict(f"approval {id} may be answered by {', '.join(who)}, not by {by}")
        if record.body["kind"] == "before" and self._over(record.session):
            self._move(record, "void", "approval_void", {"reason": "its session is over"})
            raise Conflict(f"approval {id} is void: its session is over, nothing can run any more")
        return record

    # -- the ends of a question

    def expire(self, record: Record) -> None:
        """Nobody answered, or used the answer, in time: nobody can any more.

        Raises `Conflict` if somebody just did.
        """
        self._move(record, "expired", "approval_expired", {}, before=record.state)

    def hopeless(self, record: Record) -> None:
        """Nobody is left who could answer: that is a no. Raises `Conflict` if somebody just did."""
        self._decide(record, "checkrein", False, "no approver could answer")

    def void(self, session: str, reason: str) -> None:
        """What a session that is over was still to do needs no answer any more."""
        for record in self.store.records("approval", state="pending", session=session).rows:
            if record.body["kind"] == "before":
                with contextlib.suppress(CheckreinError):  # altered, or decided at this moment
                    self.check(record)
                    self._move(record, "void", "approval_void", {"reason": reason})

    def fresh(self, id: str) -> Record:
        """A record as it is now, expired if it is time. Raises `Conflict` if it is gone."""
        record = self.store.record("approval", id)
        if record is None:
            raise Conflict(f"approval {id} is unknown here; `checkrein approvals` lists them")
        self.check(record)
        if self.lapsed(record):
            with contextlib.suppress(Conflict):  # decided or used at this moment: that stands
                self.expire(record)
            record = self.store.record("approval", id) or record
        return record

    def lapsed(self, record: Record) -> bool:
        """Whether the time to answer, or to use the answer, is over."""
        key = {"pending": "expires", "approved": "use_by"}.get(record.state, "")
        return key in record.body and expiry.left(self.rein, record.body, key) <= 0

    def _over(self, session: str) -> bool:
        row = self.store.session(session)
        return row is None or row.state != "ACTIVE" or row.rollback != "none"

    # -- deciding

    def _decide(
        self,
        record: Record,
        by: str,
        ok: bool,
        reason: str,
        edited: dict[str, Any] | None = None,
        masked_ok: bool = False,
        changes: Mapping[str, Any] | None = None,
    ) -> str:
        by = by.encode("utf-8", "backslashreplace").decode()
        shown = self._shown(record, reason)
        view = {"by": by, "ok": ok, "reason": shown, "masked_ok": masked_ok}
        if changes:
            view["edited"] = self._shown(record, dict(changes))
        if not ok:
            return self._move(
                record, "rejected", "approval_decided", view, by=by, reject_reason=shown
            )
        quorum = int(record.body["quorum"])
        use: dict[str, Any] = {}
        if record.body["kind"] != "after":  # a review is used as often as its result is found
            use = expiry.ends(self.rein, self.rein.approval_use, "use_by")
        if quorum <= 1:
            return self._move(record, "approved", "approval_decided", view, edited, by=by, **use)
        if edited is not None:
            raise Conflict(f"approval {record.id} takes {quorum} people: none may edit it alone")
        vote = f"{record.id}/{by}"
        body = self.sealed(vote, "approved", {"by": by})
        puts = (Put("decision", vote, "approved", body, record.session, record.id, ("",)),)
        try:
            self._write(record, "approval_decided", {"id": record.id, **view}, None, puts)
        except Conflict:
            raise Conflict(
                f"approval {record.id} has the yes of {by} already: others are to answer"
            ) from None
        given = self.store.records("decision", label=record.id, limit=1000).rows
        people = sorted({r.body["by"] for r in given if seals.vote(self.store.key, r)})
        if len(people) < quorum:
            return "pending"
        try:
            return self._move(
                record, "approved", "approval_quorum", {"by": people}, by=", ".join(people), **use
            )
        except Conflict:
            # Whoever came at the same moment has completed it, this answer included.
            now = self.store.record("approval", record.id)
            if now is None or now.state not in ("approved", "started", "done"):
                raise
            return "approved"

    def _shown(self, record: Record, value: Any) -> Any:
        """What a person wrote, as the journal and the model may see it."""
        body = record.body
        call = Call(
            body["call"], record.session, "tool", body["tool"], {}, ToolInfo(body["tool"]),
            agent=body["agent"],
        )  # fmt: skip
        return self.rein.journal.view(call, value, "journal")

    # -- against altered rows

    def sealed(self, id: str, state: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A record's body with a keyed seal over it and its state."""
        return seals.sealed(self.store.key, id, state, body)

    def check(self, record: Record) -> None:
        """Raise `Conflict` for a record that was altered in the store."""
        seals.check(self.store.key, record)

    def _move(
        self,
        record: Record,
        state: str,
        kind: str,
        view: dict[str, Any],
        edited: dict[str, Any] | None = None,
        before: str = "pending",
        **body: Any,
    ) -> str:
        changed = {**record.body, **body}
        if edited is not None:
            changed["edited_digest"] = self.digest(record.body, edited)
        changed = self.sealed(record.id, state, changed)
        put = Put("approval", record.id, state, changed, record.session, record.label, (before,))
        payload = None if edited is None else {"arguments": edited}
        self._write(record, kind, {"id": record.id, "state": state, **view}, payload, (put,))
        for tell in self.listeners:
            tell(record.id)
        return state

    def _write(
        self, record: Record, kind: str, view: dict[str, Any], payload: Any, puts: Sequence[Put]
    ) -> None:
        event = self.rein.journal.event(kind, record.body["call"], payload, **view)
        batch = Batch(record.session, (event,), event.at, puts=puts)
        self.rein.observers.notify(self.store.commit(batch), batch)


def masked_paths(exact: Any, shown: Any, path: str = "") -> list[str]:
    """Paths of the leaves that a view changed."""
    if type(exact) is not type(shown):
        return [path or "(all)"]
    if isinstance(exact, dict):
        if exact.keys() != shown.keys():
            return [path or "(all)"]
        return [
            p
            for key, value in exact.items()
            for p in masked_paths(value, shown[key], f"{path}.{key}" if path else str(key))
        ]
    if isinstance(exact, list):
        if len(exact) != len(shown):
            return [path or "(all)"]
        return [
            p
            for index, value in enumerate(exact)
            for p in masked_paths(value, shown[index], f"{path}[{index}]")
        ]
    return [] if exact == shown else [path or "(all)"]
