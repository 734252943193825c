"""`checkrein report`: a session as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli._ids import session_of
from checkrein.cli._output import Out, fail
from checkrein.cli._place import Place, command
from checkrein.replay import Replay
from checkrein.standing import STATES


@command
def report(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; - for a pipe.")
    ],
) -> int:
    """Write what a session did as one HTML file that needs no network."""
    from checkrein.html_report import html_report

    with place.looking() as rein:
        row = session_of(rein.store, session)
        state = rein.standings.of(row)
        body = row.body
        about = {
            "state": f"{state} ({STATES[state]})",
            **{
                name: body.get(name, "") for name in ("agent", "user", "tenant", "intent", "parent")
            },
        }
        over = not rein.rollbacks.alive(row)
        with out.working("reading the session"):
            text = html_report(Replay(rein.read(row.id), over=over), about)
    if str(output) == "-":
        sys.stdout.write(text)
        return 0
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        return fail(f"{output} cannot be written: {error.strerror}", 1)
    out.document({"session": row.id, "file": str(output), "bytes": len(text.encode())})
    out.line(f"{output}: {len(text.encode()) / 1024:.0f} KB")
    return 0
