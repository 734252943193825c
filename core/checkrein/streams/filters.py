"""The filters of a streamed answer, channel by channel."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from checkrein.checks import denial
from checkrein.errors import Denied
from checkrein.verdicts import Deny

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein.hooks import StreamFilter
    from checkrein.manager import Impl


class Chain:
    """The filters of one channel, in plugin order."""

    def __init__(
        self,
        call: Call,
        filters: Sequence[tuple[str, StreamFilter]],
        refuse: Callable[[Denied], Denied],
    ) -> None:
        self._call = call
        self._filters = filters
        self._refuse = refuse

    def __bool__(self) -> bool:
        return bool(self._filters)

    def _pass(self, text: str, start: int) -> str:
        for plugin, stream_filter in self._filters[start:]:
            if not text:
                return ""
            text = self._checked(plugin, stream_filter.feed(text))
        return text

    def _checked(self, plugin: str, given: str | Deny) -> str:
        if isinstance(given, Deny):
            self.abort()
            raise self._refuse(denial(given, self._call, plugin))
        return given

    def feed(self, text: str) -> str:
        """What may be delivered now."""
        return self._pass(text, 0)

    def flush(self) -> str:
        """The channel ended: what was kept back."""
        out = ""
        for index, (plugin, stream_filter) in enumerate(self._filters):
            rest = self._checked(plugin, stream_filter.flush())
            out += self._pass(rest, index + 1)
        return out

    def abort(self) -> None:
        """The stream was cancelled."""
        for _, stream_filter in self._filters:
            stream_filter.abort()


class Channels:
    """The channels of one answer.

    `refuse` gives a denial the form in which it leaves the framework.
    """

    def __init__(
        self, call: Call, openers: Sequence[Impl], refuse: Callable[[Denied], Denied]
    ) -> None:
        self._call = call
        self._openers = openers
        self._refuse = refuse
        self._open: dict[str, Chain] = {}

    def channel(self, name: str) -> Chain:
        """The chain of a channel, opened at its first piece."""
        chain = self._open.get(name)
        if chain is None:
            opened = [(impl.plugin, impl(self._call, name)) for impl in self._openers]
            filters = [(p, f) for p, f in opened if f is not None]
            chain = self._open[name] = Chain(self._call, filters, self._refuse)
        return chain

    def close(self, name: str) -> str:
        """End a channel: what its filters kept back."""
        chain = self._open.pop(name, None)
        return chain.flush() if chain is not None else ""

    def abort(self) -> None:
        """Forget everything."""
        for chain in self._open.values():
            chain.abort()
        self._open.clear()

    def whole(self, name: str, text: str) -> str:
        """Filter a text that is complete."""
        return self.channel(name).feed(text) + self.close(name)

    def arguments(self, index: int, text: str) -> str:
        """Filter the complete JSON arguments of a tool call, with escapes resolved."""
        name = f"tool:{index}"
        if not self.channel(name):
            return text
        try:
            plain = json.dumps(json.loads(text), ensure_ascii=False)
        except ValueError:
            plain = text
        return self.whole(name, plain)
