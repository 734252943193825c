"""`checkrein costs`: the bill, added up."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from checkrein.cli._output import Out, usd
from checkrein.cli._periods import FORMS, Since, Until, Zone, periods
from checkrein.cli._place import Place, command
from checkrein.cli._times import moment
from checkrein.errors import ConfigError
from checkrein.store import DIMENSIONS, Total
from checkrein.store._periods import QUARTER

if TYPE_CHECKING:
    from checkrein.rein import Rein

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
    per: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="A row for each hour, day or month.")
    ] = None,
    since: Since = None,
    until: Until = None,
    zone: Zone = "UTC",
    where: Annotated[
        list[str] | None, typer.Option(metavar="WHAT=VALUE", help="Only these calls. Repeatable.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Rows (of each period), the dearest first.")
    ] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
) -> int:
    """Add up what calls cost, by model, agent, user and more. Times are in quarter hours."""
    if as_csv and out.as_json:
        raise ConfigError("--csv and --json: use one of them")
    if per is not None and per not in FORMS:
        raise ConfigError(f"--per {per}: use one of {', '.join(FORMS)}")
    begin, end = moment("--since", since, zone), moment("--until", until, zone)
    wanted = dict(_pair(text) for text in where or ())
    with place.looking() as rein:
        totals = rein.store.totals
        found: list[tuple[str, list[Total]]] = [
            (name, totals(by, since=first, until=upto, where=wanted, limit=limit + 1))
            for name, first, upto in _periods(rein, per, begin, end, zone)
        ]
        (whole,) = totals(since=begin, until=end, where=wanted) or (Total(""),)
    shown = [(name, total) for name, rows in found for total in rows[:limit]]
    more = any(len(rows) > limit for _, rows in found)
    if as_csv:
        _csv(by, per, shown)
        return 0
    trees = [({per: name} if per else {}) | asdict(total) for name, total in shown]
    out.document({"by": by, "totals": trees, "total": asdict(whole)})
    most = max((total.cost for _, total in shown), default=0)
    rows_: list[Sequence[object]] = [
        (*([name] if per else []), total.key or "-", *_cells(total), _bar(total.cost, most))
        for name, total in shown
    ]
    if rows_:
        rows_.append(("total", *([""] if per else []), *_cells(whole), ""))
    head = (*([per] if per else []), by, "cost", "calls", "tokens", "saved", "estimated",
            "unpriced", "")  # fmt: skip
    out.table(head, rows_, empty="no calls that cost or used anything")
    if more:
        out.note(f"there are more: --limit {limit * 10}")
    if whole.unpriced:
        out.note(
            f"{whole.unpriced} calls have no known price: they are in the cost only as far as a "
            "budget charged for them"
        )
    return 0


def _periods(
    rein: Rein, per: str | None, begin: int | None, end: int | None, zone: str
) -> Iterator[tuple[str, int | None, int | None]]:
    """(name, first, end): one without borders of its own, or those of the calendar."""
    if per is None:
        yield "", begin, end
        return
    first = begin
    if first is None:
        rows = rein.store.costs(until=end, limit=1).rows
        first = rows[0].at if rows else rein.clock()
    # Totals know quarters of an hour only: the one that runs now counts as well.
    upto = (rein.clock() // QUARTER + 1) * QUARTER if end is None else end
    yield from periods(per, int(first), upto, zone)


def _cells(total: Total) -> tuple[object, ...]:
    return (
        usd(total.cost), total.calls, total.tokens, total.saved or "", total.estimated or "",
        total.unpriced or "",
    )  # fmt: skip


def _bar(cost: int, most: int) -> str:
    return "█" * -(-cost * BAR // most) if most else ""


def _csv(by: str, per: str | None, totals: Sequence[tuple[str, Total]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = list(asdict(Total("")))
    writer.writerow(
        [*([per] if per else []), by, *("nano_usd" if n == "cost" else n for n in names[1:])]
    )
    for name, total in totals:
        key, *counts = asdict(total).values()
        # A spreadsheet must not take what an agent named for a formula.
        safe = f"'{key}" if str(key).startswith(("=", "+", "-", "@")) else key
        writer.writerow([*([name] if per else []), safe, *counts])


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise ConfigError(f"--where {text}: write WHAT=VALUE, such as agent=billing")
    return name, value
