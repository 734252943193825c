"""The port: what the engine needs from the world, whoever drives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from checkrein._io.waiting import Late
    from checkrein.store import Batch, Committed

POLL = 0.1
"""Seconds between two looks at a store that another process may have changed, at most."""
FIRST = 0.002
"""Seconds before the second look; twice as long before each further one. What another process
is about is mostly over soon."""

Watch: TypeAlias = "Callable[[Callable[[], None]], Callable[[], None]]"
"""Takes what to call when something may have changed; gives what to call to end that."""


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

    async def wait(
        self, ready: Callable[[], Any], deadline: float, what: str, watch: Watch | None = None
    ) -> Any:
        """Wait until `ready()` is true or `time.monotonic()` passes `deadline`; its value.

        `watch` says when to look again; without it every commit of this process does, and the
        time, for what other processes write.
        """
        ...
