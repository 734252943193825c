"""Budget: a cap that holds before the call, over threads, tasks and processes.

`pre_call` counts nothing. It states a `Hold`, which the store takes in the same transaction as
the call's intent: what is spent plus what is held never passes the limit. The outcome settles
the hold at what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Never, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr

from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Hold, PreOne, PreVerdict
from checkrein_plugins import _money
from checkrein_plugins._calendar import Calendar, known_zone
from checkrein_plugins._config import (
    MOST_STORED,
    Count,
    Dollars,
    Seconds,
    Settings,
    read,
    refuse_unknown,
)
from checkrein_plugins._estimate import input_tokens, output_tokens
from checkrein_plugins._money import ToolPrices
from checkrein_plugins._prices import PriceBook, book_of
from checkrein_plugins._soft import Soft, Step, check_steps

if TYPE_CHECKING:
    from checkrein.rein import Rein

Period: TypeAlias = Literal["hour", "day", "month"]
Per: TypeAlias = Literal["session", "agent", "user", "tenant", "task", "tool", "model", "call"]

UNKNOWN_INPUT_USD = 15.0
UNKNOWN_OUTPUT_USD = 75.0
"""Dollars per million tokens held for a model without a price: 95 of 100 models of the ten
large providers in genai-prices 0.2.3 cost no more than this."""

MAX_OUTPUT_TOKENS = 4096
"""Tokens of output assumed where a request states no maximum."""

UNATTRIBUTED = "unattributed"
"""The account of calls without the thing that is counted by (no user, no task)."""

KEPT = 1024
"""Accounts of which the hold for one call is kept ready."""


def _zone(name: str) -> str:
    if not known_zone(name):
        raise ValueError("must be a time zone of the IANA database, such as Europe/Berlin")
    return name


class _Settings(Settings):
    usd: Dollars | None = None
    tokens: Count | None = None
    calls: Count | None = None
    per: Per | Annotated[list[Per], Field(min_length=1)] = "session"
    window: Seconds | Period | None = None
    timezone: Annotated[StrictStr, AfterValidator(_zone)] = "UTC"
    estimate_usd: Dollars | None = None
    estimate_tokens: Count | None = None
    max_output_tokens: Annotated[StrictInt, Field(ge=1)] = MAX_OUTPUT_TOKENS
    unpriced: Literal["estimate", "deny"] = "estimate"
    halt: StrictBool | None = None
    soft: list[Step] = Field(default_factory=list)
    name: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = "budget"


class Budget(Plugin):
    """Caps dollars, tokens and calls, counted by session, agent, user or another dimension.

    `usd`, `tokens`: of model calls, and dollars of tools with a `tool_prices` entry. `calls`:
    of model calls and tool calls. 0 lets nothing through that costs something. Undo is never
    counted or stopped.

    `per`: what has an account of its own; a list means one for each combination. A session's
    account is that of its whole run: sub-agents share it. `window`: seconds after which what
    was spent no longer counts (sliding), or `hour`, `day`, `month`: the calendar's, in
    `timezone` (default UTC); None: it always counts.

    `estimate_usd`, `estimate_tokens`: what one model call holds, in place of the estimate from
    its size. `max_output_tokens`: assumed where the request states none. `prices`: the user's
    own prices, as for `Cost`. `unpriced`: a model without a price holds a high stated price
    (`estimate`) or is refused (`deny`).

    `halt`: whether a refusal ends the run. Default: it does for usd and tokens, not for calls.
    `soft`: what happens before the cap, from a share of it on: `{"at": 0.8, "do": "warn"}`, and
    `cheaper` (with `model`), `ask` (with `more`), `best_effort`, `halt`; see the documentation.
    `name`: begins the accounts' names; two Budgets that count the same thing need two.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
        per: Per | Sequence[Per] = "session",
        window: float | Period | None = None,
        timezone: str = "UTC",
        estimate_usd: float | None = None,
        estimate_tokens: int | None = None,
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
        tool_prices: Mapping[str, float] | None = None,
        prices: PriceBook | Mapping[str, Any] | None = None,
        unpriced: Literal["estimate", "deny"] = "estimate",
        halt: bool | None = None,
        soft: Sequence[Mapping[str, Any]] = (),
        name: str = "budget",
        **unknown: Never,
    ) -> None:
        keys = (*_Settings.model_fields, "tool_prices", "prices")
        refuse_unknown(unknown, "budget", keys)
        settings = read(
            _Settings,
            {
                "usd": usd,
                "tokens": tokens,
                "calls": calls,
                "per": list(per) if isinstance(per, tuple) else per,
                "window": window,
                "timezone": timezone,
                "estimate_usd": estimate_usd,
                "estimate_tokens": estimate_tokens,
                "max_output_tokens": max_output_tokens,
                "unpriced": unpriced,
                "halt": halt,
                "soft": list(soft) if isinstance(soft, tuple) else soft,
                "name": name,
            },
            "budget",
        )
        check_steps(settings.soft)
        self._steps = settings.soft
        self._soft: Soft | None = None
        self._tools = ToolPrices(tool_prices, "budget")
        self._book = book_of(prices, "budget.prices")
        self._per: tuple[str, ...] = _dimensions(settings.per)
        _refuse_idle(settings, self._per, tool_prices=bool(self._tools))
        self.name = settings.name
        self._usd = None if settings.usd is None else _money.limit(settings.usd)
        self._tokens = settings.tokens
        self._calls = settings.calls
        window_ = settings.window
        self._window = None if window_ is None or isinstance(window_, str) else float(window_)
        self._calendar = None
        if isinstance(window_, str):
            self._calendar = Calendar(window_, settings.timezone)
        elif settings.timezone != "UTC":
            raise ConfigError("budget.timezone: has a meaning with window = hour, day or month")
        estimate = settings.estimate_usd
        self._estimate_usd = None if estimate is None else _money.price(estimate)
        self._estimate_tokens = settings.estimate_tokens
        self._most = settings.max_output_tokens
        self._deny = settings.unpriced == "deny"
        self._halt = True if settings.halt is None else settings.halt
        self._halt_calls = bool(settings.halt)
        slide = "" if self._window is None else f"@{self._window:g}s"
        if self._calendar is not None:
            slide = f"@{window_}"
        self._prefix = {
            unit: f"{self.name}/{unit}/{'+'.join(self._per)}{slide}/"
            for unit, limit in (
                ("usd", self._usd),
                ("tokens", self._tokens),
                ("calls", self._calls),
            )
            if limit is not None
        }
        self._ones: dict[str, Hold] = {}

    def pre_call(self, call: Call) -> PreVerdict:
        """State what the call may cost at most, as far as can be told before it runs."""
        verdict = self._holds(call)
        if self._soft is None or type(verdict) is not tuple:
            return verdict
        return self._soft.apply(call, verdict, self._again)

    def _again(self, call: Call) -> tuple[PreOne, ...]:
        verdict = self._holds(call)
        return verdict if type(verdict) is tuple else (verdict,)  # type: ignore[return-value]  # told by its type

    def _holds(self, call: Call) -> PreVerdict:
        kind = call.kind
        if kind == "undo":
            return None
        per = self._per
        if per == ("session",):
            key = call.root or call.session
        else:
            if ("tool" in per and kind != "tool") or ("model" in per and kind != "model"):
                return None
            key = _key(call, per)
        if self._calendar is not None:
            # A period is an account of its own: nothing has to slide out of it.
            key = f"{self._calendar.now()}/{key}"
        holds: list[PreOne] = []
        if kind == "model":
            if self._usd is not None or self._tokens is not None:
                refused = self._model(call, key, holds)
                if refused is not None:
                    return refused
        elif self._usd is not None:
            cost = self._tools.of(call.name)
            if cost is not None:
                holds.append(self._hold("usd", key, cost, self._usd, self._halt))
        if self._calls is not None:
            holds.append(self._one(key, self._calls))
        return tuple(holds) or None

    def _one(self, key: str, limit: int) -> Hold:
        """The hold of one call: always the same for a key, and frozen, so it is kept."""
        hold = self._ones.get(key)
        if hold is None:
            hold = self._hold("calls", key, 1, limit, self._halt_calls)
            if len(self._ones) < KEPT:
                self._ones[key] = hold
        return hold

    def _model(self, call: Call, key: str, holds: list[PreOne]) -> Deny | None:
        """Add the holds of a model call."""
        asked = answered = 0
        if (self._usd is not None and (self._estimate_usd is None or self._deny)) or (
            self._tokens is not None and self._estimate_tokens is None
        ):
            asked = input_tokens(call.arguments)
            answered = output_tokens(call, self._most)
        if self._usd is not None:
            amount = self._estimate_usd
            if amount is None or self._deny:
                price = self._book.find(call.name, call.labels.get("provider", ""))
                bound = None if price is None else price.bound(asked, answered)
                if bound is None and self._deny:
                    return Deny(
                        f"no price is known for model {call.name!r}",
                        rule=f"{self.name}/unpriced",
                        halt=self._halt,
                    )
                if amount is None:
                    amount = unknown_price(asked, answered) if bound is None else bound
            holds.append(self._hold("usd", key, amount, self._usd, self._halt))
        if self._tokens is not None:
            stated = self._estimate_tokens
            size = asked + answered if stated is None else stated
            holds.append(self._hold("tokens", key, size, self._tokens, self._halt))
        return None

    def _hold(
        self,
        unit: Literal["usd", "tokens", "calls"],
        key: str,
        amount: int,
        limit: int,
        halt: bool,
    ) -> Hold:
        return Hold(
            self._prefix[unit] + key,
            min(amount, MOST_STORED),
            unit,
            limit,
            self._window,
            "keep" if unit == "calls" else "measured",
            f"{self.name}/{unit}",
            halt,
        )

    def accounts(self) -> list[str]:
        """What the names of this Budget's accounts begin with."""
        return list(self._prefix.values())

    def watched(self, parts: Mapping[str, str]) -> list[tuple[str, str, int, float | None]]:
        """(account, unit, limit, window) that a call counts into.

        `parts`: what the call is, by dimension.
        """
        if any(not parts.get(part) for part in self._per if part in ("tool", "model")):
            return []
        values = [parts.get(part) or UNATTRIBUTED for part in self._per]
        key = values[0] if len(values) == 1 else _joined(values)
        limits = {"usd": self._usd, "tokens": self._tokens, "calls": self._calls}
        return [
            (prefix + key, unit, limit, self._window)
            for unit, prefix in self._prefix.items()
            if (limit := limits[unit]) is not None
        ]

    def start(self, rein: Rein) -> None:
        """Refuse a second Budget of this Rein that counts into the same accounts."""
        if self._calendar is not None:
            self._calendar.clock = rein.clock
        if self._steps:
            self._soft = Soft(self._steps, rein, self._window, self.name)
        mine = set(self.accounts())
        for _, other in rein.plugins:
            if isinstance(other, Budget) and other is not self and mine & set(other.accounts()):
                raise ConfigError(
                    f"budget: two Budgets count the same thing per {'+'.join(self._per)} as "
                    f"{self.name!r}; give one of them another name (name = ...)"
                )


def unknown_price(asked: int, answered: int) -> int:
    """Nano-dollars held for a model without a price."""
    return _money.price((asked * UNKNOWN_INPUT_USD + answered * UNKNOWN_OUTPUT_USD) / 1_000_000)


def _dimensions(per: str | list[Any]) -> tuple[str, ...]:
    stated = (per,) if isinstance(per, str) else tuple(per)
    if len(set(stated)) != len(stated):
        raise ConfigError("budget.per: a dimension stands there twice")
    if "tool" in stated and "model" in stated:
        raise ConfigError("budget.per: no call is of a tool and of a model; make two Budgets")
    return stated


def _refuse_idle(settings: _Settings, per: tuple[str, ...], *, tool_prices: bool) -> None:
    """Refuse what can never hold anything."""
    if settings.usd is None and settings.tokens is None and settings.calls is None:
        raise ConfigError("budget: state a limit: usd, tokens or calls")
    if settings.usd is None:
        for key in ("estimate_usd",):
            if getattr(settings, key) is not None:
                raise ConfigError(f"budget.{key}: has no meaning without usd")
        if tool_prices:
            raise ConfigError("budget.tool_prices: has no meaning without usd")
    if settings.tokens is None and settings.estimate_tokens is not None:
        raise ConfigError("budget.estimate_tokens: has no meaning without tokens")
    if settings.estimate_usd == 0 or settings.estimate_tokens == 0:
        raise ConfigError("budget: an estimate of 0 would hold nothing; state what a call costs")
    if "tool" in per:
        if settings.tokens is not None:
            raise ConfigError("budget.tokens: tools use none; count them per model or session")
        if settings.usd is not None and not tool_prices:
            raise ConfigError("budget.usd: per tool needs tool_prices")


def _key(call: Call, per: tuple[str, ...]) -> str:
    if len(per) == 1:
        return _value(call, per[0])
    return _joined([_value(call, part) for part in per])


def _joined(values: Sequence[str]) -> str:
    # Escaped, so that ("a/b", "c") and ("a", "b/c") are two accounts.
    return "/".join(value.replace("%", "%25").replace("/", "%2F") for value in values)


def _value(call: Call, dimension: str) -> str:
    if dimension == "call":
        return call.id
    if dimension == "session":
        # The whole run: a sub-agent spends its parent's money.
        return call.root or call.session
    if dimension in ("tool", "model"):
        return call.name
    return getattr(call, dimension) or UNATTRIBUTED
