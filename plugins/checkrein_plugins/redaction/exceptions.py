"""Exceptions with what is private in their texts replaced: the same type, other words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from checkrein.errors import CheckreinError
from checkrein_plugins.redaction.faults import Redacted, Unredactable

DEEPEST = 16
"""Causes of causes that are looked at; the chain ends there."""
Change: TypeAlias = Callable[[Any], Any]
"""Gets a tree; returns it with its findings replaced, itself if there are none."""
Clean: TypeAlias = Callable[[str], bool]
"""Whether nothing is found in a text."""


def redacted_error(
    error: BaseException, change: Change, clean: Clean, depth: int = 0
) -> BaseException:
    """`error` in words that may leave, or itself where there is nothing to replace.

    The copy has the type, the attributes and the traceback of `error`; texts in its arguments,
    attributes and notes are changed, and so are its causes. Where its class makes its text of
    something else, it becomes a `Redacted` that names the class. Errors of checkrein itself are
    told in redacted words from the start.
    """
    if isinstance(error, CheckreinError):
        return error
    inner = _inner(error, change, clean, depth)
    told = (_text(error), _arguments(error), dict(vars(error)))
    try:
        new = change(told)
    except Unredactable:  # such as bytes in it: then only what it says may leave
        made: BaseException = Redacted(f"{type(error).__name__}: {change(told[0])}")
    else:
        if new is told and all(kept is before for kept, before in inner.values()):
            return error
        made = _copied(error, new, change, clean)
    made.__traceback__ = error.__traceback__
    made.__cause__, made.__context__ = inner["cause"][0], inner["context"][0]
    made.__suppress_context__ = error.__suppress_context__
    return made


def _inner(
    error: BaseException, change: Change, clean: Clean, depth: int
) -> dict[str, tuple[Any, Any]]:
    """Cause and context, changed and as they were; what lies too deep is left out."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, below in (("cause", error.__cause__), ("context", error.__context__)):
        if below is None or (name == "context" and error.__suppress_context__):
            found[name] = (None, None)
        elif name == "context" and below is error.__cause__:
            found[name] = found["cause"]
        else:
            found[name] = (
                redacted_error(below, change, clean, depth + 1) if depth < DEEPEST else None,
                below,
            )
    return found


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """What it is made of: for errors of the system also the name of the file."""
    try:
        made_of = error.__reduce__()[1]
    except Exception:  # noqa: BLE001 - a class may refuse to be copied
        return error.args
    return made_of if isinstance(made_of, tuple) else error.args


def _copied(
    error: BaseException, parts: tuple[str, Any, dict[str, Any]], change: Change, clean: Clean
) -> BaseException:
    text, args, attributes = parts
    kind = type(error)
    try:
        if isinstance(error, BaseExceptionGroup):
            rest = [redacted_error(one, change, clean, 1) for one in error.exceptions]
            made: BaseException = kind(args[0], rest)
        else:
            made = kind.__new__(kind, *args)
            made.args = tuple(args)[: len(error.args)]
        made.__dict__.update(attributes)
        if clean(_text(made)):
            return made
    except Exception:  # noqa: BLE001, S110 - a class may do anything when it is made or printed
        pass
    return Redacted(f"{kind.__name__}: {text}")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed shows nothing
        return type(error).__name__
