"""Streamed answers: what the filters let through, when it may be shown, and taken back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from checkrein.errors import CheckreinError, Denied
from checkrein_integrations._shared.retracting import AnswerRetracted
from checkrein_integrations._shared.stepping import InSteps, SteppingIO, hand_over, steps
from checkrein_integrations.openai.framework import AsyncStream, Stream

if TYPE_CHECKING:
    from checkrein.call import Call, Outcome
    from checkrein_integrations.openai.calls import ModelJob
    from checkrein_integrations.openai.forms import Reader


class _Opened:
    """The first thing of a stream: the provider has begun to answer."""

    def __init__(self, response: Any) -> None:
        self.response = response


class Streaming:
    """One streamed model call, whoever drives it."""

    def __init__(self, job: ModelJob, emit: Callable[[Any], Any]) -> None:
        self._job = job
        self._emit = emit
        mode = job.owner.settings.streams
        self._hold = mode == "hold" or (mode == "auto" and bool(job.whole))
        self._judged = self._hold or job.judged
        self._kept: list[Any] = []
        self._shown = False
        self._begun = False
        """Something of the stream has gone out."""
        self._opened = False
        self._mark = ""
        self._whole = False
        """The answer that is kept was read from a stream."""

    async def respond(self, call: Call, exact: dict[str, Any], until: float | None) -> Any:
        """Call the model and deliver its events; its filtered answer in the one shape."""
        job = self._job
        self._mark = next((m for m in job.session.running if m.startswith(call.id)), call.id)
        self._whole = False
        if self._shown:
            await self._out(job.form.retracted(_again("asked again")))
            self._shown = False
        stream: Any = job.sent(call, exact, stream=True)
        if hasattr(stream, "__await__"):
            stream = await stream
        if not self._opened:
            self._opened = True
            await self._out(_Opened(stream.response))
        self._kept = []
        reader = job.form.reader(lambda: job.channels(call), bool(job.openers))
        try:
            await self._read(reader, stream, until)
        finally:
            reader.abort()
            job.spent = job.form.usage(reader.answer(), call.name)
            closed = stream.close()
            if hasattr(closed, "__await__"):
                await closed
        self._whole = True
        return job.keep(reader.answer())

    async def _read(self, reader: Reader, stream: Any, until: float | None) -> None:
        async for event in _each(stream):
            if until is not None and time.monotonic() > until:
                raise TimeoutError("the streamed answer did not end in time")
            for out in reader.feed(event):
                await self._deliver(reader, out)
        for out in reader.end():
            await self._deliver(reader, out)

    async def _deliver(self, reader: Reader, event: Any) -> None:
        # Order is kept: behind a piece that waits for the judgement, everything waits.
        if self._hold or self._kept or (self._judged and reader.closes(event)):
            self._kept.append(event)
            return
        self._shown = self._shown or reader.shows(event)
        self._begun = True
        await self._out(event)

    async def _out(self, event: Any) -> None:
        """Hand a piece over. While its reader has it, nothing is running."""
        running = self._job.session.running
        running.discard(self._mark)
        try:
            await self._emit(event)
        finally:
            running.add(self._mark)

    def rest(self, outcome: Outcome) -> Iterator[Any]:
        """What was kept back, or what a plugin wants instead."""
        job = self._job
        answer = job.given(outcome)
        if self._whole and answer is job.received:
            yield from self._kept
            return
        if self._whole:
            kept = job.form.adjusted(self._kept, job.received, answer)
            if kept is not None:
                yield from kept
                return
        if self._shown:
            yield job.form.retracted(_again("replaced by a plugin"))
        yield from job.form.events(answer, begun=self._begun)

    def retracted(self, error: CheckreinError) -> Any:
        """The event by which an answer that was refused is taken back."""
        if isinstance(error, Denied):
            about = AnswerRetracted(error.reason, error.rule, self._shown)
        else:
            about = AnswerRetracted(type(error).__name__, "", self._shown)
        return self._job.form.retracted(about)


def _again(reason: str) -> AnswerRetracted:
    return AnswerRetracted(reason, shown=True, replaced=True)


async def _each(stream: Any) -> AsyncIterator[Any]:
    if hasattr(stream, "__aiter__"):
        async for event in stream:
            yield event
    else:
        for event in stream:
            yield event


# -- sync


class SupervisedStream(Stream[Any]):
    """A stream whose events went through the hooks."""

    def __init__(self, response: Any, events: Generator[Any, None, None]) -> None:
        self.response = response
        self._iterator = events

    def close(self) -> None:
        """End the stream. The call is given up, and recorded as such."""
        self._iterator.close()  # type: ignore[attr-defined]  # the generator that it was made of


def streamed(job: ModelJob) -> SupervisedStream:
    """Begin a streamed call. Raises what ends it before the provider answers."""
    streaming = Streaming(job, hand_over)

    def run(call: Call, exact: dict[str, Any]) -> InSteps:
        return InSteps(lambda until: streaming.respond(call, exact, until))

    rein = job.rein
    io = SteppingIO(rein.store, rein.sync_io.portal)
    going = steps(rein.engine.run(io, job.entry(run, is_async=False)))
    try:
        opened = next(going)
    except StopIteration as ended:
        return SupervisedStream(None, _answered(streaming, ended.value))
    return SupervisedStream(opened.response, _events(streaming, going))


def _answered(streaming: Streaming, outcome: Outcome) -> Generator[Any, None, None]:
    yield from streaming.rest(outcome)


def _events(streaming: Streaming, going: Generator[Any, None, Any]) -> Generator[Any, None, None]:
    try:
        outcome = yield from going
    except CheckreinError as error:
        yield streaming.retracted(error)
        raise
    yield from streaming.rest(outcome)


# -- async


class SupervisedAsyncStream(AsyncStream[Any]):
    """A stream whose events went through the hooks."""

    def __init__(self, response: Any, events: AsyncIterator[Any], end: Callable[[], Any]) -> None:
        self.response = response
        self._iterator = events
        self._end = end

    async def close(self) -> None:
        """End the stream. The call is given up, and recorded as such."""
        await self._end()


_END = object()


class _Pumped:
    """A streamed call that runs beside its reader, one piece ahead."""

    def __init__(self, job: ModelJob) -> None:
        self._job = job
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self.streaming = Streaming(job, self._queue.put)
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> Any:
        async def send(call: Call, exact: dict[str, Any]) -> Any:
            return await self.streaming.respond(call, exact, None)

        try:
            return await self._job.rein.aenter(self._job.entry(send, is_async=True))
        finally:
            await self._queue.put(_END)

    async def start(self) -> Any:
        """The HTTP response; None where nobody had to be asked."""
        try:
            first = await self._queue.get()
        except BaseException:
            await self.close()
            raise
        if first is _END:
            await asyncio.wait({self._task})
            self._task.result()
            return None
        return first.response

    async def events(self) -> AsyncIterator[Any]:
        try:
            while not self._task.done() or not self._queue.empty():
                event = await self._queue.get()
                if event is _END:
                    break
                yield event
            try:
                outcome = await self._task
            except CheckreinError as error:
                yield self.streaming.retracted(error)
                raise
            for event in self.streaming.rest(outcome):
                yield event
        finally:
            await self.close()

    async def close(self) -> None:
        """The reader has gone: the call is given up."""
        task = self._task
        if task.done():
            return
        task.cancel()
        while not task.done():
            while not self._queue.empty():
                self._queue.get_nowait()
            await asyncio.wait({task}, timeout=0.05)


async def astreamed(job: ModelJob) -> SupervisedAsyncStream:
    """The async twin of `streamed`."""
    pumped = _Pumped(job)
    response = await pumped.start()
    return SupervisedAsyncStream(response, pumped.events(), pumped.close)
