"""`checkrein grants` and `revoke`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from checkrein.cli._output import Out, compact, when
from checkrein.cli._person import user
from checkrein.cli._place import Place, command
from checkrein.grants import Grant


@command
def grants(
    *,
    place: Place,
    out: Out,
    all: Annotated[bool, typer.Option("--all", help="Those that hold no more as well.")] = False,
) -> int:
    """List what was allowed for good, oldest first."""
    with place.looking() as rein:
        found = rein.grants.standing(every=all)
        out.document({
            "grants": [
                {
                    **asdict(grant),
                    "created": when(grant.created),
                    "expires": None if grant.expires is None else when(grant.expires),
                }
                for grant in found
            ]
        })  # fmt: skip
        head = ("id", "agent", "tool", "arguments", "until", "given by", "rule", "state")
        rows = [
            (
                out.id(g.id), g.agent, g.tool, _arguments(g), _until(g), g.by, g.rule, g.state,
            )
            for g in found
        ]  # fmt: skip
        out.table(head, rows, empty="nothing is allowed for good")
    return 0


def _arguments(grant: Grant) -> str:
    """What the arguments must be: as they were seen, or what a rule admits."""
    like = grant.like or {}
    return ", ".join(
        f"{name} like {compact(like[name], 80)}" if name in like else f"{name}={compact(value, 60)}"
        for name, value in grant.arguments.items()
    )


def _until(grant: Grant) -> str:
    if grant.expires is None:
        return f"session {grant.session} ends"
    return when(grant.expires)


@command
def revoke(
    *,
    place: Place,
    out: Out,
    id: Annotated[str, typer.Argument(metavar="GRANT", help="Its id.")],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who takes it back. [you]")] = None,
) -> int:
    """Take back what was allowed for good: the next call is asked about."""
    with place.looking() as rein:
        who = by or user()
        rein.grants.revoke(id, by=who)
        out.document({"id": id, "state": "revoked", "by": who})
        out.line(f"{id} revoked by {who}")
    return 0
