"""What tokens of one model cost at one time, in integers.

Sums are kept in units of 1e-24 dollars a token, which holds every price of genai-prices
exactly, and rounded up to whole nano-dollars at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any

from checkrein.call import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

NANO = 10**15
"""Units, times tokens, in a nano-dollar."""
BASE = -1
"""Start of the lowest band: every call is above it."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Units per token. Input or output is None where the book has no price for it."""

    input: int | None
    output: int | None
    cache_read: int
    cache_write: int
    cache_write_1h: int
    input_audio: int
    cache_audio: int
    output_audio: int
    reasoning: int
    request: int

    def times(self, factor: Decimal) -> Rates:
        """All of them times `factor`, rounded up."""

        def scaled(rate: int | None) -> Any:
            if rate is None:
                return None
            return int((rate * factor).to_integral_value(ROUND_CEILING))

        return Rates(*(scaled(getattr(self, field.name)) for field in fields(self)))


class Price:
    """The price of one model, in one service tier, at one time.

    `tier`: the tier that it is the price of; empty for the standard one. Bands are (tokens of
    input that must be passed, rates), lowest first: passing a threshold puts ALL tokens of the
    call at the higher rates, as providers bill.
    """

    __slots__ = ("_bands", "_rates", "model", "source", "tier")

    def __init__(
        self, model: str, source: str, bands: list[tuple[int, Rates]], tier: str = ""
    ) -> None:
        self.model = model
        self.source = source
        self.tier = tier
        self._rates = bands[0][1]
        self._bands = tuple(reversed(bands[1:]))

    @property
    def bands(self) -> list[tuple[int, Rates]]:
        """(tokens of input that must be passed, rates), lowest first."""
        return [(BASE, self._rates), *reversed(self._bands)]

    def times(self, factor: Decimal, tier: str, source: str) -> Price:
        """The price in a tier that costs `factor` times as much."""
        bands = [(start, rates.times(factor)) for start, rates in self.bands]
        return Price(self.model, source, bands, tier)

    def _at(self, input_tokens: int) -> Rates:
        for start, rates in self._bands:
            if input_tokens > start:
                return rates
        return self._rates

    def cost(self, usage: Usage) -> tuple[int | None, bool]:
        """(nano-dollars, whether the counts fit together).

        Cached and audio tokens are parts of the input, reasoning and audio of the output; each
        is counted once. Parts larger than their whole: the remainder counts as 0 and the second
        value is False. None where tokens were used that have no price.
        """
        rates = self._at(usage.input_tokens)
        read, write, long = (
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cache_write_1h_tokens,
        )
        heard, both = usage.input_audio_tokens, usage.cache_read_audio_tokens
        plain_in = usage.input_tokens - read - write - heard + both
        thought, spoken = usage.reasoning_tokens, usage.output_audio_tokens
        plain_out = usage.output_tokens - thought - spoken
        fits = plain_in >= 0 and plain_out >= 0 and long <= write and both <= min(read, heard)
        if (rates.input is None and usage.input_tokens) or (
            rates.output is None and usage.output_tokens
        ):
            return None, fits
        units = (
            max(plain_in, 0) * (rates.input or 0)
            + max(read - both, 0) * rates.cache_read
            + max(write - long, 0) * rates.cache_write
            + long * rates.cache_write_1h
            + max(heard - both, 0) * rates.input_audio
            + both * rates.cache_audio
            + max(plain_out, 0) * (rates.output or 0)
            + thought * rates.reasoning
            + spoken * rates.output_audio
            + rates.request
        )
        return -(-units // NANO), fits

    def bound(self, input_tokens: int, output_tokens: int) -> int | None:
        """Nano-dollars that these tokens cost at most.

        Nothing is read from a cache, and all of the input is written to one.
        """
        rates = self._at(input_tokens)
        if rates.input is None:
            return None
        units = (
            input_tokens * max(rates.input, rates.cache_write)
            + output_tokens * max(rates.output or 0, rates.reasoning)
            + rates.request
        )
        return -(-units // NANO)


def compiled(model: str, source: str, prices: ModelPrice, tier: str = "") -> Price:
    """A price of genai-prices as integers."""
    stated = {k: v for k, v in prices.__dict__.items() if v is not None and k[0] != "_"}
    starts = {BASE}
    for value in stated.values():
        starts.update(tier.start for tier in getattr(value, "tiers", ()))
    return Price(model, source, [(start, _rates(stated, start)) for start in sorted(starts)], tier)


def _rates(stated: Mapping[str, Any], start: int) -> Rates:
    def rate(key: str) -> int | None:
        value = stated.get(key)
        if value is None:
            return None
        amount = getattr(value, "base", value)
        for tier in getattr(value, "tiers", ()):
            if tier.start <= start:
                amount = tier.price
        return units(amount)

    request = rate("requests_kcount")
    asked, answered = rate("input_mtok"), rate("output_mtok")
    if request is not None and asked is None and answered is None:
        asked = answered = 0
    return filled(
        asked,
        answered,
        cache_read=rate("cache_read_mtok"),
        cache_write=rate("cache_write_mtok"),
        cache_write_1h=rate("cache_write_1h_mtok"),
        input_audio=rate("input_audio_mtok"),
        cache_audio=rate("cache_audio_read_mtok"),
        output_audio=rate("output_audio_mtok"),
        reasoning=rate("output_reasoning_mtok"),
        # Dollars per thousand calls are thousandths of a dollar for one.
        request=(request or 0) * 1000,
    )


def filled(asked: int | None, answered: int | None, *, request: int, **parts: int | None) -> Rates:
    """A part without a price of its own has the price of its whole."""

    def part(key: str, whole: int | None) -> int:
        value = parts[key]
        return value if value is not None else whole or 0

    read, write, audio = (part(k, asked) for k in ("cache_read", "cache_write", "input_audio"))
    return Rates(
        input=asked,
        output=answered,
        cache_read=read,
        cache_write=write,
        cache_write_1h=part("cache_write_1h", write),
        input_audio=audio,
        cache_audio=part("cache_audio", audio if parts["cache_read"] is None else read),
        output_audio=part("output_audio", answered),
        reasoning=part("reasoning", answered),
        request=request,
    )


def units(dollars_per_million: Decimal) -> int:
    """Dollars per million tokens in units per token."""
    return int(dollars_per_million.scaleb(18).to_integral_value())
