"""Permission for a call that plugins ask about: ask people, wait or suspend, use it up once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from checkrein import codec, expiry
from checkrein._locks import Lock
from checkrein.approval import masked_paths
from checkrein.channels import Asking, Lanes
from checkrein.definition import parts
from checkrein.entry import Entry, outermost
from checkrein.errors import ApprovalPending, Conflict, Denied
from checkrein.questions import people, question_id, refusal_of, wanted
from checkrein.request import request_of
from checkrein.store import Batch, Put, Record
from checkrein.verdicts import Ask

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.call import Call
    from checkrein.checks import Checked, PostChecked
    from checkrein.rein import Rein

SHOWN = 100_000
"""Characters of arguments that a person is shown; what is left out counts as masked."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Permission for one call: the records it uses up, and arguments that were edited."""

    ids: tuple[str, ...]
    arguments: dict[str, Any] | None = None
    """The whole call as its approver edited it."""


class Permissions:
    """Asks for, and uses, the approvals of one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self.approvals = rein.approvals
        self.lanes = Lanes()
        self._lock = Lock()
        self._asking: dict[str, Asking] = {}
        self._told: dict[str, None] = {}
        """Requests that the channels of this process know: each is told once."""

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

    def reopen(self, call: Call) -> None:
        """Let a call that may be repeated use again what a process that died has used up."""
        page = self.store.records("approval", state="started", session=call.session, limit=1000)
        ids = tuple(record.id for record in page.rows if record.body["call"] == call.id)
        if ids:
            event = self.rein.journal.event("approval_reopened", call.id, id=ids[-1])
            with contextlib.suppress(Conflict):  # somebody else repeats it
                puts = self.puts(ids, "approved", "started")
                batch = Batch(call.session, (event,), event.at, puts=puts)
                self.rein.observers.notify(self.store.commit(batch), batch)

    def _bound(self, call: Call) -> dict[str, Any]:
        """What a decision is bound to, beside the arguments."""
        return {
            "call": call.id,
            "call_kind": call.kind,
            "tool": call.name,
            "session": call.session,
            "tool_digest": call.tool.digest(),
        }

    async def obtain(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], checked: Checked
    ) -> Granted | None:
        """Permission for a call that plugins ask about; waits, suspends or raises.

        None: somebody else has used the approval for this very call.
        """
        digest = self.approvals.digest(self._bound(call), tree)
        open_asks = [
            (plugin, ask)
            for plugin, ask in checked.asks
            if not self._covered(entry.approved, digest, plugin, ask)
        ]
        if not open_asks:
            return Granted(entry.approved)
        kind = "undo" if entry.kind == "undo" else "before"
        id = question_id(kind, call, digest, open_asks)
        changed: list[str] = []
        if call.kind == "tool" and self.store.record("approval", id) is None:
            # A question that was asked is gone by, whatever has been allowed for good since.
            entry.grants, open_asks, changed = self.rein.grants.covering(call, tree, open_asks)
            if not open_asks:
                return Granted(entry.approved)
            id = question_id(kind, call, digest, open_asks)
        if self.store.record("approval", id) is None:
            if not self._suspends(entry):
                io.may_wait(f"the approval of {call.name} {call.id}")
            await self._request(io, entry, call, tree, id, digest, open_asks, kind, changed)
        record = await self._answered(io, entry, call, id)
        self.rein.telemetry.approval(record.state)
        if record.state in ("started", "done"):
            return None
        if record.state != "approved":
            if entry.session.on_rejected == "rollback" and entry.kind != "undo":
                # The outermost call rolls back, when it ends: an outer one is still at work.
                entry.session.rollback_by = outermost(call.session) or call.id
                entry.session.rollback_wanted = "rejected"
            await self.rein.engine.refuse(io, entry, call, tree, refusal_of(record))
        if record.id in entry.approved:
            raise Conflict(
                f"approval {record.id} does not cover what is asked about {call.name} {call.id}: "
                "nothing was run"
            )
        return Granted((*entry.approved, record.id), self._edited(record))

    def _edited(self, record: Record) -> dict[str, Any] | None:
        return self.approvals.approved(record) if record.body.get("edited_digest") else None

    def _covered(self, ids: tuple[str, ...], digest: str, plugin: str, ask: Ask) -> bool:
        """Whether an approval was given for exactly this call, and for what this rule wants."""
        for id in ids:
            record = self.store.record("approval", id)
            if record is None or record.state != "approved" or self.approvals.lapsed(record):
                continue
            self.approvals.check(record)
            if self.approvals.bound(record) != digest:
                continue
            if any(wanted(plugin, ask) == list(asked) for asked in record.body["asks"]):
                return True
        return False

    async def _request(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        id: str,
        digest: str,
        asks: list[tuple[str, Ask]],
        kind: str,
        changed: list[str] | None = None,
    ) -> None:
        if not self._answerable():
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
        shown = self.rein.journal.view(call, dict(call.arguments), "person", SHOWN)
        limits = [a.expires for _, a in asks if a.expires is not None]
        ends = expiry.ends(self.rein, min([*limits, self.rein.approval_expires]))
        risks = ("low", "medium", "high")
        body = {
            **self._bound(call),
            "kind": kind,
            "agent": call.agent,
            "user": call.user,
            "tenant": call.tenant,
            "digest": digest,
            "asks": [wanted(plugin, ask) for plugin, ask in asks],
            "reason": self.rein.journal.view(call, "; ".join(a.reason for _, a in asks), "person"),
            "rule": ", ".join(a.rule for _, a in asks if a.rule),
            "risk": max((a.risk for _, a in asks), key=risks.index),
            **people(self.rein, call, [a for _, a in asks]),
            "quorum": max(a.quorum for _, a in asks),
            **ends,
            "arguments": shown,
            "masked": masked_paths(codec.describe(dict(call.arguments), 1 << 60), shown),
            "keyed": entry.keyed,
            **({"changed": changed} if changed else {}),
        }
        payload = {
            "name": call.name,
            "kind": call.kind,
            "arguments": tree,
            "task": call.task,
            "parent": call.parent,
            "labels": dict(call.labels),
            "definition": parts(call.tool),
            "id": id,
        }
        event = self.rein.journal.event(
            "approval_requested", call.id, payload, id=id, tool=call.name, rule=body["rule"],
            reason=body["reason"], risk=body["risk"], expires=body["expires"],
            masked=body["masked"], asked=kind,
        )  # fmt: skip
        sealed = self.approvals.sealed(id, "pending", body)
        put = Put("approval", id, "pending", sealed, call.session, call.name, ("",))
        # What has been done is reviewed, and taken back, whatever became of its session since.
        admit = entry.admit and kind == "before"
        batch = Batch(call.session, (event,), event.at, entry.session.fence, admit, puts=(put,))
        try:
            await self.rein.engine.commit(io, batch)
            self.rein.telemetry.approval("requested")
        except Conflict:
            if self.store.record("approval", id) is None:
                raise

    def _answerable(self) -> bool:
        return bool(self.rein.plugins.chains["on_approval"]) or self.rein.answer_from_store

    def _suspends(self, entry: Entry) -> bool:
        """Whether this entry suspends rather than blocks while a person decides."""
        wait = entry.wait or entry.session.wait
        return wait == "suspend" or (wait == "auto" and entry.can_suspend)

    def is_open(self, id: str) -> bool:
        """Whether a request can still be answered."""
        record = self.store.record("approval", id)
        return (
            record is not None
            and record.state == "pending"
            and expiry.left(self.rein, record.body) > 0
        )

    async def _answered(self, io: IO, entry: Entry, call: Call, id: str) -> Record:
        """The record once it is final; raises `ApprovalPending` where the entry suspends."""
        record = self.approvals.fresh(id)
        if record.state != "pending":
            return record
        suspends = self._suspends(entry)
        if not suspends:
            io.may_wait(f"approval {id}")
        asking = self._tell(io, call, record)
        if suspends:
            if asking is not None and io.can_wait():
                await asking.told()
        else:
            self.rein.log.info("%s %s waits for approval %s", call.name, call.id, id)
            left = expiry.left(self.rein, record.body)
            try:
                await io.wait(
                    lambda: not self.is_open(id) or (asking is not None and asking.hopeless()),
                    time.monotonic() + max(0.0, left),
                    f"approval {id}",
                    partial(self._watch, record),
                )
            finally:
                self._untell(id, asking)
        record = self.approvals.fresh(id)
        try:
            if record.state == "pending" and asking is not None and asking.hopeless():
                self.approvals.hopeless(record)
            elif record.state == "pending" and not suspends:
                self.approvals.expire(record)
        except Conflict:
            self.rein.log.info("approval %s was decided at the last moment", id)
        record = self.approvals.fresh(id)
        if record.state == "pending":
            entry.session.tokens.add(id)
            raise ApprovalPending(id, call_id=call.id, tool=call.name)
        return record

    def _watch(self, record: Record, wake: Callable[[], None]) -> Callable[[], None]:
        """Wake whoever waits when the request is decided, and when its time is over."""
        waiters = self.rein.waiters
        stop = waiters.watch(record.id, wake)
        over = waiters.when("expires", record.body, wake)

        def end() -> None:
            stop()
            waiters.never(over)

        return end

    def _tell(self, io: IO, call: Call, record: Record) -> Asking | None:
        """Tell every channel of this process, once."""
        with self._lock:
            if record.id in self._told:
                return self._asking.get(record.id)
            if len(self._told) >= 10_000:
                oldest = next(iter(self._told))
                self._told.pop(oldest)
                self._asking.pop(oldest, None)
            self._told[record.id] = None
            request = request_of(self.rein, record, lambda: self.is_open(record.id))
            asking = self._asking[record.id] = Asking(self.rein, io, call, request)
        asking.tell()
        if "escalates" in record.body and not request.escalated:
            self.rein.escalation.later(io, call, record)
        return asking

    def _untell(self, id: str, asking: Asking | None) -> None:
        if asking is None:
            return
        asking.stop()
        with self._lock:
            self._asking.pop(id, None)
            if self.is_open(id):
                # Its waiter was cancelled: whoever asks again must reach somebody.
                self._told.pop(id, None)

    # -- after the call

    async def after(self, io: IO, entry: Entry, call: Call, folded: PostChecked) -> None:
        """A person reviews what has been done: anything but a yes undoes this one action."""
        tree = codec.encode_arguments(call.arguments, entry.tool.opaque)
        digest = self.approvals.digest(self._bound(call), tree)
        id = question_id("after", call, digest, folded.asks)
        refusal: Denied | None
        try:
            if self.store.record("approval", id) is None:
                await self._request(io, entry, call, tree, id, digest, folded.asks, "after")
            refusal = await self.review(io, entry, call, id)
        except Denied as nobody:
            await self.rein.rollbacks.one(io, call.id, "rejected")
            refusal = nobody
        if refusal is not None:
            folded.outcome = folded.outcome.replace(value=None, error=refusal)

    async def review(self, io: IO, entry: Entry, call: Call, id: str) -> Denied | None:
        """What the reviewer said of an action that has been done; None for a yes."""
        record = await self._answered(io, entry, call, id)
        if record.state == "rejected":
            await self.rein.rollbacks.one(io, call.id, "rejected")
        if record.state in ("rejected", "expired"):
            return refusal_of(record)
        return None
