"""Taking back what a stream has shown: an event on CrewAI's bus, where its chunks are told too."""

from __future__ import annotations

from typing import Any, Literal

from checkrein_integrations._shared.retracting import AnswerRetracted
from checkrein_integrations.crewai.framework import BaseEvent, event_bus


class AnswerRetractedEvent(BaseEvent):  # type: ignore[misc,unused-ignore]  # a framework's class
    """The answer that was being streamed is withdrawn: what was shown of it must not stand."""

    type: Literal["checkrein.answer_retracted"] = "checkrein.answer_retracted"
    retracted: AnswerRetracted
    call_id: str | None = None
    """Of the model call, as its chunks have it."""


def retract(model: Any, event: AnswerRetracted | None, call_id: str | None) -> None:
    """Send the event, if there is one."""
    if event is not None:
        event_bus.emit(model, event=AnswerRetractedEvent(retracted=event, call_id=call_id))
