"""One engine, two ports: how the async engine reaches the world from sync and async code.

The engine is one set of `async def` functions. An async entry awaits it with `AsyncIO`. A
sync entry drives it with a single `send(None)` over `SyncIO`, whose coroutines never suspend:
what has to be awaited is finished on the portal, a daemon thread with an event loop.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from checkrein.errors import StoreBusy, WouldBlock

if TYPE_CHECKING:
    import asyncio

    from checkrein.store import Batch, Committed, Store

T = TypeVar("T")

POLL = 0.1
"""Seconds between two looks at a store that another process may have changed."""


class Abandoned(Exception):  # noqa: N818 - a signal between port and engine, never raised to users
    """A tool did not end in time; it may still run."""


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

                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="checkrein-portal", daemon=True
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
        if running_loop() is not None:
            closer = getattr(awaitable, "close", None)
            if closer is not None:
                closer()
            raise WouldBlock(
                f"{what} must be awaited, and this thread's event loop is running: "
                "use the async twin (acall, arollback, arecover, aresume, amodel_call)"
            )
        future = self.submit(awaitable)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop."""
        if self._pid != os.getpid():
            return
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(5)
            if not loop.is_running():
                loop.close()


class IO(Protocol):
    """What the engine needs from the world."""

    is_async: bool

    async def settle(
        self, awaitable: Awaitable[Any], *, what: str, timeout: float | None, own: bool = False
    ) -> Any:
        """Await what a hook returned. `own`: on the portal."""
        ...

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Callable[[Future[Any]], None],
    ) -> Any:
        """Run a tool. Raises `Abandoned` at the timeout; `late` then gets the future."""
        ...

    async def commit(self, batch: Batch) -> Committed: ...

    def may_wait(self, what: str) -> None:
        """Raise `WouldBlock` where a wait would stop a running loop."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def pause(self, seconds: float) -> None:
        """As `sleep`, left out where it would stop a running loop."""
        ...

    async def wait(self, ready: Callable[[], Any], deadline: float, what: str) -> Any:
        """Wait until `ready()` is true or `time.monotonic()` passes `deadline`; its value."""
        ...


def is_awaitable(value: Any) -> bool:
    """Whether a hook's or tool's answer has to be awaited."""
    return hasattr(value, "__await__")


class SyncIO:
    """Never suspends."""

    is_async = False

    def __init__(self, store: Store, portal: Portal) -> None:
        self.store = store
        self.portal = portal

    async def settle(
        self, awaitable: Awaitable[Any], *, what: str, timeout: float | None, own: bool = False
    ) -> Any:
        return self.portal.run(awaitable, what=what, timeout=timeout)

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Callable[[Future[Any]], None],
    ) -> Any:
        if timeout is None:
            value = fn()
            if is_awaitable(value):
                return self.portal.run(value, what="an async tool")
            return value
        return self._with_timeout(fn, timeout, late)

    def _with_timeout(
        self, fn: Callable[[], Any], timeout: float, late: Callable[[Future[Any]], None]
    ) -> Any:
        deadline = time.monotonic() + timeout
        future = in_thread(fn, "checkrein-tool")
        try:
            value = future.result(timeout)
        except TimeoutError:
            if future.done():
                raise
            late(future)
            raise Abandoned from None
        if not is_awaitable(value):
            return value
        pending = self.portal.submit(value)
        try:
            return pending.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            if pending.done() and not pending.cancelled():
                raise
            pending.cancel()
            raise Abandoned from None

    async def commit(self, batch: Batch) -> Committed:
        return self.store.commit(batch)

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.may_wait("a pause")
            time.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        if running_loop() is None:
            time.sleep(seconds)

    def may_wait(self, what: str) -> None:
        if running_loop() is not None:
            raise WouldBlock(
                f"{what} would stop this thread's event loop: use the async twin of this entry"
            )

    async def wait(self, ready: Callable[[], Any], deadline: float, what: str) -> Any:
        value = ready()
        if value:
            return value
        self.may_wait(what)
        changed = threading.Event()
        stop = self.store.watch(changed.set)
        try:
            while True:
                value = ready()
                left = deadline - time.monotonic()
                if value or left <= 0:
                    return value
                changed.wait(min(POLL, left))
                changed.clear()
        finally:
            stop()


class AsyncIO:
    """Runs on the caller's loop; a store that blocks is kept off it."""

    is_async = True

    def __init__(self, store: Store, portal: Portal) -> None:
        self.store = store
        self.portal = portal
        self._writer = _Writer(store)

    async def settle(
        self, awaitable: Awaitable[Any], *, what: str, timeout: float | None, own: bool = False
    ) -> Any:
        import asyncio

        if own and self.portal.loop() is not running_loop():
            awaitable = asyncio.wrap_future(self.portal.submit(awaitable))
        if timeout is None:
            return await awaitable
        return await asyncio.wait_for(awaitable, timeout)

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Callable[[Future[Any]], None],
    ) -> Any:
        if timeout is None:
            value = fn()
            return await value if is_awaitable(value) else value
        import asyncio

        deadline = time.monotonic() + timeout
        if is_async:
            value = fn()
        else:
            future = in_thread(fn, "checkrein-tool")
            try:
                # Shielded: the thread cannot be cancelled, so its result must not be dropped.
                value = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), timeout)
            except TimeoutError:
                if future.done():
                    raise
                late(future)
                raise Abandoned from None
            except asyncio.CancelledError:
                if not future.done():
                    late(future)
                raise
        if not is_awaitable(value):
            return value
        task = asyncio.ensure_future(value)
        try:
            done, _ = await asyncio.wait({task}, timeout=max(0.0, deadline - time.monotonic()))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
        raise Abandoned

    async def commit(self, batch: Batch) -> Committed:
        if not self.store.blocking:
            return self.store.commit(batch)
        if not self._writer.busy:
            try:
                return self.store.commit(batch, wait=False)
            except StoreBusy:
                pass
        import asyncio

        return await asyncio.shield(asyncio.wrap_future(self._writer.submit(batch)))

    def may_wait(self, what: str) -> None:
        return

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        await self.sleep(seconds)

    async def wait(self, ready: Callable[[], Any], deadline: float, what: str) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        stop = self.store.watch(wake)
        try:
            while True:
                changed.clear()
                value = ready()
                left = deadline - time.monotonic()
                if value or left <= 0:
                    return value
                try:
                    await asyncio.wait_for(changed.wait(), min(POLL, left))
                except TimeoutError:
                    continue
        finally:
            stop()


class _Writer:
    """A thread that commits what waits as one group: many async calls share one sync."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._queue: list[tuple[Batch, Future[Committed]]] = []
        self._running = False
        self._pid = os.getpid()

    @property
    def busy(self) -> bool:
        """Whether batches wait: a new one must queue behind them."""
        return bool(self._queue)

    def submit(self, batch: Batch) -> Future[Committed]:
        future: Future[Committed] = Future()
        if self._pid != os.getpid():
            self._lock, self._queue, self._running = threading.Lock(), [], False
            self._pid = os.getpid()
        with self._lock:
            self._queue.append((batch, future))
            start = not self._running
            self._running = True
        if start:
            threading.Thread(target=self._work, name="checkrein-writer", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                group = self._queue[:64]
                if not group:
                    self._running = False
                    return
            try:
                results: list[Any] = list(self._store.commit_many([b for b, _ in group]))
            except Exception as error:  # noqa: BLE001 - goes to everyone who waits
                results = [error] * len(group)
            with self._lock:
                del self._queue[: len(group)]
            for (_, future), result in zip(group, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
