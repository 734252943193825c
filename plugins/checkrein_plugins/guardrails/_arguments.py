"""One argument of a call against what a rule says of it.

Closed by default: a missing argument, an empty list, a value of another type and an object
that cannot be looked into do not pass.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from checkrein.call import NANO
from checkrein_plugins._config import MOST_STORED
from checkrein_plugins._patterns import (
    Matcher,
    everything,
    fold_text,
    globs,
    nothing,
    readable,
    regex,
)
from checkrein_plugins.guardrails import _paths, _urls
from checkrein_plugins.guardrails._paths import Unreadable
from checkrein_plugins.guardrails._rules import ArgumentSettings, ArgumentType

Leaf = Callable[[Any], str | None]
"""Takes one value; returns what is wrong with it, or None."""

DEPTH = 64
"""Nesting beyond which a value is refused: also what a value that holds itself runs into."""

_MISSING = object()


class ArgumentCheck:
    """The compiled form of one `[rules.arguments.NAME]` table."""

    __slots__ = ("_above", "_key", "_leaf", "_optional", "_steps", "name")

    def __init__(self, name: str, rule: ArgumentSettings, root: str | None, where: str) -> None:
        self.name = name
        self._steps = tuple(name.split("."))
        self._optional = rule.optional
        self._above = rule.ask_above
        self._leaf, self._key = _compile(rule, root, where)

    def check(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the argument; None if it passes."""
        value = arguments.get(self.name, _MISSING)
        if value is _MISSING and len(self._steps) > 1:
            return self._nested(arguments, 0)
        return self._value(value)

    def asks(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a number of an argument that passed is above `ask_above`."""
        above = self._above
        if above is None:
            return False
        if self.name in arguments:
            return _any_above(arguments[self.name], above)
        found = _reach(arguments, self._steps, 0)
        return any(_any_above(value, above) for value in found if value is not _MISSING)

    def amount(self, arguments: Mapping[str, Any]) -> int:
        """The sum of the numbers of an argument that passed, in billionths, rounded up."""
        if self.name in arguments:
            found: Iterable[Any] = (arguments[self.name],)
        else:
            found = _reach(arguments, self._steps, 0)
        total = 0
        for value in found:
            if value is not _MISSING:
                for is_key, leaf in leaves_of(value, 0):
                    plain = None if is_key else number(leaf)
                    if plain is not None:
                        total += billionths(plain)
        return min(total, MOST_STORED)

    def _nested(self, value: Any, step: int) -> str | None:
        found = False
        for inner in _reach(value, self._steps, step):
            found = True
            problem = self._value(inner)
            if problem is not None:
                return problem
        return None if found else self._value(_MISSING)

    def _value(self, value: Any) -> str | None:
        kind = type(value)
        if kind is str or kind is int or kind is float:
            return self._leaf(value)
        if value is _MISSING or value is None:
            return None if self._optional else "is missing"
        found = False
        try:
            for is_key, leaf in leaves_of(value, 0):
                if is_key:
                    problem = "has a blocked key" if self._key(leaf) else None
                else:
                    found = True
                    if leaf is None:
                        problem = None if self._optional else "has an empty element"
                    else:
                        problem = self._leaf(leaf)
                if problem is not None:
                    return problem
        except Unreadable as error:
            return str(error)
        return None if found or self._optional else "is empty"


def _any_above(value: Any, above: float) -> bool:
    for is_key, leaf in leaves_of(value, 0):
        plain = None if is_key else number(leaf)
        if plain is not None and plain > above:
            return True
    return False


def _reach(value: Any, steps: tuple[str, ...], step: int) -> Iterator[Any]:
    """Every value at the end of `steps`; a missing one is `_MISSING`. Lists are entered."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _reach(item, steps, step)
        return
    if step == len(steps):
        yield value
        return
    fields = fields_of(value)
    if fields is None or steps[step] not in fields:
        yield _MISSING
        return
    yield from _reach(fields[steps[step]], steps, step + 1)


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """The named parts of a mapping, dataclass or pydantic model; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    declared = getattr(type(value), "model_fields", None)
    if isinstance(declared, dict):
        extra = getattr(value, "model_extra", None) or {}
        return {**{name: getattr(value, name) for name in declared}, **extra}
    return None


def leaves_of(value: Any, depth: int) -> Iterator[tuple[bool, Any]]:
    """(is it a key, leaf) for all that lies inside `value`."""
    if depth > DEPTH:
        raise Unreadable("is nested too deeply")
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (str, bytes, bool, int, float, Decimal, os.PathLike)):
        yield False, value
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from leaves_of(item, depth + 1)
    else:
        fields = fields_of(value)
        if fields is None:
            raise Unreadable("is an object that the rule cannot look into")
        for key, item in fields.items():
            yield True, key
            yield from leaves_of(item, depth + 1)


def kind_of(rule: ArgumentSettings) -> ArgumentType:
    """The type that values are read as."""
    if rule.type is not None:
        return rule.type
    bounds = (rule.minimum, rule.maximum, rule.ask_above, rule.total)
    return "number" if any(bound is not None for bound in bounds) else "text"


def _compile(
    rule: ArgumentSettings, root: str | None, where: str
) -> tuple[Leaf, Callable[[Any], bool]]:
    kind = kind_of(rule)
    if kind == "number":
        return number_check(rule), nothing
    listed = _one_of(rule.one_of) if rule.one_of is not None else None
    match = regex(rule.match, f"{where}.match") if rule.match is not None else None
    if kind == "path":
        base = rule.root or root
        base = _paths.absolute_root(base, where) if base is not None else None
        read = _path_reader(rule, base, where)
    elif kind == "url":
        read = _url_reader(rule)
    else:
        read = _text_reader(rule)
    block = read(True)
    allow = read(False)

    def leaf(value: Any) -> str | None:
        if listed is not None and not listed(value):
            return "is not one of the listed values"
        if listed is not None and not isinstance(value, str):
            return None
        text = _text(value)
        if text is None:
            return f"is not a {kind}" if kind != "text" else "is not text"
        if match is not None and not match(text):
            return "does not match"
        try:
            if block(text):
                return "is blocked"
            if not allow(text):
                return "is outside what is allowed"
        except Unreadable as error:
            return str(error)
        return None

    def blocked_key(key: Any) -> bool:
        text = _text(key)
        try:
            return text is not None and block(text)
        except Unreadable:
            # A key that is no path or URL cannot be one that is blocked.
            return False

    return leaf, blocked_key if rule.block else nothing


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return value if readable(value) else None


def _one_of(values: list[Any]) -> Callable[[Any], bool]:
    """Membership in which 1, 1.0 and "1" may differ but 1 and True always do."""
    pairs = [(isinstance(v, bool), v) for v in values]
    return lambda value: (isinstance(value, bool), value) in pairs


def number(value: Any) -> int | float | Decimal | None:
    """`value` as a plain finite number; None for all else (bool, NaN, "5")."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        plain = float.__add__(value, 0.0)
        return plain if math.isfinite(plain) else None
    if type(value) is Decimal:
        return value if value.is_finite() else None
    return None


def billionths(value: float | Decimal) -> int:
    """A number in billionths, rounded up: what costs something is never free."""
    if isinstance(value, int):
        return value * NANO
    return int((Decimal(str(value)) * NANO).to_integral_value(ROUND_CEILING))


def number_check(rule: ArgumentSettings) -> Leaf:
    """The check of one number against `rule`."""
    low, high = rule.minimum, rule.maximum
    if rule.total is not None:
        # A number below 0 would make room for others.
        low = 0 if low is None else max(0, low)
    listed = _one_of(rule.one_of) if rule.one_of is not None else None

    def leaf(value: Any) -> str | None:
        plain = number(value)
        if plain is None:
            return "is not a finite number"
        if high is not None and plain > high:
            return f"is above the maximum of {high:g}"
        if low is not None and plain < low:
            return f"is below the minimum of {low:g}"
        if listed is not None and not listed(plain):
            return "is not one of the listed values"
        return None

    return leaf


Reader = Callable[[bool], Matcher]
"""True: the matcher of what is blocked. False: of what is allowed."""


def _text_reader(rule: ArgumentSettings) -> Reader:
    def reader(block: bool) -> Matcher:
        if not block:
            return globs(rule.allow) if rule.allow is not None else everything
        if rule.block is None:
            return nothing
        folded = globs([fold_text(p) for p in rule.block])
        return lambda text: folded(fold_text(text))

    return reader


def _path_reader(rule: ArgumentSettings, root: str | None, where: str) -> Reader:
    def reader(block: bool) -> Matcher:
        wanted = rule.block if block else rule.allow
        if block:
            if wanted is None:
                return nothing
            found = _paths.patterns(wanted, root, f"{where}.block", block=True)
            blocked = globs([fold_text(p) for p in found])
            return lambda text: any(blocked(fold_text(p)) for p in _paths.readings(text, root))
        if wanted is None:
            if rule.block is not None:
                return everything
            return lambda text: bool(_paths.readings(text, root))
        allowed = globs(_paths.patterns(wanted, root, f"{where}.allow", block=False))
        return lambda text: all(allowed(p) for p in _paths.readings(text, root))

    return reader


def _url_reader(rule: ArgumentSettings) -> Reader:
    def reader(block: bool) -> Matcher:
        wanted = rule.block if block else rule.allow
        if wanted is None:
            return nothing if block else _readable_url if rule.block is None else everything
        hosts, ported, whole = _urls.split_patterns(wanted)
        on_host, on_port = globs(hosts), globs(ported)
        on_text = globs([fold_text(p) for p in whole] if block else whole)

        def blocked(text: str) -> bool:
            url = _urls.parse(text)
            return (
                on_host(url.host)
                or on_port(f"{url.host}:{url.port}")
                or any(on_text(fold_text(t)) for t in url.texts)
            )

        def allowed(text: str) -> bool:
            url = _urls.parse(text)
            if url.scheme in _urls.WEB and (
                on_port(f"{url.host}:{url.port}") if url.port is not None else on_host(url.host)
            ):
                return True
            return all(on_text(t) for t in url.texts)

        return blocked if block else allowed

    return reader


def _readable_url(text: str) -> bool:
    _urls.parse(text)
    return True
