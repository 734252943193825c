"""Cost: what each call used and cost.

Prices come from genai-prices, under the user's own. A cost is a whole number of nano-dollars
and says how it is known:

    reported    the provider's counts at a known price, or a stated price
    estimated   the counts are our own or did not fit together, or only the model asked for, or
                another service tier, has a price
    unpriced    no price or no counts: the cost is None, never 0; a budget charges its hold
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Never, Self

from pydantic import Field

from checkrein.call import Call, Outcome, Usage
from checkrein.hooks import Plugin
from checkrein.usage import MOST_TOKENS, check_usage, tier_of, usage_of
from checkrein.verdicts import Deny, Measured, PreVerdict
from checkrein_plugins._config import MOST_STORED, Settings, read, refuse_unknown
from checkrein_plugins._money import ToolPrices
from checkrein_plugins._prices import Price, PriceBook, Prices, book_of

if TYPE_CHECKING:
    from checkrein.rein import Rein

__all__ = ["Cost", "PriceBook", "usage_of"]

_log = logging.getLogger("checkrein.cost")
_UNPRICED = Measured(state="unpriced")
_STATED = "tool_prices"
"""Where the price of a tool is from."""
_WARNED_AT_MOST = 1000


class _Settings(Settings):
    unpriced: Annotated[Literal["record", "deny"], Field()] = "record"


class Cost(Plugin):
    """Measures usage and cost of model calls, and of tools with a stated price.

    `overlay`: the user's own prices, a table or a file, see `PriceBook`. `tool_prices`: dollars
    for one call, `{"search": 0.03}`. `unpriced`: `record` lets a model without a price run,
    marks it and warns once for each model; `deny` refuses it before it runs.
    """

    def __new__(cls, **settings: Any) -> Self:
        """One that refuses is asked before every call; one that only records is not."""
        denies = cls is Cost and settings.get("unpriced") == "deny"
        return super().__new__(_Denying if denies else cls)  # type: ignore[return-value]  # one of ours

    def __init__(
        self,
        *,
        overlay: Prices = None,
        tool_prices: Mapping[str, float] | None = None,
        unpriced: Literal["record", "deny"] = "record",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "cost", ("overlay", "tool_prices", "unpriced"))
        read(_Settings, {"unpriced": unpriced}, "cost")
        self._book = book_of(overlay, "cost.overlay")
        self._tools = ToolPrices(tool_prices, "cost")
        self._warned: set[str] = set()
        self._clock: Callable[[], int] = lambda: time.time_ns() // 1000

    def start(self, rein: Rein) -> None:
        """Its clock is the Rein's: a price is that of the moment at which a call begins."""
        self._clock = rein.clock

    def measure(self, call: Call, outcome: Outcome) -> Measured | None:
        """Usage and cost of one attempt; None where there is nothing to measure."""
        if outcome.state == "not_done":
            return None
        if outcome.source != "call":
            # Somebody answered in its place: nothing was bought.
            return Measured(cost=0, state="reported")
        if call.kind == "model":
            return self._model(call, outcome)
        return self._tool(call, outcome)

    def _tool(self, call: Call, outcome: Outcome) -> Measured | None:
        """Its own price, and that of the models that it called itself."""
        cost = self._tools.of(call.name)
        usage = outcome.usage
        if usage is None or not usage.model:
            return None if cost is None else Measured(cost=cost, state="reported", price=_STATED)
        used = self._model(call, outcome)
        if used.cost is None or cost is None:
            return used
        return replace(used, cost=used.cost + cost)

    def _model(self, call: Call, outcome: Outcome) -> Measured:
        usage = outcome.usage
        found: Usage | None = None
        if usage is None and outcome.error is None:
            try:
                usage = found = usage_of(outcome.value)
            except ValueError as error:
                self._warn(call.name, f"its usage cannot be used: {error}")
                return _UNPRICED
        if usage is None and outcome.error is not None:
            # It may have been served: what a budget held is charged, and it is an estimate.
            return Measured(state="estimated")
        if usage is None:
            self._warn(call.name, "its response reports no usage")
            return _UNPRICED
        counts = check_usage(usage) if found is None else usage.total_tokens <= MOST_TOKENS
        if not counts:
            self._warn(call.name, "its usage has a count that is not a whole number from 0")
            return _UNPRICED
        began = self._clock() - int(outcome.duration * 1_000_000)
        price, sure = self._price(call, usage, began)
        cost, fits = (None, True) if price is None else price.cost(usage)
        if cost is None or cost > MOST_STORED:
            self._warn(call.name, "no usable price is known for it")
            return Measured(usage=found, state="unpriced")
        if not fits:
            self._warn(call.name, "its usage reports more cached tokens than there were")
        source = "" if price is None else price.source
        sure = sure and fits and not usage.estimated
        return Measured(found, cost, "reported" if sure else "estimated", price=source)

    def _price(self, call: Call, usage: Usage, at: int) -> tuple[Price | None, bool]:
        """The price, and whether it is that of the model and tier which answered."""
        provider = usage.provider or call.labels.get("provider", "")
        tier = tier_of(usage.tier or call.labels.get("service_tier", ""))
        price, named = None, usage.model
        if usage.model:
            price = self._book.find(usage.model, provider, tier, at=at)
        if price is None and call.kind == "model":
            price = self._book.find(call.name, provider, tier, at=at)
            named = call.name
        if price is None:
            return None, False
        return price, named == (usage.model or call.name) and price.tier == tier

    def _warn(self, model: str, why: str) -> None:
        if model in self._warned or len(self._warned) >= _WARNED_AT_MOST:
            return
        self._warned.add(model)
        _log.warning("model %s is unpriced or only estimated: %s", model, why)


class _Denying(Cost):
    """A `Cost` with `unpriced="deny"`."""

    def pre_call(self, call: Call) -> PreVerdict:
        """Refuse a model without a price."""
        if call.kind != "model":
            return None
        if self._book.find(call.name, call.labels.get("provider", "")) is not None:
            return None
        return Deny(f"no price is known for model {call.name!r}", rule="cost/unpriced")
