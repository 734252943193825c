"""One method of a wrapped client: the entry of each of its calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from checkrein._proxy import unwrapped
from checkrein.engine import Entry
from checkrein.errors import StoreUnavailable

if TYPE_CHECKING:
    from checkrein._wrapped import Node
    from checkrein.tool import Tool


def opened(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the target may have them."""
    return {name: unwrapped(value) for name, value in kwargs.items()} if kwargs else kwargs


class Bound:
    """Makes the entry of one method's call, at every call: declarations may change."""

    def __init__(self, node: Node, name: str, path: str, raw: Callable[..., Any]) -> None:
        self.node = node
        self.root = root = node.root
        self.name = name
        self.raw = raw
        head = path.partition(".")[0]
        self.located = head in root.connector.chains and head == type(node.target).__name__
        self.at_root = root.resolve(path)
        self.defaults, self.forced = root.settings(path)
        known = root.connector.method(path)
        self.place = known.idempotency if known is not None else None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry | None:
        """The entry; None for a read that nobody wants to know of."""
        root = self.root
        rein = root.rein
        session = rein.current_session()
        located = self.located and self.at_root is not None
        tool = self._tool(located=located)
        if tool.info.effect == "read" and not root.options.record_reads and not rein.looked_at():
            if session.pinned is None and session.sandbox is None:
                self._admit(session.id)
                return None
        args = tuple(map(unwrapped, args))
        kwargs = opened(kwargs)
        locator = self.node.locator() if located else ""
        if located and not locator:
            tool = self._tool(located=located, lost=True)
        arguments = tool.bind((locator, *args) if locator else args, kwargs)
        own = tuple(n for n, value in arguments.items() if root.is_own(value))
        entry = Entry(tool.passing(own) if own else tool, arguments, session)
        entry.raw = root.raw
        if locator or self.place is not None:
            entry.run = self._runner(entry.tool, located=bool(locator))
            entry.is_async = tool.is_async
        return entry

    def _tool(self, *, located: bool, lost: bool = False) -> Tool:
        tools = self.root.rein.tools
        if self.at_root is not None and not lost and (located or self.at_root[0] == self.raw):
            return tools.bind(self.name, self.at_root[0], self.defaults, self.forced)
        # Of an object that only this process holds: not to be found by name.
        return tools.shape(self.name, self.raw, self.defaults, self.forced)

    def _admit(self, session: str) -> None:
        """Refuse as the store would refuse a call that is recorded."""
        try:
            self.root.rein.control.admit(session)
        except StoreUnavailable:
            if self.root.rein.failure_mode == "closed":
                raise
            # A read that is not recorded anyway.

    def _runner(self, tool: Tool, *, located: bool) -> Callable[..., Any]:
        raw, place = self.raw, self.place

        def run(call: Any, exact: dict[str, Any]) -> Any:
            if place is not None:
                exact = with_key(exact, place, call.id)
            args, kwargs = tool.spread(exact)
            return raw(*args[1:], **_less_self(kwargs)) if located else raw(*args, **kwargs)

        return run


def _less_self(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "self"}


def with_key(arguments: dict[str, Any], place: str, key: str) -> dict[str, Any]:
    """Arguments with an idempotency key at a place such as `options.idempotency_key`.

    A key that the caller gave stays.
    """
    head, _, rest = place.partition(".")
    if not rest:
        return arguments if arguments.get(head) else {**arguments, head: key}
    inner = arguments.get(head)
    return {**arguments, head: with_key(dict(inner or {}), rest, key)}


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling a method gives something to await."""
    from checkrein.tool import is_async_callable

    if is_async_callable(fn):
        return True
    # A decorated coroutine function may only say so in its annotation.
    try:
        given = str(inspect.signature(fn).return_annotation)
    except (TypeError, ValueError):
        return False
    return re.match(r"(typing\.|collections\.abc\.)?(Awaitable|Coroutine)\[", given) is not None
