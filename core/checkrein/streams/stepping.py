"""A coroutine that stops at each piece of a stream, until whoever reads it wants the next one.

So a streamed call needs neither a thread nor a task beside its reader, and its provider is read
no faster than the reader reads.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from typing import Any

from checkrein._io import Abandoned, is_awaitable


class hand_over:  # noqa: N801 - awaited as a function would be
    """Await it to give a value to the reader; it returns when the reader wants more."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[hand_over, None, None]:
        yield self


async def deliver(value: Any, running: set[str], mark: str) -> None:
    """Hand a piece of a call's answer over. While its reader has it, the call is not running.

    `running`: those of the session, of which a rollback waits for the end; `mark`: this one.
    """
    running.discard(mark)
    try:
        await hand_over(value)
    finally:
        running.add(mark)


class _Step:
    """Awaited to run a coroutine up to its next piece; what else it waits for goes to the loop."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context,
        error: BaseException | None = None,
    ) -> None:  # fmt: skip
        self._coroutine = coroutine
        self._context = context
        self._error = error

    def __await__(self) -> Generator[Any, Any, hand_over | None]:
        resume: Callable[..., Any] = self._coroutine.send
        given: Any = None
        if self._error is not None:
            resume, given = self._coroutine.throw, self._error
        while True:
            try:
                waits_for = self._context.run(resume, given)
            except StopIteration:
                return None
            if type(waits_for) is hand_over:
                return waits_for
            try:
                resume, given = self._coroutine.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - cancelled: the engine has to know
                resume, given = self._coroutine.throw, error


def pieces(start: Callable[[], Coroutine[Any, Any, Any]]) -> Generator[Any, None, None]:
    """What a coroutine of sync code hands over. Closing the generator gives it up."""
    # A context of its own: what the coroutine sets is not seen between two pieces.
    coroutine, context = start(), contextvars.copy_context()
    resume: Callable[..., Any] = coroutine.send
    given: Any = None
    while True:
        try:
            piece = context.run(resume, given)
        except StopIteration:
            return
        try:
            yield piece.value
            resume, given = coroutine.send, None
        except BaseException as error:  # noqa: BLE001 - given up: the engine records it
            resume, given = coroutine.throw, error


async def apieces(start: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncIterator[Any]:
    """The async twin of `pieces`."""
    coroutine, context = start(), contextvars.copy_context()
    error: BaseException | None = None
    while (piece := await _Step(coroutine, context, error)) is not None:
        try:
            yield piece.value
            error = None
        except GeneratorExit:
            await _give_up(coroutine, context)
            raise
        except BaseException as given:  # noqa: BLE001 - the engine records it
            error = given


async def _give_up(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
    """Cancel it, and let it record its end.

    A `GeneratorExit` would close what it awaits, which then could wait for nothing any more.
    """
    import asyncio

    error: BaseException | None = asyncio.CancelledError()
    with suppress(asyncio.CancelledError):
        while await _Step(coroutine, context, error) is not None:
            error = None


async def read(source: Any, timeout: float | None) -> AsyncIterator[Any]:
    """The chunks of a provider's stream, sync or async. Raises `Abandoned` after `timeout`.

    Only what the provider takes counts, not what is done with its chunks.
    """
    if not hasattr(source, "__aiter__"):
        for chunk in _taken(iter(source), timeout):
            yield chunk
        return
    import asyncio

    chunks, left = source.__aiter__(), timeout
    while True:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(left):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if left is None:
                raise
            raise Abandoned from None
        if left is not None:
            left = max(0.0, left - (time.perf_counter() - started))
        yield chunk


def _taken(source: Iterator[Any], timeout: float | None) -> Iterator[Any]:
    waited = 0.0
    while True:
        started = time.perf_counter()
        try:
            chunk = next(source)
        except StopIteration:
            return
        waited += time.perf_counter() - started
        yield chunk
        if timeout is not None and waited > timeout:
            raise Abandoned


async def close(source: Any) -> None:
    """Close a provider's stream: it must not go on being paid for."""
    for name in ("aclose", "close"):
        closing = getattr(source, name, None)
        if callable(closing):
            with suppress(Exception):
                ended: Any = closing()
                if is_awaitable(ended):
                    await ended
            return
