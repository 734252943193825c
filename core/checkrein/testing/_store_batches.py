"""Short ways to write what the store checks write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from checkrein.store import (
    Batch,
    Committed,
    HoldRow,
    NewEvent,
    Put,
    SessionPut,
    SettleRow,
    Store,
    Tree,
)
from checkrein.verdicts import Settle

E = TypeVar("E", bound=Exception)


def opened(store: Store, id: str = "s", **body: Any) -> None:
    """Create a session without events."""
    store.commit(Batch(id, [], 1, session_put=SessionPut(create=True, body=body)))


def note(
    session: str = "s", *, kind: str = "note", call: str = "", payload: Tree = None, **more: Any
) -> Batch:
    """A batch of one event; `more` are further fields of `Batch`."""
    return Batch(session, [NewEvent(kind, call, 1, {"kind": kind}, payload)], 1, **more)


def write(
    store: Store,
    *kinds: str,
    session: str,
    call: str = "",
    attempt: int = 1,
    at: int = 1,
    fence: int | None = None,
    admit: bool = False,
    holds: Sequence[HoldRow] = (),
    settles: Sequence[SettleRow] = (),
    puts: Sequence[Put] = (),
) -> Committed:
    """Commit one batch with an event of each kind."""
    events = [NewEvent(kind, call, at, {"kind": kind}, None, attempt) for kind in kinds]
    return store.commit(
        Batch(
            session, events, at, fence=fence, admit=admit, holds=holds, settles=settles, puts=puts
        )
    )


def hold(
    id: str,
    amount: int = 1,
    limit: int = 10**6,
    account: str = "acc",
    window: float | None = None,
    session: str = "s",
    call: str = "c",
    settle: Settle = "keep",
) -> HoldRow:
    """A hold in calls."""
    return HoldRow(id, account, amount, "calls", limit, window, settle, call, session)


def same(seen: object, wanted: object) -> None:
    """Fail unless both are equal."""
    if seen != wanted:
        raise AssertionError(f"{seen!r} is not {wanted!r}")


def expect(kind: type[E], run: Callable[..., object], /, *values: Any, **named: Any) -> E:
    """Run something that must raise exactly `kind`, and return the error."""
    try:
        result = run(*values, **named)
    except kind as error:
        if type(error) is not kind:
            raise AssertionError(f"{type(error).__name__}, not {kind.__name__}: {error}") from error
        return error
    raise AssertionError(f"{kind.__name__} was not raised; got {result!r}")
