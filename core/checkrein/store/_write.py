"""Writing one batch into SQLite: encoding before the write lock, statements under it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from checkrein.codec import dumps
from checkrein.errors import ConfigError, Conflict, HoldRefused
from checkrein.payload import Packed, Vault
from checkrein.store import (
    SAME,
    Batch,
    Committed,
    HoldRow,
    NewEvent,
    Put,
    SettleRow,
    payload_of,
    same_key,
)
from checkrein.store._append import EVENT_WITHIN, Encoded, End, Ends, bounded
from checkrein.store._bill_rows import INSERT, bill_values
from checkrein.store._marks import HEAD, LAST, N
from checkrein.store._rules import (
    GENESIS,
    chain_body,
    chain_hash,
    check_batch,
    check_create,
    check_event,
    check_state,
    closed,
    duplicate,
    fenced_out,
    halt_of,
    look_up,
    micros,
    put_conflict,
)

_SESSION = (
    f"SELECT s.sid, s.state, s.rollback, s.stopped, s.fence, {N}, {HEAD}, "
    f"(SELECT max(seq) FROM events) FROM sessions s LEFT JOIN {LAST} WHERE s.id = ?"
)
_NEW_SESSION = (
    "INSERT INTO sessions (id, state, rollback, stopped, owner, fence, n, head, created, "
    "updated, parent, agent, body) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
)
# OR FAIL: one row that is refused whole needs no journal of the statement.
_EVENT = "INSERT OR FAIL INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATED = "UPDATE sessions SET updated = max(updated, ?) WHERE sid = ?"
_CHANGE = (
    "UPDATE sessions SET state = ?, rollback = ?, stopped = ?, "
    "updated = max(updated, ?), n = ?, head = ?, "
    "owner = iif(?, '', owner) WHERE sid = ?"
)

# One conditional statement decides whether there is room; nothing is read before.
_TAKE = (
    "UPDATE accounts SET held = held + ? WHERE account = ? AND unit = ? AND spent + held + ? <= ?"
)
_TAKE_WINDOW = (
    "UPDATE accounts SET held = held + ?, span = max(span, ?) "
    "WHERE account = ? AND unit = ? AND held + ? + CASE WHEN span <= ? THEN recent ELSE "
    "(SELECT coalesce(sum(amount), 0) FROM bookings WHERE account = ? AND at > ?) END <= ?"
)
# Failures in a row are what `bookings` holds. A full account lets one hold through once the last
# failure is old enough.
_TAKE_STREAK = (
    "UPDATE accounts SET held = held + ? WHERE account = ? AND unit = ? AND "
    "(recent + held + ? <= ? OR (held = 0 AND NOT EXISTS "
    "(SELECT 1 FROM bookings b WHERE b.account = accounts.account AND b.at > ?)))"
)
_FAILED = (
    "UPDATE accounts SET spent = spent + ?, recent = recent + ? WHERE account = "
    "(SELECT account FROM holds WHERE id = ?)"
)
_FAILURE = (
    "INSERT INTO bookings SELECT account, ?, ? FROM holds WHERE id = ? "
    "ON CONFLICT (account, at) DO UPDATE SET amount = amount + excluded.amount"
)
_CLEARED = (
    "UPDATE accounts SET recent = 0 WHERE recent AND account = "
    "(SELECT account FROM holds WHERE id = ?) AND NOT EXISTS (SELECT 1 FROM bookings b "
    "WHERE b.account = accounts.account AND b.at > (SELECT at FROM holds WHERE id = ?))"
)
_CLEAR = "DELETE FROM bookings WHERE account = (SELECT account FROM holds WHERE id = ?)"
_ACCOUNT = "INSERT OR IGNORE INTO accounts VALUES (?, ?, 0, 0, 0, ?)"
# `recent` is kept as a running sum, so that admission does not add up a long window each time.
_SLIDE = (
    "UPDATE accounts SET recent = recent - (SELECT coalesce(sum(b.amount), 0) FROM bookings b "
    "WHERE b.account = ? AND b.at <= ? - max(span, ?)) WHERE account = ? AND EXISTS "
    "(SELECT 1 FROM bookings b WHERE b.account = ? AND b.at <= ? - max(span, ?))"
)
_PRUNE = (
    "DELETE FROM bookings WHERE account = ? AND at <= "
    "? - (SELECT max(span, ?) FROM accounts WHERE account = ?)"
)
_HOLD = "INSERT INTO holds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SETTLE = "INSERT INTO settles VALUES (?, ?)"
_PUT = (
    "INSERT INTO records (kind, id, state, session, label, created, updated, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, id) DO "
)
_REPLACE = (
    "UPDATE SET state = excluded.state, session = excluded.session, label = excluded.label, "
    "updated = excluded.updated, body = excluded.body"
)
_PUT_EXISTING = (
    "UPDATE records SET state = ?, session = ?, label = ?, updated = ?, body = ? "
    "WHERE kind = ? AND id = ?"
)


@dataclass(slots=True)
class Prepared:
    """A batch with everything encoded that needs no lock."""

    batch: Batch
    events: list[Encoded]
    puts: list[tuple[str, tuple[Any, ...]]]
    body: str
    files: list[Packed]
    """Payloads that are in files already: removed again if the batch is not written."""
    end: End = (0, 0, b"", 0, 0)
    """Set by `write`."""


def prepare(batch: Batch, vault: Vault) -> Prepared:
    """Encode a batch. Raises `Unencodable` or `ConfigError` for what cannot be stored."""
    check_batch(batch)
    files: list[Packed] = []
    events = [encode(batch.session, event, vault, files) for event in batch.events]
    puts = [put_of(put, batch.at) for put in batch.puts]
    change = batch.session_put
    body = dumps(change.body or {}) if change is not None and change.create else ""
    return Prepared(batch, events, puts, body, files)


def encode(session: str, event: NewEvent, vault: Vault, files: list[Packed]) -> Encoded:
    """Encode an event. A payload that goes into a file is written there, and noted in `files`."""
    check_event(event)
    kind, call, payload = event.kind, event.call, event.payload
    view = dumps(event.view)
    text = chain_body(session, kind, call, view)
    if payload is None:
        return kind, call, event.attempt, event.at, view, text, b"", None, None, None
    if payload is SAME and same_key(kind) in event.view and vault.keeps_view(view):
        ref = sha256(view.encode()).digest()
        return kind, call, event.attempt, event.at, view, text, ref, None, None, "view"
    packed = vault.pack(payload_of(event))
    if packed.place == "file":
        files.append(packed)
    return (
        kind, call, event.attempt, event.at, view, text,
        bytes.fromhex(packed.ref), packed.salt, packed.data, packed.place,
    )  # fmt: skip


def discard(prepared: Prepared, vault: Vault) -> None:
    """Remove the files of a batch that was not written."""
    for packed in prepared.files:
        vault.erase(packed)


def put_of(put: Put, at: int) -> tuple[str, tuple[Any, ...]]:
    """The statement that changes a row, and its values."""
    body = dumps(put.body)
    values: tuple[Any, ...] = (
        put.kind, put.id, put.state, put.session, put.label, at, at, body
    )  # fmt: skip
    states = put.if_state
    if states is None:
        return _PUT + _REPLACE, values
    wanted = tuple(state for state in states if state)
    marks = ", ".join("?" * len(wanted))
    if "" not in states:
        values = (put.state, put.session, put.label, at, body, put.kind, put.id)
        return f"{_PUT_EXISTING} AND state IN ({marks})", values + wanted
    if not wanted:
        return _PUT + "NOTHING", values
    return f"{_PUT}{_REPLACE} WHERE records.state IN ({marks})", values + wanted


def write(cursor: sqlite3.Cursor, prepared: Prepared, ends: Ends) -> Committed:
    """Write a batch inside an open transaction.

    Raises `Conflict` and its kinds, `SessionClosed`, `ConfigError`; the caller then rolls
    back. In this order: session, fence, admission, events, settles, holds, rows; so a batch
    can settle one attempt's hold and take the next one's.
    """
    batch = prepared.batch
    if len(prepared.events) == 1 and batch.session_put is None:
        end = ends.insert(
            cursor, batch.session, prepared.events[0], batch.fence, batch.admit, EVENT_WITHIN
        )
        if end is not None:
            prepared.end = end
            _rest(cursor, prepared, end[0], end[3])
            return Committed(end[3], end[1] + 1)
    execute = cursor.execute
    row = execute(_SESSION, (batch.session,)).fetchone()
    change = batch.session_put
    if row is None or (change is not None and change.create):
        row = _create(cursor, prepared, row is not None)
    sid, state, rollback, stopped, fence, n, head, seq = row
    if batch.fence is not None and batch.fence < fence:
        raise fenced_out(batch, fence)
    if batch.admit and (state != "ACTIVE" or stopped or rollback != "none"):
        raise closed(batch, state, rollback, stopped)
    if change is not None:
        check_state(batch, state)
    found = seq = seq or 0
    for kind, call, attempt, at, view, text, ref, salt, data, place in prepared.events:
        seq += 1
        n += 1
        prev, head = head, chain_hash(head, seq, n, attempt, at, ref, text)
        try:
            execute(
                _EVENT,
                (seq, sid, n, kind, call, attempt, at, ref, prev, head, view, salt, data, place),
            )
        except sqlite3.IntegrityError as error:
            raise duplicate(call, kind, attempt) from error
    _rest(cursor, prepared, sid, seq)
    if change is not None:
        state = change.state or state
        rollback = change.rollback or rollback
        stopped = halt_of(change, stopped)
        released = change.owner == "" and not change.create
        execute(_CHANGE, (state, rollback, stopped, batch.at, n, head, released, sid))
    prepared.end = (sid, n, head, seq, found)
    return Committed(seq, n + 1, rollback)


def _rest(cursor: sqlite3.Cursor, prepared: Prepared, sid: int, seq: int) -> None:
    """What a batch holds beside events and the session's own row."""
    batch = prepared.batch
    execute = cursor.execute
    for settle in batch.settles:
        if settle.streak:
            _step(cursor, settle, batch.at)
        else:
            execute(_SETTLE, (settle.id, settle.actual))
    for index, hold in enumerate(batch.holds):
        _take(cursor, hold, index, batch.at)
    for (statement, values), put in zip(prepared.puts, batch.puts, strict=True):
        execute(statement, values)
        if not cursor.rowcount:
            _refuse_put(cursor, put)
    for row in batch.costs:
        execute(INSERT, (seq, batch.at, sid, *bill_values(row)))
    if prepared.events and batch.events[-1].at != batch.at:
        execute(_UPDATED, (batch.at, sid))


def _step(cursor: sqlite3.Cursor, settle: SettleRow, at: int) -> None:
    """Count one more failure in a row, or none any more, and close the hold."""
    id, actual = settle.id, settle.actual
    if settle.streak == "book":
        cursor.execute(_FAILED, (actual, actual, id))
        cursor.execute(_FAILURE, (at, actual, id))
    elif cursor.execute(_CLEARED, (id, id)).rowcount:
        cursor.execute(_CLEAR, (id,))
    cursor.execute(_SETTLE, (id, 0))


def _create(cursor: sqlite3.Cursor, prepared: Prepared, exists: bool) -> tuple[Any, ...]:
    batch = prepared.batch
    change = check_create(batch, exists)
    start = (change.state or "ACTIVE", change.rollback or "none", halt_of(change, 0))
    owner = change.owner or ""
    cursor.execute(
        _NEW_SESSION,
        (
            batch.session,
            *start,
            owner,
            int(bool(owner)),
            GENESIS,
            batch.at,
            batch.at,
            *look_up(change.body or {}),
            prepared.body,
        ),
    )
    sid = cursor.lastrowid
    (seq,) = cursor.execute("SELECT max(seq) FROM events").fetchone()
    return sid, *start, int(bool(owner)), 0, GENESIS, seq


def _take(cursor: sqlite3.Cursor, hold: HoldRow, index: int, at: int) -> None:
    execute = cursor.execute
    account, amount = hold.account, hold.amount
    limit = bounded(hold.limit)
    span = 0 if hold.window is None else micros(hold.window)
    take: str
    values: tuple[Any, ...]
    if hold.settle == "streak":
        take, values = _TAKE_STREAK, (amount, account, hold.unit, amount, limit, at - span)
    elif span:
        execute(_SLIDE, (account, at, span, account, account, at, span))
        if cursor.rowcount:
            execute(_PRUNE, (account, at, span, account))
        take = _TAKE_WINDOW
        values = (amount, span, account, hold.unit, amount, span, account, at - span, limit)
    else:
        take, values = _TAKE, (amount, account, hold.unit, amount, limit)
    taken = execute(take, values).rowcount
    # No room, or no row yet.
    if not taken and execute(_ACCOUNT, (account, hold.unit, span)).rowcount:
        taken = execute(take, values).rowcount
    if not taken:
        _refuse(cursor, hold, index, at, span)
    try:
        execute(
            _HOLD,
            (
                hold.id,
                account,
                amount,
                hold.unit,
                hold.settle,
                hold.call,
                hold.session,
                span,
                at,
            ),
        )
    except sqlite3.IntegrityError as error:
        raise Conflict(f"hold {hold.id} is taken already") from error


def _refuse(cursor: sqlite3.Cursor, hold: HoldRow, index: int, at: int, span: int) -> None:
    if hold.settle == "streak":
        at, span = at + 1, at + 1  # all failures that are booked
    found = read_balance(cursor, hold.account, at, span)
    unit, spent, held = found or (hold.unit, 0, 0)
    if unit != hold.unit:
        raise ConfigError(
            f"account {hold.account} counts {unit}, hold {hold.id} is in {hold.unit}: "
            "use another account name"
        )
    raise HoldRefused(index, hold.account, spent, held)


def read_balance(
    cursor: sqlite3.Cursor, account: str, at: int, span: int
) -> tuple[str, int, int] | None:
    """Unit, spent and held; with `span` (microseconds), what was booked since `at - span`."""
    row: tuple[str, int, int] | None
    if span:
        row = cursor.execute(
            "SELECT unit, (SELECT coalesce(sum(amount), 0) FROM bookings "
            "WHERE account = ? AND at > ?), held FROM accounts WHERE account = ?",
            (account, at - span, account),
        ).fetchone()
    else:
        row = cursor.execute(
            "SELECT unit, spent, held FROM accounts WHERE account = ?", (account,)
        ).fetchone()
    return row


def _refuse_put(cursor: sqlite3.Cursor, put: Put) -> None:
    row = cursor.execute(
        "SELECT state FROM records WHERE kind = ? AND id = ?", (put.kind, put.id)
    ).fetchone()
    raise put_conflict(put, row[0] if row else None)
