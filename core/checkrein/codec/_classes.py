"""What the codec knows about classes: their names, their shapes, and which ones a tool names."""

from __future__ import annotations

import enum
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

Kind: TypeAlias = Literal["enum", "flag", "namedtuple", "object", "model"]

_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the class was made at run time, its state is attributes only."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How instances of a class are recorded. `slots`: descriptors by name, without `__dict__`."""

    kind: Kind
    name: str
    slots: Mapping[str, Any]


_SHAPES: WeakKeyDictionary[type, Shape | None] = WeakKeyDictionary()


def class_name(kind: type) -> str:
    """`module:qualname`, the name under which a class is recorded."""
    return f"{kind.__module__}:{kind.__qualname__}"


def shown_name(kind: type) -> str:
    """The name of a class for people: `dict`, `decimal.Decimal`."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def shape_of(kind: type) -> Shape | None:
    """How instances of `kind` are recorded; None if they cannot be."""
    try:
        return _SHAPES[kind]
    except KeyError:
        shape = _SHAPES[kind] = _shape(kind)
        return shape


def state_of(value: Any, shape: Shape) -> dict[str, Any]:
    """All attributes of an instance, read past its class's own `__getattribute__`."""
    try:
        state = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:  # slots only
        state = {}
    for key, member in shape.slots.items():
        try:
            state[key] = member.__get__(value, type(value))
        except AttributeError:  # a slot that was never set stays so
            continue
    return state


def base_model() -> type | None:
    """Return pydantic's BaseModel if the process has loaded it: nothing else can be an instance."""
    found = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return found if isinstance(found, type) else None


def _shape(kind: type) -> Shape | None:
    name = class_name(kind)
    if issubclass(kind, enum.Enum):
        return Shape("flag" if issubclass(kind, enum.Flag) else "enum", name, {})
    if issubclass(kind, tuple):
        # A subclass of a named tuple may add a __dict__, which a tuple's items do not show.
        plain = kind.__base__ is tuple and type(getattr(kind, "_fields", None)) is tuple
        return Shape("namedtuple", name, {}) if plain else None
    # Below anything but `object`, a built-in type would hold state that attributes do not show.
    if not all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__):
        return None
    model = base_model()
    if model is not None and issubclass(kind, model):
        return Shape("model", name, {})
    if hasattr(kind, "__dataclass_fields__"):
        slots = {
            key: member
            for base in reversed(kind.__mro__)
            for key, member in vars(base).items()
            if type(member) is MemberDescriptorType
        }
        return Shape("object", name, slots)
    return None


def annotation_classes(declared: Callable[..., Any] | Mapping[str, Any]) -> dict[str, type]:
    """The classes that a declared tool's annotations name, by `module:qualname`.

    Dataclasses, pydantic models, named tuples and Enums, also inside `list[...]`, unions,
    `Annotated`, `Literal`, and in the fields of those classes; the return annotation counts.
    `declared`: a function, method, class, `partial`, callable object, or a mapping of
    annotations. An annotation that cannot be resolved names nothing: values of its class are
    then refused when they are read back. Pydantic is not imported.
    """
    found: dict[str, type] = {}
    seen: set[int] = set()
    keep: list[Any] = []  # ids in `seen` are valid only while their objects live

    def walk(hint: Any, scope: Mapping[str, Any]) -> None:
        if isinstance(hint, str):
            hint = _resolved(hint, scope)
        elif isinstance(hint, typing.ForwardRef):
            hint = _resolved(hint.__forward_arg__, scope)
        if hint is None or id(hint) in seen:
            return
        seen.add(id(hint))
        keep.append(hint)
        if isinstance(hint, (list, tuple)):
            for part in hint:
                walk(part, scope)
            return
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Literal:  # its strings are values, not annotations
            for part in parts:
                if isinstance(part, enum.Enum):
                    walk(type(part), scope)
            return
        if origin is typing.Annotated:  # the rest is metadata
            walk(parts[0], scope)
            return
        if isinstance(hint, type):
            if shape_of(hint) is not None:
                found[class_name(hint)] = hint
            for part, own in _fields(hint):
                walk(part, own)
        for part in (*parts, origin):
            walk(part, scope)
        # NewType, TypeVar and `type X = ...` keep what they stand for in these.
        if type(hint).__module__ in ("typing", "typing_extensions"):
            for attribute in ("__supertype__", "__bound__", "__constraints__", "__value__"):
                walk(getattr(hint, attribute, None), scope)

    annotations, scope = _annotations(declared)
    for hint in annotations.values():
        walk(hint, scope)
    return found


def _annotations(declared: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Annotations as written, and the names that strings among them may use."""
    if isinstance(declared, Mapping):
        return declared, {}
    import functools
    import inspect

    while isinstance(declared, functools.partial):
        declared = declared.func
    if isinstance(declared, type):
        made_by: Any = declared
        declared = made_by.__init__ if "__init__" in vars(declared) else made_by.__new__
    elif not (inspect.isroutine(declared) or hasattr(declared, "__wrapped__")):
        declared = type(declared).__call__
    declared = inspect.unwrap(declared)
    declared = getattr(declared, "__func__", declared)
    scope = dict(getattr(declared, "__globals__", {}))
    code = getattr(declared, "__code__", None)
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(declared, "__closure__", None) or (), strict=False
    ):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # an empty cell: the name is not bound yet
            continue
    return dict(getattr(declared, "__annotations__", None) or {}), scope


def _resolved(text: str, scope: Mapping[str, Any]) -> Any:
    """The annotation that `text` stands for; None if it cannot be resolved."""
    try:
        return eval(text, dict(scope))  # noqa: S307 - the program's own annotation
    except Exception:  # noqa: BLE001 - an annotation may be any text; unresolved names nothing
        return None


def _fields(kind: type) -> list[tuple[Any, Mapping[str, Any]]]:
    """The annotations of a class's fields, each with the names it may use."""
    shape = shape_of(kind)
    typed_dict = hasattr(kind, "__total__") and hasattr(kind, "__annotations__")
    if shape is None and not typed_dict:
        return []
    if shape is not None and shape.kind in ("enum", "flag"):
        return []
    parts: list[tuple[Any, Mapping[str, Any]]] = []
    if shape is not None and shape.kind == "model":
        fields: Any = getattr(kind, "__pydantic_fields__", {})
        parts += [(field.annotation, {}) for field in fields.values()]
    for base in kind.__mro__:
        scope = vars(sys.modules.get(base.__module__, typing)) | {base.__name__: base}
        own = vars(base).get("__annotations__") or {}
        parts += [(hint, scope) for hint in own.values()]
    return parts
