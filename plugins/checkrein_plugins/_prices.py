"""The price book: what tokens of a model cost, from genai-prices and the user's own prices.

genai-prices is exact but slow to ask (its import alone takes a second), so a model is
resolved once into integers. Sums are kept in units of 1e-24 dollars a token, which holds every
price of its data exactly, and rounded up to whole nano-dollars at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import Field

from checkrein.call import Usage
from checkrein.errors import ConfigError
from checkrein_plugins._config import Dollars, Settings, read
from checkrein_plugins._patterns import globs, is_glob

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_UNITS = 10**18
"""Units in a dollar per million tokens."""
_NANO = 10**15
"""Units, times tokens, in a nano-dollar."""
_BASE = -1
"""Start of the lowest band: every call is above it."""
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Rates:
    """Units per token. Input or output is None where the book has no price for it."""

    input: int | None
    cache_read: int
    cache_write: int
    input_audio: int
    output: int | None
    output_audio: int
    reasoning: int
    request: int


class Price:
    """The price of one model at one time.

    Bands are (tokens of input that must be passed, rates), lowest first: passing a threshold
    puts ALL tokens of the call at the higher rates, as providers bill.
    """

    __slots__ = ("_bands", "_rates", "model", "source")

    def __init__(self, model: str, source: str, bands: list[tuple[int, _Rates]]) -> None:
        self.model = model
        self.source = source
        self._rates = bands[0][1]
        self._bands = tuple(reversed(bands[1:]))

    def _at(self, input_tokens: int) -> _Rates:
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
        read, write, heard = (
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.input_audio_tokens,
        )
        plain_in = usage.input_tokens - read - write - heard
        thought, spoken = usage.reasoning_tokens, usage.output_audio_tokens
        plain_out = usage.output_tokens - thought - spoken
        fits = plain_in >= 0 and plain_out >= 0
        if (rates.input is None and usage.input_tokens) or (
            rates.output is None and usage.output_tokens
        ):
            return None, fits
        units = (
            max(plain_in, 0) * (rates.input or 0)
            + read * rates.cache_read
            + write * rates.cache_write
            + heard * rates.input_audio
            + max(plain_out, 0) * (rates.output or 0)
            + thought * rates.reasoning
            + spoken * rates.output_audio
            + rates.request
        )
        return -(-units // _NANO), fits

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
        return -(-units // _NANO)


class OwnPrice(Settings):
    """A model's price as a user states it: dollars per million tokens. 0 means free."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None
    input_audio: Dollars | None = None
    output_audio: Dollars | None = None
    reasoning: Dollars | None = None
    request: Dollars = Field(default=0)
    """Dollars for the call itself."""


class PriceBook:
    """Finds prices: the user's own first, then those of genai-prices.

    `overlay`: `{"MODEL": {"input": 3.0, "output": 15.0, "cache_read": 0.3, ...}}`, dollars per
    million tokens; MODEL may be a glob and may begin with `PROVIDER/`. Case makes no
    difference. `now`: the clock, for prices that change with date or hour.

    Raises `ConfigError` for a price that is negative, not finite or incomplete.
    """

    def __init__(
        self,
        overlay: Mapping[str, Any] | None = None,
        *,
        where: str = "prices",
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._now = now or _now
        self._own: dict[str, Price] = {}
        self._globs: list[tuple[Callable[[str], bool], Price]] = []
        seen: set[str] = set()
        for name, stated in (overlay or {}).items():
            key = str(name).strip().lower()
            if not key or key in seen:
                raise ConfigError(f"{where}: {name!r} is no model's name, or stands there twice")
            if not isinstance(stated, Mapping):
                raise ConfigError(
                    f"{where}.{name}: must be a table with {', '.join(OwnPrice.model_fields)}"
                )
            seen.add(key)
            own = read(OwnPrice, stated, f"{where}.{name}")
            price = Price(name, "overlay", [(_BASE, _own_rates(own))])
            if is_glob(key):
                self._globs.append((globs([key]), price))
            else:
                self._own[key] = price
        self._found: dict[tuple[str, str], Price | _Dated | None] = {}

    def find(self, model: str, provider: str = "") -> Price | None:
        """The price of `model` now, or None: then it is unknown, not free."""
        key = (model, provider)
        try:
            found = self._found[key]
        except KeyError:
            found = self._look_up(model, provider)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[key] = found
        return found.at(self._now()) if type(found) is _Dated else found  # type: ignore[return-value]  # narrowed by type()

    def _look_up(self, model: str, provider: str) -> Price | _Dated | None:
        model, provider = model.strip().lower(), provider.strip().lower()
        candidates = _readings(model, provider)
        for vendor, name in candidates:
            for key in (f"{vendor}/{name}", name) if vendor else (name,):
                if key in self._own:
                    return self._own[key]
        for vendor, name in candidates:
            for matches, price in self._globs:
                if matches(name) or (vendor and matches(f"{vendor}/{name}")):
                    return price
        return _from_genai(model, provider)


def _now() -> datetime:
    return datetime.now(UTC)


def _readings(model: str, provider: str) -> list[tuple[str, str]]:
    """(provider or empty, name) in the order in which they are tried."""
    found = [(provider, model), ("", model)]
    for mark in ("/", ":"):
        head, _, rest = model.partition(mark)
        if head and rest:
            found += [(vendor, rest) for vendor in (provider, head, "")]
    return list(dict.fromkeys(found))


def _from_genai(model: str, provider: str) -> Price | _Dated | None:
    from genai_prices import __version__
    from genai_prices.data_snapshot import find_provider_by_id, get_snapshot
    from genai_prices.types import ModelPrice

    snapshot = get_snapshot()

    def known(vendor: str) -> bool:
        return bool(vendor) and find_provider_by_id(snapshot.providers, vendor) is not None

    # Once the vendor is known, another vendor's price for the same name would be a guess; so
    # would be the price of what follows a prefix that is no vendor (`ft:`).
    vendor = provider if known(provider) else ""
    names = [model]
    for mark in ("/", ":"):
        head, _, rest = model.partition(mark)
        if rest and (head == "models" or known(head)):
            names.append(rest)
            vendor = vendor or (head if head != "models" else "")
    for name in names:
        try:
            _, info = snapshot.find_provider_model(name, None, vendor or None, None)
        except LookupError:
            continue
        source = f"genai-prices {__version__}"
        if isinstance(info.prices, ModelPrice):
            return _compile(info.id, source, info.prices)
        return _Dated(info, source)
    return None


class _Dated:
    """A model whose price depends on the date or the hour."""

    __slots__ = ("_compiled", "_info", "_source")

    def __init__(self, info: ModelInfo, source: str) -> None:
        self._info = info
        self._source = source
        # By identity: the snapshot keeps its price objects alive and unchanged.
        self._compiled: dict[int, Price] = {}

    def at(self, when: datetime) -> Price:
        prices = self._info.get_prices(when)
        found = self._compiled.get(id(prices))
        if found is None:
            found = self._compiled[id(prices)] = _compile(self._info.id, self._source, prices)
        return found


def _compile(model: str, source: str, prices: ModelPrice) -> Price:
    stated = {k: v for k, v in prices.__dict__.items() if v is not None and k[0] != "_"}
    starts = {_BASE}
    for value in stated.values():
        starts.update(tier.start for tier in getattr(value, "tiers", ()))
    return Price(model, source, [(start, _rates(stated, start)) for start in sorted(starts)])


def _rates(stated: Mapping[str, Any], start: int) -> _Rates:
    def rate(key: str) -> int | None:
        value = stated.get(key)
        if value is None:
            return None
        amount = getattr(value, "base", value)
        for tier in getattr(value, "tiers", ()):
            if tier.start <= start:
                amount = tier.price
        return _units(amount)

    request = rate("requests_kcount")
    asked, answered = rate("input_mtok"), rate("output_mtok")
    if request is not None and asked is None and answered is None:
        asked = answered = 0
    return _fill(
        asked,
        answered,
        cache_read=rate("cache_read_mtok"),
        cache_write=rate("cache_write_mtok"),
        input_audio=rate("input_audio_mtok"),
        output_audio=rate("output_audio_mtok"),
        reasoning=rate("output_reasoning_mtok"),
        # Dollars per thousand calls are thousandths of a dollar for one.
        request=(request or 0) * 1000,
    )


def _own_rates(own: OwnPrice) -> _Rates:
    def rate(value: float | None) -> int | None:
        return None if value is None else _units(Decimal(str(value)))

    return _fill(
        rate(own.input),
        rate(own.output),
        cache_read=rate(own.cache_read),
        cache_write=rate(own.cache_write),
        input_audio=rate(own.input_audio),
        output_audio=rate(own.output_audio),
        reasoning=rate(own.reasoning),
        request=_units(Decimal(str(own.request))) * 10**6,
    )


def _fill(asked: int | None, answered: int | None, *, request: int, **parts: int | None) -> _Rates:
    """A part without a price of its own has the price of its whole."""

    def part(key: str, whole: int | None) -> int:
        value = parts[key]
        return value if value is not None else whole or 0

    return _Rates(
        input=asked,
        cache_read=part("cache_read", asked),
        cache_write=part("cache_write", asked),
        input_audio=part("input_audio", asked),
        output=answered,
        output_audio=part("output_audio", answered),
        reasoning=part("reasoning", answered),
        request=request,
    )


def _units(dollars_per_million: Decimal) -> int:
    return int(dollars_per_million.scaleb(18).to_integral_value())


@functools.cache
def default_book() -> PriceBook:
    """The book without own prices: one for all plugins, so that a model is resolved once."""
    return PriceBook()


def book_of(prices: PriceBook | Mapping[str, Any] | None, where: str) -> PriceBook:
    """A plugin's `prices` argument as a book."""
    if prices is None:
        return default_book()
    if isinstance(prices, PriceBook):
        return prices
    if not isinstance(prices, Mapping):
        raise ConfigError(f"{where}: must be a table of models and their prices")
    return PriceBook(prices, where=where)
