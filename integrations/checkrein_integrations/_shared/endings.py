"""Errors of ours in the form that ends a framework's run."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from checkrein.errors import CheckreinError

E = TypeVar("E", bound=CheckreinError)


@cache
def _joined(cls: Any, base: Any) -> Any:
    return type(
        cls.__name__,
        (cls, base),
        {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__},
    )


def ending_as(error: E, base: Any) -> E:
    """The same error, made an instance of `base` as well: a class that the framework lets pass.

    `except BudgetExceeded` finds it as before.
    """
    if not isinstance(error, base):
        kind: Any = type(error)
        object.__setattr__(error, "__class__", _joined(kind, base))
    return error
