"""`checkrein rollback`, `recover` and `settle`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, cast

import typer

from checkrein import owner
from checkrein.by_hand import STATES
from checkrein.cli._ids import call_of, rows_of, session_of
from checkrein.cli._output import Out, clean
from checkrein.cli._person import user
from checkrein.cli._place import Place, command
from checkrein.effects import descendants, effect_of, newest_first
from checkrein.errors import ConfigError
from checkrein.rein import Rein
from checkrein.report import LEFT, Action, RollbackReport
from checkrein.store import Store


@command
def rollback(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
    ],
    to: Annotated[
        int | None, typer.Option(metavar="STEP", min=1, help="Only what came after this step.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this call; the session goes on.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
) -> int:
    """Undo what a session did, newest effect first. Needs the application (--app)."""
    if to is not None and action is not None:
        raise ConfigError("rollback: name one of --to STEP and --action ID")
    with place.looking() if dry_run else _acting(place) as rein:
        row = session_of(rein.store, session)
        call = None if action is None else call_of(rein.store, row.id, action)
        with out.working(f"rolling back {row.id}"):
            report = rein.rollback(row.id, to=to, action=call, dry_run=dry_run)
        if report is None:
            raise ConfigError("rollback from inside one of the session's own calls")
        out.document(_tree(report))
        _print(out, report)
    return 1 if report.left else 0


@command
def settle(
    *,
    place: Place,
    out: Out,
    call: Annotated[str, typer.Argument(metavar="CALL", help="Its id, as `rollback` names it.")],
    state: Annotated[
        str,
        typer.Argument(
            metavar="STATE", help="done (in place), not_done (never was) or undone (by hand)."
        ),
    ],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who has looked. [you]")] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What was found.")] = "",
) -> int:
    """Say by hand what became of a call that nobody could tell."""
    if state not in STATES:
        raise ConfigError(f"settle {state}: use one of {', '.join(STATES)}")
    with place.looking() as rein:
        who = by or user()
        rein.settle(call, cast("Any", state), by=who, note=note)
        out.document({"call": call, "state": state, "by": who})
        out.line(f"{call} {state}, says {who}")
        if state == "done":
            out.note("it is in place: checkrein rollback SESSION undoes it")
    return 0


@command
def recover(
    *,
    place: Place,
    out: Out,
    settle: Annotated[
        bool, typer.Option("--settle", help="Wait until what is in doubt can be decided.")
    ] = False,
) -> int:
    """Finish what killed processes left behind. Needs the application (--app)."""
    if place.app_name() is None:
        # Without tools nothing could be undone, and a session would end half done.
        with place.looking() as rein:
            open_ones = _with_effects(rein)
            if open_ones:
                raise ConfigError(
                    f"{len(open_ones)} sessions have effects to undo (first: {open_ones[0]}), "
                    "which takes the application's tools: name them with --app MODULE:REIN"
                )
            return _recover(rein, out, settle=settle)
    with place.acting() as rein:
        return _recover(rein, out, settle=settle)


def _acting(place: Place) -> Rein:
    return place.acting()


def _recover(rein: Rein, out: Out, *, settle: bool) -> int:
    with out.working("recovering" + (" (waiting for answers to settle)" if settle else "")):
        report = rein.recover(settle=settle)
    out.document(
        {
            "sessions": [_tree(one) for one in report.sessions],
            "waiting": report.waiting,
            "left": len(report.left),
            "settles_in": round(report.wait, 3),
        }
    )
    if not report.sessions and not report.waiting:
        out.line("nothing to recover")
    for one in report.sessions:
        out.line(f"session {one.session}")
        _print(out, one)
    for waiting in report.waiting:
        out.line(f"session {waiting} waits for a person: left alone (checkrein approvals)")
    if report.wait > 0:
        out.note(f"in doubt: run again in {report.wait:.0f} s, or now with --settle, which waits")
    return 1 if report.left else 0


def _with_effects(rein: Rein) -> list[str]:
    """Sessions of dead processes, doubtful and refused ones, that have something to undo."""
    store, now = rein.store, rein.clock()
    ids: dict[str, None] = {}
    for row in rein.control.rows(state="ACTIVE"):
        keeps = row.body.get("on_error") == "keep"
        if not keeps and not rein.rollbacks.alive(row) and rein.recovery.refused(row.id):
            ids[row.id] = None
    for lease in store.owners():
        if not owner.alive(lease, now):
            rows = rows_of(lambda after, o=lease.id: store.sessions(owner=o, after=after))  # type: ignore[misc]  # the default binds the loop's value
            ids.update(dict.fromkeys(row.id for row in rows))
    doubts = rows_of(lambda after: store.records("doubt", state="open", after=after))
    ids.update(dict.fromkeys(record.id for record in doubts))
    return [session for session in ids if _undoable(store, session)]


def _undoable(store: Store, id: str) -> bool:
    for intent in newest_first(store, descendants(store, id)):
        effect = effect_of(store, intent.call)
        if effect is not None and not effect.undone and effect.state != "not_done":
            return True
    return False


def _tree(report: RollbackReport) -> dict[str, Any]:
    return {
        "session": report.session,
        "cause": report.cause,
        "dry_run": report.dry_run,
        "to": report.to,
        "complete": report.complete,
        "actions": [
            {
                "call": a.call, "name": a.name, "session": a.session, "status": a.status,
                "detail": a.detail, "settles_in": round(a.wait, 3),
            }
            for a in report.actions
        ],
    }  # fmt: skip


def _print(out: Out, report: RollbackReport) -> None:
    out.table(
        ("status", "tool", "call", "detail"),
        [(a.status, a.name, a.call, a.detail) for a in report.actions],
        empty="nothing to undo",
    )
    out.line(clean(report.summary()))
    for hint in _hints(report.actions):
        out.note(hint)


_HINTS = {
    "needs_human": "needs_human: look at the outside system, then checkrein settle CALL STATE",
    "waiting": "waiting: a person is asked whether these may be undone (checkrein approvals)",
    "declined": "declined: a person did not let these be undone",
    "not_undoable": "not_undoable: no undo is declared for these tools",
    "failed": "failed: mend the cause, then run checkrein rollback again",
    "kept": "kept: a plugin chose to leave these",
}


def _hints(actions: Iterable[Action]) -> list[str]:
    found = {a.status for a in actions if a.asked and a.status in LEFT}
    return [text for status, text in _HINTS.items() if status in found]
