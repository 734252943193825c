"""Committing an intent: the record, the holds and the approvals that it uses up, at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from checkrein import accounts
from checkrein.call import Call
from checkrein.capturing import capture
from checkrein.entry import Entry
from checkrein.errors import HoldRefused, StoreUnavailable
from checkrein.store import Batch, HoldRow

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.checks import Checked
    from checkrein.engine import Engine


class Intents:
    """Commits intents, for one Rein."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rein = engine.rein
        self.journal = engine.journal
        self.recording = engine.recording

    async def commit(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        flat: bool,
        checked: Checked | None,
        deadline: float,
    ) -> Sequence[HoldRow]:
        """Commit the intent with its holds, in one transaction. Only then may anything run.

        Raises `HoldRefused` for a hold that shall be waited for, `deadline` not being over.
        """
        event = self.journal.intent(call, tree, flat, checked)
        if entry.tool.before is not None and entry.kind == "tool":
            await capture(self.rein, io, entry, call, tree, event)
        fence = entry.session.fence if entry.fence == -1 else entry.fence
        holds = checked.holds if checked is not None else ()
        batch = Batch(call.session, (event,), event.at, fence, entry.admit, (), (), (), None, True)
        if not holds and not entry.approved and not entry.grants:
            try:
                if io.is_async:
                    await self.recording.commit(io, batch)
                else:
                    self.recording.write(batch)
            except StoreUnavailable as problem:
                # With a limit or an approval there is more to lose than the record: refused.
                if self.rein.failure_mode != "open":
                    raise
                entry.unrecorded = True
                self.rein.log.error(
                    "%s %s RUNS UNRECORDED (failure_mode=open): it cannot be undone, and is in no "
                    "record: %s", call.name, call.id, problem,
                )  # fmt: skip
            entry.unrecorded = entry.unrecorded or call.session in self.rein.unrecorded
            return ()
        batch.holds = rows = accounts.hold_rows(call, [h for _, h in holds], call.attempt)
        batch.puts = self.recording.approval_puts(entry, "started", "approved")
        if entry.grants:
            used, puts = self.rein.grants.using(entry.grants, call)
            batch.events, batch.puts = (*used, event), (*batch.puts, *puts)
        swept = False
        while True:
            try:
                if io.is_async:
                    await self.recording.commit(io, batch)
                else:
                    self.recording.write(batch)
                return rows
            except HoldRefused as error:
                plugin, hold = holds[error.index]
                if not swept:
                    swept = True
                    if self.rein.lease.sweep(hold.account):
                        continue
                if self.engine.observe:
                    self.journal.note_observed(event, plugin, "hold_refused")
                    holds = [h for h in holds if h[1] is not hold]
                    batch.holds = rows = [r for r in rows if r is not rows[error.index]]
                    continue
                refusal = accounts.refused(call, hold, error, plugin)
                if entry.happened:
                    # Spent is spent: it is booked above the limit, and told.
                    entry.refusal = entry.refusal or refusal
                    rows[error.index].limit = accounts.NO_LIMIT
                    continue
                room = error.spent + hold.amount <= hold.limit
                if (
                    hold.on_refused == "wait"
                    and (room or not entry.asked_again)
                    and (not deadline or time.monotonic() < deadline)
                ):
                    # Running calls hold what is missing. What is spent does not come back: it may
                    # have been spent since the plugins were asked, so they are asked once more.
                    entry.asked_again = not room
                    raise
                await self.engine.refuse(io, entry, call, tree, refusal)

    async def freed(self, io: IO, entry: Entry, call: Call, change: int, deadline: float) -> float:
        """Wait until the plugins are to be asked again; the time until when that may go on.

        Single flight: when the holder has ended, its result may be the answer.
        """
        deadline = deadline or time.monotonic() + self.rein.hold_wait
        if not entry.asked_again:
            what = f"{call.name} {call.id}, of which another call is running,"
            store = self.rein.store
            await io.wait(lambda: store.changed() != change, deadline, what)
        return deadline
