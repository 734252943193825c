"""The state before a change: read when nothing stands in the way of the call any more."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from checkrein.call import Call
from checkrein.codec import decode_arguments, encode
from checkrein.errors import Denied
from checkrein.store import NewEvent, payload_of
from checkrein.undo import MISSING
from checkrein.verdicts import Ask

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.entry import Entry
    from checkrein.rein import Rein

RULE = "state_before"

_WHOLE: WeakSet[Callable[..., Any]] = WeakSet()
"""Readers that take all arguments of a call, as one mapping."""


def whole(fn: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """A reader that takes all arguments of a call, whatever they are called."""

    def reader(**_: Any) -> Any:
        raise TypeError("it takes one mapping")

    def taker(given: dict[str, Any]) -> Any:
        return fn(given)

    taker.__signature__ = inspect.signature(reader)  # type: ignore[attr-defined]  # no parameter fits them all
    _WHOLE.add(taker)
    return taker


async def capture(
    rein: Rein, io: IO, entry: Entry, call: Call, tree: dict[str, Any], event: NewEvent
) -> None:
    """Read the state before a call, and put it into the intent's record.

    Where it cannot be read, that is in the record, and the tool's `on_capture` decides: the call
    is refused, a person is asked, or it goes on without an undo.
    """
    entry.before = MISSING
    problem: BaseException | None = None
    try:
        value = await _read(io, entry, tree)
        kept = encode(value, "before")
    except Exception as error:  # noqa: BLE001 - whatever a reader raises, the state is not known
        problem = error
    else:
        entry.before = value
        event.payload = {**(payload_of(event) or {}), "before": kept}
        event.view["before"] = rein.journal.view(call, value, "journal")
        return
    name = type(problem).__name__
    event.view["before_failed"] = name
    why = f"the state before {call.name} could not be read ({name}), so it could not be undone"
    policy = entry.tool.on_capture
    if policy == "go_on" or rein.mode == "observe":
        rein.log.warning("%s %s: %s", call.name, call.id, why)
        return
    if policy == "refuse":
        refusal = Denied(
            f"{why}; declare on_capture='ask' or 'go_on' to let it run all the same",
            rule=RULE, tool=call.name, call_id=call.id, code="capture_failed",
        )  # fmt: skip
        await rein.engine.refuse(io, entry, call, tree, refusal)
    from checkrein.checks import Checked

    asked = Checked(call, asks=[(RULE, Ask(why, rule=RULE))])
    granted = await rein.permissions.obtain(io, entry, call, tree, asked)
    if granted is not None:
        entry.approved = granted.ids


async def _read(io: IO, entry: Entry, tree: dict[str, Any]) -> Any:
    reader = entry.tool.before
    assert reader is not None
    assert reader.fn is not None
    exact = decode_arguments(tree, entry.tool.classes, entry.arguments)
    if reader.fn in _WHOLE:
        taker = reader.fn
        return await io.call(lambda: taker(exact), timeout=None, is_async=False, late=_no_late)
    args, kwargs = reader.spread({n: exact[n] for n in reader.parameters if n in exact})
    fn = reader.fn
    if reader.is_async:
        io.may_wait(f"the reader of the state before {entry.tool.info.name}")
    return await io.call(
        lambda: fn(*args, **kwargs), timeout=None, is_async=reader.is_async, late=_no_late
    )


def _no_late(future: Any) -> None:
    """Nothing is abandoned without a timeout."""
