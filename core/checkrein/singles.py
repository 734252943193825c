"""Single effects: undone alone, when they land late, or asked about for a resumed run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from checkrein import owner
from checkrein.call import Absent, Call, Outcome, Present
from checkrein.effects import descendants, effect_of
from checkrein.engine import Entry
from checkrein.errors import CheckreinError, Conflict
from checkrein.journal import is_effect
from checkrein.report import LEFT, TROUBLE, Action, RollbackReport
from checkrein.store import Batch, NewEvent, Put, SessionPut, SessionRow
from checkrein.undoing import ALREADY, Undoing
from checkrein.verdicts import Cause

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


def doubt_of(left: Sequence[Action]) -> str:
    """State of a session's record of kind `doubt`: what stands in the way of its end.

    `open`: something is in doubt, and `recover` comes back to it. `failed`: somebody has to look.
    """
    if any(a.status == "in_doubt" for a in left):
        return "open"
    return "failed" if any(a.status in TROUBLE for a in left) else "closed"


class Singles:
    """Undoes single effects and closes the work on a session, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self.undoing = Undoing(rein)
        self._draining: set[str] = set()
        """Sessions that are rolled back now, and whose effects are not looked at yet."""

    def alive(self, row: SessionRow) -> bool:
        """Whether the process that owns the session lives."""
        return bool(row.owner) and owner.alive(self.store.owner(row.owner), self.rein.clock())

    async def finish(
        self,
        io: IO,
        id: str,
        event: NewEvent,
        fence: int | None,
        put: SessionPut,
        state: str,
    ) -> None:
        """End work on a session: `state` is that of its `doubt`."""
        puts: tuple[Put, ...] = ()
        if state != "closed" or self.store.record("doubt", id) is not None:
            puts = (Put("doubt", id, state, {}, id),)
        batch = Batch(id, (event,), event.at, fence, session_put=put, puts=puts)
        self.rein.observers.notify(await io.commit(batch), batch)

    async def one(self, io: IO, call: str, cause: Cause) -> Action | None:
        """Undo one effect and leave the session as it is."""
        effect = effect_of(self.store, call)
        if effect is None or not is_effect(effect.intent):
            return None
        action = await self.undoing.undo(io, effect, cause, None)
        if action.status == "undone" and action.detail != ALREADY:
            await self._in_part(io, effect.session, action, cause)
        return action

    async def _in_part(self, io: IO, id: str, action: Action, cause: Cause) -> None:
        """Remember of a session that one of its effects was taken back."""
        event = self.rein.journal.event(
            "rollback_finished", action.call, cause=cause, undone=1, left=[], action=action.call
        )
        row = self.store.session(id)
        if row is None or row.rollback in ("rolled_back", "rolling_back"):
            return
        batch = Batch(id, (event,), event.at)
        if row.state == "ACTIVE":
            # It goes on; when it ends, it has not simply ended well.
            batch.puts = (Put("reverted", id, "open", {}, id),)
        else:
            batch.session_put = SessionPut(rollback="partial")
        self.rein.observers.notify(await io.commit(batch), batch)

    async def single(
        self, io: IO, session_id: str, call: str, *, dry_run: bool = False
    ) -> RollbackReport:
        """Undo one call of a session; the session goes on. Raises `Conflict` for a wrong one."""
        effect = effect_of(self.store, call)
        if effect is None or effect.session not in descendants(self.store, session_id):
            raise Conflict(f"session {session_id} has no call {call}: nothing was changed")
        report = RollbackReport(session_id, "explicit", dry_run=dry_run, sessions=[session_id])
        if not is_effect(effect.intent):
            detail = "it changes nothing" if effect.intent.view["kind"] == "tool" else "no action"
            report.actions.append(Action(call, effect.name, effect.session, "absent", detail))
            return report
        row = self.store.session(effect.session)
        if row is not None and row.rollback == "rolling_back" and self.alive(row):
            raise Conflict(f"session {effect.session} is being rolled back: nothing was changed")
        if dry_run:
            found = await self.undoing.undo(io, effect, "explicit", None, dry_run=True)
        elif not effect.ended and row is not None and row.state == "ACTIVE" and self.alive(row):
            found = Action(call, effect.name, effect.session, "in_doubt", "it still runs")
        else:
            undone = await self.one(io, call, "explicit")
            assert undone is not None
            found = undone
        report.actions.append(found)
        return report

    async def late(self, io: IO, session_id: str, call: str) -> None:
        """A result landed in a session that is rolled back: undo it at once."""
        if session_id in self._draining:
            return
        try:
            action = await self.one(io, call, "error")
            if action is None or action.status not in LEFT:
                return
            self.rein.log.error(
                "late result of %s %s in a rolled back session: %s (%s)",
                action.name, call, action.status, action.detail,
            )  # fmt: skip
            row = self.store.session(session_id)
            if row is not None and row.rollback in ("rolled_back", "partial"):
                event = self.rein.journal.event(
                    "rollback_finished", cause="error", undone=0,
                    left=[{"call": call, "name": action.name, "status": action.status}],
                )  # fmt: skip
                put = SessionPut(rollback="partial")
                await self.finish(io, session_id, event, None, put, "open")
        except CheckreinError as error:
            self.rein.log.error("late result of call %s: %s", call, error)

    async def ask(self, io: IO, call: Call, entry: Entry) -> Outcome | Literal[False] | None:
        """Resolve a call in doubt for a resumed run: its outcome, False = never ran, None."""
        effect = effect_of(self.store, call.id)
        if effect is None or effect.state == "not_done":
            return False
        answer = await self.undoing.probe(io, effect)
        if isinstance(answer, Absent) and self.undoing.settling(effect, effect.intent.at) <= 0:
            await self.undoing.resolve(io, effect, "not_done", None)
            return False
        if isinstance(answer, Present):
            await self.undoing.resolve(io, effect, "done", None, result=answer.result)
            return Outcome("done", answer.result, source="probe")
        return None
