"""What every backend does alike: the hash chain, what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from checkrein.errors import (
    ConfigError,
    Conflict,
    DuplicateIntent,
    FencedOut,
    Halted,
    Paused,
    SessionClosed,
    Unencodable,
)
from checkrein.store import Batch, Event, HoldRow, NewEvent, Put, SessionPut, SettleRow

GENESIS = bytes(32)
"""What the first event of a session names as its predecessor."""

MAX_AMOUNT = 2**61
"""Largest amount that a hold or settle may carry: four of them still fit 64 bits."""

SINGLE = frozenset(("intent", "outcome"))
"""Kinds of which there is one for each call and attempt."""

FORGOTTEN = "session_forgotten"
"""Kind of the event with which the chain of a forgotten session begins anew."""

ANCHORS = "anchors"
"""The session that the store's signed anchors are written to."""

MISSING = "missing"
"""Kind of the event that `verify` returns where an event should be and is not."""


def chain_body(session: str, kind: str, call: str, view: str) -> bytes:
    """Encode the text columns of an event for `chain_hash`."""
    return f"{len(session)} {len(kind)} {len(call)}\n{session}{kind}{call}{view}".encode()


def chain_hash(
    prev: bytes, seq: int, n: int, attempt: int, at: int, ref: bytes, body: bytes
) -> bytes:
    """Hash one event onto its predecessor.

    `prev` has 32 bytes, `ref` 32 or none. Lengths stand before what they measure, so two
    different events never give the same input.
    """
    head = f"{seq} {n} {attempt} {at} {len(ref)} ".encode()
    return sha256(b"%b%b%b%b" % (prev, head, ref, body)).digest()


def missing_event(session: str, n: int, head: str) -> Event:
    """What `verify` returns for a gap: event `n` should be there and is not."""
    return Event(0, session, n, MISSING, "", 0, 0, None, "", "", head)


STOPPED = "it was stopped"
PAUSED = "it is paused"


def halt_of(change: SessionPut, before: int) -> int:
    """What stands in the column `stopped` after a change: 0, 1 (stopped) or 2 (paused)."""
    if change.stopped is not None:
        return int(change.stopped)
    if change.paused is not None and before != 1:
        return 2 if change.paused else 0
    return before


def closed_because(state: str, rollback: str, stopped: int) -> str:
    """Say why a session takes no more calls; empty if it does."""
    if rollback != "none":
        return {"rolling_back": "it is rolling back", "rolled_back": "it was rolled back"}.get(
            rollback, "it was rolled back in part"
        )
    if state != "ACTIVE":
        return {"COMPLETED": "it is completed", "FAILED": "it has failed"}.get(
            state, f"it was {state.lower()}"
        )
    return ("", STOPPED, PAUSED)[stopped]


def closed(batch: Batch, state: str, rollback: str, stopped: int) -> SessionClosed:
    """What refuses an intent of a session that takes no more calls."""
    why = closed_because(state, rollback, stopped)
    error: SessionClosed
    if why == PAUSED:
        error = Paused(
            f"session {batch.session} takes no calls: {why}; "
            f"checkrein continue {batch.session} lets it go on"
        )
    else:
        kind = Halted if why == STOPPED else SessionClosed
        error = kind(f"session {batch.session} takes no more calls: {why}; open a new session")
    error.session_id = batch.session
    error.call_id = batch.events[0].call if batch.events else ""
    return error


def fenced_out(batch: Batch, fence: int) -> FencedOut:
    """What refuses a writer that is not the owner any more."""
    error = FencedOut(
        f"session {batch.session} has a newer owner (fence {fence}, this writer's is "
        f"{batch.fence}): stop working on it"
    )
    error.session_id = batch.session
    return error


def duplicate(call: str, kind: str, attempt: int) -> DuplicateIntent:
    """What refuses a second intent or outcome."""
    error = DuplicateIntent(f"call {call}: {kind} of attempt {attempt} is stored already")
    error.call_id = call
    return error


def check_create(batch: Batch, exists: bool) -> SessionPut:
    """Refuse a batch for a session that is not there, or one that creates it again."""
    change = batch.session_put
    if exists:
        raise Conflict(f"session {batch.session} exists already: sessions are created once")
    if change is None or not change.create or "" not in (change.if_state or ("",)):
        raise Conflict(f"session {batch.session} is not in this store: create it first")
    return change


def check_state(batch: Batch, state: str) -> None:
    """Refuse a change whose `if_state` does not name the session's state."""
    change = batch.session_put
    if change is None or change.create or change.if_state is None or state in change.if_state:
        return
    raise Conflict(
        f"session {batch.session} is {state}, and the change needs {' or '.join(change.if_state)}"
    )


def put_conflict(put: Put, present: str | None) -> Conflict:
    """What refuses a row whose `if_state` does not name its state."""
    wanted = " or ".join(state or "no row" for state in put.if_state or ())
    return Conflict(
        f"{put.kind} {put.id} is {present or 'not there'}, and the change to {put.state} "
        f"needs {wanted}"
    )


def check_forget(session: str, state: str, rollback: str, owner: str) -> None:
    """Refuse to forget a session that is not over, and the anchors."""
    if session == ANCHORS:
        raise Conflict("the anchors of the audit are kept: other sessions are checked with them")
    # One that has failed is owned by its process, perhaps a dead one, until it is rolled back.
    if state == "ACTIVE" or rollback == "rolling_back" or owner:
        raise Conflict(f"session {session} is not over: only what has ended can be forgotten")


def bare_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a forgotten session's body: it names no person and no task."""
    kept = ("agent", "parent", "root", "detached", "on_error")
    return {"forgotten": True, **{key: body[key] for key in kept if key in body}}


def claim_conflict(session: str, expect: int) -> Conflict:
    """What refuses a claim that came too late."""
    error = Conflict(
        f"session {session} was claimed by somebody else, or is not in this store: "
        f"its fence is not {expect}"
    )
    error.session_id = session
    return error


def look_up(body: Mapping[str, Any]) -> tuple[str, str]:
    """Parent and agent of a session: what it can be looked up by."""
    return str(body.get("parent") or ""), str(body.get("agent") or "")


def check_event(event: NewEvent) -> None:
    """Refuse an event without a kind, and text that has no UTF-8 form."""
    kind, call = event.kind, event.call
    if not kind:
        raise ConfigError(f"event of call {call!r}: kind is empty")
    if not (kind.isascii() and call.isascii()):
        check_text("event", kind, call)


def check_text(what: str, *values: str) -> None:
    """Refuse lone surrogates: a model can put them into the name of a tool."""
    for value in values:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Unencodable(what, "str", "a lone surrogate has no UTF-8 form") from error


def check_batch(batch: Batch) -> None:
    """Refuse what makes no sense or fits no backend, before anything else is looked at."""
    check_text("session", batch.session)
    for event in batch.events:
        check_event(event)
    for put in batch.puts:
        check_text(put.kind, put.kind, put.id, put.state, put.session, put.label)
    check_amounts(batch.holds, batch.settles)


def check_amounts(holds: Sequence[HoldRow], settles: Sequence[SettleRow]) -> None:
    """Refuse holds and settles that no ledger can keep."""
    for hold in holds:
        if not (
            hold.id.isascii()
            and hold.account.isascii()
            and hold.call.isascii()
            and hold.session.isascii()
        ):
            check_text("hold", hold.id, hold.account, hold.call, hold.session)
        if not 0 <= hold.amount <= MAX_AMOUNT:
            raise ConfigError(
                f"hold {hold.id}: amount {hold.amount} is not between 0 and {MAX_AMOUNT}"
            )
        if hold.window is not None and not 1e-6 <= hold.window <= 1e9:
            raise ConfigError(f"hold {hold.id}: window {hold.window} s is not in 1e-6 to 1e9")
    for settle in settles:
        if not 0 <= settle.actual <= MAX_AMOUNT:
            raise ConfigError(
                f"hold {settle.id}: actual {settle.actual} is not between 0 and {MAX_AMOUNT}"
            )


def micros(window: float) -> int:
    """A window in microseconds."""
    return round(window * 1_000_000)
