"""SilenceAlarm: a dead man's switch for sessions."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Literal, Never

from checkrein._locks import Lock
from checkrein.errors import CheckreinError
from checkrein.hooks import Plugin
from checkrein.store import Batch
from checkrein_plugins._config import Name, Seconds, Settings, read, refuse_unknown

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Record, SessionRow

SHORTEST = 0.05
"""Seconds between two looks, at least."""


class _Settings(Settings):
    seconds: Seconds
    action: Literal["stop", "alert"] = "stop"
    watch: Literal["own", "all"] = "own"
    name: Name = "silence"


class SilenceAlarm(Plugin):
    """Notices sessions in which nothing happens any more.

    `seconds` without an event of a running session: a `silence` event is recorded (which
    `Alerts` passes on), and the session is stopped, so that its next call is refused; a call that
    hangs cannot be ended from outside, only by a timeout. `action="alert"`: recorded only. A
    session that waits for a person is not silent, nor is one that was suspended.

    `watch`: sessions of this Rein, or of every process that uses the store (a watchdog of its
    own). A thread looks four times in `seconds`; calls pay nothing. `check()` looks now.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        seconds: float,
        action: Literal["stop", "alert"] = "stop",
        watch: Literal["own", "all"] = "own",
        name: str = "silence",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "silence", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {"seconds": seconds, "action": action, "watch": watch, "name": name},
            "silence",
        )
        self.name = settings.name
        self._seconds = float(settings.seconds)
        self._stops = settings.action == "stop"
        self._own = settings.watch == "own"
        self._told: dict[str, int] = {}
        """By session: number of the event after which its silence was told."""
        self._rein: weakref.ref[Rein] | None = None
        self._end = threading.Event()
        self._lock = Lock()

    def start(self, rein: Rein) -> None:
        """Begin to look."""
        self._rein = weakref.ref(rein)
        self._end.clear()
        reference, end, pause = weakref.ref(self), self._end, max(SHORTEST, self._seconds / 4)
        pid = os.getpid()

        def work() -> None:
            while not end.wait(pause):
                alarm = reference()
                if alarm is None or os.getpid() != pid:
                    return
                try:
                    alarm.check()
                except CheckreinError as error:
                    # The next look tries again.
                    rein_log = alarm._rein() if alarm._rein is not None else None  # noqa: SLF001
                    if rein_log is not None:
                        rein_log.log.warning("the silence alarm could not look: %s", error)
                del alarm

        threading.Thread(target=work, name="checkrein-silence", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()

    def check(self) -> list[str]:
        """Look once; the sessions that have fallen silent since the last look."""
        rein = self._rein() if self._rein is not None else None
        if rein is None:
            return []
        found: list[str] = []
        with self._lock:
            after: str | None = None
            owner = rein.lease.id() if self._own else None
            while True:
                page = rein.store.sessions(state="ACTIVE", owner=owner, after=after, limit=500)
                found += [row.id for row in page.rows if self._silent(rein, row)]
                after = page.next
                if after is None:
                    return found

    def _silent(self, rein: Rein, row: SessionRow) -> bool:
        store = rein.store
        now = rein.clock()
        if not row.owner or row.stopped or row.rollback != "none":
            return False
        if now - row.updated < self._seconds * 1_000_000:
            return False
        last = store.events(session=row.id, reverse=True, limit=1)
        if not last or now - last[0].at < self._seconds * 1_000_000:
            return False
        if self._told.get(row.id) == last[0].seq or last[0].kind == "silence":
            return False
        if any(r.body.get("expires", 0) > now for r in self._waiting(rein, row.id)):
            return False
        self._told[row.id] = last[0].seq
        quiet = round((now - last[0].at) / 1_000_000, 3)
        event = rein.journal.event("silence", last[0].call, seconds=quiet, last=last[0].kind)
        batch = Batch(row.id, (event,), event.at)
        rein.observers.notify(store.commit(batch), batch)
        if self._stops:
            rein.stop(row.id)
        return True

    @staticmethod
    def _waiting(rein: Rein, session: str) -> list[Record]:
        return list(rein.store.records("approval", state="pending", session=session).rows)
