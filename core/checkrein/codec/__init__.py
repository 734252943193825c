"""Values as exact JSON trees, and back: what payloads, undo plans and digests are made of.

A tree is what JSON can hold: dict with str keys, list, str, int, float, bool, None. Everything
else is a dict with the reserved key `"$cr"`, which names its tag:

    tuple, set, frozenset         {"$cr": TAG, "v": [items]}; sets are sorted
    dict, OrderedDict             {"$cr": TAG, "v": [[key, value], ...]}; `dict` where a key is
                                  not a plain string, or is `"$cr"`
    bytes, bytearray              {"$cr": TAG, "v": base64}
    int                           more than 309 digits: {"$cr": "int", "v": hex}
    float                         {"$cr": "float", "v": "nan" | "inf" | "-inf"}
    str                           with lone surrogates, in text only: {"$cr": "str", "v": base64}
    complex, range                {"$cr": TAG, "v": [numbers]}
    date, datetime, time          {"$cr": TAG, "v": ISO 8601, "tz": zone, "fold": 1}
    timedelta                     {"$cr": "timedelta", "v": [days, seconds, microseconds]}
    timezone, ZoneInfo, TzInfo    the zones; the last one is pydantic's fixed offset
    Decimal, UUID                 {"$cr": TAG, "v": text}
    PosixPath, PurePosixPath, ... {"$cr": TAG, "v": text}
    enum, flag                    {"$cr": TAG, "c": "module:qualname", "v": member's name}
    namedtuple                    {"$cr": "namedtuple", "c": class, "v": [items]}
    object (dataclasses)          {"$cr": "object", "c": class, "v": {attributes}}
    model (pydantic)              {"$cr": "model", "c": class, "v": {fields}, "set", "extra",
                                  "private"}
    opaque                        {"$cr": "opaque", "type": class}: a parameter declared so

A value that would come back changed is refused with `Unencodable`: other subclasses of the
built-in types, `defaultdict`, foreign time zones, open files, connections. Nothing is pickled,
and no class is looked up by its name: `decode` makes instances only of classes it is given.
The sign and the payload bits of a NaN are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from checkrein.codec._classes import annotation_classes
from checkrein.codec._decoding import decode, decode_arguments
from checkrein.codec._describing import describe, is_brief
from checkrein.codec._encoding import encode, encode_arguments
from checkrein.codec._text import canonical, digest, dumps, loads

SCALARS = frozenset({str, int, float, bool, type(None)})
"""Exact types that stand for themselves in a tree."""
LONG = 4000
"""Characters of one string that a view shows whole."""
_INT = 1 << 1000
_INF = float("inf")


def is_flat_value(value: object) -> bool:
    """Whether a value is its own tree and its own view: a scalar that is not long."""
    kind = type(value)
    if kind is str:
        return len(value) <= LONG  # type: ignore[arg-type]  # a str, by its exact type
    if kind is int:
        return -_INT < value < _INT  # type: ignore[operator]  # an int
    if kind is float:
        return -_INF < value < _INF  # type: ignore[operator]  # a float; NaN compares false
    return kind is bool or value is None


def is_flat(arguments: Mapping[str, object]) -> bool:
    """Whether every argument is such a scalar: then nothing has to be copied or encoded."""
    for value in arguments.values():
        kind = type(value)
        if kind is str:
            if len(value) > LONG:  # type: ignore[arg-type]  # a str, by its exact type
                return False
        elif kind is int:
            if not -_INT < value < _INT:  # type: ignore[operator]  # an int
                return False
        elif not (kind is bool or value is None or is_flat_value(value)):
            return False
    return True


__all__ = [
    "LONG",
    "SCALARS",
    "annotation_classes",
    "canonical",
    "decode",
    "decode_arguments",
    "describe",
    "digest",
    "dumps",
    "encode",
    "encode_arguments",
    "is_brief",
    "is_flat",
    "is_flat_value",
    "loads",
]
