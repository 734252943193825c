"""Times as people type them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from checkrein.errors import ConfigError


def moment(option: str, text: str | None, zone: str) -> int | None:
    """What `--since` and the like say, in microseconds since the epoch. Raises `ConfigError`."""
    try:
        where: Any = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"--timezone {zone}: no time zone such as Europe/Berlin") from None
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text}: write a date or a time, such as 2026-11-29 or 2026-11-29T14:30"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=where)).timestamp()) * 1_000_000
