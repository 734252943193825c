"""Model calls in a loop of one's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from checkrein._io import finish
from checkrein.assembly import Assembly
from checkrein.call import ToolInfo, Usage
from checkrein.entry import Entry
from checkrein.streams.model import AsyncStream, SyncStream
from checkrein.tools import Tool

if TYPE_CHECKING:
    from checkrein.session import Session

T = TypeVar("T")


def model_entry(
    session: Session,
    fn: Callable[..., Any],
    model: str,
    messages: Sequence[Any],
    system: Any,
    tools: Sequence[Any],
    usage: Callable[[Any], Usage | None] | None,
) -> Entry:
    """See `Rein.model_call`."""

    def run(call: Any, exact: dict[str, Any]) -> Any:
        return fn(model=call.name, **exact)

    return Entry(
        tool=Tool(ToolInfo(model, effect="read"), fn),
        arguments={"system": system, "messages": list(messages), "tools": list(tools)},
        session=session,
        kind="model",
        name=model,
        run=run,
        usage=usage,
    )


class Models(Assembly):
    """The functions of a Rein that call models."""

    def current_session(self) -> Session:
        """See `Rein.current_session`."""
        raise NotImplementedError

    def model_call(
        self,
        fn: Callable[..., T],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[Any], Usage | None] | None = None,
    ) -> T:
        """Call a model in a loop of one's own: `fn(model=, system=, messages=, tools=)`.

        `messages` has the OpenTelemetry GenAI form: `{"role", "parts": [{"type": "text",
        "content": ...}, ...]}`. `usage` reads a `Usage` from the response.
        """
        entry = model_entry(self.current_session(), fn, model, messages, system, tools, usage)
        return cast("T", finish(self.engine.run(self.sync_io, entry)).value)

    @overload
    async def amodel_call(
        self,
        fn: Callable[..., Awaitable[T]],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[Any], Usage | None] | None = None,
    ) -> T: ...

    @overload
    async def amodel_call(
        self,
        fn: Callable[..., T],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[Any], Usage | None] | None = None,
    ) -> T: ...

    async def amodel_call(
        self,
        fn: Callable[..., Any],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[Any], Usage | None] | None = None,
    ) -> Any:
        """The async twin of `model_call`."""
        entry = model_entry(
            self.current_session(), cast("Any", fn), model, messages, system, tools, usage
        )
        return (await self.engine.run(self.async_io, entry)).value

    def model_stream(
        self,
        fn: Callable[..., Any],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[list[Any]], Usage | None] | None = None,
    ) -> SyncStream:
        """`model_call` for an answer that comes in chunks: iterate what it returns.

        `fn` returns an iterable of chunks: texts, or chunks as OpenAI, Anthropic or Google send
        them, with or without a report of usage. Without one the tokens are counted from the
        texts, as an estimate. Stream filters change chunks on their way. Where a plugin has to
        see the whole answer first, chunks are delivered at its end; what answers in place of
        the model is delivered as a text. Whoever stops early closes it, at best with `with`: the
        call is recorded and paid for as far as it came.

        Raises, at the first chunk, what `model_call` raises.
        """
        entry = model_entry(self.current_session(), fn, model, messages, system, tools, None)
        return SyncStream(self, entry, fn, usage)

    def amodel_stream(
        self,
        fn: Callable[..., Any],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[list[Any]], Usage | None] | None = None,
    ) -> AsyncStream:
        """The async twin of `model_stream`: `async for`, and `async with` or `aclose`."""
        entry = model_entry(self.current_session(), fn, model, messages, system, tools, None)
        return AsyncStream(self, entry, fn, usage)
