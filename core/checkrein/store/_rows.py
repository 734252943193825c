"""What a store gives back about sessions, records, accounts and owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from checkrein.call import CostState
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
    paused: bool = False
    """It takes no calls for a while."""

    @property
    def stored(self) -> str:
        """State and rollback in one word: ROLLED_BACK once nothing of it is left."""
        return "ROLLED_BACK" if self.rollback == "rolled_back" else self.state


@dataclass(frozen=True, slots=True)
class Standing:
    """A session and what its records say of it: all that its display state is derived from."""

    row: SessionRow
    pending: bool = False
    """A call of it waits for a person (the request has not expired)."""
    approved: bool = False
    """A call of it was approved and has not run yet."""
    doubt: str = ""
    """State of its record of kind `doubt`: `open`, `failed`, or empty."""


def nameless(found: Standing) -> Standing:
    """A standing that other sessions may have as well: without what is one session's own."""
    row = found.row
    # An empty tuple stands for the body: it can be hashed.
    bare = SessionRow(
        "", row.state, row.rollback, row.stopped, row.owner, 0, 0, "", 0, 0, (),  # type: ignore[arg-type]  # as above
        row.paused,
    )  # fmt: skip
    return Standing(bare, found.pending, found.approved, found.doubt)


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


@dataclass(slots=True)
class CostRow:
    """What one attempt cost, as it stands on the bill. Attribution is that of the call's time."""

    call: str
    at: int
    """Microseconds since the epoch, of the outcome."""
    session: str
    kind: str
    """`model`, `tool` or `undo`."""
    name: str
    """The model or the tool."""
    agent: str
    task: str
    user: str
    tenant: str
    role: str
    """`retry`, `fallback`, `answer` (a cache), `guard` (a plugin's own call), or empty."""
    state: CostState
    cost: int | None
    """Nano-dollars: measured, or what a budget charged; None where nobody knows."""
    tokens: int
    """All tokens, or what a budget charged in their place."""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio: int = 0
    saved: int = 0
    """Tokens that an answer from elsewhere saved."""
    source: str = ""
    """Where the price is from, and its version."""


@dataclass(slots=True)
class Total:
    """Rows of the bill added up. `key`: agent, model ...; empty for those without one."""

    key: str
    calls: int = 0
    cost: int = 0
    """Nano-dollars."""
    tokens: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    audio: int = 0
    saved: int = 0
    estimated: int = 0
    """Calls whose cost is an estimate or a budget's hold."""
    unpriced: int = 0
    """Calls whose price is not known; what a budget charged for them is in `cost`."""


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
