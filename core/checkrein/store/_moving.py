"""Moving a whole store into another backend, row by row: what both keep is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, runtime_checkable

from checkrein import owner
from checkrein.errors import ConfigError, Conflict, StoreUnavailable
from checkrein.store import OwnerRow, Store
from checkrein.store._bill_rows import COLUMNS

Row: TypeAlias = tuple[Any, ...]

TABLES: dict[str, tuple[tuple[str, ...], int]] = {
    "sessions": (
        (
            "sid", "id", "state", "rollback", "stopped", "owner", "fence", "n", "head", "created",
            "updated", "parent", "agent", "body",
        ),
        1,
    ),
    "events": (
        (
            "seq", "sid", "n", "kind", "call", "attempt", "at", "ref", "prev", "hash", "view",
            "salt", "data", "place",
        ),
        1,
    ),
    "records": (
        ("rid", "kind", "id", "state", "session", "label", "created", "updated", "body"),
        1,
    ),
    "accounts": (("account", "unit", "spent", "held", "recent", "span"), 1),
    "holds": (
        ("id", "account", "amount", "unit", "settle", "call", "session", "span", "at"),
        1,
    ),
    "bookings": (("account", "at", "amount"), 2),
    "owners": (("id", "host", "boot", "pid", "started", "beat"), 1),
    "costs": (("seq", "at", "sid", *COLUMNS), 1),
}  # fmt: skip
"""Table -> its columns, and how many of them, from the first, are its key.

Both backends have these; what else they keep is derived from them.
"""

ROWS = 1000
BYTES = 4_000_000
"""A page that is written in one transaction: so many rows, or so long texts, whatever is first."""


@runtime_checkable
class Movable(Protocol):
    """What a backend offers for being moved from and to."""

    key: bytes

    def frozen(self) -> AbstractContextManager[None]:
        """Nobody writes for the length of the block. Readers go on."""
        ...

    def rows(self, table: str, after: Row = ()) -> Iterator[Row]:
        """The rows of one of `TABLES` by rising key, those after a key.

        Payloads that lie in files are given as if they lay in rows.
        """
        ...

    def count(self, table: str) -> int:
        """How many rows a table has."""
        ...

    def moving(self) -> str:
        """The mark of a move into this store that is not finished; empty if there is none."""
        ...

    def begin_move(self, mark: str, key: bytes) -> None:
        """Take over the key of the store that is moved here, and bear the mark until `end_move`.

        With the mark, the store opens for nothing but going on. Can be repeated.
        """
        ...

    def newest(self, table: str) -> Row:
        """The greatest key of a table; empty if it has no row."""
        ...

    def put_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows as they are, all or none, in one transaction."""
        ...

    def end_move(self) -> None:
        """Bring what is derived up to date, and remove the mark."""
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved."""

    sessions: int
    """Whose chains were verified in the new store, head by head those of the old one."""
    rows: dict[str, int]
    resumed: bool
    """It went on from where an earlier attempt was broken off."""


def check_whole(store: Movable, shown: str) -> None:
    """Raise `StoreUnavailable` for a store of which a part is still to be moved here."""
    if not store.moving():
        return
    raise StoreUnavailable(
        f"store {shown} is half migrated: run the same checkrein store migrate FROM TO again, "
        "which goes on; or delete it"
    )


def move(source: Store, target: Store, now: int, tell: Callable[[str, int, int], None]) -> Moved:
    """Copy everything, compare everything, verify every chain; can be repeated after a kill.

    `now`: microseconds, to judge leases by. `tell` is told the step, and how many of how many
    rows are done. Raises `Conflict` for a source that is in use, a target that is not empty, and
    where the two differ in the end; the target then stays half migrated.
    """
    if not isinstance(source, Movable) or not isinstance(target, Movable):
        raise ConfigError("store migrate: this kind of store cannot be moved (SQLite, PostgreSQL)")
    with source.frozen():
        _unused(source, now)
        mark = sha256(b"moving" + source.key).hexdigest()
        resumed = _room(source, target, mark)
        target.begin_move(mark, source.key)
        counts = {table: _copy(source, target, table, tell) for table in TABLES}
        for table in TABLES:
            _compare(source, target, table, counts[table], tell)
        sessions = _verify(source, target, counts["sessions"], tell)
        target.end_move()
    return Moved(sessions, counts, resumed)


def _unused(source: Movable, now: int) -> None:
    for row in source.rows("owners"):
        lease = OwnerRow(*row)
        if owner.alive(lease, now):
            raise Conflict(
                f"store migrate: process {lease.pid} on {lease.host.partition(' ')[0]} runs "
                "sessions in the source: end it first (another host's counts as alive for "
                f"{owner.LEASE:g} s)"
            )


def _room(source: Movable, target: Movable, mark: str) -> bool:
    """Whether the target holds a part of this move already. Raises `Conflict`."""
    found = target.moving()
    if found:
        if found != mark:
            raise Conflict("store migrate: the target is half migrated from another store")
        return True
    if any(target.newest(table) for table in TABLES):
        same = ": it has this store's key (moved already?)" if target.key == source.key else ""
        raise Conflict(f"store migrate: the target is not empty{same}; name a new one")
    return False


def _copy(
    source: Movable, target: Movable, table: str, tell: Callable[[str, int, int], None]
) -> int:
    total, done = source.count(table), target.count(table)
    for page in _pages(source.rows(table, target.newest(table))):
        target.put_rows(table, page)
        done += len(page)
        tell(f"copying {table}", done, total)
    return total


def _pages(rows: Iterable[Row]) -> Iterator[list[Row]]:
    page: list[Row] = []
    size = 0
    for row in rows:
        page.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(page) == ROWS or size >= BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _compare(
    source: Movable, target: Movable, table: str, total: int, tell: Callable[[str, int, int], None]
) -> None:
    ours, theirs = source.rows(table), target.rows(table)
    for done, row in enumerate(ours, 1):
        if next(theirs, None) != row:
            raise _differ(table)
        if done % ROWS == 0:
            tell(f"comparing {table}", done, total)
    if next(theirs, None) is not None:
        raise _differ(table)


def _differ(table: str) -> Conflict:
    return Conflict(
        f"store migrate: {table} differ: the source was changed since this move began, or the "
        "target was; delete the target and begin again"
    )


def _verify(source: Any, target: Any, total: int, tell: Callable[[str, int, int], None]) -> int:
    done = 0
    for row in target.rows("sessions"):
        bad = source.verify(row[1]) or target.verify(row[1])
        if bad is not None:
            raise Conflict(
                f"store migrate: session {row[1]} is damaged from event {bad.n} on, in the source "
                "too (checkrein audit verify): restore it from a backup, or forget that session; "
                "then delete the target and begin again"
            )
        done += 1
        if done % ROWS == 0:
            tell("verifying sessions", done, total)
    return done
