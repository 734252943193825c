"""`session.bind(fn)`: a function that carries its session onto other threads and tasks."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from checkrein._io import is_awaitable
from checkrein.session import ACTIVE
from checkrein.tools import is_async_callable

if TYPE_CHECKING:
    from checkrein.session import Session

F = TypeVar("F", bound=Callable[..., Any])


@contextlib.contextmanager
def _inside(session: Session) -> Iterator[None]:
    before = ACTIVE.get()
    ACTIVE.set(session)
    try:
        yield
    finally:
        ACTIVE.set(before)


def bind(session: Session, fn: F) -> F:
    """`fn` with its calls in `session`.

    A generator is in the session while it runs, and its consumer is not: the session is active
    from one `yield` to the next only.
    """
    made: Any
    if inspect.isasyncgenfunction(fn):

        async def made_stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            iterator = fn(*args, **kwargs)
            try:
                sent: Any = None
                while True:
                    with _inside(session):
                        try:
                            item = await iterator.asend(sent)
                        except StopAsyncIteration:
                            return
                    sent = yield item
            finally:
                with _inside(session):
                    await iterator.aclose()

        made = made_stream
    elif inspect.isgeneratorfunction(fn):

        def made_generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            iterator = fn(*args, **kwargs)
            try:
                sent: Any = None
                while True:
                    with _inside(session):
                        try:
                            item = iterator.send(sent)
                        except StopIteration as end:
                            return end.value
                    sent = yield item
            finally:
                with _inside(session):
                    iterator.close()

        made = made_generator
    elif is_async_callable(fn):

        async def made_later(*args: Any, **kwargs: Any) -> Any:
            with _inside(session):
                return await fn(*args, **kwargs)

        made = made_later
    else:

        def made_now(*args: Any, **kwargs: Any) -> Any:
            with _inside(session):
                value = fn(*args, **kwargs)
            return _awaited(session, value) if is_awaitable(value) else value

        made = made_now
    return cast("F", functools.update_wrapper(made, fn))


async def _awaited(session: Session, waiting: Any) -> Any:
    with _inside(session):
        return await waiting
