"""The event by which a stream takes an answer back, and how answers are streamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from checkrein.errors import CheckreinError, ConfigError, Denied

Streams = Literal["auto", "hold", "pass"]
"""`auto` shows what the plugins' stream filters let through, and nothing of an answer that a
plugin wants to see whole; `hold` never shows anything before the whole answer is judged; `pass`
shows it and sends `AnswerRetracted` if it is blocked."""


def check_streams(streams: object) -> None:
    """Raise `ConfigError` for what is no way of streaming."""
    if streams not in get_args(Streams):
        raise ConfigError(f"streams: {streams!r} is none of 'auto', 'hold', 'pass'")


@dataclass(frozen=True, slots=True)
class AnswerRetracted:
    """The answer that was being streamed is withdrawn: what was shown of it must not stand."""

    reason: str
    rule: str = ""
    shown: bool = False
    """Whether something of it had been delivered before."""
    replaced: bool = False
    """Another answer follows in its place."""
    type: Literal["checkrein.answer_retracted"] = "checkrein.answer_retracted"


def blocked(error: CheckreinError, *, shown: bool) -> AnswerRetracted:
    """The event for an answer that an error stands for."""
    if isinstance(error, Denied):
        return AnswerRetracted(error.reason, error.rule, shown)
    return AnswerRetracted(type(error).__name__, "", shown)


def replaced() -> AnswerRetracted:
    """The event for an answer that was shown and is another one now."""
    return AnswerRetracted("replaced by a plugin", shown=True, replaced=True)


def asked_again() -> AnswerRetracted:
    """The event for an answer that was shown before the model is asked again."""
    return AnswerRetracted("asked again", shown=True, replaced=True)
