"""The audit log for others: every event as one row, oldest first, in constant memory.

The journal is the log; nothing is written twice. Rows hold the journal's view, which plugins have
redacted, and never a payload. Every row has its hash, so a copy can be compared with the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from checkrein.store import Event, Store

COLUMNS = ("seq", "session", "n", "at", "kind", "call", "attempt", "view", "ref", "prev", "hash")
METADATA = frozenset(
    {
        "kind", "name", "tool", "effect", "step", "undo", "plan", "state", "us", "usage", "cost",
        "cost_state", "price", "code", "rule", "plugin", "halt", "ended", "cause", "undone", "left",
        "mode", "agent", "parent", "id", "expires", "source", "verdicts", "unchecked", "events",
        "head", "by", "number", "key",
    }
)  # fmt: skip
"""What of a view says that something happened, and not what was in it."""
_PAGE = 1000
_AGENTS = 10_000
"""Sessions whose agent is remembered while rows are filtered by it."""


def rows(
    store: Store,
    *,
    session: str | None = None,
    since: int | None = None,
    until: int | None = None,
    agent: str | None = None,
    after: int = 0,
    metadata_only: bool = False,
) -> Iterator[dict[str, Any]]:
    """Events as plain data, a dict with `COLUMNS` each, oldest first.

    `since` and `until` (not included): microseconds since the epoch. `after`: go on behind the
    event with this number. `metadata_only`: views without arguments, results, reasons and texts.
    """
    of = _agents(store)
    while page := store.events(session=session, after=after, limit=_PAGE):
        for event in page:
            if since is not None and event.at < since:
                continue
            if until is not None and event.at >= until:
                continue
            if agent is None or of(event.session) == agent:
                yield row(event, metadata_only=metadata_only)
        after = page[-1].seq


def row(event: Event, *, metadata_only: bool = False) -> dict[str, Any]:
    """One event as plain data."""
    return {
        "seq": event.seq, "session": event.session, "n": event.n, "at": event.at,
        "kind": event.kind, "call": event.call, "attempt": event.attempt,
        "view": metadata(event.view) if metadata_only else event.view,
        "ref": event.ref, "prev": event.prev, "hash": event.hash,
    }  # fmt: skip


def metadata(view: Any) -> dict[str, Any]:
    """A view without what a call was about: names, states, verdicts, figures."""
    if not isinstance(view, Mapping):
        return {}
    kept = {key: value for key, value in view.items() if key in METADATA}
    error = view.get("error")
    if isinstance(error, Mapping):
        kept["error"] = {"type": error.get("type")}
    return kept


def _agents(store: Store) -> Any:
    known: dict[str, str] = {}

    def of(session: str) -> str:
        if session not in known:
            if len(known) >= _AGENTS:
                known.clear()
            found = store.session(session)
            known[session] = "" if found is None else str(found.body.get("agent") or "")
        return known[session]

    return of
