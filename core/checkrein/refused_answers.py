"""Answers that were refused: they change nothing, and are written down.

What belongs to a request stands in its session's journal. What belongs to none (an unknown id,
a message with a wrong signature) stands in a session of its own. Not more than `MOST` in a
minute are written by one process: whoever sends nonsense must not fill the disk.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING

from checkrein.errors import CheckreinError, Conflict
from checkrein.store import Batch, SessionPut

if TYPE_CHECKING:
    from checkrein.rein import Rein

SESSION = "refused-answers"
MOST = 60


class RefusedAnswers:
    """Writes them down, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self._times: deque[float] = deque(maxlen=MOST)

    def record(self, id: object, by: object, answer: str, reason: str) -> None:
        """Write down that somebody's answer was refused, and why; never raises."""
        rein = self.rein
        rein.log.info("an answer was refused: %s", reason)
        if self._often():
            return
        with contextlib.suppress(CheckreinError):
            known = rein.store.record("approval", id) if isinstance(id, str) else None
            if known is None:
                self._open()
            event = rein.journal.event(
                "approval_refused", "" if known is None else known.body["call"],
                id=str(id)[:100], by=str(by)[:100], answer=answer, reason=reason[:1000],
            )  # fmt: skip
            session = SESSION if known is None else known.session
            batch = Batch(session, (event,), event.at)
            rein.observers.notify(rein.store.commit(batch), batch)

    def _often(self) -> bool:
        now = time.monotonic()
        if len(self._times) == MOST and self._times[0] > now - 60:
            return True
        self._times.append(now)
        return False

    def _open(self) -> None:
        if self.rein.store.session(SESSION) is not None:
            return
        event = self.rein.journal.event("session_started", agent=SESSION)
        body = {"agent": SESSION, "parent": "", "root": SESSION}
        put = SessionPut(create=True, state="COMPLETED", owner="", body=body)
        with contextlib.suppress(Conflict):  # another process was faster
            self.rein.store.commit(Batch(SESSION, (event,), event.at, session_put=put))
