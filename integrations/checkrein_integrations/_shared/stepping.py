"""An engine that is driven piece by piece from sync code: for answers that are streamed.

The sync engine never suspends. For a stream it must: at every piece that its reader gets.
`hand_over` stops it there, and `steps` goes on when the next piece is asked for, so that a
stream needs no thread and is read from its server no faster than by its reader.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from checkrein._io import SyncIO
from checkrein._io.waiting import Late


@types.coroutine
def hand_over(value: Any) -> Generator[Any, None, None]:
    """Give a value to whoever drives this coroutine, and wait until more is wanted."""
    yield value


class InSteps:
    """What a call runs piece by piece."""

    def __init__(self, run: Callable[[float | None], Awaitable[Any]]) -> None:
        self.run = run
        """Given the time on the monotonic clock at which it must be done, or None."""


class SteppingIO(SyncIO):
    """The port of sync entries, for a call that gives `InSteps`."""

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Late,
        own: bool = False,
    ) -> Any:
        begun: list[InSteps] = []

        def started() -> Any:
            value = fn()
            if not isinstance(value, InSteps):
                return value
            begun.append(value)
            return None

        value = await super().call(started, timeout=timeout, is_async=is_async, late=late, own=own)
        if not begun:
            return value
        return await begun[0].run(None if timeout is None else time.monotonic() + timeout)


def steps(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, None, Any]:
    """What a coroutine hands over; the generator returns its value.

    It runs in a context of its own, so that what it sets is not seen between two pieces. A
    reader that closes the generator cancels it.
    """
    context = contextvars.copy_context()
    done = False
    try:
        while True:
            try:
                value = context.run(coroutine.send, None)
            except BaseException as ended:
                done = True
                if isinstance(ended, StopIteration):
                    return ended.value
                raise
            yield value
    finally:
        if not done:
            _cancel(coroutine, context)


def _cancel(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
    """Let it record its end; what it hands over meanwhile is nobody's."""
    try:
        context.run(coroutine.throw, asyncio.CancelledError())
        while True:
            context.run(coroutine.send, None)
    except (StopIteration, asyncio.CancelledError):
        pass
