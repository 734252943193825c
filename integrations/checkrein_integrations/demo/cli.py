"""The command `checkrein demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    *,
    answer: Annotated[
        bool | None,
        typer.Option(
            "--yes/--no", help="Answer the approval so, instead of asking.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A real chat model, as init_chat_model names it."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Where the demo's world is made. [a new folder]"),
    ] = None,
    spans: Annotated[bool, typer.Option("--spans", help="Print the tree of spans.")] = False,
    otlp: Annotated[
        str | None, typer.Option(metavar="URL", help="Send spans to a collector (OTLP over HTTP).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """An agent at a refund desk, supervised: five short scenes. Needs no key and no network."""
    from checkrein_integrations.demo.story import tell

    return tell(answer=answer, model=model, folder=folder, spans=spans, otlp=otlp, as_json=as_json)
