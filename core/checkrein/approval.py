"""Approvals: the record of a question to a person, and its one use.

States: pending -> approved | rejected | expired -> started (with the intent) -> done. The
record decides, whoever wrote it and whatever a framework says. A decision is bound to the
exact call by a keyed digest: another call needs another decision.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein.checks import Checked, PostChecked
from checkrein.errors import (
    ApprovalExpired,
    ApprovalPending,
    ApprovalRejected,
    ConfigError,
    Conflict,
    Denied,
)
from checkrein.store import Batch, Put, Record
from checkrein.verdicts import Ask

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.call import Call
    from checkrein.engine import Entry
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


@dataclass(frozen=True, slots=True)
class Granted:
    """Permission for one call: the records it uses up, and arguments that were edited."""

    ids: tuple[str, ...]
    arguments: dict[str, Any] | None = None


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
            found += (r for r in map(request_of, page.rows) if r.expires > now)
            after = page.next
            if after is None:
                break
        return found[:limit]

    def get(self, id: str) -> ApprovalRequest | None:
        """One request, whatever its state."""
        record = self.store.record("approval", id)
        return None if record is None else request_of(record)

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
        record = self._open(id, by)
        if record.body["masked"] and not masked_ok:
            raise Conflict(
                f"approval {id}: {', '.join(record.body['masked'])} are masked in what you see; "
                "look with --reveal, or approve with --masked-ok (masked_ok=True)"
            )
        edited = None
        if arguments is not None:
            edited = codec.encode_arguments(arguments)
        return self._decide(record, by, True, "", edited, masked_ok)

    def reject(self, id: str, *, by: str, reason: str = "") -> str:
        """Say no; the record's new state. Raises `Conflict` as `approve` does."""
        return self._decide(self._open(id, by), by, False, reason, None, False)

    def _open(self, id: str, by: str) -> Record:
        record = self.store.record("approval", id)
        if record is None:
            raise Conflict(f"approval {id} is unknown here; `checkrein approvals` lists them")
        self._lapse(record)
        if record.state != "pending":
            raise Conflict(f"approval {id} is already {record.state}: nothing was changed")
        who = record.body["who"]
        if who and by not in who:
            raise Conflict(f"approval {id} may be answered by {', '.join(who)}, not by {by}")
        return record

    def _lapse(self, record: Record) -> None:
        if record.state == "pending" and record.body["expires"] <= self.rein.clock():
            self._move(record, "expired", "approval_expired", {})
            raise Conflict(f"approval {record.id} has expired: nothing was changed")

    def _decide(
        self,
        record: Record,
        by: str,
        ok: bool,
        reason: str,
        edited: dict[str, Any] | None,
        masked_ok: bool,
    ) -> str:
        if not by:
            raise Conflict(f"approval {record.id}: say who decides (by=)")
        view = {"by": by, "ok": ok, "reason": reason, "masked_ok": masked_ok}
        if not ok:
            return self._move(record, "rejected", "approval_decided", view, by=by, reason=reason)
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
                    {"by": by},
                    record.session,
                    record.id,
                    ("",),
                ),
            ),
        )
        given = self.store.records("decision", label=record.id, limit=1000).rows
        people = sorted({row.body["by"] for row in given})
        if len(people) < quorum:
            return "pending"
        return self._move(record, "approved", "approval_quorum", {"by": people}, by=", ".join(people))

    def _move(
        self,
        record: Record,
        state: str,
        kind: str,
        view: dict[str, Any],
        edited: dict[str, Any] | None = None,
        **body: Any,
    ) -> str:
        changed = {**record.body, **body, "edited": edited is not None}
        put = Put(
            "approval", record.id, state, changed, record.session, record.label, ("pending",)
        )
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
        self.rein.notify(self.store.commit(batch), batch)

    # -- for the engine

    def puts(self, ids: tuple[str, ...], state: str, before: str) -> tuple[Put, ...]:
        """Row changes that use up approvals, on the condition that nobody else did."""
        changes: list[Put] = []
        for id in ids:
            record = self.store.record("approval", id)
            if record is None:
                raise Conflict(f"approval {id} is gone from the store")
            changes.append(
                Put("approval", id, state, record.body, record.session, record.label, (before,))
            )
        return tuple(changes)

    def digest(self, call: Call, tree: Mapping[str, Any]) -> str:
        """Bind a decision to exactly this call; keyed, so that nobody can guess values."""
        return codec.digest(
            self.store.key, [call.kind, call.name, call.session, call.tool.digest(), dict(tree)]
        )

    async def obtain(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], checked: Checked
    ) -> Granted:
        """Permission for a call that plugins ask about; waits, suspends or raises."""
        digest = self.digest(call, tree)
        open_asks = [
            (plugin, ask)
            for plugin, ask in checked.asks
            if not self._covered(entry.approved, digest, plugin, ask)
        ]
        if not open_asks:
            return Granted(entry.approved)
        key = [call.id, digest, sorted([plugin, ask.rule] for plugin, ask in open_asks)]
        id = "ap-" + hashlib.sha256(codec.canonical(key)).hexdigest()[:24]
        record = self.store.record("approval", id)
        if record is None:
            if not self._suspends(entry):
                io.may_wait(f"the approval of {call.name} {call.id}")
            await self._request(io, entry, call, tree, id, digest, open_asks)
        record = await self._answered(io, entry, call, id)
        return await self._use(io, entry, call, tree, record, digest)

    def _covered(self, ids: tuple[str, ...], digest: str, plugin: str, ask: Ask) -> bool:
        for id in ids:
            record = self.store.record("approval", id)
            if record is None or record.state != "approved":
                continue
            asked = [plugin, ask.rule] in [list(pair) for pair in record.body["asks"]]
            if asked and (record.body["digest"] == digest or self._edit_digest(record) == digest):
                return True
        return False

    def _edit_digest(self, record: Record) -> str | None:
        return record.body.get("edited_digest")

    async def _request(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        id: str,
        digest: str,
        asks: list[tuple[str, Ask]],
        kind: str = "before",
    ) -> None:
        if not self.rein.plugins.chains["on_approval"] and not self.rein.answer_from_store:
            refusal = Denied(
                f"{asks[0][1].reason}; nobody can be asked (no approver plugin, and answers "
                "from the store are off)",
                rule=asks[0][1].rule,
                tool=call.name,
                call_id=call.id,
                plugin=asks[0][0],
                code="no_approver",
            )
            await self.rein.engine.refuse(io, entry, call, tree, refusal)
        now = self.rein.clock()
        shown = self.rein.journal.view(call, call.arguments, "person")
        limits = [a.expires for _, a in asks if a.expires is not None]
        expires = now + round(min([*limits, self.rein.approval_expires]) * 1e6)
        groups = [set(a.who) for _, a in asks if a.who]
        who = sorted(set.intersection(*groups)) if groups else []
        if groups and not who:
            raise ConfigError(f"{call.name}: rules ask different people, and nobody is in all")
        risks = ("low", "medium", "high")
        body = {
            "call": call.id,
            "kind": kind,
            "tool": call.name,
            "agent": call.agent,
            "digest": digest,
            "tool_digest": call.tool.digest(),
            "asks": [[plugin, ask.rule] for plugin, ask in asks],
            "reason": self.rein.journal.view(call, "; ".join(a.reason for _, a in asks), "person"),
            "rule": ", ".join(a.rule for _, a in asks if a.rule),
            "risk": max((a.risk for _, a in asks), key=risks.index),
            "who": who,
            "quorum": max(a.quorum for _, a in asks),
            "expires": expires,
            "arguments": shown,
            "masked": masked_paths(codec.describe(call.arguments), shown),
            "keyed": entry.keyed,
        }
        payload = {
            "name": call.name,
            "kind": call.kind,
            "arguments": tree,
            "task": call.task,
            "parent": call.parent,
            "labels": dict(call.labels),
            "id": id,
        }
        event = self.rein.journal.event(
            "approval_requested", call.id, payload, id=id, tool=call.name, rule=body["rule"],
            reason=body["reason"], risk=body["risk"], expires=expires, masked=body["masked"],
        )  # fmt: skip
        put = Put("approval", id, "pending", body, call.session, call.name, ("",))
        batch = Batch(call.session, (event,), event.at, entry.session.fence, entry.admit, puts=(put,))
        try:
            self.rein.notify(await io.commit(batch), batch)
        except Conflict as error:
            if self.store.record("approval", id) is None:
                raise error

    async def _answered(self, io: IO, entry: Entry, call: Call, id: str) -> Record:
        """The record once it is final; raises `ApprovalPending` where the entry suspends."""
        from checkrein.channels import Asking

        record = self._fresh(id)
        if record.state != "pending":
            return record
        asking = Asking(self.rein, io, call, request_of(record, lambda: self._is_open(id)))
        await asking.tell()
        if self._suspends(entry):
            await asking.told()
            record = self._fresh(id)
            if record.state == "pending":
                raise ApprovalPending(id, call_id=call.id, tool=call.name)
            return record
        self.rein.log.info("%s %s waits for approval %s", call.name, call.id, id)
        try:
            left = (record.body["expires"] - self.rein.clock()) / 1e6
            await io.wait(
                lambda: not self._is_open(id) or self._expired(id) or asking.hopeless(),
                time.monotonic() + max(0.0, left),
                f"approval {id}",
            )
        finally:
            asking.stop()
        record = self._fresh(id)
        if record.state == "pending" and asking.hopeless():
            self._decide(record, "checkrein", False, "no approver could answer", None, False)
            record = self._fresh(id)
        return record

    def _suspends(self, entry: Entry) -> bool:
        """Whether this entry suspends rather than blocks while a person decides."""
        wait = entry.wait or entry.session.wait
        return wait == "suspend" or (wait == "auto" and entry.can_suspend)

    def _fresh(self, id: str) -> Record:
        record = self.store.record("approval", id)
        if record is None:
            raise Conflict(f"approval {id} is gone from the store")
        if record.state == "pending" and self._expired(id):
            try:
                self._lapse(record)
            except Conflict:
                record = self.store.record("approval", id) or record
        return record

    def _is_open(self, id: str) -> bool:
        record = self.store.record("approval", id)
        return record is not None and record.state == "pending"

    def _expired(self, id: str) -> bool:
        record = self.store.record("approval", id)
        return record is None or record.body["expires"] <= self.rein.clock()

    async def _use(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], record: Record, digest: str
    ) -> Granted:
        body = record.body
        details = {"rule": body["rule"], "tool": call.name, "call_id": call.id}
        if record.state in ("pending", "expired"):
            refusal: Denied = ApprovalExpired(f"approval {record.id} expired", **details)
            await self._refused(io, entry, call, tree, refusal)
        if record.state in ("rejected", "void"):
            why = body.get("reason", "") if "by" in body else ""
            refusal = ApprovalRejected(
                f"rejected by {body.get('by', '')}" + (f": {why}" if why else ""),
                by=str(body.get("by", "")), **details,
            )  # fmt: skip
            await self._refused(io, entry, call, tree, refusal)
        if body["digest"] != digest or body["tool_digest"] != call.tool.digest():
            refusal = Denied(
                f"approval {record.id} was given for another call", code="approval_mismatch",
                **details,
            )  # fmt: skip
            await self.rein.engine.refuse(io, entry, call, tree, refusal)
        ids = (*entry.approved, record.id)
        if not body.get("edited") or record.state != "approved":
            return Granted(ids)
        return Granted(ids, await self._edited(io, call, tree, record))

    async def _edited(
        self, io: IO, call: Call, tree: dict[str, Any], record: Record
    ) -> dict[str, Any]:
        """The arguments as the approver wrote them; the record then covers that call."""
        edited = {**tree, **self._edits(record)}
        marked = {**record.body, "edited_digest": self.digest(call, edited)}
        put = Put("approval", record.id, "approved", marked, record.session, record.label, ("approved",))
        event = self.rein.journal.event("approval_edited", call.id, id=record.id)
        await io.commit(Batch(call.session, (event,), event.at, puts=(put,)))
        return edited

    async def _refused(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], refusal: Denied
    ) -> None:
        if entry.session.on_rejected == "rollback":
            from checkrein.engine import outermost

            # The outermost call rolls back, when it ends: an outer one is still at work.
            entry.session.rollback_by = outermost(call.session) or call.id
            entry.session.rollback_wanted = "rejected"
        await self.rein.engine.refuse(io, entry, call, tree, refusal)

    def _edits(self, record: Record) -> dict[str, Any]:
        for event in self.store.events(
            call=record.body["call"], kinds=("approval_decided",), reverse=True
        ):
            if event.view.get("id") == record.id:
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict):
                    return dict(payload["arguments"])
        raise Conflict(f"approval {record.id}: what was edited cannot be read any more")

    async def after(self, io: IO, entry: Entry, call: Call, folded: PostChecked) -> None:
        """A person reviews what has been done: a rejection undoes this one action."""
        tree = codec.encode_arguments(call.arguments, entry.tool.opaque)
        digest = self.digest(call, tree)
        key = ["after", call.id, digest, [[p, a.rule] for p, a in folded.asks]]
        id = "ap-" + hashlib.sha256(codec.canonical(key)).hexdigest()[:24]
        if self.store.record("approval", id) is None:
            await self._request(io, entry, call, tree, id, digest, folded.asks, "after")
        record = await self._answered(io, entry, call, id)
        if record.state == "rejected":
            await self.rein.rollbacks.one(io, call.id, "rejected")
            folded.outcome = folded.outcome.replace(
                value=None,
                error=ApprovalRejected(
                    f"rejected by {record.body.get('by', '')} after it ran; the action was undone "
                    "or is reported as left",
                    by=str(record.body.get("by", "")), tool=call.name, call_id=call.id,
                ),
            )  # fmt: skip

    async def resume(self, io: IO, token: str) -> Any:
        """Run the call that waited for `token`, once; everybody else gets its outcome."""
        from checkrein.engine import Entry

        record = self.store.record("approval", token)
        if record is None:
            raise Conflict(f"approval {token} is unknown here; `checkrein approvals` lists them")
        record = self._fresh(token)
        call_id, name = record.body["call"], record.body["tool"]
        if record.state == "pending":
            raise ApprovalPending(token, call_id=call_id, tool=name)
        details = {"tool": name, "call_id": call_id, "rule": record.body["rule"]}
        if record.state == "rejected":
            by = str(record.body.get("by", ""))
            raise ApprovalRejected(f"rejected by {by}", by=by, **details)
        if record.state == "expired":
            raise ApprovalExpired(f"approval {token} expired", **details)
        kept = self._kept(record)
        tool = self.rein.tools.get(name)
        if kept["kind"] != "tool" or tool is None or tool.fn is None:
            raise ConfigError(
                f"approval {token}: {name} is not a tool of this process; name the application "
                "that declares it (--app module:rein), or resume through its framework's adapter"
            )
        if name in self.rein.tools.ambiguous:
            raise ConfigError(
                f"approval {token}: several functions are called {name}; declare the one that "
                "is meant with rein.tool(name=...)"
            )
        if record.body["tool_digest"] != tool.info.digest():
            raise Conflict(f"approval {token} is void: the definition of {name} changed since")
        session = self.rein.opened(record.session)
        opened = session is None
        if session is None:
            session = self.rein.session(id=record.session)
            if record.state == "approved":
                await self.rein.lifecycle.open(io, session)
        entry = Entry(
            tool=tool,
            arguments=codec.decode_arguments(kept["arguments"], tool.classes, {}),
            session=session,
            call_id=call_id,
            keyed=True,
            parent=kept["parent"],
            task=kept["task"],
            labels=kept["labels"],
            approved=(token,) if record.state == "approved" else (),
        )
        if record.state != "approved":
            found = await self.rein.recorded.other(io, entry, self._call_of(entry, record))
            return found.value
        try:
            if record.body.get("edited"):
                call = self._call_of(entry, record)
                tree = await self._edited(io, call, kept["arguments"], record)
                entry.arguments = codec.decode_arguments(tree, tool.classes, {})
            outcome = await self.rein.engine.run(io, entry)
        finally:
            if opened:
                await self.rein.lifecycle.release(io, session)
        return outcome.value

    def _call_of(self, entry: Entry, record: Record) -> Call:
        from checkrein.call import Call

        return Call(
            record.body["call"], record.session, "tool", record.body["tool"], entry.arguments,
            entry.tool.info,
        )  # fmt: skip

    def _kept(self, record: Record) -> dict[str, Any]:
        for event in self.store.events(call=record.body["call"], kinds=("approval_requested",)):
            if event.view.get("id") == record.id:
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict):
                    return payload
        raise Conflict(f"approval {record.id}: the call it belongs to was erased from the store")


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
