"""`session.bind(fn)`: a function that carries its session onto other threads and tasks."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry import trace

from checkrein._io import is_awaitable
from checkrein.session import ACTIVE
from checkrein.telemetry import enter, leave
from checkrein.tools import is_async_callable

if TYPE_CHECKING:
    from checkrein.session import Session

F = TypeVar("F", bound=Callable[..., Any])


@contextlib.contextmanager
def _inside(session: Session, span: Any) -> Iterator[None]:
    before = ACTIVE.get()
    ACTIVE.set(session)
    # A thread that carries nothing along: the calls' spans belong below the one around `bind`.
    bare = span is not None and trace.get_current_span() is trace.INVALID_SPAN
    context = enter(span) if bare else None
    try:
        yield
    finally:
        if bare:
            leave(span, context)
        ACTIVE.set(before)


def bind(session: Session, fn: F) -> F:
    """`fn` with its calls in `session`.

    A generator is in the session while it runs, and its consumer is not: the session is active
    from one `yield` to the next only.
    """
    made: Any
    current = trace.get_current_span()
    span = None if current is trace.INVALID_SPAN else current
    if inspect.isasyncgenfunction(fn):

        async def made_stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            iterator = fn(*args, **kwargs)
            try:
                sent: Any = None
                while True:
                    with _inside(session, span):
                        try:
                            item = await iterator.asend(sent)
                        except StopAsyncIteration:
                            return
                    sent = yield item
            finally:
                with _inside(session, span):
                    await iterator.aclose()

        made = made_stream
    elif inspect.isgeneratorfunction(fn):

        def made_generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            iterator = fn(*args, **kwargs)
            try:
                sent: Any = None
                while True:
                    with _inside(session, span):
                        try:
                            item = iterator.send(sent)
                        except StopIteration as end:
                            return end.value
                    sent = yield item
            finally:
                with _inside(session, span):
                    iterator.close()

        made = made_generator
    elif is_async_callable(fn):

        async def made_later(*args: Any, **kwargs: Any) -> Any:
            with _inside(session, span):
                return await fn(*args, **kwargs)

        made = made_later
    else:

        def made_now(*args: Any, **kwargs: Any) -> Any:
            with _inside(session, span):
                value = fn(*args, **kwargs)
            return _awaited(session, span, value) if is_awaitable(value) else value

        made = made_now
    return cast("F", functools.update_wrapper(made, fn))


async def _awaited(session: Session, span: Any, waiting: Any) -> Any:
    with _inside(session, span):
        return await waiting
