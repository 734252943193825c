"""Approvals: the record of a question to a person, and its one use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


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
    quorum: int
    created: int
    """Microseconds since the epoch."""
    expires: int
    """Microseconds since the epoch."""
    agent: str = ""
    is_open: Callable[[], bool] = field(default=lambda: True, compare=False)
    """False as soon as somebody else decided: a prompt should give up then."""
