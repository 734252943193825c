"""Tokens as they can be told from texts: before a call is made, and where nobody reported them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from checkrein.call import Call, Usage

BYTES_PER_TOKEN = 4
"""English text has about four characters to a token. Counted in UTF-8 bytes, so that scripts
with more tokens to a character are not underestimated by as much."""

MESSAGE_TOKENS = 4
"""What a message costs beside its text (role, separators); OpenAI's cookbook counts 3 to 4."""

MEDIA_TOKENS = 2000
"""A part that is not text and whose size is not known: above what one image costs."""

_OUTPUT_KEYS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
MEDIA = frozenset({"blob", "uri", "file", "image", "image_url", "input_image", "audio"})


def input_tokens(arguments: Mapping[str, Any]) -> int:
    """An estimate of the request's tokens: system text, messages and tool descriptions."""
    size = 0
    tokens = 0
    messages = arguments.get("messages")
    if isinstance(messages, (list, tuple)):
        tokens = MESSAGE_TOKENS * len(messages)
    todo: list[Any] = [arguments.get("system"), messages, arguments.get("tools")]
    while todo:
        value = todo.pop()
        kind = type(value)
        if kind is str:
            size += len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        elif kind is dict or isinstance(value, Mapping):
            if value.get("type") in MEDIA:
                tokens += MEDIA_TOKENS
                continue
            todo.extend(value.values())
            size += sum(len(key) for key in value if type(key) is str)
        elif isinstance(value, (list, tuple)):
            todo.extend(value)
        elif isinstance(value, (bytes, bytearray)):
            tokens += MEDIA_TOKENS
        elif value is not None:
            size += len(str(value))
    return tokens - (-size // BYTES_PER_TOKEN)


def text_tokens(text: str) -> int:
    """An estimate of the tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN)


def counted(arguments: Mapping[str, Any], text: str, usage: Usage | None) -> Usage:
    """The usage of an answer that broke off, or whose tokens nobody reported.

    `text`: what came of it. `usage`: what was reported on the way, which is not lowered.
    """
    known = usage or Usage()
    return replace(
        known,
        input_tokens=known.input_tokens or input_tokens(arguments),
        output_tokens=max(known.output_tokens, text_tokens(text)),
        estimated=True,
    )


def output_tokens(call: Call, default: int) -> int:
    """The most tokens that the answer may have.

    What the request or a label says, else `default`; times the number of answers asked for.
    """
    arguments = call.arguments
    most = default
    for key in _OUTPUT_KEYS:
        stated = arguments.get(key)
        if stated is None:
            stated = _whole(call.labels.get(key))
        if type(stated) is int and stated > 0:
            most = stated
            break
    answers = arguments.get("n")
    return most * answers if type(answers) is int and answers > 1 else most


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
