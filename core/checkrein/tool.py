"""One tool: how arguments are bound to its parameters and given to its function.

All inspection happens once, when a tool is made. Binding a call is then a compiled function or
a dictionary built over cached names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from checkrein.codec import SCALARS, annotation_classes, encode
from checkrein.errors import ConfigError, Unencodable

if TYPE_CHECKING:
    from checkrein.call import Effect, ToolInfo, Usage
    from checkrein.http_undo import HttpUndo
    from checkrein.operations import Operation
    from checkrein.undo import Plan

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_ARGS = inspect.Parameter.VAR_POSITIONAL
_KWARGS = inspect.Parameter.VAR_KEYWORD


class ToolSettings(TypedDict, total=False):
    """What a tool may be declared with, beside its name: see `Tools.declare`."""

    description: str
    schema: Mapping[str, Any] | None
    server: str
    effect: Effect
    idempotent: bool
    timeout: float | None
    undo: Callable[..., Any] | str | HttpUndo | None
    before: Callable[..., Any] | None
    on_capture: Literal["refuse", "ask", "go_on"]
    operation: Operation
    irreversible: str
    example: Any
    probe: Callable[..., Any] | None
    undo_safe_to_repeat: bool
    settle_time: float
    opaque: Iterable[str]
    sinks: Iterable[str]
    trusted_fields: Iterable[str]
    no_effect_on: type[Exception] | Iterable[type[Exception]]
    thread_affine: bool
    usage: Callable[[Any], Usage | None] | None
    labels: Mapping[str, str] | None


class Tool:
    """A declared tool: what is known of it, and the function if this process has it."""

    __slots__ = (
        "_args",
        "_classes",
        "_defaults",
        "_keywords",
        "_kwargs",
        "_names",
        "_odd_defaults",
        "_positional",
        "_required",
        "_signature",
        "before",
        "binder",
        "fn",
        "info",
        "is_async",
        "no_effect_on",
        "on_capture",
        "opaque",
        "plain",
        "probe",
        "signature_known",
        "simple",
        "thread_affine",
        "undo",
        "usage",
    )

    def __init__(
        self,
        info: ToolInfo,
        fn: Callable[..., Any] | None,
        *,
        undo: Plan | None = None,
        probe: Tool | None = None,
        no_effect_on: tuple[type[BaseException], ...] = (),
        thread_affine: bool = False,
        usage: Callable[[Any], Usage | None] | None = None,
        before: Tool | None = None,
        on_capture: str = "refuse",
    ) -> None:
        self.info = info
        self.fn = fn
        self.undo = undo
        self.probe = probe
        self.no_effect_on = no_effect_on
        self.thread_affine = thread_affine
        self.usage = usage
        """Reads from a result what the tool used: tokens of a model that it calls itself."""
        self.before = before
        """Reads the state before the change, for the undo."""
        self.on_capture = on_capture
        """What happens where that cannot be read: `refuse`, `ask` or `go_on`."""
        self.opaque = frozenset(info.opaque)
        self.is_async = fn is not None and is_async_callable(fn)
        self._classes: dict[str, type] | None = None
        self._inspect(fn)
        self.plain = (
            self.binder is not None
            and not self.is_async
            and undo is None
            and before is None
            and not (info.operation or info.irreversible)
            and info.timeout is None
            and usage is None
            and not info.opaque
        )
        """Nothing is to be done for it but to call it and to record that."""
        for name in info.opaque:
            if self.signature_known and name not in self._names and self._kwargs is None:
                raise ConfigError(f"tool {info.name}: opaque parameter {name!r} does not exist")
        if thread_affine and info.timeout is not None:
            raise ConfigError(
                f"tool {info.name}: a timeout needs a worker thread, and thread_affine=True "
                "forbids one; drop one of the two"
            )

    def _inspect(self, fn: Callable[..., Any] | None) -> None:
        self._signature: inspect.Signature | None = None
        if fn is not None:
            try:
                self._signature = inspect.signature(fn)
            except (TypeError, ValueError):
                self._signature = None
        self.signature_known = self._signature is not None
        parameters = list(self._signature.parameters.values()) if self._signature else []
        named = [p for p in parameters if p.kind not in (_ARGS, _KWARGS)]
        self._names = tuple(p.name for p in named)
        self._positional = tuple(p.name for p in named if p.kind in (_POSITIONAL_ONLY, _POSITIONAL))
        self._required = frozenset(p.name for p in named if p.default is p.empty)
        # A default that is not plain data (a sentinel), or that can change (a list), is left out
        # of the recorded arguments: the function supplies it itself.
        self._defaults = {p.name: p.default for p in named if _is_plain(p.default)}
        # Only needed where a later positional-only argument must come after one of them.
        self._odd_defaults = {
            p.name: p.default
            for p in named
            if p.default is not p.empty and p.name not in self._defaults
        }
        self._keywords = frozenset(p.name for p in named if p.kind is not _POSITIONAL_ONLY)
        self._args = next((p.name for p in parameters if p.kind is _ARGS), None)
        self._kwargs = next((p.name for p in parameters if p.kind is _KWARGS), None)
        if not self.signature_known:
            self._args, self._kwargs = "args", "kwargs"
        self.simple = (
            self._args is None
            and self._kwargs is None
            and not any(p.kind is _POSITIONAL_ONLY for p in named)
        )
        self.binder = _binder(named) if self.simple and self.signature_known else None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, `*args` and `**kwargs` included."""
        extra = tuple(n for n in (self._args, self._kwargs) if n is not None)
        return self._names + extra

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the parameters that may be given by position."""
        return self._positional

    def takes(self, name: str) -> bool:
        """Whether `name` may be given as a keyword, as far as is known."""
        return name in self._names or self._kwargs is not None

    @property
    def required(self) -> frozenset[str]:
        """Parameters without a default."""
        return self._required

    @property
    def classes(self) -> dict[str, type]:
        """Dataclasses, models and enums that the annotations name: only these are rebuilt."""
        if self._classes is None:
            self._classes = annotation_classes(self.fn) if self.fn is not None else {}
        return self._classes

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults included. Raises `TypeError` as a call would."""
        if self.binder is not None:
            try:
                bound: dict[str, Any] = self.binder(*args, **kwargs)
            except TypeError:
                raise self._misfit(args, kwargs) from None
            return bound
        names, keywords = self._names, self._keywords
        positional = self._positional
        given = len(args)
        if given > len(positional) and self._args is None:
            raise self._misfit(args, kwargs)
        bound = dict(zip(positional, args, strict=False))
        if self._args is not None and (rest := args[len(positional) :]):
            bound[self._args] = rest
        if kwargs:
            extra: dict[str, Any] = {}
            for name, value in kwargs.items():
                if name not in keywords:
                    if self._kwargs is None:
                        raise self._misfit(args, kwargs)
                    extra[name] = value
                elif name in bound:
                    raise self._misfit(args, kwargs)
                else:
                    bound[name] = value
            if extra and self._kwargs is not None:
                bound[self._kwargs] = extra
        if len(bound) < len(names):
            for name, default in self._defaults.items():
                if name not in bound:
                    bound[name] = default
            if not self._required.issubset(bound):
                raise self._misfit(args, kwargs)
        return bound

    def misfit(self, arguments: Mapping[str, Any]) -> str:
        """What keeps named arguments from being given to the function; empty if they fit."""
        if not self.signature_known:
            return ""
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            return f"it has no parameter {unknown[0]!r}"
        missing = [name for name in self._names if name in self._required - arguments.keys()]
        return f"its parameter {missing[0]!r} is not given" if missing else ""

    def complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Named arguments (from a model, a journal) with defaults filled in."""
        bound = dict(arguments)
        for name, default in self._defaults.items():
            bound.setdefault(name, default)
        return bound

    def _misfit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TypeError:
        """The error Python itself would raise; `inspect` words it, on this slow path only."""
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                return TypeError(f"{self.info.name}(): {error}")
        return TypeError(f"{self.info.name}(): arguments do not fit its parameters")

    def passing(self, names: tuple[str, ...]) -> Tool:
        """The same tool, with parameters that are passed by reference and not recorded."""
        new = tuple(name for name in names if name not in self.opaque)
        return _passing(self, new) if new else self

    def spread(self, arguments: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """(args, kwargs) that give `arguments` to the function, positional-only ones included."""
        if self.simple:
            return (), dict(arguments)
        rest = dict(arguments)
        args: list[Any] = []
        extra_args = rest.pop(self._args, ()) if self._args is not None else ()
        extra_kwargs = rest.pop(self._kwargs, {}) if self._kwargs is not None else {}
        for name in self._positional:
            if name in rest:
                args.append(rest.pop(name))
            elif name in self._odd_defaults:
                args.append(self._odd_defaults[name])
            else:
                break
        return [*args, *extra_args], {**rest, **extra_kwargs}


_IMMUTABLE = frozenset(
    (
        "builtins.tuple", "builtins.frozenset", "builtins.bytes", "decimal.Decimal",
        "datetime.date", "datetime.datetime", "datetime.time", "datetime.timedelta", "uuid.UUID",
        "pathlib.PosixPath", "pathlib.PurePosixPath", "pathlib.WindowsPath",
    )
)  # fmt: skip
"""By name: none of these modules is imported for the question."""


def _is_plain(default: Any) -> bool:
    """Whether a default can be recorded as an argument: exactly, and for ever the same."""
    kind = type(default)
    if kind in SCALARS:
        return True
    if f"{kind.__module__}.{kind.__qualname__}" not in _IMMUTABLE:
        return False
    try:
        encode(default)
    except Unencodable:
        return False
    return True


@functools.lru_cache(maxsize=256)
def _passing(tool: Tool, names: tuple[str, ...]) -> Tool:
    info = dataclasses.replace(tool.info, opaque=(*tool.info.opaque, *names))
    return Tool(
        info, tool.fn, undo=tool.undo, probe=tool.probe, no_effect_on=tool.no_effect_on,
        thread_affine=tool.thread_affine, usage=tool.usage, before=tool.before,
        on_capture=tool.on_capture,
    )  # fmt: skip


def _binder(parameters: Sequence[inspect.Parameter]) -> Callable[..., dict[str, Any]] | None:
    """A function with these parameters that returns its arguments by name.

    Compiled as `dataclasses` compiles its `__init__`: the interpreter binds in 0.2 us what
    `inspect` binds in 9. Only names and defaults go in, nothing that a caller chose. None where
    a default is not plain data: the function has to supply that one itself.
    """
    names = [p.name for p in parameters]
    if any(p.default is not p.empty and not _is_plain(p.default) for p in parameters):
        return None
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        return None
    signature: list[str] = []
    starred = False
    for index, p in enumerate(parameters):
        if p.kind is _KEYWORD_ONLY and not starred:
            signature.append("*")
            starred = True
        signature.append(p.name if p.default is p.empty else f"{p.name}=_defaults_[{index}]")
    items = ", ".join(f"{name!r}: {name}" for name in names)
    source = f"def bind({', '.join(signature)}): return {{{items}}}"
    scope: dict[str, Any] = {"_defaults_": [p.default for p in parameters]}
    exec(source, scope)  # noqa: S102 - identifiers of a signature, checked above
    made: Callable[..., dict[str, Any]] = scope["bind"]
    return made


def is_async_callable(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a coroutine: functions, methods, partials, callable objects."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - the method itself is looked at
    )
