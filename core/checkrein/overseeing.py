"""The functions of a Rein for whoever looks after sessions, of whatever process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from checkrein._io import finish
from checkrein.assembly import Assembly
from checkrein.errors import Conflict
from checkrein.settings import check_numbers
from checkrein.store import SessionPut

if TYPE_CHECKING:
    from checkrein.control import Forgotten
    from checkrein.standing import SessionPage


class Overseeing(Assembly):
    """The part of `Rein` that lists, pauses, stops, restarts and forgets sessions."""

    # -- looking

    def sessions(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> SessionPage:
        """Sessions with their display states, newest first, by page.

        `after` is the `next` of the page before. `state` keeps those that are shown so.
        """
        return self.standings.page(agent, state, after, limit)

    def session_counts(self, *, agent: str | None = None) -> dict[str, int]:
        """How many sessions are in which display state."""
        return self.standings.counts(agent)

    # -- deciding

    def settle(
        self, call_id: str, state: Literal["done", "not_done", "undone"], *, by: str, note: str = ""
    ) -> None:
        """Say by hand what became of a call that nobody here could tell.

        `done`: its effect is in place. `not_done`: it never was. `undone`: it was taken back by
        hand. Raises `Conflict` where the journal knows otherwise.
        """
        finish(self.by_hand.settle(self.sync_io, call_id, state, by, note))

    async def asettle(
        self, call_id: str, state: Literal["done", "not_done", "undone"], *, by: str, note: str = ""
    ) -> None:
        """The async twin of `settle`."""
        await self.by_hand.settle(self.async_io, call_id, state, by, note)

    def stop(
        self, session_id: str | None = None, *, agent: str | None = None, all: bool = False
    ) -> int:
        """Stop sessions before their next call, in whatever process; how many."""
        put = SessionPut(stopped=True)
        return self.control.change("session_stopped", put, session_id, agent, all)

    def pause(
        self, session_id: str | None = None, *, agent: str | None = None, all: bool = False
    ) -> int:
        """Pause sessions before their next call, in whatever process; how many.

        Calls are refused with `Paused`; a session that is left with it stays open.
        """
        put = SessionPut(paused=True)
        return self.control.change("session_paused", put, session_id, agent, all)

    def unpause(
        self, session_id: str | None = None, *, agent: str | None = None, all: bool = False
    ) -> int:
        """Let paused sessions take calls again; how many."""
        put = SessionPut(paused=False)
        return self.control.change("session_continued", put, session_id, agent, all)

    def restart(self, session_id: str) -> str:
        """A new session like one that is over or stopped: same agent, intent, policy, payload.

        Returns its id, for `rein.session(id=...)` in whatever process. Raises `Conflict`.
        """
        return self.control.restart(session_id)

    def replay(
        self, session_id: str, *, from_step: int, edits: Mapping[int, Any] | None = None
    ) -> str:
        """Go on from a step of a recorded session: a new session's id, for `rein.session(id=)`.

        In it the plugin `replay` answers the steps up to `from_step` as they were recorded, or
        as `edits` (step -> result) says, and what comes after runs. Raises `Conflict` for a
        session that is not over, for an unknown step, and where the plugin is not active.
        """
        if "replay" not in dict(self.plugins):
            raise Conflict(
                "the plugin replay is not active: nothing would be answered from the record; add "
                "Replay() to the plugins ([plugins.replay] in the configuration)"
            )
        return self.control.replay(session_id, from_step, edits or {})

    def forget(
        self, *, older_than: float = 0.0, payloads_only: bool = False, user: str | None = None
    ) -> Forgotten:
        """Delete what sessions left that ended more than `older_than` seconds ago.

        Their rows stay, and every chain still verifies. `payloads_only`: exact arguments, results
        and undo plans go, the timeline stays. `user`: only sessions of this person. Sessions that
        are open or in doubt are left alone.
        """
        check_numbers({"older_than": older_than})
        return self.control.forget(older_than, payloads_only=payloads_only, user=user)
