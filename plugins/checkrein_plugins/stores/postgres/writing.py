"""Writing a batch: one call of the server's `commit_batch`, and what its refusals mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from typing import Any, NoReturn

import psycopg

from checkrein.codec import dumps
from checkrein.errors import ConfigError, Conflict, HoldRefused
from checkrein.payload import Vault
from checkrein.store import (
    SAME,
    Batch,
    Committed,
    NewEvent,
    Put,
    SessionPut,
    payload_of,
    same_key,
)
from checkrein.store._rules import (
    MAX_AMOUNT,
    SINGLE,
    check_batch,
    check_create,
    check_state,
    closed,
    duplicate,
    fenced_out,
    halt_of,
    look_up,
    micros,
    put_conflict,
)

Connection = psycopg.Connection[Any]

_EVENTS = ("text", "text", "int", "bigint", "text", "bytea", "bytea", "bytea", "text")
_SETTLES = ("text", "bigint", "text")
_HOLDS = ("text", "text", "bigint", "text", "bigint", "bigint", "text", "text", "text")
_COLUMNS = (_EVENTS, _SETTLES, _HOLDS)
"""Types of what a batch holds several of, as `commit_batch` takes them: an array for each."""
_FIRST = 5
"""Where they begin among its arguments."""
_SHORT = 3
"""Batches with more events, settles or holds than that are rare: their arrays are sent whole."""


@cache
def _statement(*lengths: int) -> bytes:
    """The call of `commit_batch` for so many events, settles and holds.

    Arrays are built by the server from single values: that takes a third of the client's time.
    """
    arrays = [
        f"ARRAY[{', '.join([f'%s::{kind}'] * length)}]::{kind}[]" if length <= _SHORT
        else f"%s::{kind}[]"
        for length, kinds in zip(lengths, _COLUMNS, strict=True)
        for kind in kinds
    ]  # fmt: skip
    call = (
        "SELECT seq_, n_, rollback_ FROM commit_batch(%s, %s::bigint, %s::bigint, %s, %s::jsonb, "
        f"{', '.join(arrays)}, %s::jsonb, %s::jsonb)"
    )
    return call.encode()


def _sent(given: tuple[Any, ...]) -> tuple[bytes, list[Any]]:
    """The statement for these arguments, and its values."""
    lengths, values = [], list(given[:_FIRST])
    first = _FIRST
    for kinds in _COLUMNS:
        length = len(given[first])
        lengths.append(length if length <= _SHORT else _SHORT + 1)
        for column, kind in zip(given[first : first + len(kinds)], kinds, strict=True):
            if length > _SHORT:
                values.append(column)
            elif kind in ("int", "bigint"):
                # As text: the driver gives small and large numbers different types, and each
                # would be a statement of its own.
                values += map(str, column)
            else:
                values += column
        first += len(kinds)
    values[1], values[2] = str(values[1]), None if values[2] is None else str(values[2])
    return _statement(*lengths), [*values, *given[first:]]


_LEAVES_OUT = ("call", "at", "session")
"""Of a row of the bill: they are the event's."""


def arguments(batch: Batch, vault: Vault) -> tuple[Any, ...]:
    """A batch as `commit_batch` takes it. Raises `Unencodable` or `ConfigError`."""
    check_batch(batch)
    events = [_event(event, vault) for event in batch.events]
    kinds, calls, attempts, ats, views, refs, salts, datas, places = _columns(events, 9)
    holds = [
        (
            hold.id, hold.account, hold.amount, hold.unit,
            min(max(hold.limit, -1), 4 * MAX_AMOUNT - 1),
            0 if hold.window is None else micros(hold.window), hold.settle, hold.call, hold.session,
        )
        for hold in batch.holds
    ]  # fmt: skip
    puts = [_put(put) for put in batch.puts]
    settles = [(settle.id, settle.actual, settle.streak) for settle in batch.settles]
    return (
        batch.session, batch.at, batch.fence, batch.admit, _change(batch.session_put),
        kinds, calls, attempts, ats, views, refs, salts, datas, places,
        *_columns(settles, 3), *_columns(holds, 9),
        json.dumps(puts) if puts else None,
        json.dumps(_bill(batch)) if batch.costs else None,
    )  # fmt: skip


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def _event(event: NewEvent, vault: Vault) -> tuple[Any, ...]:
    view = dumps(event.view)
    kind, call, payload = event.kind, event.call, event.payload
    if payload is None:
        return kind, call, event.attempt, event.at, view, b"", None, None, None
    if payload is SAME and same_key(kind) in event.view and vault.keeps_view(view):
        ref = sha256(view.encode()).digest()
        return kind, call, event.attempt, event.at, view, ref, None, None, "view"
    packed = vault.pack(payload_of(event))
    return (
        kind, call, event.attempt, event.at, view,
        bytes.fromhex(packed.ref), packed.salt, packed.data, packed.place,
    )  # fmt: skip


def _put(put: Put) -> dict[str, Any]:
    return {
        "kind": put.kind, "id": put.id, "state": put.state, "session": put.session,
        "label": put.label, "body": dumps(put.body),
        "if_state": None if put.if_state is None else list(put.if_state),
    }  # fmt: skip


def _change(change: SessionPut | None) -> str | None:
    if change is None:
        return None
    tree: dict[str, Any] = {"if_state": None if change.if_state is None else list(change.if_state)}
    if change.create:
        parent, agent = look_up(change.body or {})
        tree |= {
            "create": True, "state": change.state or "ACTIVE",
            "rollback": change.rollback or "none", "stopped": halt_of(change, 0),
            "owner": change.owner or "", "parent": parent,
            "agent": agent, "body": dumps(change.body or {}),
        }  # fmt: skip
    else:
        tree |= {
            "state": change.state, "rollback": change.rollback, "paused": change.paused,
            "stopped": None if change.stopped is None else int(change.stopped),
            "owner": change.owner,
        }  # fmt: skip
    return json.dumps(tree)


def _bill(batch: Batch) -> dict[str, Any]:
    (row,) = batch.costs
    return {name: value for name, value in asdict(row).items() if name not in _LEAVES_OUT}


def commit(connection: Connection, batch: Batch, given: tuple[Any, ...]) -> Committed:
    """Write a batch. Raises what the server's refusal means."""
    try:
        row = connection.execute(*_sent(given)).fetchone()
    except psycopg.Error as error:
        refuse(batch, error)
    assert row is not None
    return Committed(*row)


def commit_again(connection: Connection, batch: Batch, given: tuple[Any, ...]) -> Committed:
    """Write a batch of which nobody knows whether it was written when the connection was lost.

    Whoever still writes it for the lost connection holds the session's row: we wait for it.
    """
    with connection.transaction():
        connection.execute("SELECT 1 FROM sessions WHERE id = %s FOR UPDATE", (batch.session,))
        done = _landed(connection, batch, given)
        return commit(connection, batch, given) if done is None else done


_FIND = (
    "SELECT e.seq, e.n, s.rollback FROM sessions s JOIN events e ON e.sid = s.sid "
    "WHERE s.id = %s AND e.kind = %s AND e.call = %s AND e.attempt = %s AND e.at = %s "
    "AND e.ref = %s AND e.view = %s ORDER BY e.seq DESC LIMIT 1"
)


def _landed(connection: Connection, batch: Batch, given: tuple[Any, ...]) -> Committed | None:
    """The batch as it was written, if it was: its last event, or its rows, are there."""
    kinds, calls, attempts, ats, views, refs = given[5:11]
    if kinds:
        last = (kinds[-1], calls[-1], attempts[-1], ats[-1], refs[-1], views[-1])
        row = connection.execute(_FIND, (batch.session, *last)).fetchone()
        return None if row is None else Committed(row[0], row[1] + 1, row[2])
    session = connection.execute(
        "SELECT n, rollback, created FROM sessions WHERE id = %s", (batch.session,)
    ).fetchone()
    if session is None:
        return None
    created = batch.session_put is not None and batch.session_put.create
    if created and session[2] != batch.at:
        return None
    for put in batch.puts:
        found = connection.execute(
            "SELECT state, body FROM records WHERE kind = %s AND id = %s", (put.kind, put.id)
        ).fetchone()
        if found != (put.state, dumps(put.body)):
            return None
    if not created and not batch.puts:
        return None  # what is left can be repeated: settles, a change of the session's own row
    (last_seq,) = connection.execute("SELECT last_value FROM events_seq").fetchone() or (0,)
    return Committed(last_seq, session[0] + 1, session[1])


def refuse(batch: Batch, error: psycopg.Error) -> NoReturn:
    """Raise what the server's refusal means; the driver's error itself for any other."""
    state, detail = error.sqlstate or "", error.diag.message_detail or ""
    if state == "CRS01":
        check_create(batch, True)
    elif state == "CRS02":
        check_create(batch, False)
    elif state == "CRS03":
        check_state(batch, detail)
    elif state == "CRF01":
        raise fenced_out(batch, int(detail)) from error
    elif state == "CRC01":
        found = json.loads(detail)
        raise closed(batch, found["state"], found["rollback"], found["stopped"]) from error
    elif state == "CRP01":
        found = json.loads(detail)
        raise put_conflict(batch.puts[found["index"]], found["state"]) from error
    elif state == "CRH01":
        found = json.loads(detail)
        raise HoldRefused(
            found["index"], found["account"], found["spent"], found["held"]
        ) from error
    elif state == "CRU01":
        found = json.loads(detail)
        hold = batch.holds[found["index"]]
        raise ConfigError(
            f"account {hold.account} counts {found['unit']}, hold {hold.id} is in {hold.unit}: "
            "use another account name"
        ) from error
    elif isinstance(error, psycopg.errors.UniqueViolation):
        _taken(batch, error)
    raise error


def _taken(batch: Batch, error: psycopg.Error) -> None:
    constraint = error.diag.constraint_name
    if constraint == "events_single":
        single = next(event for event in batch.events if event.kind in SINGLE)
        raise duplicate(single.call, single.kind, single.attempt) from error
    if constraint == "holds_pkey":
        raise Conflict(f"hold {batch.holds[0].id} is taken already") from error
    if constraint == "sessions_id_key":
        check_create(batch, True)
