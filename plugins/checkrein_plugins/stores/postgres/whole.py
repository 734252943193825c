"""The store as a whole: chains, what is derived, sessions that are forgotten."""

from __future__ import annotations

from checkrein.codec import dumps, loads
from checkrein.store import Event
from checkrein.store._links import bad_event
from checkrein.store._rules import (
    FORGOTTEN,
    GENESIS,
    bare_body,
    chain_body,
    chain_hash,
    check_forget,
    missing_event,
)
from checkrein_plugins.stores.postgres.connections import Connection

_PAGE = 500
"""Events held in memory at a time."""
_EVENTS = (
    "SELECT seq, n, kind, call, attempt, at, ref, prev, hash, view, salt, data, place "
    "FROM events WHERE sid = %s AND seq > %s ORDER BY seq LIMIT %s"
)


def verify_session(connection: Connection, session: str) -> Event | None:
    """The first event of a session that is not what was written, or None.

    Stored payloads are checked as well. A gap, a cut tail and a session without its row give an
    event of kind `missing`.
    """
    n, seq, head = 0, 0, GENESIS
    while True:
        # One snapshot for the events and the head they must lead to: others may be writing.
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            row = connection.execute(
                "SELECT sid, n, head FROM sessions WHERE id = %s", (session,)
            ).fetchone()
            if row is None:
                return missing_event(session, 1, "")
            sid, stored_n, stored_head = row
            events = connection.execute(_EVENTS, (sid, seq, _PAGE)).fetchall()
        for event in events:
            n += 1
            bad = bad_event(event, session, n, head, None)
            if bad is not None:
                return bad
            seq, head = event[0], event[8]
        if len(events) == _PAGE:
            continue
        if n < stored_n:
            return missing_event(session, n + 1, stored_head.hex())
        if n > stored_n or head != stored_head:
            return missing_event(session, stored_n, stored_head.hex())
        return None


def forget(connection: Connection, session: str, at: int) -> bool:
    """Delete what a session left; a new chain says so. False: it is not there."""
    with connection.transaction():
        row = connection.execute(
            "SELECT sid, state, rollback, owner, n, head, body FROM sessions "
            "WHERE id = %s FOR UPDATE",
            (session,),
        ).fetchone()
        if row is None:
            return False
        sid, state, rollback, owner, n, head, body = row
        check_forget(session, state, rollback, owner)
        connection.execute("DELETE FROM events WHERE sid = %s", (sid,))
        connection.execute("DELETE FROM records WHERE session = %s AND session != ''", (session,))
        # Taken as `commit_batch` takes it: who follows all sessions waits for it.
        (low,) = connection.execute("SELECT last_value FROM events_seq").fetchone() or (0,)
        connection.execute("SELECT pg_advisory_xact_lock_shared((99::bigint << 56) | %s)", (low,))
        (seq,) = connection.execute("SELECT nextval('events_seq')").fetchone() or (0,)
        view = dumps({"events": n, "head": head.hex()})
        digest = chain_hash(GENESIS, seq, 1, 0, at, b"", chain_body(session, FORGOTTEN, "", view))
        connection.execute(
            "INSERT INTO events VALUES (%s, %s, 1, %s, '', 0, %s, '', %s, %s, %s)",
            (seq, sid, FORGOTTEN, at, GENESIS, digest, view),
        )
        connection.execute(
            "UPDATE sessions SET n = 1, head = %s, body = %s, updated = greatest(updated, %s) "
            "WHERE sid = %s",
            (digest, dumps(bare_body(loads(body))), at, sid),
        )
    return True


_HEADS = (
    "SELECT s.sid, s.id, s.n, coalesce(e.n, 0), coalesce(e.hash, %(genesis)s), "
    "(SELECT h.hash FROM events h WHERE h.sid = s.sid AND h.n = s.n) FROM sessions s "
    "LEFT JOIN LATERAL (SELECT n, hash FROM events e WHERE e.sid = s.sid ORDER BY seq DESC "
    "LIMIT 1) e ON true WHERE s.n != coalesce(e.n, 0) OR s.head != coalesce(e.hash, %(genesis)s)"
)
_OVER = (
    "SELECT s.sid, s.id, s.state, s.rollback, e.ended, e.rolled FROM sessions s JOIN "
    "(SELECT sid, bool_or(kind = 'session_ended') AS ended, bool_or(kind = 'rollback_started') "
    "AS rolled FROM events WHERE kind IN ('session_ended', 'rollback_started') GROUP BY sid) e "
    "ON e.sid = s.sid WHERE s.state = 'ACTIVE' OR s.rollback = 'none'"
)

# Whoever writes this into a row by hand would have nothing undone.
_CLAIMED = (
    "SELECT s.sid, s.id, s.rollback FROM sessions s WHERE s.rollback != 'none' AND NOT EXISTS "
    "(SELECT 1 FROM events e WHERE e.sid = s.sid "
    "AND e.kind IN ('rollback_started', 'session_forgotten'))"
)


def rebuild(connection: Connection, *, repair: bool) -> list[str]:
    """Compare what is derived with what it is derived from; with `repair`, write it anew."""
    found: list[str] = []
    with connection.transaction():
        if repair:
            connection.execute(
                "LOCK TABLE sessions, accounts, holds, bookings, unbooked IN EXCLUSIVE MODE"
            )
            connection.execute(
                "SELECT add_unbooked(account) FROM (SELECT DISTINCT account FROM unbooked) u"
            )
        (orphans,) = connection.execute(
            "SELECT count(*) FROM events WHERE sid NOT IN (SELECT sid FROM sessions)"
        ).fetchone() or (0,)
        if orphans:
            found.append(f"events: {orphans} belong to sessions that have no row")
        for sid, id, stored, n, head, _ in connection.execute(
            _HEADS, {"genesis": GENESIS}
        ).fetchall():
            found.append(
                f"session {id}: its row ends at event {stored}, its events at {n}"
                if stored != n
                else f"session {id}: the head in its row is not the hash of its event {stored}"
            )
            if repair:
                connection.execute(
                    "UPDATE sessions SET n = %s, head = %s WHERE sid = %s", (n, head, sid)
                )
        _states(connection, found, repair)
        _accounts(connection, found, repair)
    return found


def _states(connection: Connection, found: list[str], repair: bool) -> None:
    for sid, id, state, rollback, ended, rolled in connection.execute(_OVER).fetchall():
        if state == "ACTIVE" and (ended or rolled):
            found.append(f"session {id}: its row says ACTIVE, its events that it is over")
        if rollback == "none" and rolled:
            found.append(f"session {id}: its row says nothing of a rollback, its events do")
        if repair and (ended or rolled):
            connection.execute(
                "UPDATE sessions SET state = CASE WHEN state = 'ACTIVE' THEN 'FAILED' ELSE state "
                "END, rollback = CASE WHEN rollback = 'none' AND %s THEN 'partial' ELSE rollback "
                "END WHERE sid = %s",
                (rolled, sid),
            )
    for sid, id, rollback in connection.execute(_CLAIMED).fetchall():
        found.append(f"session {id}: its row says {rollback}, its events nothing of a rollback")
        if repair:
            connection.execute("UPDATE sessions SET rollback = 'none' WHERE sid = %s", (sid,))


def _accounts(connection: Connection, found: list[str], repair: bool) -> None:
    for column, source in (("held", "holds"), ("recent", "bookings")):
        total = (
            f"(SELECT coalesce(sum(x.amount), 0) FROM {source} x "
            "WHERE x.account = a.account)::bigint"
        )
        wrong = connection.execute(
            f"SELECT account, {column}, {total} FROM balances a WHERE {column} != {total} "
            "ORDER BY account"
        ).fetchall()
        for account, stored, real in wrong:
            found.append(f"account {account}: {column} is {stored}, its {source} add up to {real}")
        if repair and wrong:
            connection.execute(
                f"UPDATE accounts a SET {column} = {total} WHERE {column} != {total}"
            )
    lost = connection.execute(
        "SELECT account, min(unit), sum(amount)::bigint FROM holds "
        "WHERE account NOT IN (SELECT account FROM accounts) GROUP BY account ORDER BY account"
    ).fetchall()
    for account, unit, amount in lost:
        found.append(f"account {account}: holds of {amount} and no row")
        if repair:
            connection.execute(
                "INSERT INTO accounts VALUES (%s, %s, 0, %s, 0, 0)", (account, unit, amount)
            )
