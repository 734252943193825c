"""Chat completions on their way out: filtered whole, or chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from checkrein.streams.fields import get, with_fields
from checkrein_integrations._shared.chat import BESIDE, told
from checkrein_integrations._shared.retracting import AnswerRetracted
from checkrein_integrations.openai.framework import ChatCompletion, ChatCompletionChunk

if TYPE_CHECKING:
    from checkrein.streams.filters import Channels

_FIELDS = {**BESIDE, "content": "text"}
"""Fields of a message that hold a text, and the channel that it is filtered in."""
_BODIES = {"function": "arguments", "custom": "input"}
"""Kinds of tool calls, and the key of what they pass."""


class RetractedChunk(ChatCompletionChunk):
    """A chunk without content by which a stream takes its answer back."""

    retracted: AnswerRetracted
    type: Literal["checkrein.answer_retracted"] = "checkrein.answer_retracted"

    @classmethod
    def about(cls, retracted: AnswerRetracted) -> RetractedChunk:
        """The chunk for what is said of the answer."""
        made: Any = cls.model_construct(
            id="checkrein", object="chat.completion.chunk", created=0, model="", choices=[],
            usage=None, retracted=retracted, type="checkrein.answer_retracted",
        )  # fmt: skip
        return made  # type: ignore[no-any-return]  # openai's own construct is untyped


def filtered_message(message: Any, channels: Channels) -> Any:
    """A whole message, filtered; itself where nothing changed."""
    changes: dict[str, Any] = {}
    for field, channel in _FIELDS.items():
        given = get(message, field)
        if isinstance(given, str) and given:
            text = channels.whole(channel, given)
            if text != given:
                changes[field] = text
    calls = get(message, "tool_calls")
    made = [_filtered_call(call, index, channels) for index, call in enumerate(calls or ())]
    if any(new is not old for new, old in zip(made, calls or (), strict=True)):
        changes["tool_calls"] = made
    old = get(message, "function_call")
    if old is not None:
        new = _filtered_call({"function": old}, 0, channels)["function"]
        if new is not old:
            changes["function_call"] = new
    if not changes:
        return message
    if get(message, "annotations"):
        # Their positions belong to the old text.
        changes["annotations"] = None
    return with_fields(message, **changes)


def _filtered_call(call: Any, number: int, channels: Channels) -> Any:
    for kind, key in _BODIES.items():
        body = get(call, kind)
        if body is not None:
            given = get(body, key) or ""
            text = channels.arguments(number, given)
            return (
                call
                if text == given
                else with_fields(call, **{kind: with_fields(body, **{key: text})})
            )
    return call


class _Choice:
    """One choice of a streamed answer."""

    def __init__(self, index: int, channels: Channels, filtering: bool) -> None:
        self.index = index
        self.channels = channels
        self.filtering = filtering
        self.role = "assistant"
        self.finish: str | None = None
        self.texts: dict[str, str] = {}
        """Field -> the text that was delivered."""
        self._calls: dict[int, dict[str, Any]] = {}
        self._first: dict[int, Any] = {}
        self._open: str | None = None
        """The field whose text is being delivered."""

    def feed(self, choice: Any) -> Iterator[Any]:
        """What may be delivered of a piece: choices of chunks."""
        delta = choice.delta
        self.role = get(delta, "role") or self.role
        changes: dict[str, Any] = {}
        for field, channel in _FIELDS.items():
            given = get(delta, field)
            if not isinstance(given, str) or not given:
                continue
            if self._open not in (None, field):
                yield from self._tail(choice)
            self._open = field
            text = self.channels.channel(channel).feed(given) if self.filtering else given
            self.texts[field] = self.texts.get(field, "") + text
            if text != given:
                changes[field] = text
        changes |= self._pieces(delta)
        ends = choice.finish_reason is not None
        if ends:
            self.finish = choice.finish_reason
            yield from self._tail(choice)
            yield from self._whole_calls(choice)
        if not changes:
            yield choice
            return
        made = with_fields(delta, **changes)
        if ends or _says(made):
            yield with_fields(choice, delta=made, logprobs=None)

    def _pieces(self, delta: Any) -> dict[str, Any]:
        """Keep the pieces of tool calls; what is taken out of the delta."""
        pieces = list(get(delta, "tool_calls") or ())
        old = get(delta, "function_call")
        for piece in pieces:
            self._collect(get(piece, "index") or 0, piece)
        if old is not None:
            self._collect(-1, {"function": old})
        if not self.filtering:
            return {}
        taken: dict[str, Any] = {}
        if pieces:
            taken["tool_calls"] = None
        if old is not None:
            taken["function_call"] = None
        for name, value in (getattr(delta, "model_extra", None) or {}).items():
            if name not in _FIELDS and value is not None and self.channels.channel("text"):
                taken[name] = None  # nobody has looked at it
        return taken

    def _collect(self, index: int, piece: Any) -> None:
        known = self._calls.get(index)
        kind = "custom" if get(piece, "custom") is not None else "function"
        body = get(piece, kind)
        key = _BODIES[kind]
        text = get(body, key) or ""
        if known is None:
            self._first[index] = piece
            self._calls[index] = {"id": get(piece, "id"), "kind": kind, "key": key, "text": text,
                                  "name": get(body, "name") or ""}  # fmt: skip
            return
        known["text"] += text
        known["name"] = known["name"] or get(body, "name") or ""
        known["id"] = known["id"] or get(piece, "id")

    def _whole_calls(self, choice: Any) -> Iterator[Any]:
        if not self.filtering or not self._calls:
            return
        made: list[Any] = []
        old: Any = None
        for number, (index, call) in enumerate(self._calls.items()):
            call["text"] = self.channels.arguments(number, call["text"])
            kind, first = call["kind"], self._first[index]
            body = with_fields(
                get(first, kind), **{call["key"]: call["text"], "name": call["name"]}
            )
            if index < 0:
                old = body
            else:
                made.append(with_fields(first, **{kind: body, "id": call["id"]}))
        yield self._piece(choice, tool_calls=made or None, function_call=old)

    def _tail(self, choice: Any) -> Iterator[Any]:
        """What the filters kept back of the text that ends."""
        field, self._open = self._open, None
        if field is None or not self.filtering:
            return
        text = self.channels.close(_FIELDS[field])
        if text:
            self.texts[field] += text
            yield self._piece(choice, **{field: text})

    def _piece(self, choice: Any, **fields: Any) -> Any:
        delta = choice.delta
        extra = getattr(delta, "model_extra", None) or {}
        blank = dict.fromkeys(
            ("content", "refusal", "role", "tool_calls", "function_call", *extra), None
        )
        made = with_fields(delta, **{**blank, **fields})
        return with_fields(choice, delta=made, finish_reason=None, logprobs=None)

    def end(self, choice: Any) -> Iterator[Any]:
        """The stream ended without saying so: the rest."""
        if self.finish is None:
            yield from self._tail(choice)
            yield from self._whole_calls(choice)

    def told(self) -> dict[str, Any]:
        """The choice as the plain call would have given it."""
        message: dict[str, Any] = {"role": self.role, "content": None, **self.texts}
        calls = []
        for index, call in self._calls.items():
            body = {"name": call["name"], call["key"]: call["text"]}
            if index < 0:
                message["function_call"] = body
            else:
                calls.append({"id": call["id"], "type": call["kind"], call["kind"]: body})
        if calls:
            message["tool_calls"] = calls
        return {"index": self.index, "message": message, "finish_reason": self.finish,
                "logprobs": None}  # fmt: skip


def _says(delta: Any) -> bool:
    fields: Mapping[str, Any] = delta.model_dump(exclude_none=True)
    return any(value for name, value in fields.items() if name != "role")


class ChatReader:
    """The events of one streamed answer on their way out."""

    def __init__(
        self, channels: Callable[[], Channels], filtering: bool, wants_usage: bool
    ) -> None:
        self._channels = channels
        self._filtering = filtering
        self._wants_usage = wants_usage
        self._choices: dict[int, _Choice] = {}
        self._last: dict[int, tuple[Any, Any]] = {}
        self._head: Any = None
        self._usage: Any = None

    def feed(self, event: Any) -> Iterator[Any]:
        """What may be delivered of an event."""
        self._head = self._head or event
        if get(event, "usage") is not None:
            self._usage = event.usage
            if not event.choices and not self._wants_usage:
                return  # it was asked for here
        if not event.choices:
            yield event
        for choice in event.choices or ():
            self._last[choice.index] = (event, choice)
            for made in self._choice(choice.index).feed(choice):
                alone = made is choice and len(event.choices) == 1
                yield event if alone else with_fields(event, choices=[made])  # one in each

    def _choice(self, index: int) -> _Choice:
        known = self._choices.get(index)
        if known is None:
            known = self._choices[index] = _Choice(index, self._channels(), self._filtering)
        return known

    def end(self) -> Iterator[Any]:
        """The stream has ended: the rest."""
        for index, state in self._choices.items():
            chunk, choice = self._last[index]
            for made in state.end(choice):
                yield with_fields(chunk, choices=[made])

    def closes(self, event: Any) -> bool:
        """Whether a reader acts upon it: on a tool call, or on the end."""
        return any(
            choice.finish_reason is not None
            or get(choice.delta, "tool_calls")
            or get(choice.delta, "function_call")
            for choice in event.choices
        )

    def shows(self, event: Any) -> bool:
        """Whether a person sees something of the answer by it."""
        return any(get(c.delta, field) for c in event.choices for field in _FIELDS)

    def abort(self) -> None:
        """Forget what is kept back."""
        for state in self._choices.values():
            state.channels.abort()

    def report(self) -> Any:
        """What has come that tells its usage."""
        head = self._head
        return {"usage": self._usage, "model": get(head, "model"),
                "service_tier": get(head, "service_tier")}  # fmt: skip

    def answer(self) -> Any:
        """The whole filtered answer."""
        head = self._head
        usage = self._usage
        return ChatCompletion.construct(
            id=get(head, "id") or "", object="chat.completion", created=get(head, "created") or 0,
            model=get(head, "model") or "", service_tier=get(head, "service_tier"),
            choices=[self._choices[index].told() for index in sorted(self._choices)],
            usage=None if usage is None else usage.model_dump(),
        )  # fmt: skip

    def message(self) -> dict[str, Any]:
        """The same in the one message shape."""
        choices = [self._choices[index].told() for index in sorted(self._choices)]
        parts = [part for choice in choices for part in told(choice["message"])["parts"]]
        return {"role": "assistant", "parts": parts}


def adjusted(kept: Sequence[Any], before: Any, after: Any) -> list[Any] | None:
    """Chunks that were kept back, when only tool calls have changed since; None if texts have."""
    if len(before.choices) != len(after.choices):
        return None
    calls: dict[int, dict[str, Any]] = {}
    for old, new in zip(before.choices, after.choices, strict=True):
        if any(get(old.message, field) != get(new.message, field) for field in _FIELDS):
            return None
        if old is not new:
            said = new.message.model_dump(exclude_none=True)
            made = [{"index": n, **call} for n, call in enumerate(said.get("tool_calls") or ())]
            delta = {"tool_calls": made or None, "function_call": said.get("function_call")}
            calls[new.index] = {"index": new.index, "delta": delta, "finish_reason": None}
    out: list[Any] = []
    for chunk in kept:
        index = chunk.choices[0].index if chunk.choices else -1
        if index not in calls:
            out.append(chunk)
            continue
        choice = chunk.choices[0]
        if choice.finish_reason is not None:
            built = ChatCompletionChunk.construct(choices=[calls[index]])
            out.append(with_fields(chunk, choices=built.choices))
        delta = with_fields(choice.delta, tool_calls=None, function_call=None)
        if _says(delta) or choice.finish_reason is not None:
            out.append(with_fields(chunk, choices=[with_fields(choice, delta=delta)]))
    return out
