"""The event by which a stream takes an answer back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
