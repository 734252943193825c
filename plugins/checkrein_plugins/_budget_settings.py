"""Settings of a Budget: what they are, and which of them fit together."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr

from checkrein.errors import ConfigError
from checkrein_plugins._calendar import known_zone
from checkrein_plugins._config import Count, Dollars, Seconds, Settings
from checkrein_plugins._soft import Step

Period: TypeAlias = Literal["hour", "day", "month"]
Per: TypeAlias = Literal["session", "agent", "user", "tenant", "task", "tool", "model", "call"]

MAX_OUTPUT_TOKENS = 4096
"""Tokens of output assumed where a request states no maximum."""

ESTIMATE_SECONDS = 10.0
"""Seconds held for a call that has no timeout."""


def _zone(name: str) -> str:
    if not known_zone(name):
        raise ValueError("must be a time zone of the IANA database, such as Europe/Berlin")
    return name


class BudgetSettings(Settings):
    usd: Dollars | None = None
    tokens: Count | None = None
    calls: Count | None = None
    seconds: Seconds | None = None
    per: Per | Annotated[list[Per], Field(min_length=1)] = "session"
    window: Seconds | Period | None = None
    timezone: Annotated[StrictStr, AfterValidator(_zone)] = "UTC"
    estimate_usd: Dollars | None = None
    estimate_tokens: Count | None = None
    estimate_seconds: Seconds | None = None
    max_output_tokens: Annotated[StrictInt, Field(ge=1)] = MAX_OUTPUT_TOKENS
    unpriced: Literal["estimate", "deny"] = "estimate"
    halt: StrictBool | None = None
    soft: list[Step] = Field(default_factory=list)
    name: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = "budget"


def dimensions(per: str | list[Any]) -> tuple[str, ...]:
    stated = (per,) if isinstance(per, str) else tuple(per)
    if len(set(stated)) != len(stated):
        raise ConfigError("budget.per: a dimension stands there twice")
    if "tool" in stated and "model" in stated:
        raise ConfigError("budget.per: no call is of a tool and of a model; make two Budgets")
    return stated


def refuse_idle(settings: BudgetSettings, per: tuple[str, ...], *, tool_prices: bool) -> None:
    """Refuse what can never hold anything."""
    limits = (settings.usd, settings.tokens, settings.calls, settings.seconds)
    if all(limit is None for limit in limits):
        raise ConfigError("budget: state a limit: usd, tokens, calls or seconds")
    if settings.usd is None:
        if settings.estimate_usd is not None:
            raise ConfigError("budget.estimate_usd: has no meaning without usd")
        if tool_prices:
            raise ConfigError("budget.tool_prices: has no meaning without usd")
    if settings.tokens is None and settings.estimate_tokens is not None:
        raise ConfigError("budget.estimate_tokens: has no meaning without tokens")
    if settings.seconds is None and settings.estimate_seconds is not None:
        raise ConfigError("budget.estimate_seconds: has no meaning without seconds")
    if settings.estimate_usd == 0 or settings.estimate_tokens == 0:
        raise ConfigError("budget: an estimate of 0 would hold nothing; state what a call costs")
    if "tool" in per:
        if settings.tokens is not None:
            raise ConfigError("budget.tokens: tools use none; count them per model or session")
        if settings.usd is not None and not tool_prices:
            raise ConfigError("budget.usd: per tool needs tool_prices")
