"""Dollars as people write them, in the integer nano-dollars that are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from checkrein.call import NANO
from checkrein.errors import ConfigError
from checkrein_plugins._config import Dollars, Settings, read
from checkrein_plugins._patterns import fold_pattern, is_glob, names

_REMEMBERED = 4096


def price(dollars: float) -> int:
    """Nano-dollars, rounded up: what costs something is never free."""
    return int((Decimal(str(dollars)) * NANO).to_integral_value(ROUND_CEILING))


def limit(dollars: float) -> int:
    """Nano-dollars, rounded down: a cap is never passed by rounding."""
    return int((Decimal(str(dollars)) * NANO).to_integral_value(ROUND_FLOOR))


class _Prices(Settings):
    tool_prices: dict[str, Dollars]


class ToolPrices:
    """What one call of a tool costs: `{"search": 0.03, "maps_*": 0.005}`, in dollars.

    A whole name goes before a glob, then the first that matches; names are compared folded.
    """

    def __init__(self, prices: Mapping[str, Any] | None, where: str) -> None:
        stated = read(_Prices, {"tool_prices": dict(prices or {})}, where).tool_prices
        seen: dict[str, str] = {}
        for pattern in stated:
            key = fold_pattern(pattern)
            if not key:
                raise ConfigError(f"{where}.tool_prices: {pattern!r} names no tool")
            if key in seen:
                raise ConfigError(
                    f"{where}.tool_prices: {pattern!r} and {seen[key]!r} are the same tool"
                )
            seen[key] = pattern
        ordered = sorted(stated, key=is_glob)
        self._rules: list[tuple[Callable[[str], bool], int]] = [
            (names([pattern]), price(stated[pattern])) for pattern in ordered
        ]
        self._known: dict[str, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def of(self, tool: str) -> int | None:
        """Nano-dollars for one call; None where no price is stated."""
        if not self._rules:
            return None
        known = self._known
        if tool in known:
            return known[tool]
        found = next((cost for matches, cost in self._rules if matches(tool)), None)
        if len(known) >= _REMEMBERED:
            known.clear()
        known[tool] = found
        return found
