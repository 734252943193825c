"""Generator methods of wrapped clients: they act while they are consumed, and are recorded then.

The intent is committed before the first item is made, in the session that consumes; the outcome
with that item, and how it ended (items, error) as an event of kind `consumed`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from typing import TYPE_CHECKING, Any

from checkrein._io import finish
from checkrein._proxy import unwrapped
from checkrein.engine import CURRENT, seen
from checkrein.errors import CheckreinError
from checkrein.store import Batch

if TYPE_CHECKING:
    from checkrein._bound import Bound
    from checkrein._wrapped import Node
    from checkrein.engine import Entry
    from checkrein.rein import Rein

_END = object()


def items(node: Node, bound: Bound, raw: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a generator method."""

    def twin(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        entry = bound(args, kwargs)
        made = raw(*map(unwrapped, args), **{k: unwrapped(v) for k, v in kwargs.items()})
        if entry is None:
            return (yield from _plain(node, made))
        rein = node.root.rein
        place = _begin(entry, lambda: next(made, _END))
        item = seen(finish(rein.engine.outcome(rein.sync_io, entry))).value
        count, problem = 0, ""
        try:
            while item is not _END:
                count += 1
                sent = yield node.given(item)
                with _inside(entry, place):
                    item = _next(made, sent)
        except GeneratorExit:
            problem = "closed"
            raise
        except BaseException as error:
            problem = type(error).__name__
            raise
        finally:
            made.close()
            _end(rein, entry, place, count, problem)

    return twin


def _plain(node: Node, made: Any) -> Generator[Any, Any, None]:
    try:
        for item in made:
            yield node.given(item)
    finally:
        made.close()


def _next(made: Any, sent: Any) -> Any:
    try:
        return made.send(sent)
    except StopIteration:
        return _END


def later_items(node: Node, bound: Bound, raw: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of an async generator method."""

    async def twin(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        entry = bound(args, kwargs)
        made = raw(*map(unwrapped, args), **{k: unwrapped(v) for k, v in kwargs.items()})
        if entry is None:
            async for item in made:
                yield node.given(item)
            return
        rein = node.root.rein
        place = _begin(entry, lambda: anext(made, _END), is_async=True)
        item = seen(await rein.engine.outcome(rein.async_io, entry)).value
        count, problem = 0, ""
        try:
            while item is not _END:
                count += 1
                yield node.given(item)
                with _inside(entry, place):
                    item = await anext(made, _END)
        except GeneratorExit:
            problem = "closed"
            raise
        except BaseException as error:
            problem = type(error).__name__
            raise
        finally:
            await made.aclose()
            _end(rein, entry, place, count, problem)

    return twin


def _begin(entry: Entry, first: Callable[[], Any], *, is_async: bool = False) -> list[str]:
    """Let the entry make the first item; the id of its call is known when it runs."""
    place: list[str] = []

    def run(call: Any, _: dict[str, Any]) -> Any:
        place.append(call.id)
        return first()

    entry.run, entry.is_async = run, is_async
    # An item is not what the whole has given: no undo is built from it.
    entry.raw = lambda value: None
    entry.dump = lambda value: None
    return place


class _inside:  # noqa: N801 - used as a statement
    """While an item is made: what that calls was called by this call."""

    def __init__(self, entry: Entry, place: list[str]) -> None:
        self.session, self.call = entry.session.id, place[0] if place else ""

    def __enter__(self) -> None:
        self.before = CURRENT.get()
        CURRENT.set((self.session, self.call, self.before, "tool"))

    def __exit__(self, *error: object) -> None:
        CURRENT.set(self.before)


def _end(rein: Rein, entry: Entry, place: list[str], count: int, problem: str) -> None:
    if not place:
        return
    event = rein.journal.event("consumed", place[0], items=count, ended=problem or "whole")
    batch = Batch(entry.session.id, (event,), event.at)
    try:
        rein.observers.notify(rein.store.commit(batch), batch)
    except CheckreinError as error:
        rein.log.warning("%s: how it ended is not recorded: %s", entry.tool.info.name, error)
