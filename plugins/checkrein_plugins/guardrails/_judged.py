"""What of a call is put before a judge: arguments, results, messages, as text."""

from __future__ import annotations

import datetime as dt
import enum
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

from checkrein._locks import Lock
from checkrein.call import Call, Outcome
from checkrein_plugins.guardrails._arguments import DEPTH, fields_of
from checkrein_plugins.guardrails._judge import Unjudged

MOST_REMEMBERED = 4096
"""Texts of which it is known what was found."""

OVERLAP = 400
"""Characters that two pieces of a long text share: what lies on the cut is seen whole once."""


def arguments_of(call: Call) -> str:
    """The arguments of a tool call, without those that are passed by reference."""
    opaque = call.tool.opaque
    return text_of({k: v for k, v in call.arguments.items() if k not in opaque})


def result_of(outcome: Outcome) -> str:
    """What a caller would see: the result, or what the error says."""
    if outcome.error is not None:
        return f"{type(outcome.error).__name__}: {outcome.error}"
    return text_of(outcome.value)


def messages_of(call: Call) -> list[str]:
    """What a model is told, message by message. Its system text is the owner's."""
    messages = call.arguments.get("messages")
    listed = messages if isinstance(messages, (list, tuple)) else [messages]
    return [text_of(message) for message in listed if message is not None]


T = TypeVar("T")


class Remembered(Generic[T]):
    """What was found in texts: a run tells its model the same messages again and again."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, T] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> T | None:
        """What was found in a text; None where it was not judged."""
        return self._found.get(_digest(text))

    def put(self, text: str, found: T) -> None:
        """Remember it, for as long as there is room."""
        with self._lock:
            self._found[_digest(text)] = found
            while len(self._found) > MOST_REMEMBERED:
                self._found.popitem(last=False)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def text_of(value: Any) -> str:
    """A value as one text. Raises `Unjudged` for an object that cannot be looked into."""
    return value if isinstance(value, str) else json.dumps(plain(value, 0), ensure_ascii=False)


def plain(value: Any, depth: int) -> Any:
    """A value as JSON knows it. Raises `Unjudged`."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > DEPTH:
        raise Unjudged("a value is nested too deeply")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, (Decimal, UUID, dt.date, dt.time, dt.timedelta)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    fields = fields_of(value)
    if fields is None:
        raise Unjudged(f"a {type(value).__name__} cannot be looked into")
    return {
        key if isinstance(key, str) else str(plain(key, depth + 1)): plain(item, depth + 1)
        for key, item in fields.items()
    }


def pieces(text: str, size: int) -> Iterator[str]:
    """A long text in pieces of `size` characters that overlap."""
    if len(text) <= size:
        yield text
        return
    step = max(1, size - OVERLAP)
    for start in range(0, len(text) - OVERLAP, step):
        yield text[start : start + size]
