"""`checkrein watch`: what is asked and decided, as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from checkrein.cli._output import Out, clean, say, since
from checkrein.cli._place import Place, command
from checkrein.cli.approvals import call_of, tree_of
from checkrein.errors import Conflict
from checkrein.rein import Rein
from checkrein.request import ApprovalRequest
from checkrein.store import Event

POLL = 0.1
KINDS = (
    "approval_requested", "approval_decided", "approval_quorum", "approval_expired",
    "approval_void", "approval_escalated", "approval_refused", "grant_given", "grant_used",
    "grant_revoked",
)  # fmt: skip


@command
def watch(
    *,
    place: Place,
    out: Out,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", min=0.0, help="End after so long. [Ctrl-C]"),
    ] = None,
) -> int:
    """Show live what is asked and what is decided; first, what waits now."""
    with place.looking() as rein:
        newest = rein.store.events(reverse=True, limit=1)
        seq = newest[0].seq if newest else 0
        for request in rein.approvals.pending():
            _show(out, rein, "waits", request, "")
        end = None if seconds is None else time.monotonic() + seconds
        try:
            for event in _events(rein, seq, end):
                _tell(out, rein, event)
        except KeyboardInterrupt:
            return 0
    return 0


def _events(rein: Rein, seq: int, end: float | None) -> Iterator[Event]:
    """Events of approvals as they are committed, by whatever process."""
    change = -1
    while True:
        now = rein.store.changed()
        if now != change:
            change = now
            newest = rein.store.events(after=seq, reverse=True, limit=1)
            last = newest[0].seq if newest else seq
            while seq < last:
                page = rein.store.events(after=seq, before=last + 1, kinds=KINDS, limit=500)
                yield from page
                seq = page[-1].seq if len(page) == 500 else last
        left = POLL if end is None else end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(POLL, left))


def _tell(out: Out, rein: Rein, event: Event) -> None:
    view = event.view
    what = event.kind.replace("approval_", "")
    by = view.get("by") or ""
    who = f"by {', '.join(by) if isinstance(by, list) else by}" if by else ""
    why = ": ".join(filter(None, (who, str(view.get("reason") or ""))))
    request: ApprovalRequest | None = None
    if event.kind.startswith("approval_"):
        try:
            request = rein.approvals.get(str(view.get("id", "")))
        except Conflict as error:
            why = str(error)
    if what == "decided":
        what = "approved" if view.get("ok") else "rejected"
    _show(out, rein, what, request, why, event)


def _show(
    out: Out,
    rein: Rein,
    what: str,
    request: ApprovalRequest | None,
    why: str,
    event: Event | None = None,
) -> None:
    at = rein.clock() if event is None else event.at
    if out.as_json:
        tree = None if request is None else tree_of(request)
        view = {} if event is None else event.view
        line = {"what": what, "why": why, "approval": tree, "event": view}
        say(json.dumps(line, ensure_ascii=False, default=str))
    else:
        clock = time.strftime("%H:%M:%S", time.localtime(at / 1e6))
        id = request.id if request is not None else str(event.view.get("id", "")) if event else ""
        parts = [clock, what.ljust(9), id]
        if request is not None:
            parts.append(call_of(request))
            if what in ("waits", "requested"):
                asked = f"{request.agent}: {request.reason}" if request.agent else request.reason
                parts.append(f"({asked}; since {since(request.created, at)})")
        say(clean("  ".join(filter(None, (*parts, why)))))
    _flush()


def _flush() -> None:
    import sys

    sys.stdout.flush()
