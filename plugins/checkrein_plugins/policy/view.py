"""What a condition can see: a read-only look at the call, its session and the counters.

Nothing but plain data leaves it: a step of a path goes into a mapping, a list, or a declared
field of a dataclass or pydantic model, never to an attribute or method of an object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from checkrein.call import Call

Path: TypeAlias = "tuple[str | int, ...]"
Getter: TypeAlias = "Callable[[View], Any]"


class Missing(LookupError):
    """A path leads nowhere in this call."""


class View:
    """One call as conditions see it."""

    __slots__ = ("args", "call", "counter", "session")

    def __init__(
        self,
        call: Call,
        counter: Callable[[str, Call], int | float],
        session: Callable[[Call], Mapping[str, Any]],
    ) -> None:
        self.call = call
        self.args = call.arguments
        self.counter = counter
        self.session = session


_CALL = ("kind", "name", "agent", "task", "user", "tenant", "step", "attempt", "guard")
_TOOL = ("name", "effect", "idempotent", "server", "timeout", "undo", "has_probe")
_SESSION = ("id", "agent", "user", "tenant", "task", "intent", "parent")
ROOTS: dict[str, tuple[str, ...]] = {
    "args": (),
    "call": (*_CALL, "labels"),
    "tool": (*_TOOL, "labels"),
    "session": (*_SESSION, "labels"),
    "counters": (),
}
"""What a path can begin with, and the names that follow it (`args`: the tool's own)."""


def getter(path: Path) -> Getter:
    """A function that reads `path`. The path has been checked."""
    root, *rest = path
    steps = tuple(rest)
    if root == "args":
        name = steps[0]
        if len(steps) == 1:

            def argument(view: View) -> Any:
                try:
                    return view.args[name]  # type: ignore[index]  # names of arguments are text
                except KeyError:
                    raise Missing(f"args.{name} is missing") from None

            return argument
        return lambda view: _walk(view.args, steps, "args")
    if root == "counters":
        return lambda view: view.counter(str(steps[0]), view.call)
    if root == "session":
        return lambda view: _walk(view.session(view.call), steps, "session")
    if len(steps) == 1:
        name = str(steps[0])
        if root == "tool":
            return lambda view: getattr(view.call.tool, name)
        return lambda view: getattr(view.call, name)
    if root == "tool":
        return lambda view: _walk(view.call.tool.labels, steps[1:], "tool.labels")
    return lambda view: _walk(view.call.labels, steps[1:], "call.labels")


def _walk(value: Any, steps: Path, told: str) -> Any:
    for step in steps:
        told = f"{told}[{step}]" if isinstance(step, int) else f"{told}.{step}"
        if isinstance(step, int):
            if not isinstance(value, (list, tuple)) or not -len(value) <= step < len(value):
                raise Missing(f"{told} is missing")
            value = value[step]
            continue
        fields = fields_of(value)
        if fields is None or step not in fields:
            raise Missing(f"{told} is missing")
        value = fields[step]
    return value


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """The named parts of a mapping, dataclass or pydantic model; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    declared = getattr(type(value), "model_fields", None)
    if isinstance(declared, dict):
        return {name: getattr(value, name) for name in declared}
    return None
