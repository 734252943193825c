"""The port of sync entries: its coroutines never suspend."""

from __future__ import annotations

import threading
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
    refuse_on_loop,
    running_loop,
)
from checkrein.errors import WouldBlock

if TYPE_CHECKING:
    from checkrein._io.portal import Portal
    from checkrein.store import Batch, Committed, Store


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
            time.sleep(seconds)  # noqa: ASYNC251 - driven by sync code: there is no loop

    async def pause(self, seconds: float) -> None:
        if running_loop() is None:
            time.sleep(seconds)  # noqa: ASYNC251 - driven by sync code: there is no loop

    def may_wait(self, what: str) -> None:
        if running_loop() is not None:
            raise WouldBlock(
                f"{what} would stop this thread's event loop: use the async twin "
                "(acall, arollback, arecover, aresume, amodel_call)"
            )

    async def wait(
        self,
        ready: Callable[[], Any],
        deadline: float,
        what: str,
        watch: Watch | None = None,
    ) -> Any:
        value = ready()
        if value:
            return value
        self.may_wait(what)
        changed = threading.Event()
        stop = (watch or self.store.watch)(changed.set)
        pause = FIRST
        try:
            while True:
                value = ready()
                left = deadline - time.monotonic()
                if value or left <= 0:
                    return value
                changed.wait(left if watch else min(pause, left))
                changed.clear()
                pause = min(2 * pause, POLL)
        finally:
            stop()
