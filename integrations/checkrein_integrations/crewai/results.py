"""What a tool returned, as it is kept and given out again."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from checkrein.codec import decode, encode
from checkrein.errors import Unencodable
from checkrein_integrations._shared.plain import is_plain
from checkrein_integrations.crewai.framework import ToolFailure

_MARK = "crewai"


def dumped(value: Any) -> Any:
    """Plain data from which `loaded` makes a result that reads the same to a model."""
    if is_plain(value):
        return value
    if isinstance(value, ToolFailure):
        return {_MARK: {"failure": value.model_dump(mode="json")}}
    if isinstance(value, BaseModel):
        return {_MARK: {"model": value.model_dump(mode="json"), "text": str(value)}}
    try:
        return {_MARK: {"data": encode(value)}}
    except Unencodable:
        return {_MARK: {"text": str(value)}}


def loaded(kept: Any) -> Any:
    """A result from what `dumped` made of it."""
    if type(kept) is not dict or kept.keys() != {_MARK}:
        return kept
    about = kept[_MARK]
    if "failure" in about:
        return ToolFailure.model_validate(about["failure"])
    if "data" in about:
        return decode(about["data"])
    # A tool with a result schema validates a mapping as well as its own model.
    return Restored(about["model"], about["text"]) if "model" in about else about["text"]


class Restored(dict[str, Any]):
    """The fields of a model that a tool returned in an earlier run."""

    def __init__(self, fields: dict[str, Any], text: str) -> None:
        super().__init__(fields)
        self._text = text

    def __str__(self) -> str:
        return self._text
