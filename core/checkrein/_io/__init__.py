"""One engine, two ports: how the async engine reaches the world from sync and async code.

The engine is one set of `async def` functions. An async entry awaits it with `AsyncIO`. A
sync entry drives it with a single `send(None)` over `SyncIO`, whose coroutines never suspend:
what has to be awaited is finished on the portal, a daemon thread with an event loop.
"""

from checkrein._io.async_port import AsyncIO
from checkrein._io.port import IO
from checkrein._io.portal import Portal
from checkrein._io.sync_port import SyncIO
from checkrein._io.waiting import (
    Abandoned,
    Late,
    finish,
    forget,
    in_thread,
    is_awaitable,
    refuse_on_loop,
    running_loop,
)

__all__ = [
    "IO",
    "Abandoned",
    "AsyncIO",
    "Late",
    "Portal",
    "SyncIO",
    "finish",
    "forget",
    "in_thread",
    "is_awaitable",
    "refuse_on_loop",
    "running_loop",
]
