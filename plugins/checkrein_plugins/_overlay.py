"""A user's own prices: in code, in a configuration, or in a file of their own.

    version = "2026-11"
    currency = "EUR"            # default USD
    usd_per_unit = 1.08         # needed for another currency
    tiers = { batch = 0.5 }     # of every model that names none itself

    [models.my-model]
    input = 3.0                 # per million tokens
    output = 15.0
    tiers = { priority = 2.0, flex = { input = 1.0, output = 5.0 } }

    [models."openai/gpt-4o"]
    tiers = { batch = 0.5 }     # the price is that of genai-prices

A file is read once. Its name and version stand in every row that it prices; without a version
it is known by a digest of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr

from checkrein import _config_file
from checkrein._config_file import Document
from checkrein.errors import ConfigError
from checkrein.usage import tier_of
from checkrein_plugins._config import Dollars, Positive, Settings, Text, read
from checkrein_plugins._rates import BASE, Price, filled, units

_CODES = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN "
    "BWP BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD "
    "FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY "
    "KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP "
    "MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR "
    "RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT "
    "TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW "
    "ZWG"
)
MOST = 20_000_000
"""Largest list of prices in JSON, in bytes: those that programs write are long."""

CURRENCIES = frozenset(_CODES.split())
"""Codes of ISO 4217 that are in use."""


def _currency(value: str) -> str:
    if value not in CURRENCIES:
        raise ValueError("must be a code of ISO 4217 such as USD or EUR")
    return value


class TierPrice(Settings):
    """Prices per million tokens; see `OwnPrice`."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None
    cache_write_1h: Dollars | None = None
    input_audio: Dollars | None = None
    cache_audio: Dollars | None = None
    output_audio: Dollars | None = None
    reasoning: Dollars | None = None
    request: Dollars = Field(default=0)
    """For the call itself."""


class OwnPrice(TierPrice):
    """A model's price as a user states it, per million tokens. 0 means free."""

    tiers: dict[Text, Positive | TierPrice] = Field(default_factory=dict)


class _Tiers(Settings):
    """A model of which only the tiers are stated."""

    tiers: dict[Text, Positive | TierPrice] = Field(min_length=1)


class _Book(Settings):
    version: Text | None = None
    currency: Annotated[StrictStr, AfterValidator(_currency)] = "USD"
    usd_per_unit: Positive | None = None
    tiers: dict[Text, Positive] = Field(default_factory=dict)
    models: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Own:
    """What is stated of one model. `price` is None where only its tiers are."""

    name: str
    price: Price | None
    tiers: Mapping[str, Price | Decimal]
    """By folded name; a number is a factor on the ordinary price."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Own prices, in the order in which they were written."""

    source: str = "overlay"
    models: tuple[Own, ...] = ()
    tiers: Mapping[str, Decimal] = field(default_factory=dict)
    stated: Mapping[str, Any] | None = None
    """Plain data by which an equal one can be made."""


def overlay_of(given: Any, where: str) -> Overlay:
    """Read a path, a table of models, or a table of a file's shape.

    Raises `ConfigError` with file, line and key.
    """
    if isinstance(given, (str, os.PathLike)):
        document = _read_file(Path(given), where)
        return _overlay(document.data, document, document.name, where)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: must be a file's name or a table of models and their prices")
    data = dict(given)
    if not (isinstance(data.get("models"), Mapping) and "input" not in data["models"]):
        data = {"models": data}
    return _overlay(data, None, "overlay", where)


def read_table(path: Path) -> dict[str, Any]:
    """A table out of a TOML, YAML or JSON file. Raises `ConfigError`."""
    return dict(_read_file(path, "prices").data)


def _read_file(path: Path, where: str) -> Document:
    base = _config_file.FOLDER.get()
    path = path if base is None else base / path
    if path.suffix.lower() != ".json":
        return _config_file.read(path)
    try:
        if path.stat().st_size > MOST:
            raise ConfigError(f"{where}: {path}: larger than {MOST:_} bytes: no list of prices")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{where}: {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from None
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a table")
    return Document(data, str(path), path)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice}: stands there twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no price")


def _overlay(data: Mapping[str, Any], document: Document | None, name: str, where: str) -> Overlay:
    def place(*key: str) -> str:
        if document is None:
            shown = [part for part in key if part != "models"]
            return ".".join((where, *shown))
        line = document.line(key)
        return f"{document.name}{'' if line is None else f':{line}'}" + "".join(
            f": {_config_file.dotted(key)}" if key else ""
        )

    book = read(_Book, data, place())
    if book.currency != "USD" and book.usd_per_unit is None:
        raise ConfigError(
            f"{place('currency')}: {book.currency}: state usd_per_unit, the dollars that one "
            "costs; rows are in dollars"
        )
    if book.currency == "USD" and book.usd_per_unit not in (None, 1):
        raise ConfigError(f"{place('usd_per_unit')}: a dollar costs one dollar")
    scale = Decimal(str(book.usd_per_unit or 1))
    version = book.version or _digest(data)
    source = f"{Path(name).name} {version}"
    found: list[Own] = []
    seen: set[str] = set()
    for model, stated in book.models.items():
        key = str(model).strip().lower()
        if not key or key in seen:
            raise ConfigError(
                f"{place('models')}: {model!r} is no model's name, or stands there twice"
            )
        seen.add(key)
        at = place("models", str(model))
        if not isinstance(stated, Mapping):
            raise ConfigError(f"{at}: must be a table with {', '.join(OwnPrice.model_fields)}")
        only = bool(stated) and set(stated) == {"tiers"}
        own = read(_Tiers if only else OwnPrice, stated, at)
        price = None
        if isinstance(own, OwnPrice):
            price = _price(str(model), source, own, scale)
        tiers: dict[str, Price | Decimal] = {}
        for tier, value in own.tiers.items():  # type: ignore[attr-defined]  # both have them
            if isinstance(value, TierPrice):
                tiers[tier_of(tier)] = _price(str(model), source, value, scale, tier_of(tier))
            else:
                tiers[tier_of(tier)] = Decimal(str(value))
        _no_standard(tiers, at)
        found.append(Own(key, price, tiers))
    factors = {tier_of(tier): Decimal(str(value)) for tier, value in book.tiers.items()}
    _no_standard(factors, place("tiers"))
    stated_whole = book.model_dump(mode="json", exclude_none=True)
    return Overlay(source, tuple(found), factors, stated_whole)


def _no_standard(tiers: Mapping[str, Any], where: str) -> None:
    if "" in tiers:
        raise ConfigError(f"{where}: the standard tier is the price itself")


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _price(name: str, source: str, own: TierPrice, scale: Decimal, tier: str = "") -> Price:
    def rate(value: float | None) -> int | None:
        return None if value is None else units(Decimal(str(value)) * scale)

    rates = filled(
        rate(own.input),
        rate(own.output),
        cache_read=rate(own.cache_read),
        cache_write=rate(own.cache_write),
        cache_write_1h=rate(own.cache_write_1h),
        input_audio=rate(own.input_audio),
        cache_audio=rate(own.cache_audio),
        output_audio=rate(own.output_audio),
        reasoning=rate(own.reasoning),
        request=units(Decimal(str(own.request)) * scale) * 10**6,
    )
    return Price(name, source, [(BASE, rates)], tier)
