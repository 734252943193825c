"""`checkrein sessions`, `pause`, `continue`, `restart` and `forget`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from checkrein.cli._ids import session_of
from checkrein.cli._output import Out, compact, counted, since, when
from checkrein.cli._place import Place, command
from checkrein.errors import ConfigError
from checkrein.standing import STATES
from checkrein.store import SessionRow


@command
def sessions(
    *,
    place: Place,
    out: Out,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Of this agent only.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="In this state only.")] = None,
    counts: Annotated[bool, typer.Option("--counts", help="Only how many in which state.")] = False,
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
        if counts:
            found = rein.session_counts(agent=agent)
            out.document({"counts": found})
            out.table(("state", "sessions"), list(found.items()), empty="no sessions")
            return 0
        now = rein.clock()
        page = rein.sessions(agent=agent, state=state, after=after, limit=limit)
        trees = [_tree(s.row, s.display) for s in page.sessions]
        out.document({"sessions": trees, "next": page.next})
        rows = [
            (out.id(s.row.id), s.display, s.row.body.get("agent", ""), since(s.row.created, now),
             since(s.row.updated, now), compact(s.row.body.get("intent", ""), 60))
            for s in page.sessions
        ]  # fmt: skip
        head = ("session", "state", "agent", "begun", "changed", "intent")
        out.table(head, rows, empty="no sessions")
        if page.next is not None:
            out.note(f"more: checkrein sessions --after {page.next}")
    return 0


Which = Annotated[
    str | None, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
]
OfAgent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="All of this agent.")]
Every = Annotated[bool, typer.Option("--all", help="All open sessions.")]


def _only_one(name: str, session: str | None, agent: str | None, *, all: bool) -> None:
    if sum((session is not None, agent is not None, all)) != 1:
        raise ConfigError(f"{name}: name one of SESSION, --agent NAME and --all")


@command
def pause(
    *, place: Place, out: Out, session: Which = None, agent: OfAgent = None, all: Every = False
) -> int:
    """Let sessions take no calls for a while, whatever process runs them."""
    _only_one("pause", session, agent, all=all)
    with place.looking() as rein:
        id = None if session is None else session_of(rein.store, session).id
        count = rein.pause(id, agent=agent, all=all)
    out.document({"paused": count})
    out.line(f"{counted(count, 'session')} paused")
    if not count:
        out.note(
            "only open sessions are paused, and only once: checkrein sessions lists their states"
        )
    return 0 if count else 1


@command
def continue_(
    *, place: Place, out: Out, session: Which = None, agent: OfAgent = None, all: Every = False
) -> int:
    """Let paused sessions take calls again."""
    _only_one("continue", session, agent, all=all)
    with place.looking() as rein:
        id = None if session is None else session_of(rein.store, session).id
        count = rein.unpause(id, agent=agent, all=all)
    out.document({"continued": count})
    out.line(f"{counted(count, 'session')} may go on")
    if not count:
        out.note("nothing of this is paused: checkrein sessions --state paused lists what is")
    return 0 if count else 1


@command
def restart(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
    ],
) -> int:
    """Open a new session like one that is over or stopped."""
    with place.looking() as rein:
        new = rein.restart(session_of(rein.store, session).id)
    out.document({"session": new})
    out.line(new)
    out.note(f"the application takes it up with rein.session(id={new!r})")
    return 0


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@command
def forget(
    *,
    place: Place,
    out: Out,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Ended so long ago: 30d, 12h, 90m."),
    ] = None,
    person: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Only sessions of this person.")
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Only exact values; the timelines stay.")
    ] = False,
) -> int:
    """Delete what sessions left that ended long ago; chains still verify."""
    if older_than is None and person is None:
        raise ConfigError("name what to forget: --older-than TIME, --user NAME, or both")
    older_than = older_than or "0s"
    number, unit = older_than[:-1], _UNITS.get(older_than[-1:])
    if unit is None or not number.isdecimal():
        raise ConfigError(f"--older-than {older_than}: write 30d, 12h, 90m or 45s")
    with place.looking() as rein:
        done = rein.forget(older_than=int(number) * unit, payloads_only=payloads, user=person)
    out.document({"sessions": done.sessions, "payloads": done.payloads, "files": done.files})
    what = f"{counted(done.payloads, 'payload')} erased" if payloads else "forgotten"
    out.line(f"{counted(done.sessions, 'session')}: {what}; {counted(done.files, 'file')} removed")
    return 0


def _tree(row: SessionRow, shown: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "display_state": shown,
        "state": row.state,
        "rollback": row.rollback,
        "stopped": row.stopped,
        "paused": row.paused,
        "created": when(row.created),
        "updated": when(row.updated),
        "events": row.n,
        **{
            key: row.body.get(key, "")
            for key in ("agent", "user", "tenant", "task", "intent", "parent", "mode")
        },
    }
