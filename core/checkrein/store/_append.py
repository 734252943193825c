"""Writing one event into SQLite with one statement.

Between two commits of a process there is nearly always nobody else: then it knows where the
session's chain stands, and hashes the next event without asking. The statement itself checks
that this was right, and that the session takes the event; where it does not, nothing is
written, and `_write.write` finds out why. Five statements become one.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from checkrein.store import Committed
from checkrein.store._rules import chain_hash

# OR FAIL: one row that is refused whole needs no journal of the statement. The column `n` is
# NOT NULL: a session that is not as expected refuses the row. A number that somebody else took
# refuses it too, by the primary key. A trigger moves the session's head.
_ANY = (
    "INSERT OR FAIL INTO events VALUES (?, ?, (SELECT n + 1 FROM sessions WHERE sid = ? AND n = ? "
    "AND head = ? AND id = ? AND fence <= ? AND rollback = 'none'), "
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OPEN = _ANY.replace("rollback =", "state = 'ACTIVE' AND stopped = 0 AND rollback =")
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


class Ends:
    """What this process knows about the ends of the chains that it writes.

    Owned by one store, used under its write lock. All of it may be wrong: whoever relies on it
    has SQLite check it.
    """

    __slots__ = ("_alone", "_seq", "_sessions")

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[int, int, bytes]] = {}
        self._seq = -1
        self._alone = False

    def learn(self, session: str, end: End) -> None:
        """Note what was read and written by a transaction, once it is committed."""
        sid, n, head, seq, found = end
        # Where others write between our commits, guessing costs more than asking.
        self._alone = found == self._seq
        self._seq = seq
        if len(self._sessions) >= _KEPT:
            self._sessions.clear()
        self._sessions[session] = (sid, n, head)

    def insert(
        self,
        cursor: sqlite3.Cursor,
        session: str,
        event: Encoded,
        fence: int | None,
        admit: bool,
    ) -> End | None:
        """Write one encoded event; None where that has to be looked at.

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
                _OPEN if admit else _ANY,
                (
                    seq, sid, sid, n, head, session, _NO_FENCE if fence is None else fence,
                    kind, call, attempt, at, ref, head, digest, view, salt, data, place,
                ),
            )  # fmt: skip
        except sqlite3.IntegrityError:
            return None
        return sid, n + 1, digest, seq, seq - 1

    def wrote(self, session: str, written: End) -> Committed:
        """Note an event that `insert` has written and that is committed."""
        sid, n, head, seq, _ = written
        self._seq = seq
        self._sessions[session] = (sid, n, head)
        return Committed(seq, n + 1)
