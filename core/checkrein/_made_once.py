"""Parts that are made where they are first used, so that importing and starting stay light."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Owner = TypeVar("Owner")
T = TypeVar("T")


class made_once(Generic[Owner, T]):  # noqa: N801 - a decorator, as `property` is
    """As `functools.cached_property`; threads that come together get the same object."""

    def __init__(self, make: Callable[[Owner], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, cls: type[Any]) -> Self: ...

    @overload
    def __get__(self, owner: Owner, cls: type[Any]) -> T: ...

    def __get__(self, owner: Owner | None, cls: type[Any]) -> Self | T:
        if owner is None:
            return self
        # Found in the object itself from now on. Only the first of two threads sets it.
        made: T = vars(owner).setdefault(self._make.__name__, self._make(owner))
        return made
