"""Operators and functions of conditions. Anything unclear raises: the rule then fires.

Only like is compared with like: a number with a number, a text with a text. A list where a
text was meant, `"500"` where 500 was meant and NaN are no quiet False.
"""

from __future__ import annotations

import ast
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from checkrein_plugins._patterns import fold, fold_text, globs
from checkrein_plugins.policy.view import fields_of

DEPTH = 64


class Unlike(TypeError):
    """Two values that cannot be compared, or a value that a function does not take."""


def _kind(value: Any) -> str:
    kind = type(value)
    if kind is int or kind is str:
        return "number" if kind is int else "text"
    if kind is float:
        if not math.isfinite(value):
            raise Unlike("a number is not finite")
        return "number"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)) or (kind is Decimal and value.is_finite()):
        return "number" if math.isfinite(value) else "?"
    if isinstance(value, (list, tuple)):
        return "list"
    raise Unlike(f"a {kind.__name__} cannot be compared")


def _like(a: Any, b: Any) -> str:
    if type(a) is type(b) and type(a) in (int, str):
        return "text" if type(a) is str else "number"
    one, other = _kind(a), _kind(b)
    if one != other:
        raise Unlike(f"a {one} and a {other} cannot be compared")
    return one


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(a: Any, b: Any) -> bool:
        if _like(a, b) not in ("number", "text"):
            raise Unlike("only numbers and texts have an order")
        return compare(a, b)

    return ordered


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    _like(a, b)
    return bool(a == b)


def _in(a: Any, b: Any) -> bool:
    if isinstance(b, str):
        if not isinstance(a, str):
            raise Unlike("only a text can be in a text")
        return a in b
    if isinstance(b, Mapping):
        return a in b
    if not isinstance(b, (list, tuple)):
        raise Unlike(f"nothing can be in a {type(b).__name__}")
    one = _kind(a)
    kinds = {_kind(item) for item in b}
    if one != "none" and kinds and one not in kinds:
        raise Unlike(f"a {one} cannot be in a list of another kind")
    return any(_kind(item) == one and item == a for item in b)


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def computed(a: Any, b: Any) -> Any:
        if _like(a, b) != "number":
            raise Unlike("only numbers can be computed with")
        value = compute(a, b)
        _kind(value)
        return value

    return computed


def _negative(value: Any) -> Any:
    if _kind(value) != "number":
        raise Unlike("only a number has a negative")
    return -value


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unlike("`not` takes a truth value")
    return not value


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Eq: _equal,
    ast.NotEq: lambda a, b: not _equal(a, b),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _in,
    ast.NotIn: lambda a, b: not _in(a, b),
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(operator.truediv),
    ast.Mod: _arithmetic(operator.mod),
    ast.USub: _negative,
    ast.Not: _not,
}


# -- functions


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unlike(f"a text is needed, not a {type(value).__name__}")
    return value


def _length(value: Any) -> int:
    if isinstance(value, (str, bytes, list, tuple, Mapping)):
        return len(value)
    raise Unlike(f"a {type(value).__name__} has no length")


def _same(a: Any, b: Any) -> bool:
    return fold(_text(a)) == fold(_text(b))


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        found = list(values[0]) if len(values) == 1 and _kind(values[0]) == "list" else [*values]
        if not found or any(_kind(value) != "number" for value in found):
            raise Unlike("numbers are needed")
        return choose(found)

    return extreme


def texts_in(value: Any) -> list[str]:
    """Every text inside `value`, keys included. Raises `Unlike` for what cannot be looked into."""
    return list(_texts(value, 0))


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > DEPTH:
        raise Unlike("a value is nested too deeply")
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, os.PathLike):
        yield str(os.fspath(value))
    elif value is None or isinstance(value, (bool, int, float, Decimal)):
        return
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _texts(item, depth + 1)
    else:
        fields = fields_of(value)
        if fields is None:
            raise Unlike(f"a {type(value).__name__} cannot be looked into")
        for key, item in fields.items():
            yield from _texts(key, depth + 1)
            yield from _texts(item, depth + 1)


def any_match(value: Any, matches: Callable[[str], bool]) -> bool:
    """Whether any text inside `value` matches, compared without regard to case and width."""
    return any(matches(fold_text(text)) for text in texts_in(value))


def all_match(value: Any, matches: Callable[[str], bool]) -> bool:
    """Whether there are texts inside `value` and all of them match exactly."""
    found = texts_in(value)
    return bool(found) and all(map(matches, found))


def injected(value: Any) -> bool:
    """Whether a text inside `value` looks as if it carried instructions."""
    from checkrein_plugins.guardrails.injection import detect

    return any(detect(text) for text in texts_in(value))


def finds(value: Any, categories: frozenset[str]) -> bool:
    """Whether a text inside `value` holds something of these categories of private data."""
    from checkrein_plugins.redaction import scan

    return any(scan(text, categories) for text in texts_in(value))


FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    # name: (function, fewest arguments, most arguments)
    "len": (_length, 1, 1),
    "lower": (lambda text: _text(text).lower(), 1, 1),
    "starts_with": (lambda text, head: _text(text).startswith(_text(head)), 2, 2),
    "ends_with": (lambda text, tail: _text(text).endswith(_text(tail)), 2, 2),
    "contains": (lambda text, part: fold_text(_text(part)) in fold_text(_text(text)), 2, 2),
    "same": (_same, 2, 2),
    "min": (_extreme(min), 1, 64),
    "max": (_extreme(max), 1, 64),
    "abs": (lambda n: abs(n) if _kind(n) == "number" else _negative(n), 1, 1),
    "injected": (injected, 1, 1),
}
"""Functions of values. Those whose arguments are compiled beforehand are in `conditions`."""


def folded_globs(patterns: list[str]) -> Callable[[str], bool]:
    """A matcher for `any_match`."""
    return globs([fold_text(p) for p in patterns])
