"""What a tool gives back to the SDK, as plain data in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkrein_integrations._shared.plain import is_plain
from checkrein_integrations.openai_agents.framework import (
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)

_MARK = "openai_agents"
_OUTPUTS = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


@dataclass(slots=True)
class Stored:
    """A result that was read from the journal."""

    result: Any


def dumped(value: Any) -> Any:
    """Plain data for which `loaded` gives the model the same text and blocks again.

    The SDK shows a model the `str` of whatever is no text and no block of its own.
    """
    if is_plain(value) and not (isinstance(value, dict) and _MARK in value):
        return value
    if isinstance(value, _OUTPUTS):
        return {_MARK: value.model_dump(exclude_none=True)}
    if isinstance(value, (list, tuple)) and any(isinstance(v, _OUTPUTS) for v in value):
        return {_MARK: [v.model_dump(exclude_none=True) if isinstance(v, _OUTPUTS) else v
                        for v in value]}  # fmt: skip
    return {_MARK: str(value)}


def loaded(kept: Any) -> Any:
    """What `dumped` kept."""
    if type(kept) is dict and kept.keys() == {_MARK}:
        return Stored(kept[_MARK])
    return kept


def given(value: Any) -> Any:
    """What the SDK gets for a value of the engine's."""
    return value.result if isinstance(value, Stored) else value
