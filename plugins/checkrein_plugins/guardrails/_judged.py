"""What of a call is put before a judge: arguments, results, messages, as text."""

from __future__ import annotations

import datetime as dt
import enum
import json
import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from checkrein.call import Call, Outcome
from checkrein_plugins.guardrails._arguments import DEPTH, fields_of
from checkrein_plugins.guardrails._judge import Unjudged

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


def messages_of(call: Call) -> list[Any]:
    """What a model is told that it has not been told before: since its own last answer."""
    messages = call.arguments.get("messages")
    if not isinstance(messages, (list, tuple)):
        return [messages]
    newest: list[Any] = []
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            break
        newest.append(message)
    return newest[::-1]


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
