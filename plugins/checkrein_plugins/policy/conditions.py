"""Conditions of rules: read and checked once, then evaluated by simpleeval.

The text of a condition is parsed when the policy is read. Every path in it is resolved to a
function there and then, every pattern compiled, every name checked; what is left for a call is
to walk a small tree. No attribute or method of any object can be reached.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import simpleeval  # type: ignore[import-untyped]  # the package ships no types

from checkrein._config_model import near
from checkrein.errors import ConfigError
from checkrein_plugins._patterns import globs, regex
from checkrein_plugins.policy import functions, possible
from checkrein_plugins.policy.functions import FUNCTIONS, OPERATORS, Unlike
from checkrein_plugins.policy.view import ROOTS, Getter, Missing, Path, View, getter

MOST = 4000
"""Characters of a condition."""

SPECIAL = ("has", "get", "matches", "any_match", "all_match", "finds")
"""Functions whose arguments are compiled when the policy is read."""

_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    ast.In, ast.NotIn, ast.Constant,
)  # fmt: skip


class ConditionError(Exception):
    """A condition that cannot be used; says why."""


class _Evaluator(simpleeval.SimpleEval):  # type: ignore[misc]  # simpleeval has no types
    """simpleeval over checked trees: names are functions of the view, truth values are bools."""

    view: View

    def __init__(self) -> None:
        super().__init__(operators=OPERATORS, functions={}, names={})
        self.nodes = {
            ast.Name: self._eval_name,
            ast.Constant: self._eval_constant,
            ast.Compare: self._eval_compare,
            ast.BoolOp: self._eval_boolop,
            ast.UnaryOp: self._eval_unaryop,
            ast.BinOp: self._eval_binop,
            ast.Call: self._eval_call,
        }

    def _eval(self, node: Any) -> Any:
        # Trees were checked when they were read, and views give plain data only: what
        # simpleeval looks for in every value cannot be there.
        return self.nodes[type(node)](node)

    @staticmethod
    def _eval_constant(node: Any) -> Any:
        return node.value

    def _eval_name(self, node: Any) -> Any:
        return node.id(self.view)

    def _eval_boolop(self, node: Any) -> bool:
        stop = type(node.op) is ast.Or
        for value in node.values:
            found = self._eval(value)
            if found is stop:
                return bool(stop)
            if type(found) is not bool:
                raise Unlike("`and` and `or` take truth values")
        return not stop

    def _eval_call(self, node: Any) -> Any:
        return node.func(*[self._eval(argument) for argument in node.args])


class _Mine(threading.local):
    def __init__(self) -> None:
        self.evaluator = _Evaluator()


_MINE = _Mine()


@dataclass(frozen=True, slots=True)
class Clause:
    """One part of a condition, for explanations."""

    text: str
    node: Any


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that can be asked about calls."""

    text: str
    node: Any
    paths: tuple[Path, ...]
    key: str
    """The same for conditions that say the same, however they are spaced."""
    possible: bool
    """Whether any call can meet it, as far as can be seen."""
    clauses: tuple[Clause, ...] = field(default=())

    def holds(self, view: View) -> bool:
        """Whether the call meets it. Raises `Missing`, `Unlike` or others: it cannot be told."""
        return evaluate(self.node, view)

    def counters(self) -> frozenset[str]:
        """Names of the counters that it looks at."""
        return frozenset(str(path[1]) for path in self.paths if path[0] == "counters")

    def arguments(self) -> frozenset[str]:
        """Names of the arguments that it looks at."""
        return frozenset(str(path[1]) for path in self.paths if path[0] == "args")


def evaluate(node: Any, view: View) -> bool:
    """Whether a checked tree is true of a view. Raises whatever keeps that from being known."""
    evaluator = _MINE.evaluator
    evaluator.view = view
    found = evaluator._eval(node)  # noqa: SLF001 - a method of our own subclass
    if type(found) is not bool:
        raise Unlike("a condition must be a comparison or a truth value")
    return found


def read(text: str, counters: frozenset[str]) -> Condition:
    """Check a condition. Raises `ConditionError`."""
    if len(text) > MOST:
        raise ConditionError(f"longer than {MOST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        told = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise ConditionError(f"cannot be read: {told}") from None
    reader = _Reader(counters)
    key = ast.dump(tree)
    clauses = [ast.unparse(part) for part in _parts(tree)]
    can = possible.possible(tree)
    try:
        node = reader.read(tree)
        parts = tuple(
            Clause(text, reader.read(ast.parse(text, mode="eval").body)) for text in clauses
        )
    except RecursionError:
        raise ConditionError("is nested too deeply") from None
    return Condition(text.strip(), node, tuple(dict.fromkeys(reader.paths)), key, can, parts)


def _parts(tree: ast.expr) -> list[ast.expr]:
    return list(tree.values) if isinstance(tree, ast.BoolOp) else [tree]


class _Reader:
    """Turns a parsed condition into the tree that is evaluated."""

    def __init__(self, counters: frozenset[str]) -> None:
        self.counters = counters
        self.paths: list[Path] = []

    def read(self, node: ast.expr) -> Any:
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self._name(getter(self._path(node)))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items: Any = tuple(_constant(item) for item in node.elts)
            return ast.Constant(items)
        if isinstance(node, ast.Call):
            return self._call(node)
        if not isinstance(node, _ALLOWED):
            raise ConditionError(f"`{ast.unparse(node)}` is not allowed in a condition")
        if isinstance(node, ast.Constant):
            _constant(node)
            return node
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.read(value) for value in node.values])
        if isinstance(node, ast.UnaryOp):
            self._operator(node.op)
            return ast.UnaryOp(node.op, self.read(node.operand))
        if isinstance(node, ast.BinOp):
            self._operator(node.op)
            return ast.BinOp(self.read(node.left), node.op, self.read(node.right))
        assert isinstance(node, ast.Compare)
        for op in node.ops:
            self._operator(op)
        return ast.Compare(
            self.read(node.left), node.ops, [self.read(right) for right in node.comparators]
        )

    def _operator(self, op: ast.AST) -> None:
        if type(op) not in OPERATORS:
            raise ConditionError(f"the operator {type(op).__name__} is not allowed in a condition")

    @staticmethod
    def _name(get: Getter) -> ast.Name:
        found = ast.Name("x")
        found.id = get  # type: ignore[assignment]  # the evaluator calls it with the view
        return found

    def _path(self, node: ast.expr) -> Path:
        steps = list(_steps(node))[::-1]
        path = tuple(steps)
        root = str(path[0])
        if root not in ROOTS:
            raise ConditionError(
                f"{root} is unknown{near(root, [*ROOTS, *FUNCTIONS, *SPECIAL])}; "
                f"a path begins with {', '.join(ROOTS)}"
            )
        if len(path) < 2:
            raise ConditionError(f"{root} alone is no value: write {root}.NAME")
        name = str(path[1])
        allowed = ROOTS[root] if root != "counters" else tuple(sorted(self.counters))
        if root != "args" and name not in allowed:
            known = ", ".join(allowed) or "none is declared"
            raise ConditionError(
                f"{root}.{name} is unknown{near(name, list(allowed))}; known: {known}"
            )
        if root != "args" and len(path) > 2 and name != "labels":
            raise ConditionError(f"{_told(path)}: {root}.{name} has no parts")
        if root != "args" and name == "labels" and len(path) != 3:
            raise ConditionError(f"write {root}.labels.NAME for one label")
        self.paths.append(path)
        return path

    # -- functions

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            raise ConditionError(
                f"`{ast.unparse(node.func)}` is not a function of conditions; values have no "
                "methods here"
            )
        name = node.func.id
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise ConditionError(f"{name} takes its arguments by position")
        if name in SPECIAL:
            return self._special(name, node.args)
        if name not in FUNCTIONS:
            known = sorted([*FUNCTIONS, *SPECIAL])
            raise ConditionError(
                f"{name} is no function of conditions{near(name, known)}; known: {', '.join(known)}"
            )
        function, fewest, most = FUNCTIONS[name]
        self._count(name, node.args, fewest, most)
        return self._calls(function, [self.read(argument) for argument in node.args])

    @staticmethod
    def _count(name: str, arguments: list[ast.expr], fewest: int, most: int) -> None:
        if not fewest <= len(arguments) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise ConditionError(f"{name} takes {wanted} arguments, not {len(arguments)}")

    @staticmethod
    def _calls(function: Callable[..., Any], arguments: list[Any]) -> ast.Call:
        found = ast.Call(ast.Name("f"), arguments, [])
        found.func = function  # type: ignore[assignment]  # the evaluator calls it
        return found

    def _special(self, name: str, arguments: list[ast.expr]) -> Any:
        if name in ("has", "get"):
            self._count(name, arguments, 1 if name == "has" else 2, 1 if name == "has" else 2)
            path = self._path(arguments[0])
            get = getter(path)
            if name == "has":
                return self._name(lambda view: _has(get, view))
            default = _constant(arguments[1])
            return self._name(lambda view: _given(get, view, default))
        self._count(name, arguments, 2, 2 if name == "matches" else 64)
        value = self.read(arguments[0])
        texts = [_constant(argument) for argument in arguments[1:]]
        if not all(isinstance(text, str) and text for text in texts):
            raise ConditionError(f"{name} takes texts written out, after its first argument")
        if name == "matches":
            try:
                fits = regex(texts[0], "matches")
            except ConfigError as error:
                raise ConditionError(str(error).removeprefix("matches: ")) from None
            return self._calls(lambda given: fits(_text(given)), [value])
        if name == "finds":
            wanted = frozenset(texts)
            _known_categories(wanted)
            return self._calls(lambda given: functions.finds(given, wanted), [value])
        if name == "any_match":
            folded = functions.folded_globs(texts)
            return self._calls(lambda given: functions.any_match(given, folded), [value])
        exact = globs(texts)
        return self._calls(lambda given: functions.all_match(given, exact), [value])


def _known_categories(wanted: frozenset[str]) -> None:
    from checkrein_plugins.redaction import CATEGORIES

    for category in sorted(wanted - set(CATEGORIES)):
        raise ConditionError(
            f"{category!r} is no category of private data{near(category, list(CATEGORIES))}; "
            f"known: {', '.join(CATEGORIES)}"
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unlike(f"a text is needed, not a {type(value).__name__}")
    return value


def _has(get: Getter, view: View) -> bool:
    try:
        return get(view) is not None
    except Missing:
        return False


def _given(get: Getter, view: View, default: Any) -> Any:
    try:
        return get(view)
    except Missing:
        return default


def _constant(node: ast.expr) -> Any:
    value: Any = None
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        if isinstance(inner, bool) or not isinstance(inner, (int, float)):
            raise ConditionError(f"`{ast.unparse(node)}` is no number")
        value = -inner
    else:
        raise ConditionError(f"`{ast.unparse(node)}` must be written out, as a text or a number")
    if value is not None and not isinstance(value, (str, int, float)):
        raise ConditionError(f"`{ast.unparse(node)}` is not allowed in a condition")
    return value


def _steps(node: ast.expr) -> Iterator[str | int]:
    while True:
        if isinstance(node, ast.Name):
            yield node.id
            return
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_"):
                raise ConditionError(f"`{node.attr}`: names do not begin with _ here")
            yield node.attr
            node = node.value
        elif isinstance(node, ast.Subscript):
            step = _constant(node.slice)
            if isinstance(step, bool) or not isinstance(step, (str, int)):
                raise ConditionError(f"`{ast.unparse(node)}` needs a name or a whole number in []")
            yield step
            node = node.value
        else:
            raise ConditionError(f"`{ast.unparse(node)}` is no path")


def _told(path: Path) -> str:
    return ".".join(map(str, path))
