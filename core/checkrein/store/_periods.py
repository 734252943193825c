"""Periods of the bill: quarters of an hour, days and months, and how one is made of them.

What is added up beforehand is kept at four levels. A period is read as few long pieces and, at
its ends, shorter ones. All borders are in UTC; every time zone is a whole number of quarters
of an hour away from it, so a local day or month is exact.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

QUARTER = 900_000_000
"""Microseconds of a quarter of an hour."""

DAY = 96
"""Quarters of a day."""

LEVELS = (0, 1, 2, 3)
"""Quarter of an hour, day, month, always."""

_EPOCH = date(1970, 1, 1).toordinal()


def bucket(quarter: int, level: int) -> int:
    """The number of the piece of `level` that a quarter of an hour lies in."""
    if level == 0:
        return quarter
    if level == 1:
        return quarter // DAY
    return _month_of(quarter // DAY) if level == 2 else 0


def pieces(since: int | None, until: int | None) -> list[tuple[int, int, int]]:
    """(level, first, end) of the pieces that a period in microseconds consists of."""
    if since is None and until is None:
        return [(3, 0, 1)]
    first = 0 if since is None else max(0, since // QUARTER)
    end = 2**40 if until is None else max(0, until // QUARTER)
    if end <= first:
        return []
    found: list[tuple[int, int, int]] = []
    days = (-(-first // DAY), end // DAY)
    if days[0] >= days[1]:
        return [(0, first, end)]
    _add(found, 0, first, days[0] * DAY)
    months = (
        0 if since is None else _month_at_or_after(days[0]),
        2**40 if until is None else _month_of(days[1]),
    )
    if months[0] >= months[1]:
        _add(found, 1, days[0], days[1])
    else:
        if since is not None:
            _add(found, 1, days[0], _first_day(months[0]))
        _add(found, 2, months[0], months[1])
        if until is not None:
            _add(found, 1, _first_day(months[1]), days[1])
    if until is not None:
        _add(found, 0, days[1] * DAY, end)
    return found


def _add(found: list[tuple[int, int, int]], level: int, first: int, end: int) -> None:
    if first < end:
        found.append((level, first, end))


def _month_of(day: int) -> int:
    at = date.fromordinal(_EPOCH + day)
    return at.year * 12 + at.month - 1


def _first_day(month: int) -> int:
    return date(month // 12, month % 12 + 1, 1).toordinal() - _EPOCH


def _month_at_or_after(day: int) -> int:
    month = _month_of(day)
    return month if _first_day(month) == day else month + 1


def micros(at: datetime) -> int:
    """A point in time in microseconds since the epoch."""
    return round(at.astimezone(UTC).timestamp()) * 1_000_000
