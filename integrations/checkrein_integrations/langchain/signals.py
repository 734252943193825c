"""What may leave a hook of ours: the framework's own signals, and errors that end the run."""

from __future__ import annotations

from typing import TypeVar

from langgraph.errors import GraphBubbleUp, GraphDrained, GraphInterrupt, ParentCommand

from checkrein.errors import CheckreinError
from checkrein_integrations._shared.endings import ending_as

E = TypeVar("E", bound=CheckreinError)

SIGNALS: tuple[type[BaseException], ...] = (GraphInterrupt, ParentCommand, GraphDrained)
"""Control flow of the graph: passed through unchanged, never recorded as an error."""


def ending(error: E) -> E:
    """The same error, as one that ends the run whatever middleware stands outside.

    Retry, fallback and error-to-text middlewares and `ToolNode(handle_tool_errors=True)` take
    every `Exception` but `GraphBubbleUp`. The error becomes an instance of a subclass of its
    own class and of that one: `except BudgetExceeded` finds it as before.
    """
    return ending_as(error, GraphBubbleUp)


def is_signal(error: BaseException) -> bool:
    """Whether `error` is control flow of the graph and no error of ours."""
    return isinstance(error, GraphBubbleUp) and not isinstance(error, CheckreinError)
