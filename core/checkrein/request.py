"""A question to a person as channels and lists show it: a view of its record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein import expiry
from checkrein.store import Record

if TYPE_CHECKING:
    from checkrein.rein import Rein


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a channel shows, and what an answer is bound to."""

    id: str
    """Token: `checkrein approve ID`."""
    session: str
    call: str
    tool: str
    arguments: Mapping[str, Any]
    """As a person may see them (viewed); never the exact values."""
    masked: tuple[str, ...]
    """Paths inside `arguments` that a plugin masked."""
    reason: str
    rule: str
    risk: str
    who: tuple[str, ...]
    """Who may answer now; empty = anybody."""
    quorum: int
    created: int
    """Microseconds since the epoch."""
    expires: int
    """Microseconds since the epoch, as the clock stood when it was asked."""
    agent: str = ""
    state: str = "pending"
    kind: str = "before"
    """`before` the call, `after` it (a review), or `undo`: before it is taken back."""
    by: str = ""
    """Who decided."""
    changed: tuple[str, ...] = ()
    """How the tool's definition differs from the one that a standing grant was given for."""
    escalated: bool = False
    """Nobody answered at first: others may answer now, and every channel is told again."""
    is_open: Callable[[], bool] = field(default=lambda: True, compare=False)
    """False as soon as somebody else decided: a prompt should give up then."""

    @property
    def status(self) -> str:
        """PENDING_APPROVAL, CLEARED, FAILED, SUCCESS or, of an undo, DECLINED."""
        return status_of(self.kind, self.state)


def status_of(kind: str, state: str) -> str:
    """What an action is called while, and after, a person is asked about it."""
    if state == "pending":
        return "PENDING_APPROVAL"
    if state in ("approved", "started", "done"):
        return "CLEARED"
    # A review takes place when the action has succeeded, and does not change that.
    return {"after": "SUCCESS", "undo": "DECLINED"}.get(kind, "FAILED")


def escalated(rein: Rein, body: Mapping[str, Any]) -> bool:
    """Whether those who are asked after the first have their turn."""
    return "escalates" in body and expiry.left(rein, body, "escalates") <= 0


def may_answer(rein: Rein, body: Mapping[str, Any]) -> list[str]:
    """Who may answer now: those asked first, and with them those whose turn it is."""
    # Where anybody may answer, escalating only tells them again.
    return [*body["who"], *(body["then"] if body["who"] and escalated(rein, body) else ())]


def request_of(
    rein: Rein, record: Record, is_open: Callable[[], bool] | None = None
) -> ApprovalRequest:
    """A record as a channel and a list show it."""
    body = record.body
    return ApprovalRequest(
        id=record.id,
        session=record.session,
        call=body["call"],
        tool=body["tool"],
        # A channel may change what it is given: the record it may not.
        arguments=copy.deepcopy(body["arguments"]),
        masked=tuple(body["masked"]),
        reason=body["reason"],
        rule=body["rule"],
        risk=body["risk"],
        who=tuple(may_answer(rein, body)),
        quorum=body["quorum"],
        created=record.created,
        expires=body["expires"],
        agent=body["agent"],
        state=record.state,
        kind=body["kind"],
        by=str(body.get("by", "")),
        escalated=escalated(rein, body),
        changed=tuple(body.get("changed", ())),
        is_open=is_open or (lambda: record.state == "pending"),
    )
