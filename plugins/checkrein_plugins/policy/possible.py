"""Whether a condition can be met at all, as far as can be seen without a call.

A false answer is certain; a true one only means that nothing was found against it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Bounds:
    """What several comparisons ask of one path, together."""

    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False
    among: list[Any] | None = None
    not_among: list[Any] = field(default_factory=list)

    def empty(self) -> bool:
        if self.among is not None and not any(self._within(value) for value in self.among):
            return True
        if self.low is None or self.high is None or type(self.low) is not type(self.high):
            return False
        try:
            return bool(
                self.low > self.high
                or (self.low == self.high and (self.low_open or self.high_open))
            )
        except TypeError:
            return False

    def _within(self, value: Any) -> bool:
        if any(value == other and type(value) is type(other) for other in self.not_among):
            return False
        try:
            if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
                return False
            if self.high is not None and (
                value > self.high or (self.high_open and value == self.high)
            ):
                return False
        except TypeError:
            return True
        return True


def possible(node: ast.expr) -> bool:
    """Whether some call may meet the condition."""
    if isinstance(node, ast.Constant):
        return node.value is not False
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not (isinstance(node.operand, ast.Constant) and node.operand.value is True)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return any(possible(value) for value in node.values)
    parts = list(_conjuncts(node))
    if any(isinstance(p, (ast.Constant, ast.BoolOp)) and not possible(p) for p in parts):
        return False
    bounds: dict[str, _Bounds] = {}
    texts = {ast.dump(part) for part in parts}
    for part in parts:
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            if ast.dump(part.operand) in texts:
                return False
        if isinstance(part, ast.Compare) and not _add(part, bounds):
            return False
    return not any(bound.empty() for bound in bounds.values())


def _conjuncts(node: ast.expr) -> Any:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _conjuncts(value)
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            yield ast.Compare(left, [op], [right])
            left = right
    else:
        yield node


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}  # fmt: skip


def _add(part: ast.Compare, bounds: dict[str, _Bounds]) -> bool:
    """Take a comparison into account; False if it is false by itself."""
    left, kind, right = part.left, type(part.ops[0]), part.comparators[0]
    one, other = _value(left), _value(right)
    if one is not _NONE and other is not _NONE:
        return _true(one, kind, other)
    if one is not _NONE and kind in _TURNED:
        left, kind, other = right, _TURNED[kind], one
    elif other is _NONE:
        return True
    bound = bounds.setdefault(ast.dump(left), _Bounds())
    if kind is ast.Eq or kind is ast.In:
        among = [other] if kind is ast.Eq else other
        if not isinstance(among, (list, tuple)):
            return True
        before = bound.among
        bound.among = [v for v in among if before is None or v in before]
    elif kind is ast.NotEq:
        bound.not_among.append(other)
    elif kind is ast.NotIn and isinstance(other, (list, tuple)):
        bound.not_among += other
    elif kind in (ast.Gt, ast.GtE):
        _raise_low(bound, other, kind is ast.Gt)
    elif kind in (ast.Lt, ast.LtE):
        _lower_high(bound, other, kind is ast.Lt)
    return True


def _raise_low(bound: _Bounds, value: Any, is_open: bool) -> None:
    if bound.low is None or (type(value) is type(bound.low) and value >= bound.low):
        bound.low_open = is_open or (bound.low == value and bound.low_open)
        bound.low = value


def _lower_high(bound: _Bounds, value: Any, is_open: bool) -> None:
    if bound.high is None or (type(value) is type(bound.high) and value <= bound.high):
        bound.high_open = is_open or (bound.high == value and bound.high_open)
        bound.high = value


_NONE = object()


def _value(node: ast.expr) -> Any:
    """A value that is written out, numbers as floats; `_NONE` for anything else."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NONE
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple, set)):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**53 else value
    return value


def _true(one: Any, kind: type[ast.cmpop], other: Any) -> bool:
    try:
        if kind is ast.Eq:
            return bool(one == other)
        if kind is ast.NotEq:
            return bool(one != other)
        if kind is ast.In:
            return one in other
        if kind is ast.NotIn:
            return one not in other
        if kind is ast.Lt:
            return bool(one < other)
        if kind is ast.LtE:
            return bool(one <= other)
        if kind is ast.Gt:
            return bool(one > other)
        return bool(one >= other)
    except TypeError:
        return True
