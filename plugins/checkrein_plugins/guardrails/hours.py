"""ActiveHours: calls only at times when somebody is there."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, StrictBool

from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Ask, Deny, PreVerdict
from checkrein_plugins._config import Name, Settings, Text, Texts, listed, read, refuse_unknown
from checkrein_plugins._selection import selected

if TYPE_CHECKING:
    from checkrein.rein import Rein

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(
    r"(?:(?P<days>[a-z,\- ]+?)\s+)?(?P<from>\d\d:\d\d)\s*-\s*(?P<to>\d\d:\d\d)", re.IGNORECASE
)
_MINUTE = 60_000_000
"""Microseconds: local times change at whole minutes (daylight saving included)."""


class _Settings(Settings):
    hours: Texts
    timezone: Text = "UTC"
    closed: list[Text] = Field(default_factory=list)
    tools: Texts | None = None
    exempt: Texts | None = None
    action: Literal["deny", "ask"] = "deny"
    models: StrictBool = False
    name: Name = "hours"


class ActiveHours(Plugin):
    """Refuses calls, or asks a person, outside stated hours.

    `hours`: spans such as `mon-fri 08:00-18:00` or `sat,sun 22:00-02:00` (past midnight the span
    belongs to the day on which it began; without days it is every day; `24:00` is the end of the
    day). `timezone`: an IANA name; hours are local times there, whatever daylight saving does:
    an hour that does not exist is skipped, one that comes twice counts both times. `closed`: dates
    (`2026-12-25`) without hours. `models`: model calls too. Undo is never stopped.

    Raises `ConfigError`, with the place, for what cannot be read.
    """

    def __init__(
        self,
        *,
        hours: Sequence[str] = (),
        timezone: str = "UTC",
        closed: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        action: Literal["deny", "ask"] = "deny",
        models: bool = False,
        name: str = "hours",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "hours", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "hours": listed(hours),
                "timezone": timezone,
                "closed": listed(closed),
                "tools": listed(tools),
                "exempt": listed(exempt),
                "action": action,
                "models": models,
                "name": name,
            },
            "hours",
        )
        self.name = settings.name
        try:
            self._zone = ZoneInfo(settings.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(
                f"hours.timezone: {settings.timezone!r} is not known here; use an IANA name such "
                "as Europe/Berlin (on Windows, install tzdata)"
            ) from None
        self._spans: list[set[int]] = [set() for _ in _DAYS]
        """By weekday: minutes since its midnight, over 1,440 for what reaches into the next."""
        for index, span in enumerate(settings.hours):
            days, minutes = _read(span, f"hours.hours[{index}]")
            for day in days:
                self._spans[day].update(minutes)
        self._closed = frozenset(
            _date(date, f"hours.closed[{index}]") for index, date in enumerate(settings.closed)
        )
        self._looks = selected(settings.tools, settings.exempt, "hours")
        self._models = settings.models
        reason = f"outside the hours {'; '.join(settings.hours)} ({settings.timezone})"
        rule = f"{self.name}/hours"
        self._verdict: Deny | Ask = (
            Deny(reason, rule=rule) if settings.action == "deny" else Ask(reason, rule=rule)
        )
        self._known: tuple[int, bool] = (-1, False)
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """The time is that of the Rein's clock."""
        self._rein = rein

    def pre_call(self, call: Call) -> PreVerdict:
        """The verdict of this minute."""
        if call.kind == "undo" or (call.kind == "model" and not self._models):
            return None
        at = time.time_ns() // 1000 if self._rein is None else self._rein.clock()
        minute = at // _MINUTE
        known, active = self._known
        if known != minute:
            active = self.active(dt.datetime.fromtimestamp(minute * 60, dt.UTC))
            self._known = (minute, active)
        if active or not self._looks(call.name):
            return None
        return self._verdict

    def active(self, at: dt.datetime) -> bool:
        """Whether `at` (with a time zone) lies within the hours."""
        local = at.astimezone(self._zone)
        minute = local.hour * 60 + local.minute
        today = local.date()
        if today not in self._closed and minute in self._spans[today.weekday()]:
            return True
        before = today - dt.timedelta(days=1)
        return before not in self._closed and minute + 1440 in self._spans[before.weekday()]


def _read(span: str, where: str) -> tuple[list[int], range]:
    found = _SPAN.fullmatch(span.strip())
    if found is None:
        raise ConfigError(f"{where}: not a span; write for example 'mon-fri 08:00-18:00'")
    begin, end = _minutes(found["from"], where), _minutes(found["to"], where)
    if begin == 1440:
        raise ConfigError(f"{where}: a span cannot begin at 24:00")
    if begin == end:
        raise ConfigError(f"{where}: begins and ends at the same time; a whole day is 00:00-24:00")
    return _days(found["days"] or "mon-sun", where), range(
        begin, end if end > begin else end + 1440
    )


def _minutes(text: str, where: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if minute > 59 or hour > 24 or (hour == 24 and minute):
        raise ConfigError(f"{where}: {text} is no time of day")
    return hour * 60 + minute


def _days(text: str, where: str) -> list[int]:
    found: list[int] = []
    for part in text.lower().replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        for name in ends:
            if name not in _DAYS:
                raise ConfigError(f"{where}: {name!r} is no day; use {', '.join(_DAYS)}")
        start, stop = _DAYS.index(ends[0]), _DAYS.index(ends[1])
        found += [day % 7 for day in range(start, stop + 1 if stop >= start else stop + 8)]
    return found


def _date(text: str, where: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{where}: {text!r} is no date; write 2026-12-25") from None
