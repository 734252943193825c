"""What a person found out about a call in doubt, and what follows for its session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from checkrein.effects import Effect, effect_of
from checkrein.errors import ConfigError, Conflict
from checkrein.journal import is_effect
from checkrein.report import LEFT, RollbackReport
from checkrein.singles import doubt_of
from checkrein.store import SessionPut

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein

STATES = ("done", "not_done", "undone")


class ByHand:
    """Settles calls in doubt by hand, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self.rollbacks = rein.rollbacks

    async def settle(
        self, io: IO, call: str, state: Literal["done", "not_done", "undone"], by: str, note: str
    ) -> None:
        """Record what a person says. Raises `ConfigError`, and `Conflict` where it cannot be."""
        given: object = by
        if state not in STATES:
            raise ConfigError(f"settle: {state!r} is not one of {', '.join(STATES)}")
        if not isinstance(given, str) or not given.strip():
            raise ConfigError("settle: say who has looked (by=, a text)")
        effect = effect_of(self.store, call)
        if effect is None or not is_effect(effect.intent):
            raise Conflict(f"call {call} is unknown here, or changes nothing: nothing to settle")
        self._refuse(effect, state)
        undoing = self.rollbacks.undoing
        seen, _ = undoing.call_of(effect)
        view = self.rein.journal.view
        await undoing.resolve(
            io, effect, state, None, by=str(view(seen, by, "journal")),
            note=str(view(seen, note, "journal")) if note else "",
        )  # fmt: skip
        await self._review(io, effect.session)

    def _refuse(self, effect: Effect, state: str) -> None:
        row = self.store.session(effect.session)
        where = f"call {effect.call}"
        if row is not None and self.rollbacks.alive(row):
            if row.rollback == "rolling_back":
                raise Conflict(f"{where}: its session is being rolled back; wait for its end")
            if not effect.ended and row.state == "ACTIVE":
                raise Conflict(f"{where}: its process is alive, and it may still run")
        if effect.undone:
            raise Conflict(f"{where} is undone already")
        if effect.state == "not_done":
            raise Conflict(f"{where} had no effect: there is nothing to settle")
        doubtful = effect.state == "unknown" or effect.undo_in_doubt is not None
        if state == "not_done" and effect.state != "unknown":
            raise Conflict(f"{where} is known to have taken effect: it can only be undone")
        if state == "done" and not doubtful:
            raise Conflict(f"{where} is known to be in place: there is nothing to settle")

    async def _review(self, io: IO, session: str) -> None:
        """A rollback that left something may be complete now, or in less doubt."""
        row = self.store.session(session)
        if row is None or row.rollback != "partial":
            return
        report: RollbackReport = await self.rollbacks.run(
            io, session, cause="explicit", dry_run=True
        )
        open_ones = [a for a in report.actions if a.status in (*LEFT, "planned")]
        left = [a for a in open_ones if a.status != "planned"]
        event = self.rein.journal.event(
            "rollback_finished", cause="explicit", undone=0, by_hand=True,
            left=[{"call": a.call, "name": a.name, "status": a.status} for a in open_ones],
        )  # fmt: skip
        put = SessionPut(rollback="partial" if open_ones else "rolled_back")
        await self.rollbacks.finish(io, session, event, None, put, doubt_of(left))
