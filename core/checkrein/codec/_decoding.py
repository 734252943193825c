"""Trees to values. A new value each time; classes only from the caller's list."""

from __future__ import annotations

import enum
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from checkrein.codec._classes import base_model, shape_of
from checkrein.codec._paths import TAG, Refused, key_step
from checkrein.codec._text import text_of
from checkrein.errors import Undecodable
from checkrein.store import Tree

Classes: TypeAlias = Mapping[str, type]
Decoder: TypeAlias = Callable[[dict[str, Any], Classes], Any]


def decode(tree: Tree, classes: Classes | None = None) -> Any:
    """The value of a tree, new each time.

    `classes`: by `module:qualname`, the only ones of which instances are made; their
    constructors and validators do not run, the recorded state is put back as it was.
    Raises `Undecodable` for an unknown class or tag.
    """
    try:
        return _any(tree, classes or {})
    except Refused as refused:
        raise Undecodable(refused.path(), refused.kind, refused.why) from None
    except RecursionError:
        raise Undecodable("", "tree", "nested too deep for the stack") from None


def decode_arguments(
    tree: Tree, classes: Classes | None, opaque_values: Mapping[str, Any]
) -> dict[str, Any]:
    """A call's arguments by parameter name; opaque ones are taken from `opaque_values`.

    Raises `Undecodable`, also where an opaque parameter has no value there.
    """
    try:
        return _arguments(tree, classes or {}, opaque_values)
    except Refused as refused:
        raise Undecodable(refused.path(), refused.kind, refused.why) from None
    except RecursionError:
        raise Undecodable("", "tree", "nested too deep for the stack") from None


def _arguments(tree: Tree, classes: Classes, opaque_values: Mapping[str, Any]) -> dict[str, Any]:
    if type(tree) is not dict:
        raise Refused(type(tree).__name__, "arguments are recorded by name")
    out: dict[str, Any] = {}
    for key, item in _named(tree):
        opaque = type(item) is dict and item.get(TAG) == "opaque"
        if opaque and key in opaque_values:
            out[key] = opaque_values[key]
            continue
        try:
            out[key] = _any(item, classes)
        except Refused as refused:
            refused.at(key_step(key, ()), item)
            raise
    return out


def _named(tree: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and trees; names with lone surrogates have made pairs of them."""
    if TAG not in tree:
        return [*tree.items()]
    try:
        return [(text_of(key), item) for key, item in _pairs(tree["v"])]
    except (KeyError, TypeError, ValueError):
        raise Refused("tag", "arguments are recorded by name") from None


def _any(tree: Tree, classes: Classes) -> Any:
    kind = type(tree)
    if kind is dict:
        return _dict(tree, classes)
    if kind is list:
        return _list(tree, classes)
    return tree


def _dict(tree: dict[str, Any], classes: Classes) -> Any:
    if TAG in tree:
        return _tagged(tree, classes)
    out = tree.copy()
    key = ""
    try:
        for key, item in out.items():
            kind = type(item)
            if kind is dict:
                out[key] = _dict(item, classes)
            elif kind is list:
                out[key] = _list(item, classes)
    except Refused as refused:
        refused.at(key_step(key, out), tree)
        raise
    return out


def _list(tree: list[Any], classes: Classes) -> list[Any]:
    out = tree[:]
    n = 0
    try:
        for n, item in enumerate(out):
            kind = type(item)
            if kind is dict:
                out[n] = _dict(item, classes)
            elif kind is list:
                out[n] = _list(item, classes)
    except Refused as refused:
        refused.at(f"[{n}]", tree)
        raise
    return out


def _tagged(tree: dict[str, Any], classes: Classes) -> Any:
    tag = tree[TAG]
    decoder = _DECODERS.get(tag) if type(tag) is str else None
    if decoder is None:
        raise Refused(
            f"tag {tag!r}" if type(tag) is str else "tag", "this version does not know it"
        )
    try:
        return decoder(tree, classes)
    except (Refused, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 - stored text is outside data: any fault is its own
        raise Refused(tag, f"malformed: {type(error).__name__}") from None


def _pairs(items: Any) -> list[tuple[Any, Any]]:
    return [(key, item) for key, item in items]


def _mapping(tree: dict[str, Any], classes: Classes) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for key, item in _pairs(tree["v"]):
        try:
            out[_any(key, classes)] = _any(item, classes)
        except Refused as refused:
            refused.at(key_step(key, ()), item)
            raise
    return out


def _ordered(tree: dict[str, Any], classes: Classes) -> Any:
    from collections import OrderedDict

    return OrderedDict(_mapping(tree, classes))


def _items(tree: dict[str, Any], classes: Classes) -> list[Any]:
    items = tree["v"]
    if type(items) is not list:
        raise TypeError("a list is needed")
    return _list(items, classes)


def _float(tree: dict[str, Any], _classes: Classes) -> float:
    return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[tree["v"]]


def _complex(tree: dict[str, Any], classes: Classes) -> complex:
    real, imaginary = _items(tree, classes)
    return complex(real, imaginary)


def _bytes(tree: dict[str, Any], _classes: Classes) -> bytes:
    return a2b_base64(tree["v"], strict_mode=True)


def _date(tree: dict[str, Any], _classes: Classes) -> Any:
    from datetime import date

    return date.fromisoformat(tree["v"])


def _clock(tree: dict[str, Any], classes: Classes) -> Any:
    from datetime import datetime, time

    kind = datetime if tree[TAG] == "datetime" else time
    zone = tree.get("tz")
    return kind.fromisoformat(tree["v"]).replace(
        tzinfo=None if zone is None else _dict(zone, classes), fold=tree.get("fold", 0)
    )


def _timedelta(tree: dict[str, Any], _classes: Classes) -> Any:
    from datetime import timedelta

    days, seconds, microseconds = tree["v"]
    return timedelta(days, seconds, microseconds)


def _timezone(tree: dict[str, Any], classes: Classes) -> Any:
    from datetime import timezone

    offset = _timedelta(tree, classes)
    return timezone(offset, text_of(tree["name"])) if "name" in tree else timezone(offset)


def _region(tree: dict[str, Any], _classes: Classes) -> Any:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(tree["v"])
    except ZoneInfoNotFoundError:
        raise Refused("ZoneInfo", "this machine's time zone data does not have it") from None


def _core_zone(tree: dict[str, Any], _classes: Classes) -> Any:
    from pydantic_core import TzInfo

    return TzInfo(tree["v"])


def _decimal(tree: dict[str, Any], _classes: Classes) -> Any:
    from decimal import Decimal

    return Decimal(tree["v"])


def _uuid(tree: dict[str, Any], _classes: Classes) -> Any:
    from uuid import UUID

    return UUID(tree["v"])


def _path(tree: dict[str, Any], _classes: Classes) -> Any:
    import pathlib

    return getattr(pathlib, tree[TAG])(text_of(tree["v"]))


def _class(tree: dict[str, Any], classes: Classes) -> tuple[type, Any]:
    """The class that a tag names, and its shape."""
    name = tree["c"]
    kind = classes.get(name)
    if kind is None:
        raise Refused(str(name), "no annotation of the declared tool names this class")
    shape = shape_of(kind)
    if shape is None or shape.kind != tree[TAG]:
        raise Refused(str(name), f"the class is no longer recorded as {tree[TAG]}")
    return kind, shape


def _enum(tree: dict[str, Any], classes: Classes) -> Any:
    kind: Any = _class(tree, classes)[0]
    value = tree["v"]
    if type(value) is str:
        if value not in kind.__members__:
            raise Refused(tree["c"], "it has no longer this member")
        return kind.__members__[value]
    if not issubclass(kind, enum.Flag):
        raise TypeError("a member's name is needed")
    return kind(_any(value, classes))


def _namedtuple(tree: dict[str, Any], classes: Classes) -> Any:
    kind: Any = _class(tree, classes)[0]
    items = _items(tree, classes)
    if len(items) != len(kind._fields):
        raise Refused(tree["c"], "its fields have changed")
    return tuple.__new__(kind, items)


def _object(tree: dict[str, Any], classes: Classes) -> Any:
    kind, shape = _class(tree, classes)
    state = _dict(tree["v"], classes)
    made: Any = object.__new__(kind)
    for key, item in state.items():
        member = shape.slots.get(key)
        if member is not None:
            member.__set__(made, item)
        else:
            object.__getattribute__(made, "__dict__")[key] = item
    return made


def _model(tree: dict[str, Any], classes: Classes) -> Any:
    kind: Any = _class(tree, classes)[0]
    model: Any = base_model()
    made: Any = object.__new__(kind)
    model.__setstate__(
        made,
        {
            "__dict__": _dict(tree["v"], classes),
            "__pydantic_fields_set__": {text_of(name) for name in tree["set"]},
            "__pydantic_extra__": _any(tree["extra"], classes),
            "__pydantic_private__": _any(tree["private"], classes),
        },
    )
    return made


def _opaque(tree: dict[str, Any], _classes: Classes) -> Any:
    raise Refused(
        str(tree.get("type", "opaque")),
        "it is opaque: only its type was recorded, and no value was given",
    )


_DECODERS: dict[str, Decoder] = {
    "tuple": lambda tree, classes: tuple(_items(tree, classes)),
    "set": lambda tree, classes: set(_items(tree, classes)),
    "frozenset": lambda tree, classes: frozenset(_items(tree, classes)),
    "dict": _mapping,
    "OrderedDict": _ordered,
    "bytes": _bytes,
    "bytearray": lambda tree, classes: bytearray(_bytes(tree, classes)),
    "int": lambda tree, _classes: int(tree["v"], 16),
    "float": _float,
    "str": lambda tree, _classes: text_of(tree),
    "complex": _complex,
    "range": lambda tree, classes: range(*_items(tree, classes)),
    "date": _date,
    "datetime": _clock,
    "time": _clock,
    "timedelta": _timedelta,
    "timezone": _timezone,
    "ZoneInfo": _region,
    "TzInfo": _core_zone,
    "Decimal": _decimal,
    "UUID": _uuid,
    "PurePosixPath": _path,
    "PureWindowsPath": _path,
    "PosixPath": _path,
    "WindowsPath": _path,
    "enum": _enum,
    "flag": _enum,
    "namedtuple": _namedtuple,
    "object": _object,
    "model": _model,
    "opaque": _opaque,
}
