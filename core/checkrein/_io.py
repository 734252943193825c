"""One engine, two ports: how the async engine reaches the world from sync and async code.

The engine is one set of `async def` functions. An async entry awaits it with `AsyncIO`. A
sync entry drives it with a single `send(None)` over `SyncIO`, whose coroutines never suspend:
what has to be awaited is finished on the portal, a daemon thread with an event loop.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from checkrein.errors import StoreBusy, WouldBlock

if TYPE_CHECKING:
    import asyncio

    from checkrein.store import Batch, Committed, Store

T = TypeVar("T")

POLL = 0.1
"""Seconds between two looks at a store that another process may have changed."""


GRACE = 1.0
"""Seconds that a cancelled coroutine gets to clean up before it is left alone."""

Late: TypeAlias = "Callable[[Any], None]"
"""Takes the future of what was given up: a `concurrent.futures.Future` or an `asyncio.Task`."""


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
        refuse_on_loop(what, awaitable)
        future = self.submit(awaitable)
        try:
            return future.result(timeout)
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
        late: Late,
        own: bool = False,
    ) -> Any:
        """Run a tool, or a hook with a declared timeout. `own`: on the portal.

        Raises `Abandoned` at the timeout; `late` then gets the future.
        """
        ...

    def can_wait(self) -> bool:
        """Whether a wait stops no running loop."""
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
    """Whether a hook's or tool's answer has to be awaited.

    The type is asked: a proxy may offer any attribute that it is asked for.
    """
    return hasattr(type(value), "__await__")


class SyncIO:
    """Never suspends."""

    is_async = False

    def __init__(self, store: Store, portal: Portal) -> None:
        self.store = store
        self.portal = portal

    async def settle(
        self, awaitable: Awaitable[Any], *, what: str, timeout: float | None, own: bool = False
    ) -> Any:
        refuse_on_loop(what, awaitable)
        return self.portal.run(bounded(awaitable, timeout, forget), what=what)

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Late,
        own: bool = False,
    ) -> Any:
        what = "an async function"
        if is_async:
            refuse_on_loop(what)
        if timeout is None or is_async:
            value = fn()
            if not is_awaitable(value):
                return value
            refuse_on_loop(what, value)
            return self.portal.run(bounded(value, timeout, late), what=what)
        deadline = time.monotonic() + timeout
        future = in_thread(fn, "checkrein-tool")
        try:
            value = future.result(timeout)
        except BaseException as error:
            if not future.done():
                late(future)
                if isinstance(error, TimeoutError):
                    raise Abandoned from None
                raise
            value = future.result()  # what the tool itself raised, or an end at the last moment
        if not is_awaitable(value):
            return value
        refuse_on_loop(what, value)
        left = max(0.0, deadline - time.monotonic())
        return self.portal.run(bounded(value, left, late), what=what)

    def can_wait(self) -> bool:
        return running_loop() is None

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
                f"{what} would stop this thread's event loop: use the async twin "
                "(acall, arollback, arecover, aresume, amodel_call)"
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
