"""What became of an attempt, in the store.

The effect has happened: neither a result that cannot be encoded nor a store that refuses a part
of the record may undo that. What can be recorded is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from checkrein import accounts, billing
from checkrein.call import Call, Outcome
from checkrein.codec import describe, encode, is_brief, is_flat_value
from checkrein.entry import Entry
from checkrein.errors import (
    CheckreinError,
    Conflict,
    FencedOut,
    InDoubt,
    SessionClosed,
    StoreUnavailable,
    Unencodable,
)
from checkrein.journal import Journal
from checkrein.store import Batch, Committed, HoldRow, NewEvent, Put, SettleRow, payload_of

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


class Recording:
    """Records attempts, for one Rein."""

    def __init__(self, rein: Rein, journal: Journal) -> None:
        self.rein = rein
        self.journal = journal
        self.store = rein.store
        self.observers = rein.observers
        self.direct = not rein.store.blocking

    def ending(
        self,
        entry: Entry,
        call: Call,
        outcome: Outcome,
        rows: Sequence[HoldRow],
        plan: dict[str, Any] | None,
        why: str,
        kind: str = "outcome",
    ) -> Batch:
        """The one transaction that records an outcome and settles its holds."""
        paused = outcome.error is not None and isinstance(outcome.error, entry.signals)
        event = self.journal.outcome(
            call, outcome, self.encoded(entry, outcome), plan, why, rows, paused, kind
        )
        batch = Batch(call.session, (event,), event.at)
        if (
            rows
            or outcome.cost_state
            or outcome.usage is not None
            or call.kind == "model"
            or call.tool.has_usage
        ):
            batch.costs = costs = billing.cost_rows(call, outcome, rows, entry.role)
            if costs and costs[0].cost != outcome.cost:
                event.view["charged"] = costs[0].cost
            if entry.unreadable:
                event.view["usage_unreadable"] = True
        if rows:
            if paused:
                money, rows = accounts.paid(rows)
                batch.settles = accounts.settle_rows(money, outcome)
                # The call goes on later, and takes what it needs then.
                outcome = outcome.replace(state="not_done", error=None)
            batch.settles = (*batch.settles, *accounts.settle_rows(rows, outcome))
            batch.puts = accounts.marks(rows, outcome)
        if not paused and entry.approved and kind == "outcome":
            batch.puts = (*batch.puts, *self.approval_puts(entry, "done", "started"))
        return batch

    def record(self, batch: Batch, call: Call, outcome: Outcome) -> Committed:
        try:
            return self.write(batch)
        except StoreUnavailable as problem:
            raise self.unrecorded(call, outcome, problem) from problem
        except (Conflict, Unencodable) as problem:
            return self.record_less(batch, call, outcome, problem)

    def record_less(
        self, batch: Batch, call: Call, outcome: Outcome, problem: CheckreinError
    ) -> Committed:
        """The effect has happened: what the store refuses is left out, the outcome is not."""
        event = batch.events[0]
        if isinstance(problem, Conflict):
            if not batch.puts:
                raise problem
            batch.puts = ()  # somebody else has closed the approval
            return self.record(batch, call, outcome)
        if event.payload is None:
            raise problem
        bare: dict[str, Any] = {k: describe(v) for k, v in event.view.items()}
        payload = payload_of(event) or {}
        if "result" in payload:
            bare["unrecorded"] = type(outcome.value).__name__
        if "plan" in payload:
            bare.pop("plan", None)
            bare["not_undoable"] = str(problem)
        self.rein.log.warning("%s %s: %s", call.name, call.id, problem)
        batch.events = (NewEvent(event.kind, event.call, event.at, bare, None, event.attempt),)
        return self.record(batch, call, outcome)

    def unrecorded(self, call: Call, outcome: Outcome, error: StoreUnavailable) -> BaseException:
        """The error for an effect that has happened and could not be recorded."""
        text = (
            f"{call.name} {call.id} ran, but the store failed before its outcome was recorded "
            f"({error}); run `checkrein recover` once the store is back"
        )
        if outcome.error is not None and not isinstance(outcome.error, Exception):
            # A cancellation or an interrupt must go on as what it is.
            outcome.error.add_note(f"checkrein: {text}")
            return outcome.error
        return InDoubt(text, call_id=call.id, outcome=outcome)

    def void(self, entry: Entry, call: Call, error: BaseException | None) -> None:
        """Take an intent back, if it stands (`error` may have come first): nothing was run."""
        last = self.store.events(call=call.id, kinds=("intent", "outcome"), reverse=True, limit=1)
        if not last or last[0].kind != "intent" or last[0].attempt != call.attempt:
            return
        outcome = Outcome("not_done", error=error, attempts=call.attempt)
        event = self.journal.outcome(call, outcome, (None, True), None, "", (), False)
        settles = [SettleRow(hold.id, 0) for hold in self.store.holds(call=call.id)]
        puts = self.approval_puts(entry, "approved", "started")
        self.write(Batch(call.session, (event,), event.at, settles=settles, puts=puts))

    def encoded(self, entry: Entry, outcome: Outcome) -> tuple[Any, bool]:
        """(tree of the result, whether it is complete): never fails the call."""
        value = outcome.value
        if not entry.whole:
            return None, False
        if is_flat_value(value) or (entry.dump is None and is_brief(value)):
            return value, True
        try:
            return encode(entry.dump(value) if entry.dump is not None else value, "result"), True
        except Exception:  # noqa: BLE001 - the effect has happened; a result that cannot be
            # recorded must not undo that
            return None, False

    def approval_puts(self, entry: Entry, state: str, before: str) -> tuple[Put, ...]:
        """Row changes of the approvals under which a call runs."""
        return self.rein.permissions.puts(entry.approved, state, before) if entry.approved else ()

    async def amend(self, io: IO, call: Call, event: NewEvent) -> None:
        """Record what the caller sees instead of the result."""
        try:
            await self.commit(io, Batch(call.session, (event,), event.at))
        except Unencodable:
            event.view = {key: describe(value) for key, value in event.view.items()}
            event.payload = None
            await self.commit(io, Batch(call.session, (event,), event.at))

    async def commit(self, io: IO, batch: Batch) -> Committed:
        """Commit, kept off the loop where the store blocks. Raises `SessionClosed`."""
        if self.rein.unrecorded and batch.session in self.rein.unrecorded:
            return self._nowhere(batch)
        if self.direct or not io.is_async:
            return self.write(batch)
        try:
            committed = await io.commit(batch)
        except FencedOut as error:
            raise lost(batch.session) from error
        self.observers.notify(committed, batch)
        return committed

    def _nowhere(self, batch: Batch) -> Committed:
        """A batch of a session that the store knows nothing of. Limits are not dropped."""
        if batch.holds or batch.puts:
            raise StoreUnavailable(
                f"session {batch.session} is not recorded (failure_mode=open), and this call needs "
                "a limit or an approval, which cannot be kept: nothing was run"
            )
        for event in batch.events:
            if event.kind == "intent":
                self.rein.log.error(
                    "%s %s RUNS UNRECORDED (failure_mode=open)", event.view["name"], event.call
                )
        return Committed(0, 0)

    def write(self, batch: Batch) -> Committed:
        """Commit without awaiting: the store does not block, or the entry is sync."""
        if self.rein.unrecorded and batch.session in self.rein.unrecorded:
            return self._nowhere(batch)
        try:
            committed = self.store.commit(batch)
        except FencedOut as error:
            raise lost(batch.session) from error
        if self.observers.any:
            self.observers.notify(committed, batch)
        return committed


def lost(session: str) -> SessionClosed:
    """The error for a session that somebody else owns now."""
    return SessionClosed(f"session {session} is owned by another process now; nothing was run")
