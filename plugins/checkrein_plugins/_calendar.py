"""Hours, days and months of a time zone, by name."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_FORMS = {"hour": "%Y-%m-%dT%H%z", "day": "%Y-%m-%d", "month": "%Y-%m"}
_CHECKED = 60_000_000
"""Microseconds for which a period that was looked up is believed, at most: no zone changes its
offset at other times than whole minutes."""


def known_zone(name: str) -> bool:
    """Whether `name` is a time zone of the IANA database."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


class Calendar:
    """Names the period of a time zone that it is now.

    `clock`: microseconds since the epoch. An hour carries its offset, so that the hour which a
    change of clocks repeats is two.
    """

    def __init__(self, period: str, zone: str) -> None:
        self._form = _FORMS[period]
        self._zone = ZoneInfo(zone)
        self._known = (-1, "")
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1000

    def now(self) -> str:
        """The present period: `2026-11-29`."""
        at = self.clock()
        minute, name = self._known
        if minute != at // _CHECKED:
            minute = at // _CHECKED
            name = datetime.fromtimestamp(minute * 60, self._zone).strftime(self._form)
            self._known = (minute, name)
        return name
