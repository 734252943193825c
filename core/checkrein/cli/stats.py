"""`checkrein stats`: how tools and models did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from checkrein.cli._ids import session_of
from checkrein.cli._output import Out, clean
from checkrein.cli._periods import Since, Until, Zone
from checkrein.cli._place import Place, command
from checkrein.cli._times import moment
from checkrein.stats import ToolStats, tool_stats

SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


@command
def stats(
    *,
    place: Place,
    out: Out,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Of this session only.")] = None,
    since: Since = None,
    until: Until = None,
    zone: Zone = "UTC",
) -> int:
    """Count calls, latencies, errors and denials of each tool.

    Attempts count, of tools and of models; percentiles are over attempts that ended.
    """
    begin, end = moment("--since", since, zone), moment("--until", until, zone)
    with place.looking() as rein, out.working("reading the journal"):
        one = None if session is None else session_of(rein.store, session).id
        found = tool_stats(rein.store, session=one, since=begin, until=end)
    out.document({"tools": [_tree(one) for one in found]})
    rows: list[Sequence[object]] = [
        (
            one.name, one.kind, one.calls, *(_seconds(one.percentile(s)) for _, s in SHARES),
            one.errors or "", one.unknown or "", one.running or "", one.answered or "",
            one.denied or "", ", ".join(_rule(*pair) for pair in one.denials.most_common(3)),
        )
        for one in found
    ]  # fmt: skip
    head = ("tool", "kind", "calls", *(name for name, _ in SHARES), "errors", "unknown", "open",
            "answered", "denied", "by")  # fmt: skip
    out.table(head, rows, empty="no calls")
    return 0


def _rule(rule: str, count: int) -> str:
    return f"{clean(rule)} {count}" if count > 1 else clean(rule)


def _seconds(value: float | None) -> str:
    """A duration with three digits that say something."""
    if value is None:
        return ""
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _tree(one: ToolStats) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "calls": one.calls,
        "seconds": {name: one.percentile(share) for name, share in SHARES},
        "errors": one.errors,
        "unknown": one.unknown,
        "open": one.running,
        "answered": one.answered,
        "denied": one.denied,
        "denials": dict(one.denials.most_common()),
    }
