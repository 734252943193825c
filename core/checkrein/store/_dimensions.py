"""By what the bill is added up, and in which order totals come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from checkrein.errors import ConfigError
from checkrein.store import DIMENSIONS, Total


def check_dimension(by: str, where: Mapping[str, str] | None) -> None:
    """Raise `ConfigError` for what the bill cannot be added up or filtered by."""
    for name in ([by] if by else []) + list(where or ()):
        if name not in DIMENSIONS:
            raise ConfigError(f"costs by {name!r}: use one of {', '.join(DIMENSIONS)}")


def ordered(found: Iterable[Total]) -> list[Total]:
    """Dearest first."""
    return sorted(found, key=lambda t: (-t.cost, -t.tokens, -t.calls, t.key))
