"""Asking people: every approval channel is told at once, and the first final answer counts."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from checkrein._io import is_awaitable, running_loop
from checkrein._locks import Lock
from checkrein.errors import CheckreinError, Conflict
from checkrein.judging import ALLOWED, malformed
from checkrein.verdicts import Approved, Rejected

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.approval import ApprovalRequest
    from checkrein.call import Call
    from checkrein.manager import Impl
    from checkrein.rein import Rein


THREADS = 32
"""Requests that one channel is asked at the same time; the others wait for their turn."""

_Work = tuple[contextvars.Context, Callable[[], Any], Future[Any]]


class Lanes:
    """Threads for channels, for one Rein: a thousand requests need no thousand threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._work: dict[str, deque[_Work]] = {}
        self._threads: dict[str, int] = {}

    def run(self, channel: str, fn: Callable[[], Any]) -> Future[Any]:
        """Run `fn` on a daemon thread of the channel, with a copy of this context."""
        future: Future[Any] = Future()
        with self._lock:
            self._work.setdefault(channel, deque()).append((
                contextvars.copy_context(), fn, future,
            ))  # fmt: skip
            start = self._threads.get(channel, 0) < THREADS
            if start:
                self._threads[channel] = self._threads.get(channel, 0) + 1
        if start:
            name = f"checkrein-ask-{channel}"
            threading.Thread(target=self._serve, args=(channel,), name=name, daemon=True).start()
        return future

    def _serve(self, channel: str) -> None:
        while True:
            with self._lock:
                if not self._work[channel]:
                    self._threads[channel] -= 1
                    return
                context, fn, future = self._work[channel].popleft()
            try:
                value = context.run(fn)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
                future.set_exception(error)
            else:
                future.set_result(value)


class Asking:
    """One request on its way through all channels."""

    def __init__(self, rein: Rein, io: IO, call: Call, request: ApprovalRequest) -> None:
        self.rein = rein
        self.io = io
        self.call = call
        self.request = request
        self._lock = Lock()
        self._waiting: set[str] = set()
        self._told = 0
        self._loop = running_loop() if io.is_async else None
        """The caller's loop: an asynchronous approver may use what is bound to it."""
        self._tasks: list[Any] = []
        self._done = threading.Event()
        self.refused = ""
        """Why the last answer that came through a channel was not taken."""

    def tell(self) -> None:
        """Start every channel; nobody waits for another one.

        Sync hooks run on threads of their own: a prompt must not stop the caller's loop, nor
        the other channels. Async hooks run on the caller's loop, or on the portal.
        """
        impls = self.rein.plugins.chains["on_approval"]
        self._waiting = {impl.plugin for impl in impls}
        if not impls:
            self._done.set()
        for impl in impls:
            lanes = self.rein.permissions.lanes
            future = lanes.run(impl.plugin, partial(self._ask, impl))
            future.add_done_callback(partial(self._returned, impl))

    def _ask(self, impl: Impl) -> Any:
        # It may have been decided while the channel had others to ask.
        return impl(self.call, self.request) if self.request.is_open() else None

    def _returned(self, impl: Impl, done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            self._finish(impl, None, error)
            return
        value = done.result()
        if is_awaitable(value):
            pending = self._await(impl, value)
            self._tasks.append(pending)
            pending.add_done_callback(
                lambda p: self._finish(
                    impl,
                    None if p.cancelled() or p.exception() else p.result(),
                    None if p.cancelled() else p.exception(),
                )
            )
            return
        self._finish(impl, value, None)

    def _await(self, impl: Impl, value: Any) -> Future[Any]:
        """Finish an awaitable on the caller's loop, or on the portal."""
        if self._loop is not None and not impl.own_loop and not self._loop.is_closed():
            import asyncio

            async def answer() -> Any:
                return await value

            waiting = answer()
            try:
                return asyncio.run_coroutine_threadsafe(waiting, self._loop)
            except RuntimeError:
                waiting.close()  # the loop was closed at this moment
        return self.rein.portal.submit(value)

    def _finish(self, impl: Impl, value: Any, error: BaseException | None) -> None:
        try:
            if error is None and value is not None:
                if type(value) not in ALLOWED["on_approval"] or malformed(value):
                    error = TypeError(f"returned {type(value).__name__}")
            if error is not None:
                # A channel that fails never approves; the others may still answer.
                self.rein.log.error(
                    "approval %s: channel %s failed: %s",
                    self.request.id,
                    impl.plugin,
                    type(error).__name__,
                )
            elif value is not None:
                self._decide(impl, value)
        finally:
            with self._lock:
                self._told += error is None and value is None
                self._waiting.discard(impl.plugin)
                if not self._waiting:
                    self._done.set()
            self.rein.waiters.wake(self.request.id)

    def _decide(self, impl: Impl, value: Approved | Rejected) -> None:
        approvals = self.rein.approvals
        try:
            if isinstance(value, Rejected):
                approvals.reject(self.request.id, by=value.by or impl.plugin, reason=value.reason)
                return
            approvals.approve(
                self.request.id,
                by=value.by or impl.plugin,
                arguments=value.arguments,
                masked_ok=value.masked_ok,
                always=value.always,
            )
        except Conflict as error:
            # Somebody else was faster, or may answer and this channel may not.
            self.refused = str(error)
            self.rein.log.info("approval %s: %s: %s", self.request.id, impl.plugin, error)
        except CheckreinError as error:
            self.rein.log.error("approval %s: %s: %s", self.request.id, impl.plugin, error)

    async def told(self) -> None:
        """Wait until every channel has answered or passed."""
        await self.io.wait(
            lambda: self._done.is_set() or not self.request.is_open(),
            time.monotonic() + max(1.0, self.rein.hook_timeout),
            f"approval {self.request.id}",
            partial(self.rein.waiters.watch, self.request.id),
        )

    def hopeless(self) -> bool:
        """Every channel failed, and the store may not answer either."""
        return self._done.is_set() and self._told == 0 and not self.rein.answer_from_store

    def stop(self) -> None:
        """Cancel what is still open."""
        for task in self._tasks:
            task.cancel()
