"""What a store gives back about sessions, records, accounts and owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from checkrein.verdicts import Settle, Unit

SessionState: TypeAlias = Literal["ACTIVE", "COMPLETED", "FAILED", "ABANDONED"]
Rollback: TypeAlias = Literal["none", "rolling_back", "rolled_back", "partial"]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as stored."""

    id: str
    state: SessionState
    rollback: Rollback
    stopped: bool
    owner: str
    """Id of the owning process's lease; empty if nobody owns it."""
    fence: int
    n: int
    head: str
    created: int
    updated: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A row as stored."""

    kind: str
    id: str
    state: str
    session: str
    label: str
    created: int
    updated: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Balance:
    """An account: enforced total = spent + held."""

    account: str
    unit: Unit
    spent: int
    held: int


@dataclass(frozen=True, slots=True)
class OpenHold:
    """A hold that is not settled."""

    id: str
    account: str
    amount: int
    unit: Unit
    settle: Settle
    call: str
    session: str


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """A process's lease: who it is, and when it was last heard of."""

    id: str
    host: str
    boot: str
    pid: int
    started: str
    """Start time of the process as the system tells it: a re-used pid differs."""
    beat: int
    """Microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows and where the next page begins (None = no more)."""

    rows: Sequence[Any]
    next: str | None = None


class Erased:
    """What `payload` returns for a payload that was erased or was too large to keep."""

    def __repr__(self) -> str:
        return "ERASED"


ERASED = Erased()
