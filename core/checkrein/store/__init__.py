"""The store: an append-only journal of events, and rows derived from it.

A step of a call is ONE `Batch` and one transaction: events, holds and settles, and changes
of rows. Either all of it is on disk or none. Backends implement `Store`; which one is used
is said by a URL (`memory:`, `sqlite:///PATH`, or a scheme that an installed package offers
under the entry-point group `checkrein.stores`).

Trees: `view` and `payload` are JSON trees (dict with str keys, list, str, int, float, bool,
None) made by `checkrein.codec`. A backend must treat them as frozen. `MemoryStore` keeps them
as they are; a durable backend encodes them before it takes its write lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from checkrein.store._keeping import Keeping
from checkrein.store._opening import StoreOptions as StoreOptions
from checkrein.store._opening import open_store as open_store
from checkrein.store._rows import ERASED as ERASED
from checkrein.store._rows import Balance as Balance
from checkrein.store._rows import CostRow as CostRow
from checkrein.store._rows import Erased as Erased
from checkrein.store._rows import OpenHold as OpenHold
from checkrein.store._rows import OwnerRow as OwnerRow
from checkrein.store._rows import Page as Page
from checkrein.store._rows import Record as Record
from checkrein.store._rows import Rollback as Rollback
from checkrein.store._rows import SessionRow as SessionRow
from checkrein.store._rows import SessionState as SessionState
from checkrein.store._rows import Standing as Standing
from checkrein.store._rows import Total as Total
from checkrein.verdicts import Settle, Unit

Tree: TypeAlias = Any
"""A JSON tree."""


DIMENSIONS = ("session", "agent", "task", "tool", "model", "user", "tenant", "role")
"""By what the bill can be added up."""

StreakStep: TypeAlias = Literal["", "book", "clear"]
"""`book`: one more failure, at the batch's time. `clear`: there is none any more, unless one was
booked after the hold was taken. Empty: as with any other hold."""


class _Same:
    __slots__ = ()

    def __repr__(self) -> str:
        return "SAME"


SAME = _Same()
"""A payload that holds what the view shows: `{"arguments"}` of an intent, `{"result"}` of an
outcome. A backend stores it like any other payload, but need not be handed it twice."""


@dataclass(slots=True)
class NewEvent:
    """An event to append.

    `attempt` matters for kinds `intent` and `outcome` only: there (call, kind, attempt) is
    unique, and a second one is refused with `DuplicateIntent`.
    """

    kind: str
    call: str
    at: int
    """Microseconds since the epoch, from the Rein's clock."""
    view: Tree
    payload: Tree | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """A stored event."""

    seq: int
    """Store-wide, rising; order of commits."""
    session: str
    n: int
    """Position in the session's chain, from 1."""
    kind: str
    call: str
    attempt: int
    at: int
    view: Tree
    ref: str
    """SHA-256 over salt and bytes of the payload (hex); empty if there is none. It is part of
    the hashed event, so a payload can be erased and the chain still verifies."""
    prev: str
    hash: str
    """`sha256` over `prev` and every stored column, hex."""


@dataclass(slots=True)
class HoldRow:
    """A hold to take. `id` is unique: call, attempt and account."""

    id: str
    account: str
    amount: int
    unit: Unit
    limit: int
    window: float | None
    settle: Settle
    """`streak`: see `verdicts.Hold`; `window` is then what has to pass before a full account
    lets one call through."""
    call: str
    session: str


@dataclass(slots=True)
class SettleRow:
    """Close a hold: `actual` is booked as spent (may be above the held amount), the hold goes.

    With `window`, the booked amount counts in the account until it slides out. Settling a hold
    that is not there changes nothing.
    """

    id: str
    actual: int
    streak: StreakStep = ""
    """What becomes of an account of failures in a row."""


@dataclass(slots=True)
class Put:
    """Write a row of `kind`, if its present state is one of `if_state`.

    `if_state=None`: whatever it is, and also if there is no row. `if_state=("",)`: only if
    there is no row yet. Otherwise `Conflict`, and nothing of the batch is written.
    """

    kind: str
    id: str
    state: str
    body: Mapping[str, Any]
    """JSON tree."""
    session: str = ""
    label: str = ""
    """One more column to look up by (approval: tool; grant: agent)."""
    if_state: tuple[str, ...] | None = None


@dataclass(slots=True)
class SessionPut:
    """Create or change the session's own row. Fields left None stay as they are."""

    create: bool = False
    state: SessionState | None = None
    rollback: Rollback | None = None
    stopped: bool | None = None
    paused: bool | None = None
    """Pause, or continue. A session that is stopped stays stopped."""
    owner: str | None = None
    """At `create`: the owner, whose fence becomes 1. Later only `""`: release the session."""
    body: Mapping[str, Any] | None = None
    """agent, user, tenant, task, intent, parent, policy ...: JSON tree; only at `create`."""
    if_state: tuple[str, ...] | None = None
    """Refuse with `Conflict` unless the session's state is one of these."""


@dataclass(slots=True)
class Batch:
    """One transaction."""

    session: str
    events: Sequence[NewEvent]
    at: int
    """Microseconds since the epoch."""
    fence: int | None = None
    """The writer's fence. Older than the stored one: `FencedOut`. None: not checked."""
    admit: bool = False
    """True for the intent of a tool or model call: refused with `SessionClosed` unless the
    session is ACTIVE, neither stopped nor paused, and its rollback is `none`."""
    holds: Sequence[HoldRow] = ()
    """All or none: the first without room raises `HoldRefused`."""
    settles: Sequence[SettleRow] = ()
    puts: Sequence[Put] = ()
    session_put: SessionPut | None = None
    durable: bool = False
    """This batch must also survive a power cut, where the backend was opened so."""
    costs: Sequence[CostRow] = ()
    """Rows of the bill, for the batch's last event: one at most."""


def payload_of(event: NewEvent) -> Tree | None:
    """The payload of an event, `SAME` written out."""
    if event.payload is not SAME:
        return event.payload
    key = same_key(event.kind)
    return {key: event.view[key]}


def same_key(kind: str) -> str:
    """Which part of the view of a `kind` event `SAME` stands for."""
    return "arguments" if kind == "intent" else "result"


@dataclass(slots=True)
class Committed:
    """What a commit gave: the store-wide number of its last event, the session's next number.

    Without events: the store's last number. (Not frozen: that would double its price.)
    """

    seq: int
    n: int
    rollback: Rollback = "none"
    """The session's rollback column after the commit: an outcome that lands in a session which
    is rolling back, or rolled back, must be undone by whoever brings it."""


class Store(Keeping, Protocol):
    """What a backend must do. Every method may be called from any thread.

    Raises `StoreUnavailable` where the backend cannot be read or written.
    """

    url: str
    blocking: bool
    """Calls may wait for a lock or a disk: async entries then keep them off the loop."""
    key: bytes
    """32 random bytes, made with the store: keys the HMACs of digests."""

    def commit(self, batch: Batch, *, wait: bool = True) -> Committed:
        """Write one batch in one transaction.

        `wait=False`: raise `StoreBusy` at once where the write lock is taken, or where there is
        no saying how long it takes, as over a network.
        Raises `Conflict` and its kinds; then nothing was written.
        """
        ...

    def append(
        self,
        session: str,
        kind: str,
        call: str,
        at: int,
        view: dict[str, Tree],
        part: Tree,
        attempt: int = 0,
        fence: int | None = None,
        admit: bool = False,
        durable: bool = False,
        holds: Sequence[HoldRow] = (),
        settles: Sequence[SettleRow] = (),
        puts: Sequence[Put] = (),
    ) -> Rollback:
        """`commit` of the intent or outcome of a plain call, with its holds, or settles and rows.

        The rows have no `if_state`. `part` is the whole payload, in the view `same_key(kind)`. View
        and part are given away, all by position: it costs less. Returns `Committed.rollback`.
        """
        ...

    def commit_many(self, batches: Sequence[Batch]) -> list[Committed | Exception]:
        """Write several batches as one group: each stands or falls alone."""
        ...

    def session(self, id: str) -> SessionRow | None: ...

    def sessions(
        self,
        *,
        state: str | None = None,
        rollback: str | None = None,
        owner: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Newest first, by page. `parent` selects the direct children, `prefix` an id's start."""
        ...

    def events(
        self,
        *,
        session: str | None = None,
        call: str | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        before: int | None = None,
        reverse: bool = False,
        limit: int = 1000,
    ) -> list[Event]:
        """Events by `seq`; `after` and `before` are exclusive."""
        ...

    def payload(self, seq: int) -> Tree | Erased | None:
        """The exact payload of an event; None if it never had one.

        Raises `StoreUnavailable` if its bytes do not match the event's `ref`.
        """
        ...

    def erase(self, seqs: Iterable[int]) -> int:
        """Erase payloads; the chain still verifies. Returns how many there were."""
        ...

    def record(self, kind: str, id: str) -> Record | None: ...

    def records(
        self,
        kind: str,
        *,
        state: str | None = None,
        session: str | None = None,
        label: str | None = None,
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Oldest first, by page; those whose id begins with `prefix`."""
        ...

    def balance(
        self, account: str, *, at: int | None = None, window: float | None = None
    ) -> Balance | None: ...

    def balances(self, prefix: str = "", limit: int = 1000) -> list[Balance]: ...

    def holds(
        self, *, session: str | None = None, call: str | None = None, account: str | None = None
    ) -> list[OpenHold]: ...

    def costs(
        self,
        *,
        session: str | None = None,
        since: int | None = None,
        until: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Rows of the bill, oldest first, by page."""
        ...

    def totals(
        self,
        by: str = "",
        *,
        since: int | None = None,
        until: int | None = None,
        where: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Total]:
        """The bill added up by one of `DIMENSIONS`, dearest first; by nothing: one total.

        `limit`: only so many, the dearest (of many sessions or users that is much faster).
        `since` and `until` (microseconds) are rounded down to quarters of an hour. `where`
        keeps the rows with these values (slower: nothing is added up beforehand).
        """
        ...

    def beat(self, owner: OwnerRow) -> None:
        """Write a process's lease (insert or renew)."""
        ...

    def owner(self, id: str) -> OwnerRow | None: ...

    def owners(self) -> list[OwnerRow]: ...

    def drop_owner(self, id: str) -> None: ...

    def claim(self, session: str, owner: str, *, expect: int, at: int) -> int:
        """Become the owner if the session's fence is still `expect`; returns the new fence.

        Raises `Conflict` if somebody was faster.
        """
        ...

    def changed(self, topic: str = "", after: int = -1) -> int:
        """A number that differs from an earlier one if anything may have been committed since.

        By this process or another. Cheap enough to poll.
        """
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every commit of THIS process; returns how to stop that."""
        ...

    def verify(self, session: str) -> Event | None:
        """Recompute the session's chain: the first bad event, or None if all is well."""
        ...

    def rebuild(self, *, repair: bool = False) -> list[str]:
        """Re-fold what can be derived from events; describe each difference."""
        ...

    def close(self) -> None: ...
