"""Ids as people type them: whole, or the beginning of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from checkrein.errors import Conflict
from checkrein.store import Event, Page, Record, SessionRow, Store

_SHOWN = 5


def rows_of(page: Callable[[str | None], Page]) -> Iterator[Any]:
    """All rows of a listing, page by page."""
    after: str | None = None
    while True:
        found = page(after)
        yield from found.rows
        after = found.next
        if after is None:
            return


def session_of(store: Store, typed: str) -> SessionRow:
    """The session that `typed` names. Raises `Conflict`: none, or several."""
    row = store.session(typed)
    if row is not None:
        return row
    some = store.sessions(prefix=typed, limit=_SHOWN + 1).rows if typed else []
    found: SessionRow = _only(typed, "session", "checkrein sessions", some)
    return found


def call_of(store: Store, session: str, typed: str) -> str:
    """The call of a session that `typed` names. Raises `Conflict`: none, or several."""
    if store.events(call=typed, kinds=("intent",), limit=1):
        return typed
    found: dict[str, Event] = {}
    after = 0
    while True:
        page = store.events(session=session, kinds=("intent",), after=after)
        found.update((event.call, event) for event in page if event.view["kind"] == "tool")
        if not page:
            break
        after = page[-1].seq
    listing = f"checkrein show {session} --json"
    return str(_only(typed, "call", listing, found.values(), "call").call)


def approval_of(store: Store, typed: str) -> Record:
    """The approval that `typed` names. Raises `Conflict`: none, or several."""
    whole = typed if typed.startswith("ap-") else f"ap-{typed}"
    record = store.record("approval", whole)
    if record is not None:
        return record
    some = store.records("approval", prefix=whole, limit=_SHOWN + 1).rows if typed else []
    found: Record = _only(whole, "approval", "checkrein approvals", some)
    return found


def _only(typed: str, what: str, listing: str, rows: Iterable[Any], key: str = "id") -> Any:
    found = [row for row in rows if typed and getattr(row, key).startswith(typed)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Conflict(f"no {what} begins with {typed!r}: `{listing}` lists them")
    few = len(found) <= _SHOWN
    some = ", ".join(getattr(row, key) for row in found[:_SHOWN])
    number = len(found) if few else f"more than {_SHOWN}"
    raise Conflict(f"{number} {what}s begin with {typed!r}: {some}{'' if few else ', ...'}")
