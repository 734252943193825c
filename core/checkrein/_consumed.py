"""Generator methods of wrapped clients: they act while they are consumed, and are recorded then.

The intent is committed before the first item is made, in the session that consumes; the outcome
with that item, and how it ended (items, error) as an event of kind `consumed`. Every item is seen
by `post_call` before it is given out. No item is made
after the session was stopped, paused, failed or rolled back. Each attempt makes
a generator of its own, with the arguments that were let through. Where a plugin answers, its
answer stands for the items, and nothing is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from checkrein._io import finish
from checkrein._proxy import unwrapped
from checkrein.call import Outcome
from checkrein.engine import CURRENT, seen
from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.store import Batch

if TYPE_CHECKING:
    from checkrein._bound import Bound
    from checkrein._io import IO
    from checkrein._wrapped import Node
    from checkrein.engine import Entry
    from checkrein.rein import Rein

_END = object()


class _Made:
    """What the attempts of one entry have made: the newest generator, and its call's id."""

    def __init__(self, entry: Entry, raw: Callable[..., Any]) -> None:
        self.entry = entry
        self._seen = -1
        self.made: Any = None
        self.call = ""
        self.asked: Any = None
        """The call as it was let through."""
        tool, own = entry.tool, entry.run

        def start(call: Any, exact: dict[str, Any]) -> Any:
            self.call, self.asked = call.id, call
            if own is not None:
                return own(call, exact)
            args, kwargs = tool.spread(exact)
            return raw(*args, **kwargs)

        self._start = start
        # An item is not what the whole has given: no undo is built from it, and nobody is
        # answered with it.
        entry.raw = lambda value: None
        entry.whole = False

    def admit(self, rein: Rein) -> None:
        """Refuse the next item where the session takes no more calls. Raises `SessionClosed`."""
        try:
            now = rein.store.changed()
            if now != self._seen and self.entry.session.id not in rein.unrecorded:
                rein.control.admit(self.entry.session.id, outlived=True)
            self._seen = now
        except StoreUnavailable:
            if rein.failure_mode == "closed":
                raise

    async def shown(self, io: IO, rein: Rein, item: Any) -> Any:
        """An item after the first, as every plugin's `post_call` lets it be seen."""
        made = Outcome("done", item)
        found, _ = await rein.engine.after(io, self.entry, self.asked, made, None)
        return seen(found).value

    def first(self, call: Any, exact: dict[str, Any]) -> Any:
        """The first item of a new generator."""
        if self.made is not None:
            self.made.close()
        self.made = self._start(call, exact)
        return next(self.made, _END)

    async def later_first(self, call: Any, exact: dict[str, Any]) -> Any:
        """As `first`, of an async generator."""
        if self.made is not None:
            await self.made.aclose()
        self.made = self._start(call, exact)
        return await anext(self.made, _END)


def _answered(value: Any) -> Iterable[Any]:
    """The items of an answer: one that is no list of them is the only one."""
    if value is None or value is _END:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


def items(node: Node, bound: Bound, raw: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a generator method."""

    def twin(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        entry = bound(args, kwargs)
        if entry is None:
            plain = raw(*map(unwrapped, args), **{k: unwrapped(v) for k, v in kwargs.items()})
            return (yield from _plain(node, plain))
        rein = node.root.rein
        running = _Made(entry, raw)
        entry.run, entry.is_async = running.first, False
        count, problem = 0, ""
        try:
            item = seen(finish(rein.engine.outcome(rein.sync_io, entry))).value
            if running.made is None:
                for answer in _answered(item):
                    yield node.given(answer)
                return None
            while item is not _END:
                count += 1
                sent = yield node.given(item)
                running.admit(rein)
                with _inside(entry, running.call):
                    item = _next(running.made, sent)
                if item is not _END:
                    item = finish(running.shown(rein.sync_io, rein, item))
        except GeneratorExit:
            problem = "closed"
            raise
        except BaseException as error:
            problem = type(error).__name__
            raise
        finally:
            if running.made is not None:
                try:
                    running.made.close()
                finally:
                    _end(rein, entry, running.call, count, problem)
        return None

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
        if entry is None:
            async for item in raw(
                *map(unwrapped, args), **{k: unwrapped(v) for k, v in kwargs.items()}
            ):
                yield node.given(item)
            return
        rein = node.root.rein
        running = _Made(entry, raw)
        entry.run, entry.is_async = running.later_first, True
        count, problem = 0, ""
        try:
            item = seen(await rein.engine.outcome(rein.async_io, entry)).value
            if running.made is None:
                for answer in _answered(item):
                    yield node.given(answer)
                return
            while item is not _END:
                count += 1
                yield node.given(item)
                running.admit(rein)
                with _inside(entry, running.call):
                    item = await anext(running.made, _END)
                if item is not _END:
                    item = await running.shown(rein.async_io, rein, item)
        except GeneratorExit:
            problem = "closed"
            raise
        except BaseException as error:
            problem = type(error).__name__
            raise
        finally:
            if running.made is not None:
                try:
                    await running.made.aclose()
                finally:
                    _end(rein, entry, running.call, count, problem)

    return twin


class _inside:  # noqa: N801 - used as a statement
    """While an item is made: what that calls was called by this call."""

    def __init__(self, entry: Entry, call: str) -> None:
        self.session, self.call = entry.session.id, call

    def __enter__(self) -> None:
        self.before = CURRENT.get()
        CURRENT.set((self.session, self.call, self.before, "tool"))

    def __exit__(self, *error: object) -> None:
        CURRENT.set(self.before)


def _end(rein: Rein, entry: Entry, call: str, count: int, problem: str) -> None:
    event = rein.journal.event("consumed", call, items=count, ended=problem or "whole")
    batch = Batch(entry.session.id, (event,), event.at)
    try:
        rein.observers.notify(rein.store.commit(batch), batch)
    except CheckreinError as error:
        rein.log.warning("%s: how it ended is not recorded: %s", entry.tool.info.name, error)
