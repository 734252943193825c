"""Streamed answers: what the filters let through, when it may be shown, and taken back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from checkrein._io import is_awaitable
from checkrein.errors import CheckreinError
from checkrein.streams.chunks import pieces_of
from checkrein.streams.stepping import apieces, close, deliver, hand_over, pieces, read
from checkrein_integrations._shared.retracting import asked_again, blocked, replaced
from checkrein_integrations.openai.framework import AsyncStream, Stream

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.call import Call, Outcome
    from checkrein_integrations.openai.calls import ModelJob
    from checkrein_integrations.openai.forms import Reader


class _Opened:
    """The first piece of every stream: the provider has begun to answer, or nobody was asked."""

    def __init__(self, response: Any) -> None:
        self.response = response


class Streaming:
    """One streamed model call, between the engine and whoever reads it."""

    def __init__(self, job: ModelJob, io: IO) -> None:
        self._job = job
        self._io = io
        mode = job.owner.settings.streams
        self._hold = mode == "hold" or (mode == "auto" and bool(job.whole))
        self._judged = self._hold or job.judged
        self._kept: list[Any] = []
        self._shown = False
        self._begun = False
        """Something of the stream has gone out."""
        self._opened = False
        self._whole = False
        """The answer that is kept was read from a stream to its end."""

    async def engine(self) -> None:
        """The whole life of the call; it stops at every piece."""
        job = self._job
        entry = job.entry(is_async=self._io.is_async, stream=self._respond)
        try:
            outcome = await job.rein.engine.run(self._io, entry)
        except CheckreinError as error:
            if self._opened:
                await hand_over(job.form.retracted(blocked(error, shown=self._shown)))
            raise
        if not self._opened:
            await hand_over(_Opened(None))
        for event in self._rest(outcome):
            await hand_over(event)

    async def _respond(self, call: Call, exact: dict[str, Any], timeout: float | None) -> Any:
        """Call the model and deliver its events; its filtered answer in the one shape."""
        job = self._job
        mark = next((m for m in job.session.running if m.startswith(call.id)), call.id)
        self._whole, self._kept = False, []
        if self._shown:
            await deliver(job.form.retracted(asked_again()), self._job.session.running, mark)
            self._shown = False
        stream: Any = job.sent(call, exact, stream=True)
        if is_awaitable(stream):
            stream = await stream
        if not self._opened:
            self._opened = True
            await deliver(_Opened(stream.response), self._job.session.running, mark)
        reader = job.form.reader(lambda: job.channels(call), bool(job.openers))
        try:
            async for event in read(stream, timeout):
                job.came.append("".join(piece.text for piece in pieces_of(event) or ()))
                for out in reader.feed(event):
                    await self._deliver(reader, out, mark)
            for out in reader.end():
                await self._deliver(reader, out, mark)
        finally:
            reader.abort()
            job.spent = job.form.usage(reader.report(), call.name)
            await close(stream)
        self._whole = True
        return job.read(reader)

    async def _deliver(self, reader: Reader, event: Any, mark: str) -> None:
        # Order is kept: behind a piece that waits for the judgement, everything waits.
        if self._hold or self._kept or (self._judged and reader.closes(event)):
            self._kept.append(event)
            return
        self._shown = self._shown or reader.shows(event)
        self._begun = True
        await deliver(event, self._job.session.running, mark)

    def _rest(self, outcome: Outcome) -> Iterator[Any]:
        """What was kept back, or what a plugin wants instead."""
        job = self._job
        if self._whole and outcome.value is job.message:
            yield from self._kept
            return
        answer = job.given(outcome)
        if self._whole:
            kept = job.form.adjusted(self._kept, job.received, answer)
            if kept is not None:
                yield from kept
                return
        if self._shown:
            yield job.form.retracted(replaced())
        yield from job.form.events(answer, begun=self._begun)


class SupervisedStream(Stream[Any]):
    """A stream whose events went through the hooks."""

    def __init__(self, response: Any, events: Generator[Any, None, None]) -> None:
        self.response = response
        self._iterator = events
        self._end = events.close

    def close(self) -> None:
        """End the stream. The call is given up, and recorded as such."""
        self._end()


class SupervisedAsyncStream(AsyncStream[Any]):
    """A stream whose events went through the hooks."""

    def __init__(self, response: Any, events: AsyncIterator[Any]) -> None:
        self.response = response
        self._iterator = events
        self._end: Callable[[], Any] = getattr(events, "aclose")  # noqa: B009 - of a generator

    async def close(self) -> None:
        """End the stream. The call is given up, and recorded as such."""
        await self._end()


def streamed(job: ModelJob) -> SupervisedStream:
    """Begin a streamed call. Raises what ends it before the provider answers."""
    events = pieces(Streaming(job, job.rein.sync_io).engine)
    return SupervisedStream(next(events).response, events)


async def astreamed(job: ModelJob) -> SupervisedAsyncStream:
    """The async twin of `streamed`."""
    events = apieces(Streaming(job, job.rein.async_io).engine)
    opened = await anext(events)
    return SupervisedAsyncStream(opened.response, events)
