"""The portal: an event loop for what sync code has to have awaited."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from checkrein._io.waiting import GRACE, refuse_on_loop

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Portal:
    """A lazily started event loop on a daemon thread; started anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._loop = None
            self._pid = os.getpid()
        with self._lock:
            if self._loop is None:
                import asyncio

                # In an empty context: the loop keeps the one that it was made in, with its session.
                self._loop = contextvars.Context().run(asyncio.new_event_loop)
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="checkrein-portal", daemon=True
                )
                self._thread.start()
            return self._loop

    def submit(self, awaitable: Awaitable[T]) -> Future[T]:
        """Schedule on the portal; a context copy goes along."""
        import asyncio

        async def await_it() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(await_it(), self.loop())

    def run(self, awaitable: Awaitable[T], *, what: str, timeout: float | None = None) -> T:
        """Finish an awaitable from sync code.

        Raises `WouldBlock` on a thread whose loop runs, and `TimeoutError`.
        """
        refuse_on_loop(what, awaitable)
        future = self.submit(awaitable)
        try:
            return future.result(timeout)
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop. Whoever still waits for something on it gets a `CancelledError`."""
        if self._pid != os.getpid():
            return
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(5)

    def __del__(self) -> None:
        # A Rein that nobody closed: its loop and thread go with it.
        loop = self._loop
        if loop is not None and self._pid == os.getpid() and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, end what is left on it, and close it."""
    import asyncio

    loop.run_forever()
    try:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=GRACE))
    finally:
        loop.close()
