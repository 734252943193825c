"""`checkrein prices`: what models cost, and where that is from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from checkrein import _config_file
from checkrein.call import Usage
from checkrein.cli._output import Out, usd
from checkrein.errors import ConfigError, Conflict
from checkrein_plugins._overlay import read_table
from checkrein_plugins._prices import Price, PriceBook

app = typer.Typer(
    help="Look up and compare prices of models, and import your own.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
PARTS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
_LITELLM = {
    "input": "input_cost_per_token", "output": "output_cost_per_token",
    "cache_read": "cache_read_input_token_cost", "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "input_audio": "input_cost_per_audio_token", "output_audio": "output_cost_per_audio_token",
    "reasoning": "output_cost_per_reasoning_token",
}  # fmt: skip
"""Keys of LiteLLM's list of models, in dollars for one token."""

Overlay = Annotated[
    Path | None,
    typer.Option("--overlay", metavar="FILE", help="Your own prices; else what is configured."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Else ./checkrein.toml.")
]
Provider = Annotated[str, typer.Option(metavar="NAME", help="Of this provider.")]
Tier = Annotated[str, typer.Option(metavar="NAME", help="Service tier: batch, flex, priority.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Models = Annotated[list[str], typer.Argument(metavar="MODEL...")]


@app.command()
def show(
    models: Models,
    *,
    provider: Provider = "",
    tier: Tier = "",
    overlay: Overlay = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Look up what models cost now, in dollars per million tokens, and where that is from."""
    out, book = Out(as_json=as_json), _book(overlay, config)
    trees: list[dict[str, Any]] = []
    for model in models:
        price = book.find(model, provider, tier)
        tree: dict[str, Any] = {"model": model, "known": price is not None}
        if price is not None:
            tree |= {"priced_as": price.model, "source": price.source, "tier": price.tier}
            tree["bands"] = [
                {"above_input_tokens": max(start, 0), **_dollars(rates)}
                for start, rates in price.bands
            ]
        trees.append(tree)
    out.document({"prices": trees})
    rows: list[Sequence[object]] = []
    for tree in trees:
        for band in tree.get("bands", [{}]):
            above = band.get("above_input_tokens")
            rows.append((
                tree["model"], f"above {above:_} tokens" if above else tree.get("tier", ""),
                *(_number(band.get(part)) for part in PARTS),
                tree.get("source", "no price is known: not free, charged at the hold"),
            ))  # fmt: skip
    out.table(("model", "tier", *PARTS, "source"), rows)
    return 0 if all(tree["known"] for tree in trees) else 1


@app.command()
def compare(
    models: Models,
    *,
    input_tokens: Annotated[int, typer.Option("--input", min=0, metavar="N")] = 1_000_000,
    output_tokens: Annotated[int, typer.Option("--output", min=0, metavar="N")] = 1_000_000,
    cached: Annotated[
        int, typer.Option("--cached", min=0, metavar="N", help="Of the input, read from a cache.")
    ] = 0,
    provider: Provider = "",
    tier: Tier = "",
    overlay: Overlay = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Say what the same tokens cost with each of several models, the cheapest first."""
    out, book = Out(as_json=as_json), _book(overlay, config)
    usage = Usage(input_tokens, output_tokens, min(cached, input_tokens))
    found: list[tuple[str, int | None, Price | None]] = []
    for model in models:
        price = book.find(model, provider, tier)
        found.append((model, None if price is None else price.cost(usage)[0], price))
    found.sort(key=lambda row: (row[1] is None, row[1] or 0))
    most = max((cost for _, cost, _ in found if cost), default=0)
    out.document({
        "usage": {"input": usage.input_tokens, "output": usage.output_tokens, "cached": cached},
        "costs": [{"model": model, "nano_usd": cost, "tier": price.tier if price else "",
                   "source": price.source if price else ""} for model, cost, price in found],
    })  # fmt: skip
    out.table(
        ("model", "cost", "tier", "source", ""),
        [(model, "unknown" if cost is None else usd(cost), price.tier if price else "",
          price.source if price else "", "█" * -(-(cost or 0) * 20 // most) if most else "")
         for model, cost, price in found],
    )  # fmt: skip
    return 0 if all(cost is not None for _, cost, _ in found) else 1


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML, YAML or JSON.")],
    *,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="Where the prices are written.")
    ] = Path("prices.json"),
    version: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Else the file's own, else the date.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    as_json: Json = False,
) -> int:
    """Check a file of prices, say what it changes, and write it where a configuration finds it.

    A list of models as LiteLLM publishes it is converted.
    """
    out = Out(as_json=as_json)
    table: dict[str, Any] = read_table(file)
    if "models" not in table:
        table = {"models": _from_litellm(table, file)}
    table["version"] = version or table.get("version") or datetime.now(UTC).date().isoformat()
    table = {"version": table.pop("version"), **table}
    own, known = PriceBook(table, where=str(file)), PriceBook()
    changes = []
    for model in table["models"]:
        before, after = known.find(str(model)), own.find(str(model))
        if before is None or after is None or _dollars(before.bands[0][1]) != _dollars(
            after.bands[0][1]
        ):  # fmt: skip
            changes.append((str(model), before, after))
    if to.exists() and not force:
        raise Conflict(f"{to} is there already: --force overwrites it")
    try:
        to.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise Conflict(f"{to}: cannot be written: {error.strerror}") from error
    out.document({
        "file": str(to), "version": table["version"], "models": len(table["models"]),
        "changes": [{"model": model, "before": _band(before), "after": _band(after)}
                    for model, before, after in changes],
    })  # fmt: skip
    out.table(
        ("model", "input before", "input", "output before", "output"),
        [(model, *(_number(_band(price).get(part)) for part in ("input", "output")
                   for price in (before, after))) for model, before, after in changes[:50]],
        empty="every price is as the library has it",
    )  # fmt: skip
    if len(changes) > 50:
        out.note(f"{len(changes) - 50} more: --json shows all")
    out.note(
        f"{to}: {len(table['models'])} models, version {table['version']}; use it with "
        f'overlay = "{to.name}" in [plugins.cost] and prices = "{to.name}" in [plugins.budget]'
    )
    return 0


@app.command()
def age(*, overlay: Overlay = None, config: Config = None, as_json: Json = False) -> int:
    """Say which prices are in use, and how old they are."""
    from genai_prices import __version__
    from genai_prices.data_snapshot import get_snapshot

    out, book = Out(as_json=as_json), _book(overlay, config)
    snapshot, today = get_snapshot(), datetime.now(UTC).date()
    models = [model for provider in snapshot.providers for model in provider.models]
    seen = [day for model in models for day in _days(model.price_comments or "") if day <= today]
    newest = max(seen, default=None)
    days = None if newest is None else (today - newest).days
    tree = {
        "library": f"genai-prices {__version__}", "models": len(models),
        "checked": None if newest is None else newest.isoformat(), "days": days,
        "overlay": book.source or None,
    }  # fmt: skip
    out.document(tree)
    out.fields({
        "library": f"{tree['library']}, {len(models)} models",
        "checked": f"{newest}, {days} days ago (the newest date that its comments name)"
        if newest else "unknown",
        "overlay": book.source or "none",
    })  # fmt: skip
    if days is not None and days > 60:
        out.note("prices change often: upgrade genai-prices, or import your own")
    return 0


def _days(text: str) -> list[date]:
    """Dates that stand in a comment on prices."""
    found = []
    for part in re.findall(r"\b20\d\d-\d\d-\d\d\b", text):
        try:
            found.append(date.fromisoformat(part))
        except ValueError:
            continue
    return found


def _book(overlay: Path | None, config: Path | None) -> PriceBook:
    """The book in use: with the file that is named, else with what the configuration names."""
    if overlay is not None:
        return PriceBook(overlay, where="--overlay")
    path = config or Path("checkrein.toml")
    if config is None and not path.exists():
        return PriceBook()
    document = _config_file.read(path)
    plugins = document.data.get("plugins")
    for name, key in (("cost", "overlay"), ("budget", "prices")):
        table = plugins.get(name) if isinstance(plugins, Mapping) else None
        stated = table.get(key) if isinstance(table, Mapping) else None
        if stated is not None:
            token = _config_file.FOLDER.set(path.resolve().parent)
            try:
                return PriceBook(stated, where=f"{path}: plugins.{name}.{key}")
            finally:
                _config_file.FOLDER.reset(token)
    return PriceBook()


def _from_litellm(table: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Prices per token by LiteLLM's names, as prices per million tokens by ours."""
    found: dict[str, Any] = {}
    for model, stated in table.items():
        if not isinstance(stated, Mapping) or model == "sample_spec":
            continue
        rates = {
            ours: float(Decimal(str(stated[theirs])) * 1_000_000)
            for ours, theirs in _LITELLM.items()
            if isinstance(stated.get(theirs), (int, float))
        }
        if "input" in rates:
            found[model] = {"output": 0.0, **rates}
    if not found:
        raise ConfigError(f"{file}: has neither `models` nor models as LiteLLM lists them")
    return found


def _dollars(rates: Any) -> dict[str, float | None]:
    return {
        part: None if value is None else float(Decimal(value).scaleb(-18))
        for part, value in asdict(rates).items()
        if part != "request" or value
    }


def _band(price: Price | None) -> dict[str, float | None]:
    return {} if price is None else _dollars(price.bands[0][1])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
