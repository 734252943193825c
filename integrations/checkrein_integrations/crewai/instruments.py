"""Tools and models that a `supervise` block has met, made to pass the engine while it lasts.

The framework's hooks tell of a call, but what a tool raises is swallowed or repeated between
them, and a model's answer cannot be given in its place. So the object that is about to be
called is changed: a tool's function, or the class of the object. Nothing global is touched; at
the end of the last block that uses an object it is as before. The changed object looks up the
block that it runs in, so a run outside any block is not supervised.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from checkrein._io import running_loop
from checkrein.errors import ConfigError
from checkrein_integrations.crewai.binding import plain_function
from checkrein_integrations.crewai.calls import ToolCall, taken
from checkrein_integrations.crewai.framework import BaseTool, Tool
from checkrein_integrations.crewai.state import SCOPE

_lock = threading.Lock()
_changed: dict[int, _Change] = {}


class _Change:
    """An object that blocks have changed: what it takes to undo that."""

    def __init__(self, target: Any, undo: Callable[[], None]) -> None:
        self.target = target
        self.undo = undo
        self.users = 0


class Instruments:
    """The objects that one `supervise` block has changed."""

    def __init__(self) -> None:
        self._used: set[int] = set()

    def use(self, target: Any, change: Callable[[Any], Callable[[], None]]) -> None:
        """Change an object, unless it is changed already; `change` returns how to undo it."""
        if id(target) in self._used:
            return
        with _lock:
            known = _changed.get(id(target))
            if known is None:
                known = _changed[id(target)] = _Change(target, change(target))
            known.users += 1
            self._used.add(id(target))

    def release(self) -> None:
        """The block ends: what no other block uses is as it was."""
        with _lock:
            for mark in self._used:
                change = _changed[mark]
                change.users -= 1
                if not change.users:
                    del _changed[mark]
                    change.undo()
            self._used.clear()

    def tool(self, structured: Any) -> None:
        """Make sure that a tool passes the engine, on the native road and on the ReAct road.

        Raises `ConfigError` for a class whose calls could go by.
        """
        base = getattr(structured, "_original_tool", None)
        if base is None:
            self.use(structured, _change_structured)
            return
        if getattr(base, "checkrein_owner", None) is not None:
            return
        if type(base).run not in (BaseTool.run, Tool.run):
            raise ConfigError(
                f"tool {base.name}: {type(base).__name__} has a run() of its own, which the "
                "framework calls past its hooks: give the agent supervise_tools(rein, [tool])"
            )
        if isinstance(base, Tool):
            self.use(base, _change_function)
        else:
            self.use(base, _change_class)
            self.use(structured, _change_structured)


def _set(target: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute past pydantic's own checks; returns how to set it back."""
    before = getattr(target, name)
    object.__setattr__(target, name, value)
    return lambda: object.__setattr__(target, name, before)


def _change_function(tool: Any) -> Callable[[], None]:
    """A tool that wraps a function: both roads come to the function."""
    return _set(tool, "func", _in_scope(tool, tool.func))


def _change_structured(structured: Any) -> Callable[[], None]:
    """What the ReAct road calls: it took the method before the tool was changed."""
    base = getattr(structured, "_original_tool", None)
    tool = structured if base is None else base
    body = structured.func if base is None else functools.partial(_inner_run(base), base)
    return _set(structured, "func", _in_scope(tool, body))


def _change_class(tool: Any) -> Callable[[], None]:
    """Any other tool: the native road comes to its `_run`."""
    cls: Any = type(tool)
    return _set(tool, "__class__", _supervised_class(cls))


def _in_scope(tool: Any, body: Callable[..., Any]) -> Callable[..., Any]:
    plain = plain_function(body)
    is_async = inspect.iscoroutinefunction(plain)

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        scope = SCOPE.get()
        if scope is None or taken(scope.rein, tool):
            return body(*args, **kwargs)
        call = ToolCall(scope.rein, tool, args, kwargs)
        return call.arun(plain) if is_async and running_loop() is not None else call.run(plain)

    return run


def _inner_run(tool: Any) -> Any:
    """The tool's own `_run`, whether its class is changed already or not."""
    cls = type(tool)
    return getattr(cls._run, "__wrapped__", cls._run)


@cache
def _supervised_class(cls: type[BaseTool]) -> type[BaseTool]:
    inner = cls._run

    @functools.wraps(inner)
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = SCOPE.get()
        body = functools.partial(inner, self)
        if scope is None or taken(scope.rein, self):
            return body(*args, **kwargs)
        return ToolCall(scope.rein, self, args, kwargs).run(body)

    return cast("type[BaseTool]", same_class(cls, {"_run": _run}))


def same_class(cls: Any, methods: dict[str, Any]) -> Any:
    """A subclass that passes for `cls`: the same name, module and text."""
    made: Any = type(
        cls.__name__,
        (cls,),
        {**methods, "__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.supervised",
         "__doc__": cls.__doc__},
    )  # fmt: skip
    # Only now: the framework keeps its classes by this name, and keeps its own.
    made.__qualname__ = cls.__qualname__
    return made
