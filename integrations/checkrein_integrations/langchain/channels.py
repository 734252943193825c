"""The filters of a streamed answer, channel by channel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from checkrein.errors import Denied
from checkrein.streams import filters
from checkrein_integrations.langchain.signals import ending

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein.manager import Impl

TEXT = {"text": "text", "thinking": "thinking", "reasoning": "reasoning"}
"""Content blocks of text, and the key that holds it."""


def _refused(denied: Denied) -> Denied:
    return ending(denied)


class Channels(filters.Channels):
    """The channels of one answer of a chat model."""

    def __init__(self, call: Call, openers: Sequence[Impl]) -> None:
        super().__init__(call, openers, _refused)


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
