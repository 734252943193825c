"""Streamed answers: what the filters let through, when it may be shown, and taken back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
)

from checkrein.errors import CheckreinError
from checkrein.streams.chunks import pieces_of
from checkrein.streams.fields import get, with_fields
from checkrein.streams.responses import Delivery, adjusted, shows
from checkrein_integrations._shared.retracting import asked_again, blocked, replaced
from checkrein_integrations.openai_agents.framework import ModelResponse, Usage
from checkrein_integrations.openai_agents.signals import final

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein_integrations.openai_agents.models import ModelJob

_END = object()
_CLOSING = ("response.output_item.done", "response.completed")
"""Events by which the SDK acts: kept back until the answer is judged."""
_DRAIN = "_agents_drain_queued_stream_events"
"""Attribute by which the SDK delivers what is queued before it raises."""


class Streamed:
    """One streamed model call.

    The engine waits for the whole answer; meanwhile its events go to whoever reads them.
    """

    def __init__(self, job: ModelJob) -> None:
        self._job = job
        mode = job.settings.streams
        self._hold = mode == "hold" or (mode == "auto" and bool(job.whole))
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._kept: list[Any] = []
        self._shown = False
        self._task: asyncio.Task[Any] | None = None
        self._last: Any = None

    async def events(self) -> AsyncIterator[Any]:
        """The events that the SDK gets. Raises what ends the run."""
        self._task = asyncio.ensure_future(self._run())
        while (event := await self._queue.get()) is not _END:
            yield event
        try:
            outcome = await self._task
        except CheckreinError as error:
            ended = final(error)
            setattr(ended, _DRAIN, True)
            yield blocked(error, shown=self._shown)
            raise ended from None
        response = self._job.given(outcome)
        if self._last is not None and response is self._job.received:
            for event in self._kept:
                yield event
            return
        if self._last is not None and (kept := self._adjusted(response)) is not None:
            for event in kept:
                yield event
            return
        if self._shown:
            yield replaced()
        for event in _synthetic(response, self._last):
            yield event

    def _adjusted(self, response: ModelResponse) -> list[Any] | None:
        """What was kept back, for an answer of which only tool calls have changed."""
        received = self._job.received
        assert received is not None
        events = adjusted(self._kept, received.output, response.output)
        if events is None:
            return None
        last = self._last
        whole = with_fields(last, response=with_fields(last.response, output=response.output))
        return [whole if event is last else event for event in events]

    async def _run(self) -> Any:
        try:
            return await self._job.rein.aenter(self._job.entry(self._respond))
        finally:
            await self._queue.put(_END)

    async def _respond(self, call: Call, exact: dict[str, Any]) -> Any:
        """Call the model and deliver its events; its filtered answer in the one shape."""
        job = self._job
        model, request = job.changed(call, exact)
        if self._shown:
            await self._queue.put(asked_again())
            self._shown = False
        from checkrein_integrations.openai_agents.models import split

        self._kept, self._last = [], None
        channels = job.channels(call)
        delivery = Delivery(channels) if job.openers else None
        args, kwargs = split(request)
        stream: Any = model.stream_response(*args, **kwargs)
        try:
            async for event in stream:
                self._count(event, call.name)
                for out in delivery.feed(event) if delivery is not None else (event,):
                    await self._deliver(out)
            for out in delivery.end() if delivery is not None else ():
                await self._deliver(out)
        finally:
            channels.abort()
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        return job.take(_response(self._last, self._kept))

    def _count(self, event: Any, model: str) -> None:
        self._job.came.extend(piece.text for piece in pieces_of(event) or ())
        from checkrein_integrations.openai_agents.models import usage_of

        response = get(event, "response")
        if response is not None and get(response, "usage") is not None:
            self._job.spent = usage_of(_response(event, []), model)

    async def _deliver(self, event: Any) -> None:
        kind = get(event, "type")
        if kind == "response.completed":
            self._last = event
        if self._hold or kind in _CLOSING:
            self._kept.append(event)
            return
        if self._kept:
            # Order is kept: behind an item that waits for the judgement, everything waits.
            if not shows(event):
                self._kept.append(event)
                return
        self._shown = self._shown or shows(event)
        await self._queue.put(event)

    async def close(self) -> None:
        """The reader has gone: the call is given up."""
        task = self._task
        if task is None or task.done():
            return
        task.cancel()
        while not task.done():
            while not self._queue.empty():
                self._queue.get_nowait()
            await asyncio.wait({task}, timeout=0.05)


def _response(event: Any, kept: list[Any]) -> ModelResponse:
    """The SDK's form of a complete answer."""
    response = get(event, "response") if event is not None else None
    output = list(get(response, "output") or []) if response is not None else []
    if not output:
        output = [get(e, "item") for e in kept if get(e, "type") == _CLOSING[0]]
    used = get(response, "usage") if response is not None else None
    usage = Usage()
    if used is not None:
        usage = Usage(
            requests=1, input_tokens=used.input_tokens, output_tokens=used.output_tokens,
            total_tokens=used.total_tokens, input_tokens_details=used.input_tokens_details,
            output_tokens_details=used.output_tokens_details,
        )  # fmt: skip
    return ModelResponse(output=output, usage=usage, response_id=get(response, "id"))


def _synthetic(response: ModelResponse, last: Any) -> Iterator[Any]:
    """The events of an answer that came whole: from the journal, or from a plugin."""
    number = 0
    for index, item in enumerate(response.output):
        for place, block in enumerate(get(item, "content") or []):
            text = get(block, "text")
            if get(item, "type") == "message" and text:
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta", delta=text, item_id=get(item, "id") or "",
                    output_index=index, content_index=place, sequence_number=number, logprobs=[],
                )  # fmt: skip
                number += 1
        yield ResponseOutputItemDoneEvent(
            type="response.output_item.done", item=item, output_index=index, sequence_number=number
        )
        number += 1
    if last is not None:
        yield with_fields(last, response=with_fields(last.response, output=response.output))
        return
    whole = Response(
        id=response.response_id or "checkrein", created_at=time.time(), model="checkrein",
        object="response", output=response.output, tool_choice="auto", tools=[],
        parallel_tool_calls=True, status="completed",
    )  # fmt: skip
    yield ResponseCompletedEvent(type="response.completed", response=whole, sequence_number=number)
