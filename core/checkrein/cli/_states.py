"""What a session is called in lists: derived from its row, its owner and its approvals."""

from __future__ import annotations

from checkrein import owner
from checkrein.store import Record, SessionRow, Store

STATES = {
    "ACTIVE": "its process is at work",
    "AWAITING_APPROVAL": "a call waits for a person",
    "APPROVED": "a call was approved and waits to be resumed",
    "SUSPENDED": "open, and no process runs it",
    "STOPPED": "takes no more calls",
    "ORPHANED": "its process died: `checkrein recover`",
    "COMPLETED": "ended well",
    "FAILED": "ended with an error; nothing was rolled back",
    "ABANDONED": "given up",
    "ROLLING_BACK": "its effects are being undone",
    "REVERTED": "its effects were undone",
    "PARTIALLY_REVERTED": "some effects are left, named below",
}


def approvals_of(store: Store, session: str, state: str, now: int) -> list[Record]:
    """Approvals of a session in a state that have not lapsed (the first hundred)."""
    page = store.records("approval", state=state, session=session, limit=100)
    return [record for record in page.rows if record.body["expires"] > now]


def alive(store: Store, row: SessionRow, now: int) -> bool:
    """Whether the session's owner can still be at work."""
    return bool(row.owner) and owner.alive(store.owner(row.owner), now)


def display_state(store: Store, row: SessionRow, now: int) -> str:
    """One of `STATES`."""
    orphaned = bool(row.owner) and not alive(store, row, now)
    if row.rollback == "rolled_back":
        return "REVERTED"
    if row.rollback == "partial":
        return "PARTIALLY_REVERTED"
    if row.rollback == "rolling_back":
        return "ORPHANED" if orphaned else "ROLLING_BACK"
    if row.state != "ACTIVE":
        return "ORPHANED" if orphaned and row.state == "FAILED" else row.state
    if row.stopped:
        return "STOPPED"
    if approvals_of(store, row.id, "pending", now):
        return "AWAITING_APPROVAL"
    if orphaned:
        return "ORPHANED"
    if row.owner:
        return "ACTIVE"
    return "APPROVED" if approvals_of(store, row.id, "approved", now) else "SUSPENDED"
