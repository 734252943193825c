"""Writing one event into SQLite, and at most one hold or settle, with one statement.

Between two commits of a process there is nearly always nobody else: then it knows where the
session's chain stands, and hashes the next event without asking. The statement itself checks
that this was right, and that the session takes the event; where it does not, nothing is
written, and `_write.write` finds out why. Five to eight statements become one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeAlias

from checkrein.store import Batch, Committed, HoldRow, SettleRow
from checkrein.store._bill_rows import COLUMNS, bill_values
from checkrein.store._marks import FOLDED
from checkrein.store._rules import chain_hash, micros

Into: TypeAlias = tuple[str, str]
"""A statement for any session, and one for a session that takes calls."""


def _into(target: str, more: int) -> Into:
    # The column `n` is NOT NULL: a session that is not as expected refuses the row. A number
    # that somebody else took refuses it too, by the primary key: so nothing was written since
    # this process wrote last, and its session ends where it knows. Only `forget` makes numbers
    # free again, and what it deletes is marked: a number up to that mark was taken once.
    # Triggers do the rest.
    at_any = (
        f"INSERT INTO {target} VALUES (?, ?, (SELECT ? FROM sessions WHERE sid = ? AND id = ? "
        f"AND fence <= ? AND rollback = 'none' AND {FOLDED} < ?), "
        f"{', '.join(['?'] * (11 + more))})"
    )
    open_only = "state = 'ACTIVE' AND stopped = 0 AND rollback ="
    return at_any, at_any.replace("rollback =", open_only)


EVENT = _into("events", 0)
# In a transaction. OR FAIL: a row that is refused whole needs no journal of the statement.
EVENT_WITHIN = (
    EVENT[0].replace("INSERT", "INSERT OR FAIL"),
    EVENT[1].replace("INSERT", "INSERT OR FAIL"),
)
TAKING = _into("takings", 8)
"""More values: the hold's id, account, unit, amount, limit, settle, call, session."""
SLIDING = _into("slidings", 9)
"""More values: those, and the window in microseconds."""
SETTLING = _into("settlings", 2)
"""More values: the hold's id, what is booked."""

COSTING = _into("costings", len(COLUMNS))
"""More values: a row of the bill."""
PAYING = _into("payings", len(COLUMNS) + 2)
"""More values: a row of the bill, the hold's id, what is booked."""

_NO_FENCE = 2**62

_KEPT = 1000
"""Sessions whose end is remembered: more are not written at once by one process."""


Encoded: TypeAlias = tuple[
    str, str, int, int, str, bytes, bytes, bytes | None, bytes | None, str | None
]
"""kind, call, attempt, at, view, chain body, ref, salt, data, place."""

End: TypeAlias = tuple[int, int, bytes, int, int]
"""Where a commit has left things: session's row, `n` and hash of its last event, last number in
the store, and the last number before it."""


def single(batch: Batch) -> tuple[Into, tuple[Any, ...]] | None:
    """The statement that writes all of a batch, and its further values; None if there is none."""
    events = batch.events
    if events and ".undo." in events[0].call:
        # Of a session that is rolling back, as a rule: this statement would be refused.
        return None
    if len(events) != 1 or batch.session_put is not None or batch.puts or events[0].at != batch.at:
        return None
    if not batch.costs:
        return with_one(batch.holds, batch.settles)
    closed = with_one((), batch.settles)
    if closed is None or batch.holds:
        return None
    return PAYING if batch.settles else COSTING, (*bill_values(batch.costs[0]), *closed[1])


def with_one(
    holds: Sequence[HoldRow], settles: Sequence[SettleRow]
) -> tuple[Into, tuple[Any, ...]] | None:
    """As `single`, for an event with a hold, a settle or neither."""
    if len(holds) + len(settles) > 1:
        return None
    for hold in holds:
        taking = (
            hold.id, hold.account, hold.unit, hold.amount, bounded(hold.limit), hold.settle,
            hold.call, hold.session,
        )  # fmt: skip
        if hold.window is None:
            return TAKING, taking
        return None if hold.settle == "streak" else (SLIDING, (*taking, micros(hold.window)))
    for settle in settles:
        return None if settle.streak else (SETTLING, (settle.id, settle.actual))
    return EVENT, ()


def bounded(limit: int) -> int:
    """A limit beyond what can ever be booked is no limit, and need not fit 64 bits."""
    return max(-1, min(limit, 2**62))


class Ends:
    """What this process knows about the ends of the chains that it writes.

    Owned by one store, used under its write lock. It may be behind: then the number that it
    takes for the next one is taken, and SQLite refuses it.
    """

    __slots__ = ("_alone", "_seq", "_sessions")

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[int, int, bytes]] = {}
        self._seq = -1
        self._alone = False

    def learn(self, session: str, end: End) -> None:
        """Note what was read and written by a transaction, once it is committed."""
        sid, n, head, seq, found = end
        # Where others write between our commits, guessing costs more than asking; and what they
        # wrote may have been to any session.
        alone = found == self._seq
        self._alone = False  # until all is noted: an interrupt may come between
        if not alone or len(self._sessions) >= _KEPT:
            self._sessions.clear()
        self._sessions[session] = (sid, n, head)
        self._seq = seq
        self._alone = alone

    def insert(
        self,
        cursor: sqlite3.Cursor,
        session: str,
        event: Encoded,
        fence: int | None,
        admit: bool,
        into: Into,
        more: tuple[Any, ...] = (),
    ) -> End | None:
        """Write one encoded event and what comes with it; None where that must be looked at.

        Gives what `wrote` takes once it is committed.
        """
        known = self._sessions.get(session)
        if known is None or not self._alone:
            return None
        sid, n, head = known
        kind, call, attempt, at, view, text, ref, salt, data, place = event
        seq = self._seq + 1
        digest = chain_hash(head, seq, n + 1, attempt, at, ref, text)
        try:
            cursor.execute(
                into[admit],
                (
                    seq, sid, n + 1, sid, session, _NO_FENCE if fence is None else fence,
                    seq, kind, call, attempt, at, ref, head, digest, view, salt, data, place, *more,
                ),
            )  # fmt: skip
        except sqlite3.IntegrityError:
            return None
        return sid, n + 1, digest, seq, seq - 1

    def wrote(self, session: str, written: End) -> Committed:
        """Note an event that `insert` has written and that is committed."""
        sid, n, head, seq, _ = written
        # In this order: interrupted in between, the next number is one that is taken.
        self._sessions[session] = (sid, n, head)
        self._seq = seq
        return Committed(seq, n + 1)
