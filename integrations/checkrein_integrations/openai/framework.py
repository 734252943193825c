"""The parts of OpenAI's clients that the adapter stands on, and a check that they are there."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from checkrein.errors import ConfigError

OLDEST, BEYOND = (2, 30), (4,)
SUPPORTED = "2.30 or newer, below 4"
"""Versions of openai whose parts below are known to the adapter."""

try:
    from openai import (
        NOT_GIVEN,
        AsyncOpenAI,
        AsyncStream,
        AuthenticationError,
        BadRequestError,
        ConflictError,
        NotFoundError,
        OpenAI,
        PermissionDeniedError,
        RateLimitError,
        Stream,
        UnprocessableEntityError,
    )
    from openai._constants import RAW_RESPONSE_HEADER
    from openai._models import FinalRequestOptions
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response
except ImportError as error:
    if error.name == "openai":
        raise ConfigError(
            f"checkrein_integrations.openai needs openai {SUPPORTED} ({error}): "
            "pip install 'checkrein[openai]'"
        ) from error
    if not (error.name or "").startswith("openai"):
        raise
    raise ConfigError(
        f"openai {version('openai')} has parts in other places than the adapter knows ({error}); "
        f"supported: openai {SUPPORTED}: pip install 'checkrein[openai]'"
    ) from error

__all__ = [
    "NOT_GIVEN",
    "RAW_RESPONSE_HEADER",
    "SUPPORTED",
    "UNBILLED",
    "AsyncOpenAI",
    "AsyncStream",
    "ChatCompletion",
    "ChatCompletionChunk",
    "FinalRequestOptions",
    "OpenAI",
    "Response",
    "Stream",
    "check",
]

UNBILLED = (
    AuthenticationError, BadRequestError, ConflictError, NotFoundError, PermissionDeniedError,
    RateLimitError, UnprocessableEntityError,
)  # fmt: skip
"""Errors by which the provider says that it has not answered, and takes nothing for it."""

_FIELDS = ("method", "url", "headers", "json_data", "extra_json", "post_parser")
_NEEDED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (OpenAI, ("request", "chat", "responses", "copy")),
    (AsyncOpenAI, ("request", "chat", "responses", "copy")),
    (Stream, ("__iter__", "__next__", "close")),
    (AsyncStream, ("__aiter__", "__anext__", "close")),
)


def check() -> None:
    """Raise `ConfigError` where the installed clients are none that the adapter knows."""
    here = version("openai")
    numbers = tuple(int(part) for part in here.split(".")[:2] if part.isdigit())
    if not OLDEST <= numbers < BEYOND:
        raise ConfigError(
            f"openai {here} is not supported: openai {SUPPORTED}: pip install 'checkrein[openai]'"
        )
    missing = [
        f"{owner.__name__}.{name}"
        for owner, names in _NEEDED
        for name in names
        if not hasattr(owner, name)
    ]
    known = FinalRequestOptions.model_fields
    missing += [f"FinalRequestOptions.{name}" for name in _FIELDS if name not in known]
    if missing:
        raise ConfigError(
            f"openai {here} has no {missing[0]}: this adapter cannot supervise it; supported: "
            f"openai {SUPPORTED}"
        )
