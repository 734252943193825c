"""`checkrein resume` and `stop`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from checkrein.cli._ids import approval_of, session_of
from checkrein.cli._output import Out, compact, counted, fail
from checkrein.cli._place import Place, command
from checkrein.errors import CheckreinError, ConfigError
from checkrein.rein import Rein
from checkrein.report import LEFT, Action
from checkrein.store import Record


@command
def resume(
    *,
    place: Place,
    out: Out,
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="The approval, or how its id begins.")
    ],
) -> int:
    """Run the call that waited for an approval, once. Needs the application (--app)."""
    with place.acting() as rein:
        record = approval_of(rein.store, token)
        try:
            with out.working(f"running {record.body['tool']}"):
                result = rein.resume(record.id)
        except CheckreinError:
            raise
        except Exception as error:  # noqa: BLE001 - the tool's own error, whatever it is
            return fail(_raised(rein, record, error), 1)
        if isinstance(result, Action):
            out.document({"id": record.id, "session": record.session, **asdict(result)})
            out.line(f"{result.name} {result.call}: {result.status} ({result.detail})")
            return int(result.status in LEFT)
        shown = _result(rein, record.body["call"])
        out.document(
            {
                "id": record.id, "session": record.session, "call": record.body["call"],
                "tool": record.body["tool"], "result": shown,
            }
        )  # fmt: skip
        out.line(f"{record.body['tool']} ran: {compact(shown)}")
    return 0


def _raised(rein: Rein, record: Record, error: Exception) -> str:
    """What a tool's own error means; its text as it may be seen."""
    name, call = record.body["tool"], record.body["call"]
    for event in rein.store.events(call=call, kinds=("outcome",), reverse=True, limit=1):
        shown = event.view.get("error", {}).get("message", "")
        effect = {"unknown": "may have happened", "not_done": "did not happen"}
        return (
            f"{name} raised {type(error).__name__}: {shown}; its effect "
            f"{effect.get(event.view['state'], 'happened')} (checkrein show {record.session})"
        )
    return f"{name} raised {type(error).__name__} (checkrein show {record.session})"


def _result(rein: Rein, call: str) -> Any:
    """The result as it may be seen: the exact one takes `show --reveal`."""
    kinds = ("outcome", "late", "answered", "amended", "resolved")
    for event in rein.store.events(call=call, kinds=kinds, reverse=True, limit=10):
        if "result" in event.view:
            return event.view["result"]
    return None


@command
def stop(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="All open sessions of this agent.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="All open sessions.")] = False,
) -> int:
    """Stop sessions before their next call, whatever process runs them."""
    if sum((session is not None, agent is not None, all)) != 1:
        raise ConfigError("stop: name one of SESSION, --agent NAME and --all")
    with place.looking() as rein:
        if session is not None:
            row = session_of(rein.store, session)
            if row.state != "ACTIVE":
                out.document({"stopped": 0})
                out.note(f"session {row.id} is {row.state} already")
                return 1
            count = rein.stop(row.id)
        else:
            count = rein.stop(agent=agent, all=all)
        out.document({"stopped": count})
        if not count:
            whose = "is open" if agent is None else f"of agent {agent} is open"
            out.line(f"no session {whose}: nothing was stopped")
            # A name that was mistyped must not look like a stop.
            return 1 if agent is not None else 0
        out.line(f"{counted(count, 'session')} stopped: no further call will run")
        out.note("what ran stays done; checkrein rollback SESSION takes it back")
    return 0
