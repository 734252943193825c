"""A streamed model call in a loop of one's own: the engine suspends at each chunk.

The engine is a coroutine. Where the model would run it takes the provider's chunks one by one
and suspends with each that may be delivered; whoever iterates resumes it. So the call has its
intent, its holds and its outcome like any other, and one that is given up in the middle is
recorded, and paid for, as far as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from checkrein._io import is_awaitable
from checkrein.errors import ConfigError, WouldBlock
from checkrein.streams.delivery import Delivery, text_of, with_whole
from checkrein.streams.filters import Channels
from checkrein.streams.stepping import apieces, close, deliver, hand_over, pieces, read

if TYPE_CHECKING:
    from checkrein.call import Call, Outcome, Usage
    from checkrein.entry import Entry
    from checkrein.errors import Denied
    from checkrein.rein import Rein


class _Streaming:
    """One streamed model call, between the engine and whoever reads it.

    It knows nothing of its reader: a stream that nobody holds any more is then closed at once.
    """

    def __init__(
        self,
        rein: Rein,
        entry: Entry,
        fn: Callable[..., Any],
        usage: Callable[[list[Any]], Usage | None] | None,
        *,
        is_async: bool,
    ) -> None:
        self.outcome: Outcome | None = None
        self._rein = rein
        self._entry = entry
        self._fn = fn
        self._is_async = is_async
        chains = rein.plugins.chains
        self._openers = chains["open_stream"]
        filtering = {impl.plugin for impl in self._openers}
        self._hold = any(impl.plugin not in filtering for impl in chains["post_call"])
        self._kept: list[Any] = []
        self._own_usage = usage
        self._chunks: list[Any] = []
        self._delivery = Delivery(None)
        self._complete = False
        self._value: Any = None
        entry.stream = self._run
        entry.usage = lambda value: self._used()
        entry.paid = self._used
        entry.said = self._said

    # -- what is known of it

    def _used(self) -> Usage | None:
        if self._own_usage is not None:
            return self._own_usage(self._chunks)
        return self._delivery.usage()

    def _said(self) -> str | None:
        """None where the provider's report stands, and where nothing came."""
        if not self._delivery.begun:
            return None
        with suppress(Exception):  # a usage that cannot be read is reported by whoever reads it
            if self._complete and self._used() is not None:
                return None
        return self._delivery.said()

    # -- the engine's side

    async def _run(self, call: Call, exact: dict[str, Any], timeout: float | None) -> Any:
        """Call the model and deliver its chunks; the message that they add up to."""
        channels = Channels(call, self._openers, _as_it_is) if self._openers else None
        delivery = self._delivery = Delivery(channels)
        self._complete = False
        self._kept, self._chunks = [], []
        source = self._fn(model=call.name, **exact)
        try:
            if is_awaitable(source):
                self._needs_loop()
                source = await source
            if hasattr(source, "__aiter__"):
                self._needs_loop()
            async for chunk in read(source, timeout):
                await self._pass(delivery, chunk)
            for out in delivery.end():
                await self._give(out)
            self._complete = True
        except BaseException:
            delivery.abort()
            raise
        finally:
            await close(source)
        self._value = delivery.message()
        return self._value

    def _needs_loop(self) -> None:
        if not self._is_async:
            raise WouldBlock("this model's stream is async: use amodel_stream")

    async def _pass(self, delivery: Delivery, chunk: Any) -> None:
        if self._own_usage is not None:
            self._chunks.append(chunk)
        for out in delivery.feed(chunk):
            await self._give(out)

    async def _give(self, out: Any) -> None:
        if self._hold:
            self._kept.append(out)
            return
        # Somebody has seen it: neither another attempt nor another answer can take its place.
        self._entry.happened = True
        await deliver(out, self._entry.session.running, self._entry.mark)

    async def engine(self) -> None:
        outcome = await self._rein.engine.run(
            self._rein.async_io if self._is_async else self._rein.sync_io, self._entry
        )
        self.outcome = outcome
        if outcome.value is self._value and outcome.source == "call":
            for out in self._kept:
                await hand_over(out)
        elif self._hold or outcome.source != "call":
            text = text_of(outcome.value)
            if text is None:
                raise ConfigError("a plugin answered a streamed model call with something else "
                                  "than a text or a message {'role', 'parts'}")  # fmt: skip
            for out in with_whole(self._kept, text):
                await hand_over(out)


class SyncStream:
    """The chunks of one streamed model call; see `Rein.model_stream`.

    Iterate it, at best in a `with` block; `close` gives it up.
    """

    def __init__(self, *args: Any) -> None:
        self._streaming = _Streaming(*args, is_async=False)
        self._generator = pieces(self._streaming.engine)

    @property
    def outcome(self) -> Outcome | None:
        """What became of the call, once it has ended."""
        return self._streaming.outcome

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._generator)

    def close(self) -> None:
        """Give up what has not come yet: the provider's stream is closed, the call recorded."""
        self._generator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncStream:
    """The chunks of one streamed model call; see `Rein.amodel_stream`.

    Iterate it with `async for`, at best in an `async with` block; `aclose` gives it up.
    """

    def __init__(self, *args: Any) -> None:
        self._streaming = _Streaming(*args, is_async=True)
        self._generator: Any = apieces(self._streaming.engine)

    @property
    def outcome(self) -> Outcome | None:
        """What became of the call, once it has ended."""
        return self._streaming.outcome

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._generator)

    async def aclose(self) -> None:
        """Give up what has not come yet: the provider's stream is closed, the call recorded."""
        await self._generator.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _as_it_is(denied: Denied) -> Denied:
    return denied
