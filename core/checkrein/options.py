"""`rein.options(...)`: settings for the calls inside a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from checkrein.entry import OPTIONS
from checkrein.errors import ConfigError
from checkrein.session import labels_of


@contextlib.contextmanager
def applied(timeout: float | None, labels: Mapping[str, str] | None) -> Iterator[None]:
    """See `Rein.options`."""
    given: dict[str, Any] = {}
    if timeout is not None:
        if type(timeout) not in (int, float) or not 0 < timeout < 1e9:
            raise ConfigError("options: timeout must be seconds above 0")
        given["timeout"] = timeout
    if labels is not None:
        given["labels"] = labels_of(labels)
    before = OPTIONS.get()
    OPTIONS.set({**before, **given})
    try:
        yield
    finally:
        OPTIONS.set(before)
