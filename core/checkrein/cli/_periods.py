"""Periods as options say them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo

import typer

from checkrein.errors import ConfigError

Since: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="From this date or time on (ISO 8601).")
]
Until: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Up to this date or time, without it.")
]
Zone: TypeAlias = Annotated[
    str, typer.Option("--timezone", metavar="ZONE", help="Of times without an offset.")
]
FORMS = {"hour": "%Y-%m-%d %H:00%z", "day": "%Y-%m-%d", "month": "%Y-%m"}
MOST = 1000
"""Periods of one table."""


def periods(per: str, begin: int, end: int, zone: str) -> Iterator[tuple[str, int, int]]:
    """(name, first, end) of the calendar's hours, days or months that lie between two times.

    Raises `ConfigError` for more than `MOST`.
    """
    where = ZoneInfo(zone)
    at, count = begin, 0
    while at < end:
        count += 1
        if count > MOST:
            raise ConfigError(f"--per {per}: more than {MOST} of them; narrow it with --since")
        local = datetime.fromtimestamp(at / 1e6, UTC).astimezone(where)
        upto = min(end, _next(per, local, where))
        yield local.strftime(FORMS[per]), at, upto
        at = upto


def _next(per: str, local: datetime, where: ZoneInfo) -> int:
    """Where the period after that of `local` begins."""
    if per == "hour":
        # Of the clock on the wall, but an hour that a change of clocks repeats is two.
        first = local.astimezone(UTC) - timedelta(
            minutes=local.minute, seconds=local.second, microseconds=local.microsecond
        )
        return round((first + timedelta(hours=1)).timestamp()) * 1_000_000
    first = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if per == "day":
        upto = first + timedelta(days=1)
    else:
        upto = (first.replace(day=1) + timedelta(days=32)).replace(day=1)
    return round(upto.replace(tzinfo=where).timestamp()) * 1_000_000
