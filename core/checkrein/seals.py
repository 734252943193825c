"""Keyed seals over approvals and grants: what was altered in the store counts for nothing.

Whoever can write the file, but does not know the store's key, can approve nothing: neither by
the state in a row nor by what stands in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein import codec
from checkrein.errors import Conflict
from checkrein.store import Record


def sealed(key: bytes, id: str, state: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A row's body with a seal over it and its state."""
    held = {name: value for name, value in body.items() if name != "seal"}
    return {**held, "seal": codec.digest(key, [id, state, held])}


def holds(key: bytes, record: Record) -> bool:
    """Whether a row is as it was sealed."""
    # How an approval is used up has no seal of its own: one that is spent gives nothing.
    state = "approved" if record.state in ("started", "done") else record.state
    body: object = record.body
    return isinstance(body, dict) and sealed(key, record.id, state, body) == body


def vote(key: bytes, record: Record) -> bool:
    """Whether a person's answer, one of several that are needed, was really given."""
    return holds(key, record) and record.id == f"{record.label}/{record.body['by']}"


def intact(key: bytes, record: Record) -> bool:
    """Whether an approval or a grant is as it was sealed, in the session it was sealed for."""
    return holds(key, record) and record.body.get("session") == record.session


def check(key: bytes, record: Record) -> None:
    """Raise `Conflict` for an approval or a grant that was altered."""
    if not intact(key, record):
        raise Conflict(
            f"{record.kind} {record.id} was altered in the store: it counts for nothing; look with "
            "`checkrein doctor`, and let the call be asked about again"
        )
