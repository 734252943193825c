"""Errors of ours in the form that ends a framework's run."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from checkrein.errors import CheckreinError

E = TypeVar("E", bound=CheckreinError)


@cache
def _joined(cls: Any, base: type[BaseException]) -> Any:
    return type(
        cls.__name__,
        (cls, base),
        {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__},
    )


def ending_as(error: E, base: type[BaseException]) -> E:
    """The same error, made an instance of `base` as well: what the framework never swallows.

    `except BudgetExceeded` finds it as before.
    """
    if not isinstance(error, base):
        object.__setattr__(error, "__class__", _joined(type(error), base))
    return error
