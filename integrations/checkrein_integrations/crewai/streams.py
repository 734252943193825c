"""Streamed answers of a crew's models: what filters let through before anybody is told.

A model tells of its chunks by events; `Crew(stream=True)` and listeners read those. The
supervised model passes each through the `open_stream` filters first. Arguments of tool calls
are told once they are complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from checkrein.errors import Denied
from checkrein.streams.filters import Channels
from checkrein_integrations._shared import chat
from checkrein_integrations._shared.retracting import Streams
from checkrein_integrations.crewai import answers
from checkrein_integrations.crewai.signals import ending

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call

Emit = Callable[..., None]


def _refused(denied: Denied) -> Denied:
    return ending(denied)


class Delivery:
    """The chunks of one answer on their way out."""

    def __init__(self, rein: Rein, call: Call, streams: Streams = "auto") -> None:
        chains = rein.plugins.chains
        self._openers = chains["open_stream"]
        streaming = {impl.plugin for impl in self._openers}
        wants = any(impl.plugin not in streaming for impl in chains["post_call"])
        self._holding = streams == "hold" or (streams == "auto" and wants)
        self._call = call
        self._channels = self._new()
        self._last: dict[str, tuple[dict[str, Any], Emit, str | None]] = {}
        self._calls: dict[Any, tuple[dict[str, Any], Emit]] = {}
        self.streams = False
        """The model was asked to stream."""
        self.shown = False
        """Something of the answer has been told."""
        self.came: list[str] = []
        """What the model wrote, before it was filtered."""

    def _new(self) -> Channels:
        return Channels(self._call, self._openers, _refused)

    def holds(self, model: Any) -> bool:
        """Whether nothing of the answer may be told before all of it was looked at.

        A plugin that looks at answers when they are complete wants that; and chunks of the
        litellm bridge are told past the model's own methods, so nothing could filter them.
        """
        bridge = bool(getattr(model, "is_litellm", False))
        return self._holding or (bridge and bool(self._openers))

    def feed(self, channel: str, chunk: str, fields: dict[str, Any], emit: Emit) -> None:
        """Tell of what may be told of a chunk."""
        self.came.append(chunk)
        if not self._openers:
            self.shown = self.shown or bool(chunk)
            emit(chunk=chunk, **fields)
            return
        call = fields.get("tool_call")
        if call:
            index = call.get("index", call.get("id"))
            self._calls[index] = (fields, emit)
            return
        self._last[channel] = (fields, emit, answers.current_id())
        text = self._channels.channel(channel).feed(chunk)
        if text:
            self.shown = True
            emit(chunk=text, **fields)

    def end(self) -> None:
        """The answer is complete: tell of what was kept back."""
        for channel, (fields, emit, id) in self._last.items():
            rest = self._channels.close(channel)
            if rest:
                self.shown = True
                with answers.call_id(id):
                    emit(chunk=rest, **fields)
        self._channels.abort()

    def filtered(self, answer: Any) -> Any:
        """The whole answer, as its stream was let through."""
        if not self._openers:
            return answer
        channels = self._new()
        if isinstance(answer, str):
            return channels.whole("text", answer)
        if isinstance(answer, BaseModel):
            text = answer.model_dump_json()
            new = channels.whole("text", text)
            return answer if new == text else type(answer).model_validate_json(new)
        if not isinstance(answer, list):
            return answer
        shape = answers.told(answer)
        if not isinstance(shape, dict):
            return answer
        made: list[Any] = []
        for index, (item, part) in enumerate(zip(answer, shape["parts"], strict=True)):
            text = answers.arguments_text(item)
            new = channels.arguments(index, text)
            changed = {**part, "arguments": chat.parsed(new)}
            made.append(item if new == text or changed == part else chat.call_dict(changed))
        return made

    def deliver(self, model: Any, job: Any, answer: Any, *, anew: bool = False) -> None:
        """Tell of what could only be told at the end: arguments of tool calls, held answers.

        `anew`: another answer was shown, and taken back.
        """
        if self._calls and isinstance(answer, list):
            pieces = list(self._calls.values())
            for (fields, emit), item in zip(pieces, answer, strict=False):
                text = answers.arguments_text(item)
                call = fields["tool_call"]
                function = {**(call.get("function") or {}), "arguments": text}
                emit(chunk=text, **{**fields, "tool_call": {**call, "function": function}})
        elif self.streams and (anew or self.holds(model)) and isinstance(answer, str):
            about = {"from_task": job.given.get("from_task"),
                     "from_agent": job.given.get("from_agent")}  # fmt: skip
            model._emit_stream_chunk_event(answer, **about)  # noqa: SLF001 - the model's own event
        self._calls.clear()
