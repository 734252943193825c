"""Forgetting a session: its chain is deleted whole, and a new one says so."""

from __future__ import annotations

import sqlite3

from checkrein.codec import dumps, loads
from checkrein.payload import Packed
from checkrein.store._marks import mark
from checkrein.store._rules import (
    FORGOTTEN,
    GENESIS,
    bare_body,
    chain_body,
    chain_hash,
    check_forget,
)

_OWN = "SELECT seq FROM marks WHERE sid = :sid"


def forget(cursor: sqlite3.Cursor, session: str, at: int) -> list[Packed] | None:
    """Delete what a session left, in an open transaction: its payload files; None = not there."""
    execute = cursor.execute
    mark(cursor)
    row = execute(
        "SELECT sid, state, rollback, owner, n, head, body, (SELECT max(seq) FROM events) "
        "FROM sessions WHERE id = ?",
        (session,),
    ).fetchone()
    if row is None:
        return None
    sid, state, rollback, owner, n, head, body, last = row
    check_forget(session, state, rollback, owner)
    files = execute(
        f"SELECT ref, salt, data FROM events WHERE seq IN ({_OWN}) AND place = 'file'",
        {"sid": sid},
    ).fetchall()
    execute(f"DELETE FROM events WHERE seq IN ({_OWN})", {"sid": sid})
    execute("DELETE FROM marks WHERE sid = ?", (sid,))
    execute("DELETE FROM records WHERE session = ? AND session != ''", (session,))
    # The number goes on from what was deleted: no two events ever bear the same.
    seq = (last or 0) + 1
    view = dumps({"events": n, "head": head.hex()})
    digest = chain_hash(GENESIS, seq, 1, 0, at, b"", chain_body(session, FORGOTTEN, "", view))
    execute(
        "UPDATE sessions SET n = 1, head = ?, body = ?, updated = max(updated, ?) WHERE sid = ?",
        (digest, dumps(bare_body(loads(body))), at, sid),
    )
    execute(
        "INSERT INTO events VALUES (?, ?, 1, ?, '', 0, ?, x'', ?, ?, ?, NULL, NULL, NULL)",
        (seq, sid, FORGOTTEN, at, GENESIS, digest, view),
    )
    return [Packed(ref.hex(), salt or b"", data or b"", "file") for ref, salt, data in files]


def file_refs(connection: sqlite3.Connection) -> set[str]:
    """Names of the payload files that events name."""
    rows = connection.execute("SELECT ref FROM events WHERE place = 'file'").fetchall()
    return {ref.hex() for (ref,) in rows}
