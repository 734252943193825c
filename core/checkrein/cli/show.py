"""`checkrein show`."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

import typer

from checkrein.cli._ids import session_of
from checkrein.cli._output import Out, clean, compact, counted, usd, when
from checkrein.cli._person import user
from checkrein.cli._place import Place, command
from checkrein.errors import StoreUnavailable
from checkrein.rein import Rein
from checkrein.standing import STATES
from checkrein.store import Batch, Erased
from checkrein.timeline import Frame, given_up, timeline

WIDTH = 80
"""Characters of arguments and results that the timeline shows."""


HEAD = ("time", "step", "what", "verdict", "state", "cost", "undo", "detail")
NARROW_HEAD = ("time", "step", "what", "state", "detail")


@command
def show(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
    ],
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Print exact arguments and results. This is recorded.")
    ] = False,
    last: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the newest entries.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who looks (--reveal). [you]")
    ] = None,
) -> int:
    """Show what happened in one session."""
    with place.looking() as rein:
        row = session_of(rein.store, session)
        state = rein.standings.of(row)
        if reveal:
            record_reveal(rein, row.id, by or user(), "session")
        reading = rein.read(row.id)
        entries = list(deque(timeline(reading.events()), maxlen=last))
        if not rein.rollbacks.alive(row):
            given_up(entries)
        payloads = _payloads(rein, entries) if reveal else {}
        spend = reading.spend()
        if out.as_json:
            trees = [{"at": when(e.at), **e.tree(), **_revealed(e, payloads)} for e in entries]
            out.document(
                {
                    "id": row.id, "display_state": state, "state": row.state,
                    "rollback": row.rollback, "stopped": row.stopped,
                    "created": when(row.created), "updated": when(row.updated),
                    **dict(row.body),
                    "spend": {
                        "nano_usd": spend.nano_usd, "tokens": spend.tokens,
                        "calls": spend.calls, "unpriced": spend.unpriced,
                    },
                    "timeline": trees,
                }
            )  # fmt: skip
            return 0
        _head(out, row, state, spend)
        head: tuple[str, ...] = HEAD
        rows = [_row(entry) for entry in entries]
        if out.narrow:
            head, rows = NARROW_HEAD, [_narrow(row) for row in rows]
        out.table(head, rows, empty="nothing happened")
        if reveal:
            _print_payloads(out, entries, payloads)
    return 0


def _head(out: Out, row: Any, state: str, spend: Any) -> None:
    bill = f"{usd(spend.nano_usd)}, {spend.tokens} tokens, {counted(spend.calls, 'call')}"
    if spend.unpriced:
        bill += f", {spend.unpriced} of them unpriced (not in the sum)"
    body = row.body
    out.fields(
        {
            "session": row.id,
            "state": f"{state} ({STATES[state]})",
            "agent": body.get("agent", ""),
            "user": body.get("user", ""),
            "tenant": body.get("tenant", ""),
            "intent": body.get("intent", ""),
            "parent": body.get("parent", ""),
            "mode": body.get("mode", "") if body.get("mode") == "observe" else "",
            "begun": when(row.created),
            "changed": when(row.updated),
            "used": bill,
        }
    )
    out.line()


def _row(entry: Frame) -> tuple[object, ...]:
    what = entry.what if entry.kind in ("tool", "") else f"{entry.kind} {entry.what}"
    detail = entry.detail
    if entry.kind and entry.kind != "model":
        call = compact(entry.arguments, WIDTH) if entry.arguments else ""
        given = f" -> {compact(entry.result, WIDTH)}" if entry.result is not None else ""
        detail = " ".join(filter(None, (call + given, detail)))
    cost = usd(entry.cost)
    if entry.cost_state not in ("", "reported"):
        cost = f"{cost} {entry.cost_state}".strip()
    return (
        when(entry.at)[11:19], "" if entry.step is None else entry.step, what, entry.verdict,
        entry.state, cost, entry.undo, detail,
    )  # fmt: skip


def _narrow(row: tuple[object, ...]) -> tuple[object, ...]:
    """A row in fewer columns: what is often empty goes to the detail."""
    time, step, what, verdict, state, cost, undo, detail = row
    more = (verdict, cost, f"undo {undo}" if undo else "", detail)
    return time, step, what, state, "; ".join(str(text) for text in more if text)


# -- exact values


def record_reveal(rein: Rein, session: str, by: str, what: str) -> None:
    """Write down, before anything is printed, that somebody looks at exact values."""
    event = rein.journal.event("revealed", by=by, what=what)
    rein.store.commit(Batch(session, (event,), event.at))


def _payloads(rein: Rein, entries: list[Frame]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for entry in entries:
        for seq in entry.seqs:
            try:
                value = rein.store.payload(seq)
            except StoreUnavailable as error:
                value = {"unreadable": str(error)}
            if value is not None:
                found[seq] = "erased, or too large to keep" if isinstance(value, Erased) else value
    return found


def _revealed(entry: Frame, payloads: dict[int, Any]) -> dict[str, Any]:
    found = {str(seq): payloads[seq] for seq in entry.seqs if seq in payloads}
    return {"payloads": found} if found else {}


def _print_payloads(out: Out, entries: list[Frame], payloads: dict[int, Any]) -> None:
    out.line()
    out.line("Exact values (this look was recorded):")
    for entry in entries:
        for seq in entry.seqs:
            if seq in payloads:
                step = "" if entry.step is None else f"step {entry.step} "
                out.line(f"  {step}{entry.what} {clean(entry.call)}: {compact(payloads[seq])}")
