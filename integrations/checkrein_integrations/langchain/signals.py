"""What may leave a hook of ours: the framework's own signals, and errors that end the run."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from langgraph.errors import GraphBubbleUp, GraphDrained, GraphInterrupt, ParentCommand

from checkrein.errors import CheckreinError

E = TypeVar("E", bound=CheckreinError)

SIGNALS: tuple[type[BaseException], ...] = (GraphInterrupt, ParentCommand, GraphDrained)
"""Control flow of the graph: passed through unchanged, never recorded as an error."""


@cache
def _ending(cls: Any) -> Any:
    return type(
        cls.__name__,
        (cls, GraphBubbleUp),
        {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__},
    )


def ending(error: E) -> E:
    """The same error, as one that ends the run whatever middleware stands outside.

    Retry, fallback and error-to-text middlewares and `ToolNode(handle_tool_errors=True)` take
    every `Exception` but `GraphBubbleUp`. The error becomes an instance of a subclass of its
    own class and of that one: `except BudgetExceeded` finds it as before.
    """
    if not isinstance(error, GraphBubbleUp):
        kind: Any = type(error)
        error.__class__ = _ending(kind)
    return error


def is_signal(error: BaseException) -> bool:
    """Whether `error` is control flow of the graph and no error of ours."""
    return isinstance(error, GraphBubbleUp) and not isinstance(error, CheckreinError)
