"""Values to trees. Exact types only: a value that would come back changed is refused."""

from __future__ import annotations

import sys
import threading
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from checkrein.codec._classes import base_model, class_name, shape_of, shown_name, state_of
from checkrein.codec._paths import MAX_DEPTH, TAG, Refused, key_step, too_deep
from checkrein.codec._text import sort_key
from checkrein.errors import Unencodable
from checkrein.store import Tree

Encoder: TypeAlias = Callable[[Any, int], Tree]

_MAX = sys.float_info.max
_MIN = -_MAX
"""Numbers from _MIN to _MAX are written as they are. NaN and infinity are outside, and so are
integers of more than 309 digits, which some readers of JSON refuse (Python: over 4300)."""


MAX_NODES = 1_000_000
"""Values inside the containers of one tree. A value that holds a part of itself many times
(two references to a list that holds two references ...) is small, and its tree has no end."""


class _Work(threading.local):
    left = MAX_NODES


_work = _Work()


def _count(nodes: int, depth: int, kind: str) -> None:
    """Refuse what is too deep or too large: only containers inside others can multiply."""
    if depth > MAX_DEPTH:
        raise too_deep(kind)
    _work.left = left = _work.left - nodes - 1
    if left < 0:
        raise Refused(kind, f"it holds more than {MAX_NODES} values, shared ones counted each time")


def encode(value: Any, path: str = "") -> Tree:
    """The exact tree of a value, with containers copied.

    `path` says where the value comes from, for messages. Raises `Unencodable`.
    """
    _work.left = MAX_NODES
    kind = type(value)
    if kind is dict:
        encoder: Encoder = _dict
    elif kind is str or kind is bool or value is None:
        return value
    else:
        encoder = _any
    try:
        return encoder(value, 1)
    except Refused as refused:
        raise Unencodable(refused.path(path), refused.kind, refused.why) from None
    except Exception as error:  # noqa: BLE001 - see _broken
        raise _broken(path, value, error) from None


def encode_arguments(arguments: Mapping[str, Any], opaque: Collection[str] = ()) -> dict[str, Tree]:
    """The tree of a call's arguments by parameter name.

    Parameters in `opaque` are not looked into: only the name of their type is recorded.
    Raises `Unencodable` with a path that starts with the parameter's name.
    """
    if TAG in arguments:
        raise Unencodable(TAG, "parameter name", "it is reserved")
    _work.left = MAX_NODES
    tree: dict[str, Tree]
    try:
        if not opaque and type(arguments) is dict:
            tree = _dict(arguments, 1)
        else:
            tree = _by_name(arguments, opaque)
    except Refused as refused:
        raise Unencodable(refused.path(), refused.kind, refused.why) from None
    except Exception as error:  # noqa: BLE001 - see _broken
        raise _broken("", arguments, error) from None
    if TAG in tree:
        raise Unencodable("", "parameter name", "names must be strings")
    return tree


def _by_name(arguments: Mapping[str, Any], opaque: Collection[str]) -> dict[str, Tree]:
    out: dict[str, Tree] = {}
    for name, value in arguments.items():
        if type(name) is not str:
            raise Refused("parameter name", "names must be strings")
        if name in opaque:
            out[name] = {TAG: "opaque", "type": class_name(type(value))}
            continue
        try:
            out[name] = _any(value, 2)
        except Refused as refused:
            refused.at(key_step(name, arguments), arguments)
            raise
    return out


def _broken(path: str, value: Any, error: Exception) -> Unencodable:
    """Reading failed, not the value's kind: a half-built object, an odd metaclass, a full stack.

    Only the error's type is told, because its text may hold data.
    """
    if isinstance(error, RecursionError):
        return Unencodable(path, shown_name(type(value)), "nested too deep for the stack")
    return Unencodable(path, shown_name(type(value)), f"{type(error).__name__} while it was read")


def _any(value: Any, depth: int) -> Tree:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int or kind is float:
        return value if _MIN <= value <= _MAX else _odd_number(value)
    return (_ENCODERS.get(kind) or _find(kind))(value, depth)


def _dict(value: dict[Any, Any], depth: int) -> Tree:
    if TAG in value:
        return {TAG: "dict", "v": _pairs(value, depth + 1)}
    if depth > 2:
        _count(len(value), depth, "dict")
    out = value.copy()  # in one step, so that no other thread can change it meanwhile
    key: Any = None
    try:
        for key, item in out.items():
            if type(key) is not str:
                break
            kind = type(item)
            if kind is str:
                continue
            if kind is int or kind is float:
                if not _MIN <= item <= _MAX:
                    out[key] = _odd_number(item)
            elif kind is dict:
                out[key] = _dict(item, depth + 1)
            elif kind is list:
                out[key] = _list(item, depth + 1)
            elif kind is not bool and item is not None:
                out[key] = (_ENCODERS.get(kind) or _find(kind))(item, depth + 1)
        else:
            return out
    except Refused as refused:
        refused.at(key_step(key, out), value)
        raise
    # Out of the block above: what is refused in there has its place already.
    return {TAG: "dict", "v": _pairs(value, depth + 1)}


def _list(value: Iterable[Any], depth: int) -> list[Tree]:
    out = [*value]
    if depth > 2:
        _count(len(out), depth, "list")
    n = 0
    try:
        for n, item in enumerate(out):
            kind = type(item)
            if kind is str:
                continue
            if kind is int or kind is float:
                if not _MIN <= item <= _MAX:
                    out[n] = _odd_number(item)
            elif kind is dict:
                out[n] = _dict(item, depth + 1)
            elif kind is list:
                out[n] = _list(item, depth + 1)
            elif kind is not bool and item is not None:
                out[n] = (_ENCODERS.get(kind) or _find(kind))(item, depth + 1)
    except Refused as refused:
        refused.at(f"[{n}]", value)
        raise
    return out


def _odd_number(value: float) -> Tree:
    if type(value) is int:
        return {TAG: "int", "v": hex(value)}
    return {TAG: "float", "v": repr(value)}


def _pairs(value: dict[Any, Any], depth: int) -> list[Tree]:
    """Keys and values as pairs, for dicts whose keys are not plain strings."""
    items = [*value.items()]
    _count(2 * len(items), depth + 1, "dict")
    out: list[Tree] = []
    key: Any = None
    try:
        for key, item in items:
            out.append([_any(key, depth + 2), _any(item, depth + 2)])
    except Refused as refused:
        refused.at(key_step(key, [key for key, _ in items]), value)
        raise
    return out


def _tuple(value: Any, depth: int) -> Tree:
    return {TAG: "tuple", "v": _list(value, depth + 1)}


def _set(value: Any, depth: int) -> Tree:
    # Sorted, because the order of a set differs from process to process and digests must not.
    return {TAG: type(value).__name__, "v": sorted(_list(value, depth + 1), key=sort_key)}


def _bytes(value: bytes | bytearray, _depth: int) -> Tree:
    return {TAG: type(value).__name__, "v": b2a_base64(value, newline=False).decode()}


def _complex(value: complex, depth: int) -> Tree:
    return {TAG: "complex", "v": [_any(value.real, depth), _any(value.imag, depth)]}


def _range(value: range, depth: int) -> Tree:
    return {TAG: "range", "v": [_any(n, depth) for n in (value.start, value.stop, value.step)]}


def _ordered(value: Any, depth: int) -> Tree:
    return {TAG: "OrderedDict", "v": _pairs(value, depth + 1)}


def _date(value: Any, _depth: int) -> Tree:
    return {TAG: "date", "v": value.isoformat()}


def _clock(value: Any, depth: int) -> Tree:
    """A datetime or a time: wall clock, zone, and fold where it is set."""
    tree = {TAG: type(value).__name__, "v": value.replace(tzinfo=None).isoformat()}
    if value.fold:
        tree["fold"] = 1
    if value.tzinfo is not None:
        tree["tz"] = _zone(value.tzinfo, depth + 1)
    return tree


def _zone(zone: Any, depth: int) -> Tree:
    if _is_zone(zone):
        return _any(zone, depth)
    raise Refused(
        shown_name(type(zone)), "this time zone has no exact form; use zoneinfo or timezone"
    )


def _is_zone(zone: Any) -> bool:
    kind = type(zone)
    return (_ENCODERS.get(kind) or _find(kind)) in (_fixed, _region, _core_zone)


def _fixed(value: Any, _depth: int) -> Tree:
    offset = value.utcoffset(None)
    tree = {TAG: "timezone", "v": [offset.days, offset.seconds, offset.microseconds]}
    name = value.tzname(None)
    if name != type(value)(offset).tzname(None):
        tree["name"] = name
    return tree


def _region(value: Any, _depth: int) -> Tree:
    if value.key is None:
        raise Refused("zoneinfo.ZoneInfo", "it has no key")
    return {TAG: "ZoneInfo", "v": value.key}


def _core_zone(value: Any, _depth: int) -> Tree:
    """The fixed offset that pydantic gives to datetimes it has parsed."""
    offset = value.utcoffset(None)
    return {TAG: "TzInfo", "v": offset.days * 86400 + offset.seconds}


def _timedelta(value: Any, _depth: int) -> Tree:
    return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def _by_text(value: Any, _depth: int) -> Tree:
    """Types whose text is exact: Decimal, UUID, paths."""
    return {TAG: type(value).__name__, "v": str(value)}


def _refuse(why: str) -> Encoder:
    def refuse(value: Any, _depth: int) -> Tree:
        raise Refused(shown_name(type(value)), why)

    return refuse


_ENCODERS: dict[type, Encoder] = {
    dict: _dict,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    bytes: _bytes,
    bytearray: _bytes,
    complex: _complex,
    range: _range,
}

_KNOWN: dict[str, tuple[str, Encoder]] = {
    "OrderedDict": ("collections", _ordered),
    "defaultdict": ("collections", _refuse("its default factory is code; use a dict")),
    "date": ("datetime", _date),
    "datetime": ("datetime", _clock),
    "time": ("datetime", _clock),
    "timedelta": ("datetime", _timedelta),
    "timezone": ("datetime", _fixed),
    "ZoneInfo": ("zoneinfo", _region),
    "TzInfo": ("pydantic_core", _core_zone),
    "Decimal": ("decimal", _by_text),
    "UUID": ("uuid", _by_text),
    "PurePosixPath": ("pathlib", _by_text),
    "PureWindowsPath": ("pathlib", _by_text),
    "PosixPath": ("pathlib", _by_text),
    "WindowsPath": ("pathlib", _by_text),
}
"""Types of modules that are not imported for this: known by name, then proved by identity."""


def _find(kind: type) -> Encoder:
    """The encoder of a type that is not in the table (yet)."""
    known = _KNOWN.get(kind.__qualname__)
    if known is not None and getattr(sys.modules.get(known[0]), kind.__qualname__, None) is kind:
        _ENCODERS[kind] = known[1]
        return known[1]
    return _instance


def _instance(value: Any, depth: int) -> Tree:
    kind = type(value)
    shape = shape_of(kind)
    if shape is None:
        raise Refused(shown_name(kind), _why_not(kind))
    tree: dict[str, Tree] = {TAG: shape.kind, "c": shape.name}
    match shape.kind:
        case "enum" | "flag":
            name = value._name_
            if name in kind.__members__:
                tree["v"] = name
            elif shape.kind == "flag":
                tree["v"] = _any(value._value_, depth)
            else:
                raise Refused(shown_name(kind), "it is not a named member")
        case "namedtuple":
            tree["v"] = _list(tuple.__iter__(value), depth + 1)
        case "object":
            tree["v"] = _state(state_of(value, shape), value, depth + 1)
        case "model":
            # BaseModel's own state, whatever the subclass makes of these methods.
            model: Any = base_model()
            whole = model.__getstate__(value)
            tree["v"] = _state(whole["__dict__"], value, depth + 1)
            tree["set"] = sorted(whole["__pydantic_fields_set__"])
            for part in ("extra", "private"):
                held = whole[f"__pydantic_{part}__"]
                tree[part] = None if held is None else _state(held, value, depth + 1)
    return tree


def _state(state: dict[Any, Any], owner: Any, depth: int) -> Tree:
    """The attributes of an instance, which is what a loop comes back to."""
    try:
        return _dict(state, depth)
    except Refused as refused:
        if refused.inside:
            refused.inside[-1] = owner
        raise


def readable_text(value: Any) -> str | None:
    """The text of a value whose text is exact (dates, numbers, paths ...); None for others."""
    kind = type(value)
    encoder = _ENCODERS.get(kind) or _find(kind)
    if encoder is _by_text or encoder is _timedelta or encoder is _date:
        return str(value)
    if encoder is _clock:
        # A foreign time zone is code of somebody else: the wall clock alone is shown.
        if value.tzinfo is None or _is_zone(value.tzinfo):
            return str(value.isoformat())
        return f"{value.replace(tzinfo=None).isoformat()} <{type(value.tzinfo).__qualname__}>"
    if encoder is _fixed or encoder is _core_zone or encoder is _region:
        return str(value)
    if encoder is _complex or encoder is _range:
        return repr(value)
    return None


def _why_not(kind: type) -> str:
    for base in (bool, int, float, str, bytes, dict, list, tuple, set, frozenset):
        if issubclass(kind, base):
            return f"it would come back as another type than this subclass of {base.__name__}"
    return ""
