"""Cost: what each call used and cost.

Prices come from genai-prices, under the user's own. A cost is a whole number of nano-dollars
and says how it is known:

    reported    the provider's counts at a known price, or a stated price
    estimated   the counts did not fit together, or only the model asked for has a price
    unpriced    no price or no counts: the cost is None, never 0; a budget charges its hold
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Never

from pydantic import Field

from checkrein.call import Call, Outcome, Usage
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Measured, PreVerdict
from checkrein_plugins._config import MOST_STORED, Settings, read, refuse_unknown
from checkrein_plugins._money import ToolPrices
from checkrein_plugins._prices import Price, PriceBook, book_of
from checkrein_plugins._usage import check_usage, usage_of

__all__ = ["Cost", "PriceBook", "usage_of"]

_log = logging.getLogger("checkrein.cost")
_UNPRICED = Measured(state="unpriced")
_WARNED_AT_MOST = 1000


class _Settings(Settings):
    unpriced: Annotated[Literal["record", "deny"], Field()] = "record"


class Cost(Plugin):
    """Measures usage and cost of model calls, and of tools with a stated price.

    `overlay`: the user's own prices, see `PriceBook`. `tool_prices`: dollars for one call,
    `{"search": 0.03}`. `unpriced`: `record` lets a model without a price run, marks it and
    warns once for each model; `deny` refuses it before it runs.
    """

    def __init__(
        self,
        *,
        overlay: PriceBook | Mapping[str, Any] | None = None,
        tool_prices: Mapping[str, float] | None = None,
        unpriced: Literal["record", "deny"] = "record",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "cost", ("overlay", "tool_prices", "unpriced"))
        self._deny = read(_Settings, {"unpriced": unpriced}, "cost").unpriced == "deny"
        self._book = book_of(overlay, "cost.overlay")
        self._tools = ToolPrices(tool_prices, "cost")
        self._warned: set[str] = set()

    def pre_call(self, call: Call) -> PreVerdict:
        """Refuse a model without a price, where that is asked for."""
        if not self._deny or call.kind != "model":
            return None
        if self._book.find(call.name, call.labels.get("provider", "")) is not None:
            return None
        return Deny(f"no price is known for model {call.name!r}", rule="cost/unpriced")

    def measure(self, call: Call, outcome: Outcome) -> Measured | None:
        """Usage and cost of one attempt; None where there is nothing to measure."""
        if outcome.state == "not_done":
            return None
        if outcome.source != "call":
            # Somebody answered in its place: nothing was bought.
            return Measured(cost=0, state="reported")
        if call.kind == "model":
            return self._model(call, outcome)
        cost = self._tools.of(call.name)
        return None if cost is None else Measured(cost=cost, state="reported")

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
        if not check_usage(usage):
            self._warn(call.name, "its usage has a count that is not a whole number from 0")
            return _UNPRICED
        price, sure = self._price(call, usage)
        cost, fits = (None, True) if price is None else price.cost(usage)
        if cost is None or cost > MOST_STORED:
            self._warn(call.name, "no usable price is known for it")
            return Measured(usage=found, state="unpriced")
        if not fits:
            self._warn(call.name, "its usage reports more cached tokens than there were")
        source = "" if price is None else price.source
        return Measured(found, cost, "reported" if sure and fits else "estimated", price=source)

    def _price(self, call: Call, usage: Usage) -> tuple[Price | None, bool]:
        """The price, and whether it is that of the model which answered."""
        provider = usage.provider or call.labels.get("provider", "")
        if usage.model:
            price = self._book.find(usage.model, provider)
            if price is not None:
                return price, True
        return self._book.find(call.name, provider), not usage.model or usage.model == call.name

    def _warn(self, model: str, why: str) -> None:
        if model in self._warned or len(self._warned) >= _WARNED_AT_MOST:
            return
        self._warned.add(model)
        _log.warning("model %s is unpriced or only estimated: %s", model, why)
