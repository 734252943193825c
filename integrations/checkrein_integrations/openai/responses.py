"""The Responses API: requests and answers in the one message shape, and back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.call import Usage
from checkrein.streams.fields import get, with_fields
from checkrein.streams.responses import Answer, Delivery, adjusted, shows
from checkrein_integrations._shared.responses import Told, created, told_input
from checkrein_integrations.openai.forms import settings_of, tools_left
from checkrein_integrations.openai.framework import Response

if TYPE_CHECKING:
    from checkrein.streams.filters import Channels
    from checkrein_integrations._shared.retracting import AnswerRetracted
    from checkrein_integrations.openai.forms import Reader

_OWN = ("function", "custom", "local_shell", "computer", "computer_use_preview", "apply_patch")
"""Types of tools that the caller runs, and not the provider."""
_TIERS = ("batch", "flex", "priority")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_CLOSES = ("response.output_item.done", *_ENDS)
_ARGUMENTS = ("response.function_call_arguments", "response.custom_tool_call_input")


class Responses:
    """One request for a response, and its answer."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._told = told_input(body.get("input") or [])
        system = body.get("instructions")
        self.arguments: dict[str, Any] = {
            "system": None if system is None else [{"type": "text", "content": system}],
            "messages": self._told.messages,
            "tools": [_tool_told(tool) for tool in body.get("tools") or ()],
            **settings_of(body),
        }
        self.outside = [_name(tool) for tool in body.get("tools") or () if not _own(tool)]
        self.outside += [name for name in ("background", "prompt") if body.get(name)]

    def changed(self, exact: Mapping[str, Any]) -> dict[str, Any]:
        """See `Form.changed`."""
        before = self.arguments
        changes: dict[str, Any] = dict(exact.get("settings") or {})
        if exact["messages"] != before["messages"]:
            items = self._told.changed(exact["messages"])
            alone = len(items) == 1 and isinstance(get(items[0], "content"), str)
            plain = isinstance(self._body.get("input"), str) and alone
            changes["input"] = items[0]["content"] if plain else items
        if exact["system"] != before["system"]:
            parts = exact["system"] or []
            changes["instructions"] = "".join(part["content"] for part in parts) or None
        if exact["tools"] != before["tools"]:
            changes |= tools_left(self._body, ("tools",), before["tools"], exact["tools"])
        return changes

    def streaming(self) -> dict[str, Any]:
        """See `Form.streaming`."""
        return {}

    def told(self, answer: Any) -> dict[str, Any]:
        """See `Form.told`."""
        return message_of(answer)

    def filtered(self, answer: Any, channels: Callable[[], Channels]) -> Any:
        """See `Form.filtered`."""
        output = get(answer, "output") or []
        items = Answer(channels()).items(output)
        if all(new is old for new, old in zip(items, output, strict=True)):
            return answer
        return with_fields(answer, output=items)

    def usage(self, answer: Any, model: str) -> Usage | None:
        """See `Form.usage`."""
        used = get(answer, "usage")
        if used is None or get(used, "input_tokens") is None:
            return None
        given, made = get(used, "input_tokens_details"), get(used, "output_tokens_details")
        tier = get(answer, "service_tier")
        return Usage(
            input_tokens=get(used, "input_tokens"),
            output_tokens=get(used, "output_tokens") or 0,
            cache_read_tokens=get(given, "cached_tokens") or 0,
            cache_write_tokens=get(given, "cache_write_tokens") or 0,
            reasoning_tokens=get(made, "reasoning_tokens") or 0,
            model=get(answer, "model") or model,
            tier=tier if tier in _TIERS else "",
        )

    def replaced(self, answer: Any, message: Mapping[str, Any]) -> Any:
        """See `Form.replaced`."""
        shape = Told(get(answer, "output") or [])
        if len(shape.messages) == 1:
            items = shape.changed([message])
        else:
            items = created(message, get(answer, "output") or [])
        return with_fields(answer, output=_completed(items))

    def made(self, message: Mapping[str, Any], model: str) -> Any:
        """See `Form.made`."""
        return Response.construct(
            id=f"resp_{secrets.token_hex(12)}", object="response", created_at=time.time(),
            model=model, status="completed", output=_completed(created(message)), usage=None,
            tools=[], tool_choice="auto", parallel_tool_calls=True, error=None,
            incomplete_details=None, instructions=None, metadata={},
        )  # fmt: skip

    def reader(self, channels: Callable[[], Channels], filtering: bool) -> Reader:
        """See `Form.reader`."""
        return ResponseReader(channels(), filtering, str(self._body.get("model") or ""))

    def events(self, answer: Any, *, begun: bool) -> Iterator[Any]:
        """See `Form.events`."""
        start = with_fields(answer, status="in_progress", output=[], usage=None)
        for number, (kind, fields) in enumerate(_whole_events(answer, start)):
            if kind != "response.created" or not begun:
                yield _event(kind, sequence_number=number, **fields)

    def adjusted(self, kept: Sequence[Any], before: Any, after: Any) -> Sequence[Any] | None:
        """See `Form.adjusted`."""
        events = adjusted(kept, get(before, "output") or [], get(after, "output") or [])
        if events is None:
            return None
        return [with_fields(e, response=after) if get(e, "type") in _ENDS else e for e in events]

    def retracted(self, retracted: AnswerRetracted) -> Any:
        """See `Form.retracted`."""
        return retracted


def message_of(answer: Any) -> dict[str, Any]:
    """A response as one assistant message."""
    messages = Told(get(answer, "output") or []).messages
    return {"role": "assistant", "parts": [p for message in messages for p in message["parts"]]}


def _own(tool: Any) -> bool:
    """Whether the caller runs a tool, and not the provider. What is not known is the provider's."""
    kind = get(tool, "type")
    if kind == "shell":
        return bool(get(get(tool, "environment"), "type") == "local")
    if kind == "namespace":
        return all(_own(inner) for inner in get(tool, "tools") or ())
    if kind == "tool_search":
        return bool(get(tool, "execution") == "client")
    return kind in _OWN


def _name(tool: Any) -> str:
    kind = str(get(tool, "type"))
    label = get(tool, "server_label")
    return f"{kind}:{label}" if kind == "mcp" and label else kind


def _tool_told(tool: Any) -> dict[str, Any]:
    kind = str(get(tool, "type"))
    own = _own(tool)
    return {
        "type": ("custom" if kind == "custom" else "function") if own else "provider",
        "name": str(get(tool, "name") or _name(tool)),
        "description": str(get(tool, "description") or ""),
    }


def _completed(items: list[Any]) -> list[Any]:
    """Items as the client's own objects: those that are dicts get what an answer needs."""
    if not any(isinstance(item, Mapping) for item in items):
        return items
    made = [_tree(item) if isinstance(item, Mapping) else item for item in items]
    built = Response.construct(output=made).output
    return [new if isinstance(old, Mapping) else old
            for new, old in zip(built, items, strict=True)]  # fmt: skip


def _tree(item: Mapping[str, Any]) -> dict[str, Any]:
    id = secrets.token_hex(8)
    if "role" not in item:
        return {"id": f"fc_{id}", "status": "completed", **item}
    content = item["content"]
    blocks = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    blocks = [{"annotations": [], **b} if isinstance(b, dict) else b for b in blocks]
    return {"type": "message", "id": f"msg_{id}", "status": "completed", **item, "content": blocks}


def _whole_events(answer: Any, start: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.created", {"response": start}
    for index, item in enumerate(answer.output):
        place = {"output_index": index}
        empty: dict[str, Any] = {"content": []} if get(item, "type") == "message" else {}
        yield "response.output_item.added", {**place, "item": with_fields(item, **empty)}
        for number, block in enumerate(get(item, "content") or ()):
            text = get(block, "text")
            if get(item, "type") == "message" and text:
                at = {**place, "item_id": get(item, "id") or "", "content_index": number}
                blank = with_fields(block, text="")
                yield "response.content_part.added", {**at, "part": blank}
                yield "response.output_text.delta", {**at, "delta": text, "logprobs": []}
                yield "response.output_text.done", {**at, "text": text, "logprobs": []}
                yield "response.content_part.done", {**at, "part": block}
        yield "response.output_item.done", {**place, "item": item}
    yield f"response.{answer.status or 'completed'}", {"response": answer}


def _event(kind: str, **fields: Any) -> Any:
    """An event of the client's own class."""
    from openai.types import responses as types

    words = kind.removeprefix("response.").replace(".", "_").split("_")
    name = "Response" + "".join(word.capitalize() for word in words) + "Event"
    named = {"ResponseOutputTextDeltaEvent": "ResponseTextDeltaEvent",
             "ResponseOutputTextDoneEvent": "ResponseTextDoneEvent"}  # fmt: skip
    return getattr(types, named.get(name, name)).model_construct(type=kind, **fields)


class ResponseReader:
    """The events of one streamed answer on their way out."""

    def __init__(self, channels: Channels, filtering: bool, model: str) -> None:
        self._channels = channels
        self._delivery = Delivery(channels) if filtering else None
        self._model = model
        self._last: Any = None
        self._begun: Any = None
        self._items: list[Any] = []
        self._texts: dict[tuple[int, int], str] = {}

    def feed(self, event: Any) -> Iterator[Any]:
        """What may be delivered of an event."""
        for out in self._delivery.feed(event) if self._delivery is not None else (event,):
            self._note(out)
            yield out

    def _note(self, event: Any) -> None:
        kind = get(event, "type")
        if kind == "response.created":
            self._begun = event.response
        elif kind in _ENDS:
            self._last = event
        elif kind == "response.output_item.done":
            self._items.append(event.item)
        elif kind == "response.output_text.delta":
            place = event.output_index, event.content_index
            self._texts[place] = self._texts.get(place, "") + event.delta

    def end(self) -> Iterator[Any]:
        """The stream has ended: the rest."""
        for out in self._delivery.end() if self._delivery is not None else ():
            self._note(out)
            yield out

    def closes(self, event: Any) -> bool:
        """Whether a reader acts upon it: on a tool call, or on the end."""
        kind = str(get(event, "type"))
        return kind in _CLOSES or kind.startswith(_ARGUMENTS)

    def shows(self, event: Any) -> bool:
        """Whether a person sees something of the answer by it."""
        return shows(event)

    def abort(self) -> None:
        """Forget what is kept back."""
        self._channels.abort()

    def report(self) -> Any:
        """What has come that tells its usage."""
        return None if self._last is None else self._last.response

    def answer(self) -> Any:
        """The whole filtered answer."""
        if self._last is not None:
            return self._last.response
        # The connection was cut: what was delivered is all there is.
        items = list(self._items)
        done = len(items)
        for (index, _), text in sorted(self._texts.items()):
            if index >= done and text:
                items += _completed([{"role": "assistant", "content": text}])
        base = self._begun
        if base is None:
            return Response.construct(id="", model=self._model, output=items, usage=None)
        return with_fields(base, output=items, status="incomplete")

    def message(self) -> dict[str, Any]:
        """The same in the one message shape."""
        return message_of(self.answer())
