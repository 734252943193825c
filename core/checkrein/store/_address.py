"""Where a SQLite store lies, and what may be set about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from checkrein.errors import ConfigError


def path_of(url: str) -> Path:
    """The absolute path in `sqlite:///PATH` (relative) or `sqlite:////PATH` (absolute)."""
    rest = url.removeprefix("sqlite:///")
    if rest == url or rest in ("", ":memory:") or "?" in rest or "\0" in rest:
        raise ConfigError(
            "store: not an address of a SQLite file (it may hold a password, so it is not shown); "
            "write sqlite:///PATH for a file (sqlite:////PATH from the root), or memory: for none"
        )
    return Path(unquote(rest)).absolute()


def beside(path: Path, suffix: str) -> Path:
    """A companion of the database file."""
    return path.with_name(path.name + suffix)


def checked(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The options for SQLite stores alone. Raises `ConfigError` for a wrong name or value."""
    known: dict[str, tuple[type, ...]] = {"busy_timeout": (int, float), "max_pages": (int,)}
    for name, value in extra.items():
        if name not in known:
            raise ConfigError(
                f"store option {name!r} is not known to SQLite stores ({', '.join(known)} are)"
            )
        number = isinstance(value, known[name]) and not isinstance(value, bool)
        if not number or not value > 0:
            raise ConfigError(f"store option {name!r}: {value!r} is not a number above 0")
    return dict(extra)
