"""The price book: what tokens of a model cost, from genai-prices and the user's own prices.

genai-prices is exact but slow to ask (its import alone takes a second), so a model is
resolved once for each service tier.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from checkrein.usage import tier_of
from checkrein_plugins._overlay import Overlay, Own, overlay_of
from checkrein_plugins._patterns import globs, is_glob
from checkrein_plugins._rates import Price, compiled

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, PriceVariant

__all__ = ["Price", "PriceBook", "Prices", "book_of", "default_book"]

_REMEMBERED = 4096


class PriceBook:
    """Finds prices: the user's own first, then those of genai-prices.

    `overlay`: `{"MODEL": {"input": 3.0, "output": 15.0, "cache_read": 0.3, ...}}`, dollars per
    million tokens; or a table with `models`, `version`, `currency`, `usd_per_unit` and `tiers`;
    or the name of a TOML, YAML or JSON file with such a table. MODEL may be a glob and may begin
    with `PROVIDER/`. Case makes no difference. `now`: the clock, for prices that change with
    date or hour, where `find` is not told a time.

    Raises `ConfigError` for a price that is negative, not finite or incomplete, for an unknown
    key or currency; with the file and its line.
    """

    def __init__(
        self,
        overlay: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        where: str = "prices",
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._now = now or _now
        self._overlay = Overlay() if overlay is None else overlay_of(overlay, where)
        self._own: dict[str, Own] = {}
        self._globs: list[tuple[Callable[[str], bool], Own]] = []
        for own in self._overlay.models:
            if is_glob(own.name):
                self._globs.append((globs([own.name]), own))
            else:
                self._own[own.name] = own
        self._found: dict[tuple[str, str, str], Price | _Dated | None] = {}

    @property
    def stated(self) -> Mapping[str, Any] | None:
        """The overlay as plain data: an equal book can be made of it."""
        return self._overlay.stated

    @property
    def source(self) -> str:
        """Name and version of the overlay; empty without one."""
        return self._overlay.source if self._overlay.stated else ""

    def find(
        self, model: str, provider: str = "", tier: str = "", *, at: int | None = None
    ) -> Price | None:
        """The price of `model` at `at` (microseconds; default now), or None: unknown, not free.

        Without a price of its own a tier has the standard one; `Price.tier` tells.
        """
        key = (model, provider, tier)
        try:
            found = self._found[key]
        except KeyError:
            found = self._look_up(model, provider, tier_of(tier))
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[key] = found
        if type(found) is not _Dated:
            return found  # type: ignore[return-value]  # narrowed by type()
        return found.at(self._now() if at is None else datetime.fromtimestamp(at / 1e6, UTC))

    def _look_up(self, model: str, provider: str, tier: str) -> Price | _Dated | None:
        model, provider = model.strip().lower(), provider.strip().lower()
        own = self._stated(model, provider)
        special: Price | Decimal | None = None
        if tier:
            special = own.tiers.get(tier) if own is not None else None
            special = self._overlay.tiers.get(tier) if special is None else special
        if isinstance(special, Price):
            return special
        standard: Price | _Dated | None = None if own is None else own.price
        if standard is None:
            # The library's own price of a tier stands back behind a factor of the user's.
            standard = _from_genai(model, provider, "" if special is not None else tier)
        if special is None or standard is None:
            return standard
        if type(standard) is _Dated:
            return standard.times(special, tier, self._overlay.source)
        assert isinstance(standard, Price)
        return standard.times(special, tier, _both(standard, self._overlay.source))

    def _stated(self, model: str, provider: str) -> Own | None:
        candidates = _readings(model, provider)
        for vendor, name in candidates:
            for key in (f"{vendor}/{name}", name) if vendor else (name,):
                if key in self._own:
                    return self._own[key]
        for vendor, name in candidates:
            for matches, own in self._globs:
                if matches(name) or (vendor and matches(f"{vendor}/{name}")):
                    return own
        return None


Prices: TypeAlias = "PriceBook | Mapping[str, Any] | str | os.PathLike[str] | None"
"""What a plugin takes for own prices."""


def _now() -> datetime:
    return datetime.now(UTC)


def _both(standard: Price, source: str) -> str:
    return source if standard.source == source else f"{standard.source} x {source}"


def _readings(model: str, provider: str) -> list[tuple[str, str]]:
    """(provider or empty, name) in the order in which they are tried."""
    found = [(provider, model), ("", model)]
    for mark in ("/", ":"):
        head, _, rest = model.partition(mark)
        if head and rest:
            found += [(vendor, rest) for vendor in (provider, head, "")]
    return list(dict.fromkeys(found))


def _from_genai(model: str, provider: str, tier: str) -> Price | _Dated | None:
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
        # Providers name what is billed apart in different ways: `processing` batch, say.
        context: dict[str, str] = dict.fromkeys(("service_tier", "processing", "speed"), tier)
        variants = tuple(
            variant
            for variant in (info.price_variants or () if tier else ())
            if all(context.get(key) == value for key, value in variant.when.items())
        )
        if isinstance(info.prices, ModelPrice) and not variants:
            return compiled(info.id, source, info.prices)
        return _Dated(info, source, tier, context, variants)
    return None


class _Dated:
    """A model whose price depends on the date or the hour.

    `variants`: what of the library's prices is about the tier.
    """

    def __init__(
        self,
        info: ModelInfo,
        source: str,
        tier: str,
        context: Mapping[str, str],
        variants: tuple[PriceVariant, ...],
    ) -> None:
        self._info = info
        self._source = source
        self._tier = tier
        self._context = context
        self._variants = variants
        self._factor: tuple[Decimal, str, str] | None = None
        self._compiled: dict[tuple[int, int], Price] = {}

    def times(self, factor: Decimal, tier: str, source: str) -> _Dated:
        """The same in a tier that costs `factor` times as much."""
        dated = _Dated(self._info, self._source, self._tier, self._context, self._variants)
        dated._factor = (factor, tier, source)
        return dated

    def at(self, when: datetime) -> Price:
        active = 0
        for index, variant in enumerate(self._variants):
            if variant.constraint is None or variant.constraint.active(when):
                active |= 1 << index
        prices = self._info.get_prices(when)
        # By identity: the snapshot keeps its price objects alive and unchanged.
        key = (id(prices), active)
        found = self._compiled.get(key)
        if found is None:
            if active:
                prices = self._info.get_prices(when, self._context)
            tier = self._tier if active else ""
            found = compiled(self._info.id, self._source, prices, tier)
            if self._factor is not None:
                factor, tier, source = self._factor
                found = found.times(factor, tier, _both(found, source))
            self._compiled[key] = found
        return found


@functools.cache
def default_book() -> PriceBook:
    """The book without own prices: one for all plugins, so that a model is resolved once."""
    return PriceBook()


def book_of(prices: Prices, where: str) -> PriceBook:
    """A plugin's `prices` argument as a book."""
    if prices is None:
        return default_book()
    if isinstance(prices, PriceBook):
        return prices
    return PriceBook(prices, where=where)
