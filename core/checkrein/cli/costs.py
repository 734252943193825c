"""`checkrein costs`: the bill, added up."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from checkrein.cli._output import Out, usd
from checkrein.cli._place import Place, command
from checkrein.cli._times import moment
from checkrein.errors import ConfigError
from checkrein.store import DIMENSIONS, Total

BAR = 20
"""Characters of the longest bar."""


@command
def costs(
    *,
    place: Place,
    out: Out,
    by: Annotated[
        str, typer.Option(metavar="WHAT", help=f"One of {', '.join(DIMENSIONS)}.")
    ] = "model",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this date or time on (ISO 8601).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to this date or time, without it.")
    ] = None,
    zone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Of times without an offset.")
    ] = "UTC",
    where: Annotated[
        list[str] | None, typer.Option(metavar="WHAT=VALUE", help="Only these calls. Repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Rows, the dearest first.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
) -> int:
    """Add up what calls cost, by model, agent, user and more. Times are in quarter hours."""
    if as_csv and out.as_json:
        raise ConfigError("--csv and --json: use one of them")
    begin, end = moment("--since", since, zone), moment("--until", until, zone)
    wanted = dict(_pair(text) for text in where or ())
    with place.looking() as rein:
        totals = rein.store.totals(by, since=begin, until=end, where=wanted)
        (whole,) = rein.store.totals(since=begin, until=end, where=wanted) or (Total(""),)
    shown = totals[:limit]
    if as_csv:
        _csv(by, shown)
        return 0
    out.document({"by": by, "totals": [asdict(total) for total in shown], "total": asdict(whole)})
    most = max((total.cost for total in shown), default=0)
    rows: list[Sequence[object]] = [
        (total.key or "-", *_cells(total), _bar(total.cost, most)) for total in shown
    ]
    if rows:
        rows.append(("total", *_cells(whole), ""))
    head = (by, "cost", "calls", "tokens", "saved", "estimated", "unpriced", "")
    out.table(head, rows, empty="no calls that cost or used anything")
    if len(totals) > limit:
        out.note(f"{len(totals) - limit} more: --limit {len(totals)}")
    if whole.unpriced:
        out.note(
            f"{whole.unpriced} calls have no known price: they are in the cost only as far as a "
            "budget charged for them"
        )
    return 0


def _cells(total: Total) -> tuple[object, ...]:
    return (
        usd(total.cost), total.calls, total.tokens, total.saved or "", total.estimated or "",
        total.unpriced or "",
    )  # fmt: skip


def _bar(cost: int, most: int) -> str:
    return "█" * -(-cost * BAR // most) if most else ""


def _csv(by: str, totals: Sequence[Total]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = list(asdict(Total("")))
    writer.writerow([by, *("nano_usd" if n == "cost" else n for n in names[1:])])
    for total in totals:
        key, *counts = asdict(total).values()
        # A spreadsheet must not take what an agent named for a formula.
        writer.writerow([f"'{key}" if str(key).startswith(("=", "+", "-", "@")) else key, *counts])


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise ConfigError(f"--where {text}: write WHAT=VALUE, such as agent=billing")
    return name, value
