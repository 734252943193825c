"""A tool's own function as it runs: whether it was started, and its end where a thread runs it."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from types import CellType, FunctionType
from typing import Any, cast

from checkrein_integrations.openai_agents.framework import moved

RUNNING: contextvars.ContextVar[Execution | None] = contextvars.ContextVar(
    "checkrein_openai_agents", default=None
)
NOTHING = object()


class NothingRan(Exception):
    """Nothing of the tool was started: its arguments do not fit."""


class Execution:
    """One supervised start of a tool."""

    __slots__ = ("end", "raw", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self.raw: Any = NOTHING
        self.end: Future[Any] | None = None
        """The end of a sync function in its thread, which no cancellation ends."""

    def left(self) -> Future[Any] | None:
        """What still runs after its call was given up."""
        return self.end


def tracked(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, telling the running `Execution` of its start and its end."""
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def later(*args: Any, **kwargs: Any) -> Any:
            execution = RUNNING.get()
            if execution is None:
                return await fn(*args, **kwargs)
            token = RUNNING.set(None)
            execution.runs += 1
            try:
                execution.raw = await fn(*args, **kwargs)
            finally:
                RUNNING.reset(token)
            return execution.raw

        return later

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        execution = RUNNING.get()
        if execution is None:
            return fn(*args, **kwargs)
        token = RUNNING.set(None)
        execution.runs += 1
        end = execution.end = Future()
        try:
            execution.raw = fn(*args, **kwargs)
        except BaseException as error:
            end.set_exception(error)
            raise
        finally:
            RUNNING.reset(token)
        end.set_result(execution.raw)
        return execution.raw

    return run


def with_cells(fn: Any, **values: Any) -> Any:
    """A copy of a nested function with other values in its closure.

    Raises `ConfigError` where it has no such names: the SDK has moved on.
    """
    code = getattr(fn, "__code__", None)
    if code is None or not set(values) <= set(code.co_freevars):
        raise moved(f"{', '.join(values)} in the function behind a tool")
    cells = tuple(
        CellType(values[name]) if name in values else cell
        for name, cell in zip(code.co_freevars, fn.__closure__, strict=True)
    )
    copy = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__dict__.update(fn.__dict__)
    return copy


def cell_of(fn: Any, name: str) -> Any:
    """The value of a name in a nested function's closure. Raises `ConfigError` if it has none."""
    code = getattr(fn, "__code__", None)
    if code is None or name not in code.co_freevars:
        raise moved(f"{name} in the function behind a tool")
    return cast("Any", fn.__closure__)[code.co_freevars.index(name)].cell_contents
