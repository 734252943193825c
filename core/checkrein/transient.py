"""What an exception of a provider or a tool says: is it worth another try, and when."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterable, Mapping
from typing import Any

from checkrein.errors import CheckreinError

TRANSIENT = frozenset((408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529))
"""HTTP states after which the same request may succeed."""

_NAMES = frozenset(
    (
        "APIConnectionError", "APITimeoutError", "ClientConnectionError", "ConnectError",
        "ConnectTimeout", "DeadlineExceeded", "InternalServerError", "OverloadedError",
        "PoolTimeout", "RateLimitError", "ReadError", "ReadTimeout", "RemoteProtocolError",
        "ResourceExhausted", "ServerDisconnectedError", "ServerTimeoutError",
        "ServiceUnavailable", "ServiceUnavailableError", "Timeout", "TooManyRequests",
        "WriteTimeout",
    )
)  # fmt: skip
"""Classes of common clients that tell of the way there, not of the request."""


def status_of(error: BaseException) -> int | None:
    """The HTTP state that an exception carries, or the one it was raised from does."""
    current: BaseException | None = error
    for _ in range(4):
        if current is None:
            return None
        response = getattr(current, "response", None)
        for holder, name in (
            (current, "status_code"), (current, "status"), (current, "http_status"),
            (current, "code"), (response, "status_code"), (response, "status"),
        ):  # fmt: skip
            value = getattr(holder, name, None)
            if type(value) is int and 100 <= value < 600:
                return value
        current = current.__cause__
    return None


def is_a(error: BaseException, names: Iterable[str]) -> bool:
    """Whether an exception is of a class with one of these names, or derived from one."""
    wanted = names if isinstance(names, (set, frozenset)) else set(names)
    return any(cls.__name__ in wanted for cls in type(error).__mro__)


def transient(error: BaseException | None) -> bool:
    """Whether the same request may succeed later: 429, 5xx, a timeout, a lost connection.

    A refusal of ours, a cancellation and a request that is wrong (400, 401, 404, 422 ...) never
    are.
    """
    if not isinstance(error, Exception) or isinstance(error, CheckreinError):
        return False
    status = status_of(error)
    if status is not None:
        return status in TRANSIENT
    return isinstance(error, (TimeoutError, ConnectionError)) or is_a(error, _NAMES)


def retry_after(error: BaseException) -> float | None:
    """Seconds that the server asks to wait; None if it does not say."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        headers = getattr(error, "headers", None)
    if not isinstance(headers, Mapping):
        return None
    found = {str(key).lower(): str(value).strip() for key, value in headers.items()}
    for key, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = found.get(key)
        if text is None:
            continue
        try:
            return max(0.0, min(float(text) * scale, 1e6))
        except ValueError:
            try:
                at = email.utils.parsedate_to_datetime(text)
            except ValueError:
                continue
            return max(0.0, at.timestamp() - time.time())
    return None
