"""Budget: a cap that holds before the call, over threads, tasks and processes.

`pre_call` counts nothing. It states a `Hold`, which the store takes in the same transaction as
the call's intent: what is spent plus what is held never passes the limit. The outcome settles
the hold at what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Never

from checkrein.call import Call
from checkrein.counting import input_tokens, output_tokens
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Hold, PreOne, PreVerdict, Rewrite
from checkrein_plugins import _money
from checkrein_plugins._budget_settings import (
    ESTIMATE_SECONDS,
    MAX_OUTPUT_TOKENS,
    BudgetSettings,
    Per,
    Period,
    dimensions,
    refuse_idle,
)
from checkrein_plugins._calendar import Calendar
from checkrein_plugins._config import MOST_STORED, listed, read, refuse_unknown
from checkrein_plugins._money import ToolPrices
from checkrein_plugins._prices import Prices, book_of
from checkrein_plugins._soft import Soft, check_steps

if TYPE_CHECKING:
    from checkrein.rein import Rein

__all__ = ["MAX_OUTPUT_TOKENS", "Budget"]

UNKNOWN_INPUT_USD = 15.0
UNKNOWN_OUTPUT_USD = 75.0
"""Dollars per million tokens held for a model without a price: 95 of 100 models of the ten
large providers in genai-prices 0.2.3 cost no more than this."""

UNATTRIBUTED = "unattributed"
"""The account of calls without the thing that is counted by (no user, no task)."""

_FIELDS = frozenset(("agent", "user", "tenant", "task"))
"""Dimensions that are fields of a call as they stand there."""

KEPT = 1024
"""Accounts of which the hold for one call is kept ready."""


class Budget(Plugin):
    """Caps dollars, tokens, calls and time, by session, agent, user or another dimension.

    `usd`, `tokens`: of model calls, of tools that report their usage, and dollars of tools with
    a `tool_prices` entry. `calls`: of model calls and tool calls. `seconds`: wall time that
    calls take, added up, also of those that run side by side. 0 lets nothing through that costs
    something. Undo is never counted or stopped, nor are the calls by which guards ask a model:
    those are the guards' own.

    `per`: what has an account of its own; a list means one for each combination. A session's
    account is that of its whole run: sub-agents share it. `window`: seconds after which what
    was spent no longer counts (sliding), or `hour`, `day`, `month`: the calendar's, in
    `timezone` (default UTC); None: it always counts.

    `estimate_usd`, `estimate_tokens`: what one model call holds, in place of the estimate from
    its size. `estimate_seconds`: what a call without a timeout holds (default 10).
    `max_output_tokens`: assumed where the request states none. `prices`: the user's own prices,
    as for `Cost`. `unpriced`: a model without a price holds a high stated price
    (`estimate`) or is refused (`deny`).

    `halt`: whether a refusal ends the run. Default: it does for all but calls.
    `soft`: what happens before the cap, from a share of it on: `{"at": 0.8, "do": "warn"}`, and
    `cheaper` (with `model`), `ask` (with `more`), `best_effort`, `halt`; see the documentation.
    `name`: begins the accounts' names; two Budgets that count the same thing need two.

    A Budget does not change. A session stays under the one that it began with: a process that
    takes it up with another Budget holds its calls against both, and the stricter wins.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
        seconds: float | None = None,
        per: Per | Sequence[Per] = "session",
        window: float | Period | None = None,
        timezone: str = "UTC",
        estimate_usd: float | None = None,
        estimate_tokens: int | None = None,
        estimate_seconds: float | None = None,
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
        tool_prices: Mapping[str, float] | None = None,
        prices: Prices = None,
        unpriced: Literal["estimate", "deny"] = "estimate",
        halt: bool | None = None,
        soft: Sequence[Mapping[str, Any]] = (),
        name: str = "budget",
        **unknown: Never,
    ) -> None:
        keys = (*BudgetSettings.model_fields, "tool_prices", "prices")
        refuse_unknown(unknown, "budget", keys)
        given = {
            "usd": usd, "tokens": tokens, "calls": calls, "seconds": seconds, "per": listed(per),
            "window": window, "timezone": timezone, "estimate_usd": estimate_usd,
            "estimate_tokens": estimate_tokens, "estimate_seconds": estimate_seconds,
            "max_output_tokens": max_output_tokens, "unpriced": unpriced, "halt": halt,
            "soft": listed(soft), "name": name,
        }  # fmt: skip
        settings = read(BudgetSettings, given, "budget")
        check_steps(settings.soft)
        self._steps = settings.soft
        self._soft: Soft | None = None
        self._tools = ToolPrices(tool_prices, "budget")
        self._book = book_of(prices, "budget.prices")
        self._per: tuple[str, ...] = dimensions(settings.per)
        refuse_idle(settings, self._per, tool_prices=bool(self._tools))
        plain = len(self._per) == 1 and self._per[0] in _FIELDS
        self._field = attrgetter(self._per[0]) if plain else None
        self.name = settings.name
        self._usd = None if settings.usd is None else _money.limit(settings.usd)
        self._tokens = settings.tokens
        self._calls = settings.calls
        self._seconds = None if settings.seconds is None else int(settings.seconds * 1_000_000)
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
        stated = settings.estimate_seconds or ESTIMATE_SECONDS
        self._estimate_seconds = max(1, int(stated * 1_000_000))
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
                ("seconds", self._seconds),
            )
            if limit is not None
        }
        self._ones: dict[str, Hold] = {}
        self._options: dict[str, Any] = {
            **settings.model_dump(mode="json", exclude_unset=False, exclude_none=True),
            **({"tool_prices": dict(tool_prices)} if tool_prices else {}),
            **({"prices": stated_prices} if (stated_prices := self._book.stated) else {}),
        }
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in BudgetSettings.model_fields and "_made" in self.__dict__:
            raise ConfigError(
                f"budget.{name}: a budget does not change while sessions count into it; make "
                "another Rein with another Budget"
            )
        super().__setattr__(name, value)

    def pin(self) -> tuple[str, dict[str, Any]]:
        """The installed name and the arguments by which the same Budget can be built again."""
        return "budget", self._options

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
        if kind == "undo" or call.guard:
            return None
        if self._field is not None:
            key = self._field(call) or UNATTRIBUTED
        else:
            per = self._per
            if ("tool" in per and kind != "tool") or ("model" in per and kind != "model"):
                return None
            key = _key(call, per)
        if self._calendar is not None:
            # A period is an account of its own: nothing has to slide out of it.
            key = f"{self._calendar.now()}/{key}"
        if self._calls is not None and len(self._prefix) == 1:
            return (self._one(key, self._calls),)
        holds: list[PreOne] = []
        if kind == "model":
            if self._usd is not None or self._tokens is not None:
                refused = self._model(call, key, holds)
                if refused is not None:
                    return refused
        else:
            self._tool(call, key, holds)
        if self._calls is not None:
            holds.append(self._one(key, self._calls))
        if self._seconds is not None:
            self._time(call, key, self._seconds, holds)
        return tuple(holds) or None

    def _tool(self, call: Call, key: str, holds: list[PreOne]) -> None:
        """Add the holds of a tool: its price, or what it may use of models by itself."""
        uses = call.tool.has_usage
        if self._usd is not None:
            cost = self._tools.of(call.name)
            if cost is None and uses:
                cost = self._estimate_usd or unknown_price(0, self._most)
            if cost is not None:
                holds.append(self._hold("usd", key, cost, self._usd, self._halt))
        if uses and self._tokens is not None:
            size = self._estimate_tokens or self._most
            holds.append(self._hold("tokens", key, size, self._tokens, self._halt))

    def _time(self, call: Call, key: str, limit: int, holds: list[PreOne]) -> None:
        """Add the hold of a call's time: its timeout, or the estimate."""
        timeout = call.tool.timeout
        if self._per == ("call",) and (timeout is None or round(timeout * 1_000_000) > limit):
            # Its account is its own: only a timeout keeps it within the limit.
            timeout = limit / 1_000_000
            holds.append(Rewrite(call.replace(tool=replace(call.tool, timeout=timeout))))
        amount = self._estimate_seconds if timeout is None else round(timeout * 1_000_000)
        holds.append(self._hold("seconds", key, min(amount, limit), limit, self._halt))

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
                labels = call.labels
                price = self._book.find(
                    call.name, labels.get("provider", ""), labels.get("service_tier", "")
                )
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
        unit: Literal["usd", "tokens", "calls", "seconds"],
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
        limits = {"usd": self._usd, "tokens": self._tokens, "calls": self._calls,
                  "seconds": self._seconds}  # fmt: skip
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
