"""The port of async entries: it runs on the caller's loop and never stops it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from checkrein._io.port import FIRST, POLL, Watch
from checkrein._io.waiting import (
    Abandoned,
    Late,
    bounded,
    forget,
    in_thread,
    is_awaitable,
    running_loop,
)
from checkrein._io.writer import Writer
from checkrein.errors import StoreBusy

if TYPE_CHECKING:
    from checkrein._io.portal import Portal
    from checkrein.store import Batch, Committed, Store


class AsyncIO:
    """Runs on the caller's loop; a store that blocks is kept off it."""

    is_async = True

    def __init__(self, store: Store, portal: Portal) -> None:
        self.store = store
        self.portal = portal
        self._writer = Writer(store)

    async def settle(
        self, awaitable: Awaitable[Any], *, what: str, timeout: float | None, own: bool = False
    ) -> Any:
        return await self._on(own, awaitable, timeout, forget)

    async def _on(
        self, own: bool, awaitable: Awaitable[Any], timeout: float | None, late: Late
    ) -> Any:
        if own and self.portal.loop() is not running_loop():
            import asyncio

            return await asyncio.wrap_future(self.portal.submit(bounded(awaitable, timeout, late)))
        return await bounded(awaitable, timeout, late)

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Late,
        own: bool = False,
    ) -> Any:
        if timeout is None or is_async:
            value = fn()
            return await self._on(own, value, timeout, late) if is_awaitable(value) else value
        import asyncio

        deadline = time.monotonic() + timeout
        future = in_thread(fn, "checkrein-tool")
        waiting = asyncio.wrap_future(future)
        forget(waiting)
        try:
            # `wait` cancels nothing: the thread goes on, and its result must not be dropped.
            done, _ = await asyncio.wait({waiting}, timeout=timeout)
        except asyncio.CancelledError:
            late(future)
            raise
        if not done:
            late(future)
            raise Abandoned
        value = waiting.result()
        if not is_awaitable(value):
            return value
        return await self._on(own, value, max(0.0, deadline - time.monotonic()), late)

    def can_wait(self) -> bool:
        return True

    async def commit(self, batch: Batch) -> Committed:
        if not self.store.blocking:
            return self.store.commit(batch)
        if not self._writer.busy:
            try:
                return self.store.commit(batch, wait=False)
            except StoreBusy:
                pass
        import asyncio

        waiting = asyncio.wrap_future(self._writer.submit(batch))
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            # What was handed to the writer cannot be called back: whoever is cancelled must know
            # afterwards whether it stands.
            while not waiting.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({waiting})
            forget(waiting)
            raise
        return waiting.result()

    def may_wait(self, what: str) -> None:
        return

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        await self.sleep(seconds)

    async def wait(
        self,
        ready: Callable[[], Any],
        deadline: float,
        what: str,
        watch: Watch | None = None,
    ) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        stop = (watch or self.store.watch)(wake)
        pause = FIRST
        try:
            while True:
                changed.clear()
                value = ready()
                left = deadline - time.monotonic()
                if value or left <= 0:
                    return value
                try:
                    await asyncio.wait_for(changed.wait(), left if watch else min(pause, left))
                except TimeoutError:
                    pause = min(2 * pause, POLL)
        finally:
            stop()
