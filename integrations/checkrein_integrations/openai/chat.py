"""Chat completions: requests and answers in the one message shape, and back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.call import Usage
from checkrein.errors import ConfigError
from checkrein.streams.fields import get, with_fields
from checkrein_integrations._shared import chat
from checkrein_integrations.openai.chat_stream import (
    ChatReader,
    RetractedChunk,
    adjusted,
    filtered_message,
)
from checkrein_integrations.openai.forms import settings_of, tools_left
from checkrein_integrations.openai.framework import ChatCompletion, ChatCompletionChunk

if TYPE_CHECKING:
    from checkrein.streams.filters import Channels
    from checkrein_integrations._shared.retracting import AnswerRetracted
    from checkrein_integrations.openai.forms import Reader

_TOOLS = ("tools", "functions")
_LEADS = ("system", "developer")
_TIERS = ("batch", "flex", "priority")


class Chat:
    """One request for a chat completion, and its answer."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._messages = list(body.get("messages") or ())
        told = [chat.told(message) for message in self._messages]
        # The system message leads; it stands apart in the one shape.
        self._leads = bool(told) and told[0]["role"] in _LEADS
        self.arguments: dict[str, Any] = {
            "system": told[0]["parts"] if self._leads else None,
            "messages": told[1:] if self._leads else told,
            "tools": [_tool_told(tool) for field in _TOOLS for tool in body.get(field) or ()],
            **settings_of(body),
        }
        self.outside = [
            str(get(tool, "type")) for tool in body.get("tools") or () if not _own(tool)
        ]
        if body.get("web_search_options") is not None:
            self.outside.append("web_search")
        if body.get("audio") is not None or "audio" in (body.get("modalities") or ()):
            self.outside.append("audio")

    def changed(self, exact: Mapping[str, Any]) -> dict[str, Any]:
        """See `Form.changed`."""
        before = self.arguments
        changes: dict[str, Any] = dict(exact.get("settings") or {})
        if exact["system"] != before["system"] or exact["messages"] != before["messages"]:
            changes["messages"] = [*self._system(exact), *self._history(exact)]
        if exact["tools"] != before["tools"]:
            changes |= tools_left(self._body, _TOOLS, before["tools"], exact["tools"])
        return changes

    def _system(self, exact: Mapping[str, Any]) -> list[Any]:
        lead = self._messages[:1] if self._leads else []
        role = str(get(lead[0], "role")) if lead else "system"
        old, new = ({"role": role, "parts": s or []} for s in (self.arguments["system"],
                                                               exact["system"]))  # fmt: skip
        if not new["parts"]:
            return []
        return [chat.rebuilt(lead[0], old, new) if lead else chat.created(new)]

    def _history(self, exact: Mapping[str, Any]) -> list[Any]:
        rest = self._messages[1:] if self._leads else self._messages
        return chat.history(rest, self.arguments["messages"], exact["messages"])

    def streaming(self) -> dict[str, Any]:
        """See `Form.streaming`."""
        given = self._body.get("stream_options") or {}
        return {"stream_options": {**given, "include_usage": True}}

    def told(self, answer: Any) -> dict[str, Any]:
        """See `Form.told`. Several choices are told one after the other."""
        parts = [part for told in _choices_told(answer) for part in told["parts"]]
        return {"role": "assistant", "parts": parts}

    def filtered(self, answer: Any, channels: Callable[[], Channels]) -> Any:
        """See `Form.filtered`."""
        choices = [
            with_fields(choice, message=message, logprobs=None)
            if (message := filtered_message(choice.message, channels())) is not choice.message
            else choice
            for choice in answer.choices
        ]
        if all(new is old for new, old in zip(choices, answer.choices, strict=True)):
            return answer
        return with_fields(answer, choices=choices)

    def usage(self, answer: Any, model: str) -> Usage | None:
        """See `Form.usage`."""
        used = get(answer, "usage")
        if used is None or get(used, "prompt_tokens") is None:
            return None
        given, made = get(used, "prompt_tokens_details"), get(used, "completion_tokens_details")
        tier = get(answer, "service_tier")
        return Usage(
            input_tokens=get(used, "prompt_tokens"),
            output_tokens=get(used, "completion_tokens") or 0,
            cache_read_tokens=get(given, "cached_tokens") or 0,
            cache_write_tokens=get(given, "cache_write_tokens") or 0,
            reasoning_tokens=get(made, "reasoning_tokens") or 0,
            input_audio_tokens=get(given, "audio_tokens") or 0,
            output_audio_tokens=get(made, "audio_tokens") or 0,
            model=get(answer, "model") or model,
            tier=tier if tier in _TIERS else "",
        )

    def replaced(self, answer: Any, message: Mapping[str, Any]) -> Any:
        """See `Form.replaced`."""
        before = _choices_told(answer)
        old = [part["type"] for told in before for part in told["parts"]]
        if old != [part.get("type") for part in message["parts"]]:
            # Parts were added or taken out: which choice they are of cannot be told.
            first = answer.choices[0] if answer.choices else None
            made = _choice(message, get(first, "message"))
            return with_fields(answer, choices=ChatCompletion.construct(choices=[made]).choices)
        choices: list[Any] = []
        parts = list(message["parts"])
        for choice, told in zip(answer.choices, before, strict=True):
            here, parts = parts[: len(told["parts"])], parts[len(told["parts"]) :]
            said = chat.rebuilt(choice.message, told, {**told, "parts": here})
            if said is choice.message:
                choices.append(choice)
            else:
                said = with_fields(said, annotations=None)
                choices.append(with_fields(choice, message=said, logprobs=None))
        return with_fields(answer, choices=choices)

    def made(self, message: Mapping[str, Any], model: str) -> Any:
        """See `Form.made`."""
        return ChatCompletion.construct(
            id=f"chatcmpl-{secrets.token_hex(12)}", object="chat.completion",
            created=int(time.time()), model=model, choices=[_choice(message)], usage=None,
        )  # fmt: skip

    def reader(self, channels: Callable[[], Channels], filtering: bool) -> Reader:
        """See `Form.reader`."""
        wanted = (self._body.get("stream_options") or {}).get("include_usage")
        return ChatReader(channels, filtering, bool(wanted))

    def events(self, answer: Any, *, begun: bool) -> Iterator[Any]:
        """See `Form.events`."""
        head = {"id": answer.id, "object": "chat.completion.chunk", "created": answer.created,
                "model": answer.model}  # fmt: skip
        for choice in answer.choices:
            delta = choice.message.model_dump(exclude_none=True)
            for index, call in enumerate(delta.get("tool_calls") or ()):
                call["index"] = index
            for said, reason in ((delta, None), ({}, choice.finish_reason)):
                piece = {"index": choice.index, "delta": said, "finish_reason": reason}
                yield ChatCompletionChunk.construct(**head, choices=[piece])
        wanted = (self._body.get("stream_options") or {}).get("include_usage")
        if wanted and answer.usage is not None:
            yield ChatCompletionChunk.construct(**head, choices=[], usage=answer.usage.model_dump())

    def adjusted(self, kept: Sequence[Any], before: Any, after: Any) -> Sequence[Any] | None:
        """See `Form.adjusted`."""
        return adjusted(kept, before, after)

    def retracted(self, retracted: AnswerRetracted) -> Any:
        """See `Form.retracted`."""
        return RetractedChunk.about(retracted)


def _own(tool: Any) -> bool:
    """Whether the caller runs a tool, and not the provider."""
    return get(tool, "type") in ("function", "custom")


def _tool_told(tool: Any) -> dict[str, Any]:
    if _own(tool):
        return chat.tool_told(tool)
    kind = get(tool, "type")
    if kind is None:
        return {"type": "function", "name": get(tool, "name") or "",
                "description": get(tool, "description") or ""}  # fmt: skip
    return {"type": "provider", "name": str(kind), "description": ""}


def _choices_told(answer: Any) -> list[dict[str, Any]]:
    return [chat.told(choice.message) for choice in get(answer, "choices") or ()]


def _choice(message: Mapping[str, Any], like: Any = None) -> dict[str, Any]:
    said = chat.created(message, like)
    if not isinstance(said.get("content"), (str, type(None))):
        raise ConfigError("a plugin put a blob into a model's answer")
    reason = "tool_calls" if said.get("tool_calls") else "stop"
    return {"index": 0, "message": said, "finish_reason": reason, "logprobs": None}
