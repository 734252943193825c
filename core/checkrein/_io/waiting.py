"""Waiting for something, and giving it up: what both ports and the portal are made of."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from checkrein.errors import WouldBlock

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

GRACE = 1.0
"""Seconds that a cancelled coroutine gets to clean up before it is left alone."""

Late: TypeAlias = "Callable[[Any], None]"
"""Takes the future of what was given up: a `concurrent.futures.Future` or an `asyncio.Task`."""


class Abandoned(Exception):
    """A signal between port and engine: a tool did not end in time, and may still run."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, without importing asyncio for the question."""
    loops = sys.modules.get("asyncio")
    return None if loops is None else loops._get_running_loop()  # noqa: SLF001 - documented for
    # event loop implementers; the public twin raises, at 20 times the price


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends; return its value."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise RuntimeError("the engine suspended in a sync entry: please report this")


def in_thread(fn: Callable[[], T], name: str) -> Future[T]:
    """Run `fn` on a new daemon thread with a copy of this context.

    Not a pool: a hung tool must not keep the interpreter from exiting, nor later calls from
    starting.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            value = context.run(fn)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
            future.set_exception(error)
        else:
            future.set_result(value)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


def forget(future: Any) -> None:
    """Let go of something that was given up: what it still raises is nobody's."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


async def bounded(awaitable: Awaitable[T], timeout: float | None, late: Late) -> T:
    """Await for `timeout` seconds at most, whatever the awaitable does about its cancellation.

    Raises `Abandoned`; `late` then gets the task.
    """
    if timeout is None:
        return await awaitable
    import asyncio

    task: asyncio.Future[T] = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
        if done:
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE)
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            late(task)
            # Its cleaning up belongs to the call, as it does for a call without a timeout.
            await asyncio.wait({task}, timeout=GRACE)
        raise
    late(task)
    raise Abandoned


def is_awaitable(value: Any) -> bool:
    """Whether a hook's or tool's answer has to be awaited.

    The type is asked: a proxy may offer any attribute that it is asked for.
    """
    return hasattr(type(value), "__await__")


def refuse_on_loop(what: str, awaitable: object = None) -> None:
    """Raise `WouldBlock` on a thread whose event loop is running."""
    if running_loop() is not None:
        closer = getattr(awaitable, "close", None)
        if closer is not None:
            closer()
        raise WouldBlock(
            f"{what} must be awaited, and this thread's event loop is running: "
            "use the async twin (acall, arollback, arecover, aresume, amodel_call)"
        )
