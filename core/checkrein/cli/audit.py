"""`checkrein audit verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli._ids import rows_of, session_of
from checkrein.cli._output import Out, counted
from checkrein.cli._place import Place, command

audit = typer.Typer(
    rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False,
    help="Verify the hash chains of what was recorded.",
)  # fmt: skip


@audit.callback()
def _group() -> None:
    """Verify the hash chains of what was recorded."""


@command
def verify(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Only this one: its id, or how the id begins."),
    ] = None,
) -> int:
    """Recompute the hash chain of every session, or of one.

    A chain shows changed, missing and inserted events of a session. It cannot show that a
    whole session is missing, nor a change by somebody who recomputes everything after it.
    """
    with place.looking() as rein:
        store = rein.store
        rows = (
            [session_of(store, session)]
            if session is not None
            else rows_of(lambda after: store.sessions(after=after, limit=500))
        )
        count = 0
        bad: list[tuple[str, int, int, str]] = []
        with out.working("verifying"):
            for row in rows:
                count += 1
                event = store.verify(row.id)
                if event is not None:
                    bad.append((row.id, event.n, event.seq, event.kind))
        names = ("session", "event", "seq", "kind")
        out.document(
            {"verified": count, "broken": [dict(zip(names, row, strict=True)) for row in bad]}
        )
        if bad:
            out.table(names, bad)
        out.line(f"{counted(count, 'session')} verified, {len(bad)} broken")
    return 1 if bad else 0


audit.command("verify")(verify)
