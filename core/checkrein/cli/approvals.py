"""`checkrein approvals`, `approve`, `reject`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from checkrein.cli._ids import approval_of
from checkrein.cli._output import Out, clean, compact, counted, say, seconds, since, when
from checkrein.cli._person import user
from checkrein.cli._place import Place, command
from checkrein.cli.show import record_reveal
from checkrein.errors import ConfigError, Conflict
from checkrein.rein import Rein
from checkrein.request import ApprovalRequest, request_of
from checkrein.store import Record
from checkrein.verdicts import Always

MASK = "(masked)"

Id = Annotated[str, typer.Argument(metavar="ID", help="The approval, or how its id begins.")]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who decides. [you]")]


@command
def approvals(
    *,
    place: Place,
    out: Out,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many.")
    ] = 100,
    escalate: Annotated[
        bool,
        typer.Option("--escalate", help="Tell the others whose turn it is. Needs --app."),
    ] = False,
) -> int:
    """List the calls that wait for a person, oldest first."""
    with place.acting() if escalate else place.looking() as rein:
        if escalate:
            with out.working("telling those whose turn it is"):
                told = rein.approvals.escalate()
            out.note(f"told of {counted(len(told), 'request')}")
        now = rein.clock()
        waiting = rein.approvals.pending(limit)
        out.document({"approvals": [tree_of(request) for request in waiting]})
        rows = [
            (
                out.id(r.id),
                r.agent,
                call_of(r),
                _why(r),
                r.risk,
                since(r.created, now),
                since(now, r.expires),
                _who(r),
            )
            for r in waiting
        ]
        head = ("id", "agent", "call", "why [rule]", "risk", "waits", "lapses in", "decided by")
        out.table(head, rows, empty="nothing waits for approval")
        if waiting:
            out.note("decide: checkrein approve ID, or checkrein reject ID --reason WHY")
    return 0


def call_of(request: ApprovalRequest) -> str:
    """The call, and whether it is reviewed or about to be undone."""
    kind = {"after": "review of ", "undo": "undo by "}.get(request.kind, "")
    return f"{kind}{request.tool}({_arguments(request)})"


def _why(request: ApprovalRequest) -> str:
    told = f"{request.reason} [{request.rule}]" if request.rule else request.reason
    return "; ".join((told, *request.changed))


def _who(request: ApprovalRequest) -> str:
    who = ", ".join(request.who) or "anybody"
    return f"{who} ({request.quorum} of them)" if request.quorum > 1 else who


def _arguments(request: ApprovalRequest) -> str:
    """Arguments as they may be seen, with what is masked marked."""
    if "(all)" in request.masked or not isinstance(request.arguments, dict):
        return f"{compact(request.arguments, 120)} {MASK}"
    told = []
    for name, value in request.arguments.items():
        hidden = any(
            path == name or path.startswith((f"{name}.", f"{name}[")) for path in request.masked
        )
        told.append(f"{name}={compact(value, 60)}" + (f" {MASK}" if hidden else ""))
    return ", ".join(told)


def tree_of(request: ApprovalRequest) -> dict[str, Any]:
    """A request as plain data, for --json."""
    return {
        "id": request.id,
        "state": request.state,
        "status": request.status,
        "kind": request.kind,
        "session": request.session,
        "call": request.call,
        "agent": request.agent,
        "tool": request.tool,
        "arguments": request.arguments,
        "masked": list(request.masked),
        "reason": request.reason,
        "rule": request.rule,
        "risk": request.risk,
        "who": list(request.who),
        "quorum": request.quorum,
        "escalated": request.escalated,
        "changed": list(request.changed),
        "by": request.by,
        "created": when(request.created),
        "expires": when(request.expires),
    }


@command
def approve(
    *,
    place: Place,
    out: Out,
    id: Id,
    by: By = None,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=JSON", help="Let it run with another argument."),
    ] = None,
    masked_ok: Annotated[
        bool, typer.Option("--masked-ok", help="Approve without seeing the masked fields.")
    ] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Allow the same call again in this session.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Allow it for so long (30m, 2h, 7d) in any session."),
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=RULE", help='Allow other values too: size={"maximum": 5}.'),
    ] = None,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="See the exact arguments first. This is recorded.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask after --reveal.")] = False,
) -> int:
    """Let a waiting call run. `checkrein resume ID` then runs it."""
    with place.looking() as rein:
        record = approval_of(rein.store, id)
        who = by or user()
        edited = _edits(record, set or [])
        lasting = _always(always, until, like or [])
        if reveal:
            _reveal(rein, record, who, yes=yes, as_json=out.as_json)
        state = rein.approvals.approve(
            record.id, by=who, arguments=edited, masked_ok=masked_ok or reveal, always=lasting
        )
        _decided(rein, out, record, state, who)
        if state == "approved":
            how = f"checkrein resume {record.id}"
            if record.body["keyed"]:
                how += ", or resume() of the framework's adapter for the whole run"
            out.note(f"a process that waits goes on by itself; else: {how}")
            if lasting is not None:
                out.note("calls like it run without asking now: checkrein grants, revoke")
        elif state == "pending":
            out.note(f"{record.body['quorum']} people must approve; it still waits")
    return 0


def _always(always: bool, until: str | None, like: list[str]) -> Always | None:
    if not always and until is None and not like:
        return None
    rules: dict[str, Any] = {}
    for item in like:
        name, _, text = item.partition("=")
        rule = _json(f"--like {name}", text)
        if not name or not isinstance(rule, dict):
            raise ConfigError(f'--like {name}: write NAME=RULE, for example size={{"maximum": 5}}')
        rules[name] = rule
    return Always(rules or None, None if until is None else seconds(until, "--until"))


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        name = option.partition(" ")[2]
        raise ConfigError(
            f"{option}: not JSON ({error.msg}); text needs quotes: '{name}=\"...\"'"
        ) from None


def _edits(record: Record, given: list[str]) -> dict[str, Any] | None:
    if not given:
        return None
    shown = record.body["arguments"]
    known = sorted(shown) if isinstance(shown, dict) else []
    edits: dict[str, Any] = {}
    for item in given:
        name, sign, text = item.partition("=")
        if not sign or not name:
            raise ConfigError(f"--set {name}: write NAME=JSON, for example --set amount=20")
        if known and name not in known:
            raise ConfigError(f"--set {name}: {record.body['tool']} takes {', '.join(known)}")
        if name in edits:
            raise ConfigError(f"--set {name}: given twice")
        edits[name] = _json(f"--set {name}", text)
    return edits


def _reveal(rein: Rein, record: Record, who: str, *, yes: bool, as_json: bool) -> None:
    """Print the exact arguments, and on a terminal ask whether to go on."""
    record_reveal(rein, record.session, who, f"approval {record.id}")
    for event in rein.store.events(call=record.body["call"], kinds=("approval_requested",)):
        payload = rein.store.payload(event.seq)
        if event.view.get("id") == record.id and isinstance(payload, dict):
            # On standard error under --json: standard output is one document.
            stream = sys.stderr if as_json else sys.stdout
            say(f"{clean(payload['name'])} {compact(payload['arguments'])}", stream)
            break
    else:
        raise Conflict(f"approval {record.id}: its exact arguments were erased")
    if not yes and sys.stdin.isatty() and not typer.confirm("Approve?", err=True):
        raise Conflict(f"approval {record.id} was not decided")


@command
def reject(
    *,
    place: Place,
    out: Out,
    id: Id,
    by: By = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What the agent is told.")] = "",
) -> int:
    """Refuse a waiting call."""
    with place.looking() as rein:
        record = approval_of(rein.store, id)
        who = by or user()
        state = rein.approvals.reject(record.id, by=who, reason=reason)
        _decided(rein, out, record, state, who)
        if not record.body["keyed"]:
            out.note("a process that waits is told; else checkrein recover ends its session")
    return 0


def _decided(rein: Rein, out: Out, record: Record, state: str, who: str) -> None:
    fresh = rein.store.record("approval", record.id) or record
    out.document({**tree_of(request_of(rein, fresh)), "by": who})
    out.line(f"{record.id} {state} by {who}: {record.body['tool']}")
