"""Let tools run only inside the maintenance windows of a calendar file.

The calendar is iCalendar (RFC 5545). What is read is listed at `read_calendar`; a line that
could open a window and is not understood refuses the whole file, so that no window is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from checkrein import Ask, Call, Deny, Plugin

RULE = "maintenance_window"
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
LOOK_AHEAD = timedelta(days=31)  # to name the next window in a refusal
LONGEST_REPEATED = timedelta(days=7)
MOST_BYTES = 1_000_000
LONGEST = timedelta(days=366)
YEARS = range(1970, 9000)
_DAY = timedelta(days=1)
_VALUES = r'(?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*'
_HEAD = re.compile(rf"([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+={_VALUES})*):")
_PAIR = re.compile(rf";([A-Za-z0-9-]+)=({_VALUES})")


class CalendarError(ValueError):
    """The calendar cannot be used. `line` is the number of the line at fault; 0 = the file."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(f"line {line}: {problem}" if line else problem)


@dataclass(frozen=True, slots=True)
class Rule:
    """How an event repeats: every `interval` days or weeks, on `days`, through `last`."""

    weekly: bool
    interval: int
    days: frozenset[int]
    """Weekdays, Monday = 0."""
    week_start: int
    first: date
    last: date | None = None

    def falls_on(self, day: date) -> bool:
        """Whether an occurrence begins on `day` (in the event's own time zone)."""
        over = self.last is not None and day > self.last
        if over or day < self.first or day.weekday() not in self.days:
            return False
        if self.weekly:
            return (self._week(day) - self._week(self.first)).days // 7 % self.interval == 0
        return (day - self.first).days % self.interval == 0

    def _week(self, day: date) -> date:
        return day - timedelta(days=(day.weekday() - self.week_start) % 7)


@dataclass(frozen=True, slots=True)
class Event:
    """One event: a window, once or repeated."""

    start: datetime
    """Begin of the first occurrence, with its time zone."""
    length: timedelta
    all_day: bool = False
    rule: Rule | None = None
    until: datetime | None = None
    """No occurrence begins after this instant."""
    excluded: frozenset[datetime] = frozenset()

    def windows(self, begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the occurrences that touch [begin, end), in order, as UTC instants."""
        zone = self.start.tzinfo
        day = (begin - self.length).astimezone(zone).date() - _DAY
        last = end.astimezone(zone).date()
        if self.rule is None:
            day = last = self.start.date()
        while day <= last:
            if self.rule is None or self.rule.falls_on(day):
                opens, closes = self._occurrence(day)
                wanted = opens < end and closes > begin and opens not in self.excluded
                if wanted and (self.until is None or opens <= self.until):
                    yield opens, closes
            day += _DAY

    def _occurrence(self, day: date) -> tuple[datetime, datetime]:
        """The occurrence on `day`. Whole days follow the wall clock, other lengths are exact."""
        start = datetime.combine(day, self.start.time(), self.start.tzinfo)
        opens = start.astimezone(UTC)
        # Aware arithmetic within one zone moves the wall clock: right for whole days only.
        closes = (start + self.length).astimezone(UTC) if self.all_day else opens + self.length
        return opens, closes


class Line(NamedTuple):
    """One content line: `NAME;PARAMETER=VALUE:value`, unfolded."""

    number: int
    name: str
    parameters: dict[str, str]
    value: str


def read_calendar(text: str, zone: tzinfo = UTC) -> list[Event]:
    """Read the events of a calendar.

    Understood: DTSTART with DTEND or DURATION; UTC, TZID, zoneless and date forms (the last
    two are in `zone`); RRULE with FREQ=DAILY or WEEKLY, INTERVAL, COUNT, UNTIL, BYDAY without
    numbers, WKST; EXDATE; STATUS:CANCELLED, which leaves the event out. Properties that do not
    move a window (SUMMARY, X-...) are passed over.

    Raises:
        CalendarError: Anything else, with its line.
    """
    lines = list(_lines(text))
    if not lines or (lines[0].name, lines[0].value.upper()) != ("BEGIN", "VCALENDAR"):
        raise CalendarError(lines[0].number if lines else 0, "not a calendar: no BEGIN:VCALENDAR")
    events: list[Event] = []
    open_components: list[str] = []
    event: dict[str, list[Line]] = {}
    for line in lines:
        value = line.value.upper()
        if line.name == "BEGIN":
            if not open_components and value != "VCALENDAR":
                raise CalendarError(line.number, f"{value} outside a calendar")
            if value == "VEVENT":
                if open_components != ["VCALENDAR"]:
                    raise CalendarError(line.number, "VEVENT inside another component")
                event = {"BEGIN": [line]}
            open_components.append(value)
        elif line.name == "END":
            if not open_components or open_components.pop() != value:
                raise CalendarError(line.number, f"END:{value} without its BEGIN")
            if value == "VEVENT":
                events += _event(event, zone)
        elif not open_components:
            raise CalendarError(line.number, f"{line.name} outside a calendar")
        elif open_components == ["VCALENDAR"] and line.name == "METHOD" and value == "CANCEL":
            raise CalendarError(line.number, "METHOD:CANCEL takes events back: not a schedule")
        elif open_components[-1] == "VEVENT":
            event.setdefault(line.name, []).append(line)
    if open_components:
        raise CalendarError(lines[-1].number, f"ends inside {open_components[-1]}: cut off?")
    return events


def _lines(text: str) -> Iterator[Line]:
    """Unfold the text and split each content line."""
    unfolded: list[tuple[int, str]] = []
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), start=1):
        if raw[:1] in {" ", "\t"} and unfolded:
            unfolded[-1] = (unfolded[-1][0], unfolded[-1][1] + raw[1:])
        elif raw.strip():
            unfolded.append((number, raw))
    for number, raw in unfolded:
        head = _HEAD.match(raw)
        if head is None:
            raise CalendarError(number, "not a content line NAME:VALUE")
        parameters = {name.upper(): value.strip('"') for name, value in _PAIR.findall(head[2])}
        yield Line(number, head[1].upper(), parameters, raw[head.end() :].strip())


def _event(lines: dict[str, list[Line]], zone: tzinfo) -> list[Event]:
    """Read one VEVENT; a cancelled one gives none."""
    begin = lines["BEGIN"][0]
    for name in ("RECURRENCE-ID", "RDATE", "EXRULE"):
        if name in lines:
            raise CalendarError(lines[name][0].number, f"{name} is not supported")
    for name in ("DTSTART", "DTEND", "DURATION", "RRULE", "STATUS"):
        if len(lines.get(name, ())) > 1:
            raise CalendarError(lines[name][1].number, f"second {name} in one event")
    if "STATUS" in lines and lines["STATUS"][0].value.upper() == "CANCELLED":
        return []
    if "DTSTART" not in lines:
        raise CalendarError(begin.number, "the event has no DTSTART")
    first = lines["DTSTART"][0]
    start, all_day = _moment(first, first.value, zone)
    length = _length(lines, start, all_day, zone)
    rule, until = None, None
    if "RRULE" in lines:
        rule, until = _rule(lines["RRULE"][0], start, all_day, zone)
        if length > LONGEST_REPEATED:
            raise CalendarError(lines["RRULE"][0].number, "a repeated event longer than 7 days")
    excluded = set()
    for line in lines.get("EXDATE", ()):
        for value in line.value.split(","):
            moment, whole = _moment(line, value, zone)
            if whole != all_day:
                raise CalendarError(line.number, "EXDATE is not of the form of DTSTART")
            excluded.add(moment.astimezone(UTC))
    return [Event(start, length, all_day, rule, until, frozenset(excluded))]


def _moment(line: Line, value: str, zone: tzinfo) -> tuple[datetime, bool]:
    """Read a date or a date with time; return it with its zone, and whether it is a date."""
    name = line.parameters.get("TZID")
    if name is not None:
        try:
            zone = ZoneInfo(name)
        except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
            raise CalendarError(line.number, f"unknown time zone {name!r}") from None
    try:
        if re.fullmatch(r"\d{8}", value, re.ASCII):
            return datetime.combine(_date(value), time(), zone), True
        if re.fullmatch(r"\d{8}T\d{6}Z?", value, re.ASCII):
            clock = time(int(value[9:11]), int(value[11:13]), int(value[13:15]))
            zone = UTC if value[-1] == "Z" else zone
            return datetime.combine(_date(value[:8]), clock, zone), False
    except ValueError as problem:
        raise CalendarError(line.number, f"{line.name}: {problem}") from None
    raise CalendarError(line.number, f"{line.name} is neither a date nor a time")


def _date(digits: str) -> date:
    day = date(int(digits[:4]), int(digits[4:6]), int(digits[6:8]))
    if day.year not in YEARS:
        raise ValueError(f"year {day.year} is not from {YEARS.start} to {YEARS.stop - 1}")
    return day


def _length(
    lines: dict[str, list[Line]], start: datetime, all_day: bool, zone: tzinfo
) -> timedelta:
    """How long each occurrence lasts."""
    if "DTEND" in lines and "DURATION" in lines:
        raise CalendarError(lines["DURATION"][0].number, "both DTEND and DURATION")
    if "DTEND" in lines:
        line = lines["DTEND"][0]
        end, whole = _moment(line, line.value, zone)
        if whole != all_day:
            raise CalendarError(line.number, "DTEND is not of the form of DTSTART")
        # Whole days are counted on the calendar, hours on the clock of the world.
        length = end - start if all_day else end.astimezone(UTC) - start.astimezone(UTC)
    elif "DURATION" in lines:
        line = lines["DURATION"][0]
        form = r"\+?P(?:(\d+)W|(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?)"
        found = re.fullmatch(form, line.value, re.ASCII)
        if found is None or max(map(len, filter(None, found.groups()))) > 6:
            raise CalendarError(line.number, "DURATION is not understood")
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        length = timedelta(days, seconds, 0, 0, minutes, hours, weeks)
        if all_day and length % _DAY:
            raise CalendarError(line.number, "an all-day event lasts whole days")
    elif all_day:
        return _DAY
    else:
        raise CalendarError(lines["DTSTART"][0].number, "neither DTEND nor DURATION")
    if length <= timedelta(0):
        raise CalendarError(line.number, "the event ends before it begins")
    if length > LONGEST:
        raise CalendarError(line.number, f"the event is longer than {LONGEST.days} days")
    return length


def _rule(line: Line, start: datetime, all_day: bool, zone: tzinfo) -> tuple[Rule, datetime | None]:
    """Read an RRULE; return it with the instant after which nothing begins."""
    parts: dict[str, str] = {}
    for part in line.value.upper().split(";"):
        name, equals, value = part.partition("=")
        if not equals or name in parts:
            raise CalendarError(line.number, f"RRULE: {part!r} is not understood")
        parts[name] = value
    frequency = parts.pop("FREQ", "")
    if frequency not in {"DAILY", "WEEKLY"}:
        raise CalendarError(line.number, f"RRULE: FREQ={frequency} is not supported")
    interval = _number(line, "INTERVAL", parts.pop("INTERVAL", "1"))
    week_start = _weekday(line, parts.pop("WKST", "MO"))
    days = frozenset({start.weekday()} if frequency == "WEEKLY" else range(7))
    if "BYDAY" in parts:
        days = frozenset(_weekday(line, day) for day in parts.pop("BYDAY").split(","))
    count = parts.pop("COUNT", None)
    until_text = parts.pop("UNTIL", None)
    if parts:
        raise CalendarError(line.number, f"RRULE: {min(parts)} is not supported")
    rule = Rule(frequency == "WEEKLY", interval, days, week_start, start.date())
    if not rule.falls_on(start.date()):
        raise CalendarError(line.number, "RRULE: DTSTART is not one of its days")
    if count is not None and until_text is not None:
        raise CalendarError(line.number, "RRULE: both COUNT and UNTIL")
    if count is not None:
        return _counted(line, rule, _number(line, "COUNT", count)), None
    if until_text is None:
        return rule, None
    until, whole = _moment(Line(line.number, "RRULE: UNTIL", {}, ""), until_text, zone)
    if whole != all_day:
        raise CalendarError(line.number, "RRULE: UNTIL is not of the form of DTSTART")
    if not until_text.endswith("Z"):
        until = until.replace(tzinfo=start.tzinfo)
    return rule, until.astimezone(UTC)


def _number(line: Line, name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text, re.ASCII):
        raise CalendarError(line.number, f"RRULE: {name}={text} is not from 1 to 9999")
    return int(text)


def _weekday(line: Line, text: str) -> int:
    if text not in DAYS:
        raise CalendarError(line.number, f"RRULE: day {text!r} is not supported")
    return DAYS.index(text)


def _counted(line: Line, rule: Rule, count: int) -> Rule:
    """End the rule with its `count`-th occurrence, the first included."""
    # Days and weeks alike fall on the same weekdays again after interval * 7 days.
    cycle = rule.interval * 7
    try:
        days = [n for n in range(cycle) if rule.falls_on(rule.first + timedelta(days=n))]
        turns, rest = divmod(count - 1, len(days))
        last = rule.first + timedelta(days=turns * cycle + days[rest])
    except OverflowError:
        raise CalendarError(line.number, "RRULE: COUNT reaches past the year 9999") from None
    return Rule(rule.weekly, rule.interval, rule.days, rule.week_start, rule.first, last)


@dataclass(eq=False)
class MaintenanceWindow(Plugin):
    """Tools that match `tools` run only while a window of `calendar` is open.

    The file is looked at before each such call and read again when it changed. A file that is
    missing, unreadable or not understood closes every window.

    Args:
        calendar: Path of the `.ics` file; must be readable and understood at the start.
        tools: Names of tools, or patterns with `*`; a whole name must match.
        timezone: Zone of all-day events and of times without one.
        outside: `deny`, or `ask` to let a person allow a call outside a window.
        now: The clock; must return an aware datetime.

    Raises:
        ValueError: An argument is wrong, or the calendar cannot be used (`CalendarError`).
    """

    calendar: str | Path
    tools: Sequence[str]
    timezone: str = "UTC"
    outside: Literal["deny", "ask"] = "deny"
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _seen: tuple[tuple[int, ...], list[Event]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.tools, str) or not self.tools:
            raise ValueError("tools: name at least one tool, as a list")
        if self.outside not in {"deny", "ask"}:
            raise ValueError(f"outside: {self.outside!r} is neither 'deny' nor 'ask'")
        try:
            self._zone = ZoneInfo(self.timezone)
        except (ValueError, OSError, KeyError):
            raise ValueError(f"timezone: unknown zone {self.timezone!r}") from None
        try:
            self._events()
        except OSError as problem:
            raise ValueError(f"calendar: {self.calendar}: {problem.strerror}") from problem
        except CalendarError as problem:
            raise CalendarError(problem.line, f"in calendar {self.calendar}: {problem}") from None

    def pre_call(self, call: Call) -> Deny | Ask | None:
        """Refuse a matching tool outside the windows."""
        if call.kind != "tool" or not any(fnmatchcase(call.name, tool) for tool in self.tools):
            return None
        try:
            events = self._events()
        except OSError as problem:
            return Deny(f"the maintenance calendar cannot be read ({problem.strerror})", RULE)
        except CalendarError as problem:
            return Deny(f"the maintenance calendar is not understood ({problem})", RULE)
        now = self.now().astimezone(UTC)
        if any(True for event in events for _ in event.windows(now, now + timedelta.resolution)):
            return None
        ahead = [o for e in events for o, _ in e.windows(now, now + LOOK_AHEAD) if o > now]
        when = f"at {min(ahead):%Y-%m-%d %H:%M} UTC" if ahead else "not within a month"
        reason = f"{call.name} runs only in a maintenance window; the next one opens {when}"
        return Deny(reason, RULE) if self.outside == "deny" else Ask(reason, RULE)

    def _events(self) -> list[Event]:
        """The events of the file as it is now."""
        path = Path(self.calendar)
        status = path.stat()
        version = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        seen = self._seen  # read once: calls may come from several threads
        if seen is not None and seen[0] == version:
            return seen[1]
        if status.st_size > MOST_BYTES:
            raise CalendarError(0, f"larger than {MOST_BYTES} bytes")
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as problem:
            raise CalendarError(0, f"not UTF-8 at byte {problem.start}") from None
        events = read_calendar(text, self._zone)
        self._seen = (version, events)
        return events
