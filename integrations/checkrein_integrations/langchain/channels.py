"""The filters of a streamed answer, channel by channel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from checkrein.checks import denial
from checkrein.verdicts import Deny
from checkrein_integrations.langchain.signals import ending

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein.hooks import StreamFilter
    from checkrein.manager import Impl

TEXT = {"text": "text", "thinking": "thinking", "reasoning": "reasoning"}
"""Content blocks of text, and the key that holds it."""


class Chain:
    """The filters of one channel, in plugin order."""

    def __init__(self, call: Call, filters: Sequence[tuple[str, StreamFilter]]) -> None:
        self._call = call
        self._filters = filters

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
            raise ending(denial(given, self._call, plugin))
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
    """The channels of one answer."""

    def __init__(self, call: Call, openers: Sequence[Impl]) -> None:
        self._call = call
        self._openers = openers
        self._open: dict[str, Chain] = {}

    def channel(self, name: str) -> Chain:
        """The chain of a channel, opened at its first piece."""
        chain = self._open.get(name)
        if chain is None:
            opened = [(impl.plugin, impl(self._call, name)) for impl in self._openers]
            chain = Chain(self._call, [(p, f) for p, f in opened if f is not None])
            self._open[name] = chain
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


def filtered(message: Any, channels: Channels) -> Any:
    """A complete answer, filtered channel by channel; itself where nothing changed."""
    content: Any
    if isinstance(message.content, str):
        content = channels.whole("text", message.content) if message.content else ""
    else:
        content = []
        for block in message.content:
            key = TEXT.get(str(block.get("type", ""))) if isinstance(block, dict) else None
            if isinstance(block, str):
                content.append(channels.whole("text", block))
            elif key is not None and isinstance(block.get(key), str):
                channel = "text" if block["type"] == "text" else "reasoning"
                content.append({**block, key: channels.whole(channel, block[key])})
            else:
                content.append(block)
    update: dict[str, Any] = {}
    if content != message.content:
        update["content"] = content
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = []
        for index, call in enumerate(message.tool_calls):
            text = json.dumps(call["args"], ensure_ascii=False)
            new = channels.arguments(index, text)
            calls.append(call if new == text else {**call, "args": json.loads(new)})
        if calls != message.tool_calls:
            update["tool_calls"] = calls
    return message.model_copy(update=update) if update else message
