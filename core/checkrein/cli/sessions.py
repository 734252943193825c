"""`checkrein sessions`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from checkrein.cli._output import Out, compact, since, when
from checkrein.cli._place import Place, command
from checkrein.cli._states import STATES, display_state
from checkrein.errors import ConfigError
from checkrein.store import Page, SessionRow


@command
def sessions(
    *,
    place: Place,
    out: Out,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Of this agent only.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="In this state only.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Rows of a page.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="The next page: what the last one ended with.")
    ] = None,
) -> int:
    """List sessions, newest first."""
    if state is not None:
        state = state.upper()
        if state not in STATES:
            raise ConfigError(f"--state {state}: use one of {', '.join(STATES)}")
    with place.looking() as rein:
        now = rein.clock()
        found: list[tuple[SessionRow, str]] = []
        while True:
            page: Page = rein.store.sessions(agent=agent, after=after, limit=limit)
            for row in page.rows:
                shown = display_state(rein.store, row, now)
                if state is None or shown == state:
                    found.append((row, shown))
            after = page.next
            # A filtered page is filled up; a plain one ends where the store's page does.
            if after is None or state is None or len(found) >= limit:
                break
        out.document({"sessions": [_tree(*pair) for pair in found], "next": after})
        rows = [
            (out.id(row.id), shown, row.body.get("agent", ""), since(row.created, now),
             since(row.updated, now), compact(row.body.get("intent", ""), 60))
            for row, shown in found
        ]  # fmt: skip
        head = ("session", "state", "agent", "begun", "changed", "intent")
        out.table(head, rows, empty="no sessions")
        if after is not None:
            out.note(f"more: checkrein sessions --after {after}")
    return 0


def _tree(row: SessionRow, shown: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "display_state": shown,
        "state": row.state,
        "rollback": row.rollback,
        "stopped": row.stopped,
        "created": when(row.created),
        "updated": when(row.updated),
        "events": row.n,
        **{
            key: row.body.get(key, "")
            for key in ("agent", "user", "tenant", "task", "intent", "parent", "mode")
        },
    }
