"""Approvals: the record of a question to a person, and its one use.

States: pending -> approved | rejected | expired -> started (with the intent) -> done. The
record decides, whoever wrote it and whatever a framework says. A decision is bound to the
exact call by a keyed digest: another call needs another decision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein import codec, seals
from checkrein.call import Call, ToolInfo
from checkrein.errors import Conflict
from checkrein.store import Batch, Put, Record

if TYPE_CHECKING:
    from checkrein.rein import Rein

FINAL = ("approved", "rejected", "expired", "started", "done", "void")


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a channel shows, and what an answer is bound to."""

    id: str
    """Token: `checkrein approve ID`."""
    session: str
    call: str
    tool: str
    arguments: Mapping[str, Any]
    """As a person may see them (viewed); never the exact values."""
    masked: tuple[str, ...]
    """Paths inside `arguments` that a plugin masked."""
    reason: str
    rule: str
    risk: str
    who: tuple[str, ...]
    quorum: int
    created: int
    """Microseconds since the epoch."""
    expires: int
    """Microseconds since the epoch."""
    agent: str = ""
    state: str = "pending"
    is_open: Callable[[], bool] = field(default=lambda: True, compare=False)
    """False as soon as somebody else decided: a prompt should give up then."""


class Approvals:
    """The approvals of one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    # -- for people

    def pending(self, limit: int = 100) -> list[ApprovalRequest]:
        """Requests that wait for an answer, oldest first."""
        now = self.rein.clock()
        found: list[ApprovalRequest] = []
        after: str | None = None
        while len(found) < limit:
            # Requests that have lapsed keep their state until somebody looks at them.
            page = self.store.records("approval", state="pending", after=after, limit=1000)
            whole = (request_of(r) for r in page.rows if self._whole(r))
            found += (request for request in whole if request.expires > now)
            after = page.next
            if after is None:
                break
        return found[:limit]

    def get(self, id: str) -> ApprovalRequest | None:
        """One request, whatever its state. Raises `Conflict` for one that was altered."""
        record = self.store.record("approval", id)
        if record is None:
            return None
        self.check(record)
        return request_of(record)

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
    ) -> str:
        """Say yes; the record's new state. `arguments` edits those that it names.

        Raises `Conflict`: unknown, decided or expired request, a person who may not answer, or
        masked fields without `masked_ok`.
        """
        record = self._answerable(id, by)
        if record.body["masked"] and not masked_ok:
            raise Conflict(
                f"approval {id}: {', '.join(record.body['masked'])} are masked in what you see; "
                "look with --reveal, or approve with --masked-ok (masked_ok=True)"
            )
        edited = None if arguments is None else self._edited(record, arguments)
        return self._decide(record, by, True, "", edited, masked_ok)

    def _edited(self, record: Record, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The whole call as it was edited. Raises `Conflict` for what cannot be changed."""
        if record.body["kind"] != "before":
            raise Conflict(f"approval {record.id}: the call has run; it cannot be edited any more")
        tree: dict[str, Any] = self.kept(record)["arguments"]
        tool = self.rein.tools.get(record.body["tool"])
        known = {*tree, *(tool.parameters if tool is not None else ())}
        for name in arguments:
            held = tree.get(name)
            if name not in known:
                raise Conflict(
                    f"approval {record.id}: {record.body['tool']} has no argument {name!r} "
                    f"(it has {', '.join(sorted(known)) or 'none'})"
                )
            if isinstance(held, dict) and held.get("$cr") == "opaque":
                raise Conflict(
                    f"approval {record.id}: {name} is passed by reference and cannot be edited"
                )
        return {**tree, **codec.encode_arguments(arguments)}

    def kept(self, record: Record) -> dict[str, Any]:
        """The exact call that an approval belongs to. Raises `Conflict` if it was erased."""
        for event in self.store.events(call=record.body["call"], kinds=("approval_requested",)):
            if event.view.get("id") == record.id:
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict):
                    return payload
        raise Conflict(f"approval {record.id}: the call it belongs to was erased from the store")

    def approved(self, record: Record) -> dict[str, Any]:
        """The arguments that were approved, as they may run.

        Raises `Conflict` where what is stored is not what the decision is bound to.
        """
        tree: dict[str, Any] = self.edits(record) or self.kept(record)["arguments"]
        if self.digest(record.body, tree) != self.bound(record):
            raise Conflict(
                f"approval {record.id}: the call that is stored is not the one that was approved; "
                "nothing was run. Look with `checkrein doctor`"
            )
        return tree

    @staticmethod
    def bound(record: Record) -> str:
        """The digest of the call that a decision is bound to."""
        return str(record.body.get("edited_digest") or record.body["digest"])

    def edits(self, record: Record) -> dict[str, Any] | None:
        """The whole call as its approver edited it; None if it was not edited."""
        if not record.body.get("edited_digest"):
            return None
        for event in self.store.events(
            call=record.body["call"], kinds=("approval_decided",), reverse=True
        ):
            if event.view.get("id") == record.id:
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict):
                    return dict(payload["arguments"])
        raise Conflict(f"approval {record.id}: what was edited cannot be read any more")

    def digest(self, body: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
        """Bind a decision to exactly one call; keyed, so that nobody can guess values."""
        return codec.digest(
            self.store.key,
            [body["call_kind"], body["tool"], body["session"], body["tool_digest"], dict(tree)],
        )

    def reject(self, id: str, *, by: str, reason: str = "") -> str:
        """Say no; the record's new state. Raises `Conflict` as `approve` does."""
        return self._decide(self._answerable(id, by), by, False, reason, None, False)

    def _answerable(self, id: str, by: object) -> Record:
        if not isinstance(by, str) or not by.strip():
            raise Conflict(f"approval {id}: say who decides (by=, a text)")
        record = self.store.record("approval", id)
        if record is None:
            raise Conflict(f"approval {id} is unknown here; `checkrein approvals` lists them")
        self.check(record)
        self._lapse(record)
        if record.state != "pending":
            raise Conflict(f"approval {id} is already {record.state}: nothing was changed")
        who = record.body["who"]
        if who and by not in who:
            raise Conflict(f"approval {id} may be answered by {', '.join(who)}, not by {by}")
        return record

    def _lapse(self, record: Record) -> None:
        if record.state == "pending" and record.body["expires"] <= self.rein.clock():
            self.expire(record)
            raise Conflict(f"approval {record.id} has expired: nothing was changed")

    def expire(self, record: Record) -> None:
        """Nobody answered in time: nobody can any more. Raises `Conflict` if somebody just did."""
        self._move(record, "expired", "approval_expired", {})

    def hopeless(self, record: Record) -> None:
        """Nobody is left who could answer: that is a no. Raises `Conflict` if somebody just did."""
        self._decide(record, "checkrein", False, "no approver could answer", None, False)

    def fresh(self, id: str) -> Record:
        """A record as it is now, expired if it is time. Raises `Conflict` if it is gone."""
        record = self.store.record("approval", id)
        if record is None:
            raise Conflict(f"approval {id} is unknown here; `checkrein approvals` lists them")
        self.check(record)
        if record.state == "pending" and record.body["expires"] <= self.rein.clock():
            with contextlib.suppress(Conflict):  # decided at this moment: that stands
                self.expire(record)
            record = self.store.record("approval", id) or record
        return record

    def _decide(
        self,
        record: Record,
        by: str,
        ok: bool,
        reason: str,
        edited: dict[str, Any] | None,
        masked_ok: bool,
    ) -> str:
        by = by.encode("utf-8", "backslashreplace").decode()
        shown = self._shown(record, reason)
        view = {"by": by, "ok": ok, "reason": shown, "masked_ok": masked_ok}
        if not ok:
            return self._move(
                record, "rejected", "approval_decided", view, by=by, reject_reason=shown
            )
        quorum = int(record.body["quorum"])
        if quorum <= 1:
            return self._move(record, "approved", "approval_decided", view, edited, by=by)
        if edited is not None:
            raise Conflict(f"approval {record.id} takes {quorum} people: none may edit it alone")
        self._write(
            record.session,
            record.body["call"],
            "approval_decided",
            {"id": record.id, **view},
            None,
            (
                Put(
                    "decision",
                    f"{record.id}/{by}",
                    "approved",
                    self.sealed(f"{record.id}/{by}", "approved", {"by": by}),
                    record.session,
                    record.id,
                    ("",),
                ),
            ),
        )
        given = self.store.records("decision", label=record.id, limit=1000).rows
        people = sorted({r.body["by"] for r in given if seals.vote(self.store.key, r)})
        if len(people) < quorum:
            return "pending"
        try:
            return self._move(
                record, "approved", "approval_quorum", {"by": people}, by=", ".join(people)
            )
        except Conflict:
            # Whoever came at the same moment has completed it, this answer included.
            now = self.store.record("approval", record.id)
            if now is None or now.state not in ("approved", "started", "done"):
                raise
            return "approved"

    def _shown(self, record: Record, text: str) -> str:
        """What a person wrote, as the journal and the model may see it."""
        body = record.body
        call = Call(
            body["call"], record.session, "tool", body["tool"], {}, ToolInfo(body["tool"]),
            agent=body["agent"],
        )  # fmt: skip
        return str(self.rein.journal.view(call, text, "journal"))

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
        **body: Any,
    ) -> str:
        changed = {**record.body, **body}
        if edited is not None:
            changed["edited_digest"] = self.digest(record.body, edited)
        changed = self.sealed(record.id, state, changed)
        put = Put("approval", record.id, state, changed, record.session, record.label, ("pending",))
        self._write(
            record.session,
            record.body["call"],
            kind,
            {"id": record.id, "state": state, **view},
            None if edited is None else {"arguments": edited},
            (put,),
        )
        return state

    def _write(
        self,
        session: str,
        call: str,
        kind: str,
        view: dict[str, Any],
        payload: Any,
        puts: Sequence[Put],
    ) -> None:
        event = self.rein.journal.event(kind, call, payload, **view)
        batch = Batch(session, (event,), event.at, puts=puts)
        self.rein.observers.notify(self.store.commit(batch), batch)


def request_of(record: Record, is_open: Callable[[], bool] | None = None) -> ApprovalRequest:
    """A record as a channel and a list show it."""
    body = record.body
    return ApprovalRequest(
        id=record.id,
        session=record.session,
        call=body["call"],
        tool=body["tool"],
        arguments=body["arguments"],
        masked=tuple(body["masked"]),
        reason=body["reason"],
        rule=body["rule"],
        risk=body["risk"],
        who=tuple(body["who"]),
        quorum=body["quorum"],
        created=record.created,
        expires=body["expires"],
        agent=body["agent"],
        state=record.state,
        is_open=is_open or (lambda: record.state == "pending"),
    )


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
