"""Whether somebody sits at this process's terminal and can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ATTENDED: ContextVar[bool] = ContextVar("checkrein_attended", default=True)


def is_attended(stated: bool | None) -> bool:
    """What a new Rein takes for its `attended`: the stated value, else that of the block."""
    return _ATTENDED.get() if stated is None else stated


@contextmanager
def unattended(*, nobody: bool = True) -> Iterator[None]:
    """Reins made inside the block take nobody to be there, unless they state otherwise."""
    token = _ATTENDED.set(_ATTENDED.get() and not nobody)
    try:
        yield
    finally:
        _ATTENDED.reset(token)
