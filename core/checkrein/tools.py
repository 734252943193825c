"""Tool declarations: how arguments are bound, what undoes a tool, how to probe it.

All inspection happens once, at declaration. Binding a call is then a dictionary built over
cached names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, TypeAlias

from checkrein.call import Effect, ToolInfo
from checkrein.codec import SCALARS, annotation_classes, encode
from checkrein.errors import ConfigError, Unencodable
from checkrein.undo import (
    INJECTED,
    UndoPlan,
    is_generator,
    refuse_injected,
    refuse_opaque,
    undo_of,
)

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_ARGS = inspect.Parameter.VAR_POSITIONAL
_KWARGS = inspect.Parameter.VAR_KEYWORD


Resolve: TypeAlias = Callable[
    [str], tuple[Callable[..., Any], Mapping[str, Any], Mapping[str, Any]] | None
]
"""From the rest of a name to a function, its default settings and its forced ones."""


class Tool:
    """A declared tool: what is known of it, and the function if this process has it."""

    __slots__ = (
        "_args",
        "_binder",
        "_classes",
        "_defaults",
        "_keywords",
        "_kwargs",
        "_names",
        "_odd_defaults",
        "_positional",
        "_required",
        "_signature",
        "fn",
        "info",
        "is_async",
        "no_effect_on",
        "opaque",
        "plain",
        "probe",
        "signature_known",
        "simple",
        "thread_affine",
        "undo",
    )

    def __init__(
        self,
        info: ToolInfo,
        fn: Callable[..., Any] | None,
        *,
        undo: UndoPlan | None = None,
        probe: Tool | None = None,
        no_effect_on: tuple[type[BaseException], ...] = (),
        thread_affine: bool = False,
    ) -> None:
        self.info = info
        self.fn = fn
        self.undo = undo
        self.probe = probe
        self.no_effect_on = no_effect_on
        self.thread_affine = thread_affine
        self.opaque = frozenset(info.opaque)
        self.is_async = fn is not None and is_async_callable(fn)
        self._classes: dict[str, type] | None = None
        self._inspect(fn)
        self.plain = (
            self.simple and not self.is_async and undo is None and info.timeout is None
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
        self._positional = tuple(
            p.name for p in named if p.kind in (_POSITIONAL_ONLY, _POSITIONAL)
        )
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
        self._binder = _binder(named) if self.simple and self.signature_known else None

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
        if self._binder is not None:
            try:
                bound: dict[str, Any] = self._binder(*args, **kwargs)
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
        thread_affine=tool.thread_affine,
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
    while hasattr(fn, "func") and not inspect.isfunction(fn):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - the method itself is looked at
    )


class Tools:
    """The tools that one Rein knows, by name and by function."""

    def __init__(self) -> None:
        self._by_name: dict[str, Tool] = {}
        self._by_fn: dict[Any, Tool] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        """What was declared, by name: compiled again when a function or an undo comes later."""
        self._forced: dict[str, Mapping[str, Any]] = {}
        """Settings that hold whatever is declared, by name."""
        self._undos: dict[str, str] = {}
        """Tool that an undo function was registered for."""
        self._waiting: dict[str, set[str]] = {}
        """Tools whose undo is known by name only, by that name."""
        self._resolvers: dict[str, Resolve] = {}
        """Where names with a prefix are looked up that nobody has used yet."""
        self._resolving: set[str] = set()
        self.ambiguous: set[str] = set()
        """Names under which different functions were called without a declaration."""
        self._lock = threading.RLock()

    def opened(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """A partial, or a method that was declared as a function, with all of its arguments.

        What is bound in advance belongs to the call: guards, records and undo must see it.
        """
        while True:
            if isinstance(fn, functools.partial):
                args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
            elif isinstance(fn, MethodType) and hasattr(fn.__func__, "__checkrein_tool__"):
                args, fn = (fn.__self__, *args), fn.__func__
            else:
                return fn, args, kwargs

    def get(self, name: str) -> Tool | None:
        """The tool declared under `name`, or found there in a wrapped client."""
        known = self._by_name.get(name)
        if self._resolvers and (known is None or known.fn is None):
            return self._resolve(name) or known
        return known

    def __iter__(self) -> Any:
        return iter(list(self._by_name.values()))

    def of(self, fn: Callable[..., Any]) -> Tool:
        """The tool of a function; declared on first sight with the defaults."""
        try:
            tool = self._by_fn.get(fn)
        except TypeError:  # unhashable callables are declared by name only
            tool = None
        if tool is not None:
            return tool
        declared = getattr(fn, "__checkrein_tool__", None)
        if isinstance(declared, Tool):
            return declared
        name = _name_of(fn)
        with self._lock:
            known = self._by_name.get(name)
            if known is not None and known.fn is None:
                return self._compile(name, fn, self._settings.get(name, {}))
            if known is not None and known.fn is not fn:
                # Another function of this name: policies see one name, but what resumes or
                # undoes by name cannot tell the two apart.
                tool = Tool(ToolInfo(name, (fn.__doc__ or "").strip()), fn)
                self.ambiguous.add(name)
            else:
                tool = Tool(ToolInfo(name, (fn.__doc__ or "").strip()), fn)
                self._by_name[name] = tool
            self._remember(fn, tool)
        return tool

    def _remember(self, fn: Callable[..., Any], tool: Tool) -> None:
        try:
            if len(self._by_fn) < 10_000:
                self._by_fn[fn] = tool
        except TypeError:
            return

    def bind(
        self,
        name: str,
        fn: Callable[..., Any],
        defaults: Mapping[str, Any] | None = None,
        forced: Mapping[str, Any] | None = None,
    ) -> Tool:
        """Give a declared name its function (frameworks, wrapped clients); declares if new.

        `defaults` hold where nothing is declared, `forced` always. Raises `ConfigError` where
        the declaration does not fit the function.
        """
        known = self._by_name.get(name)
        # Bound methods are new objects at every access: compared, not looked up.
        if known is not None and known.fn is not None and known.fn == fn:
            return known
        with self._lock:
            self._forced.setdefault(name, forced or {})
            return self._compile(name, fn, self._settings.get(name) or defaults or {})

    def shape(
        self,
        name: str,
        fn: Callable[..., Any],
        defaults: Mapping[str, Any] | None = None,
        forced: Mapping[str, Any] | None = None,
    ) -> Tool:
        """The tool `name` for one of several functions that bear the name.

        Nobody can find that function by its name later, so none is registered with it.
        """
        known = self._by_name.get(name)
        if known is None:
            with self._lock:
                self._forced.setdefault(name, forced or {})
                known = self._compile(name, None, defaults or {})
        shaped = Tool(
            known.info, fn, undo=known.undo, probe=known.probe, no_effect_on=known.no_effect_on,
            thread_affine=known.thread_affine,
        )  # fmt: skip
        if known.undo is not None and not isinstance(self._settings[name]["undo"], str):
            refuse_injected(shaped)
        return shaped

    def open_names(self, prefix: str, resolve: Resolve) -> None:
        """Let names that begin with `prefix.` be found when somebody asks for them.

        Raises `ConfigError` for a prefix that is taken, and where what was declared before
        does not fit.
        """
        with self._lock:
            if prefix in self._resolvers:
                raise ConfigError(
                    f"{prefix!r} is wrapped already: an undo by name could reach the wrong client; "
                    "give this one another account="
                )
            self._resolvers[prefix] = resolve
            try:
                for name in [*self._by_name, *self._waiting]:
                    self.get(name)
            except ConfigError:
                del self._resolvers[prefix]
                raise

    def _resolve(self, name: str) -> Tool | None:
        """Look a name up among wrapped clients."""
        for prefix, resolve in self._resolvers.items():
            if not name.startswith(f"{prefix}.") or name in self._resolving:
                continue
            found = resolve(name[len(prefix) + 1 :])
            if found is not None:
                with self._lock:
                    self._resolving.add(name)
                    try:
                        return self.bind(name, *found)
                    finally:
                        self._resolving.discard(name)
        return None

    def add(self, tool: Tool, *, replace: bool = False) -> Tool:
        """Register. Raises `ConfigError` if the name is taken by another function."""
        with self._lock:
            if not replace and tool.info.name in self._by_name:
                raise ConfigError(
                    f"tool {tool.info.name!r} is declared twice; give one of them another name="
                )
            return self._put(tool)

    def _put(self, tool: Tool) -> Tool:
        name = tool.info.name
        waiting: list[Tool] = []
        if tool.fn is not None:
            waiting = [self._by_name[n] for n in self._waiting.pop(name, ()) if n in self._by_name]
        self._by_name[name] = tool
        if tool.fn is not None:
            self._remember(tool.fn, tool)
        for other in waiting:
            # Its undo was known by name only; now it is seen whether the two fit.
            try:
                self._compile(other.info.name, other.fn, self._settings[other.info.name])
            except ConfigError:
                del self._by_name[name]
                self._waiting.setdefault(name, set()).add(other.info.name)
                raise
        return tool

    def declare(
        self,
        name: str,
        fn: Callable[..., Any] | None = None,
        *,
        description: str = "",
        schema: Mapping[str, Any] | None = None,
        server: str = "",
        effect: Effect = "write",
        idempotent: bool = False,
        timeout: float | None = None,
        undo: Callable[..., Any] | str | None = None,
        probe: Callable[..., Any] | None = None,
        undo_safe_to_repeat: bool = False,
        settle_time: float = 30.0,
        opaque: Iterable[str] = (),
        sinks: Iterable[str] = (),
        trusted_fields: Iterable[str] = (),
        no_effect_on: type[Exception] | Iterable[type[Exception]] = (),
        thread_affine: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Tool:
        """Declare a tool. Raises `ConfigError` for settings that do not fit it.

        `undo` takes by parameter name what it names of the call's arguments, `result`, `call`
        and `key`. `probe` takes the same; where the result is not known (a call in doubt) it
        is asked only if its `result` has a default.
        """
        _check(name, effect, timeout, settle_time)
        settings: dict[str, Any] = {
            "description": description, "schema": schema, "server": server, "effect": effect,
            "idempotent": idempotent, "timeout": timeout, "undo": undo, "probe": probe,
            "undo_safe_to_repeat": undo_safe_to_repeat, "settle_time": float(settle_time),
            "opaque": _names(opaque, name, "opaque"), "sinks": _names(sinks, name, "sinks"),
            "trusted_fields": _names(trusted_fields, name, "trusted_fields"),
            "no_effect_on": _errors(no_effect_on, name), "thread_affine": thread_affine,
            "labels": labels or {},
        }  # fmt: skip
        with self._lock:
            known = self.get(name)
            declared = name in self._settings or (known is not None and name in self._undos)
            if declared and not (known is not None and known.fn is None and fn is not None):
                raise ConfigError(
                    f"tool {name!r} is declared twice; give one of them another name="
                )
            if known is not None and known.fn is not None:
                if fn is not None and known.fn != fn:
                    raise ConfigError(
                        f"tool {name!r}: another function of this name was called before; give "
                        "one of them another name="
                    )
                fn = known.fn
            tool = self._compile(name, fn, settings)
            self._settings[name] = settings
            return tool

    def _compile(
        self, name: str, fn: Callable[..., Any] | None, settings: Mapping[str, Any]
    ) -> Tool:
        """A tool out of its settings, registered together with its undo. Holds the lock."""
        given = {**settings, **self._forced.get(name, {})}
        undo, probe = given.pop("undo", None), given.pop("probe", None)
        no_effect_on = given.pop("no_effect_on", ())
        thread_affine = given.pop("thread_affine", False)
        text = given.pop("description", "") or ((fn.__doc__ or "").strip() if fn else "")
        info = ToolInfo(name, text, has_probe=probe is not None, **given)
        plain = Tool(info, fn, thread_affine=thread_affine)
        probe_tool = None
        if probe is not None:
            probe_tool = _probe(plain, probe)
        plan = undo_tool = None
        if undo is not None:
            plan, undo_tool = undo_of(undo, plain, self.get)
            info = dataclasses.replace(info, undo=plan.name)
            if undo_tool is not None:
                taken = self._by_name.get(plan.name)
                if taken is not None and self._undos.get(plan.name) != name:
                    raise ConfigError(
                        f"tool {name}: the name of its undo, {plan.name!r}, is taken by another tool"
                    )
        tool = Tool(
            info, fn, undo=plan, probe=probe_tool, no_effect_on=no_effect_on,
            thread_affine=thread_affine,
        )  # fmt: skip
        if undo_tool is not None:
            self._undos[undo_tool.info.name] = name
            self._put(undo_tool)
        elif plan is not None:
            target = self.get(plan.name)
            if (target is None or target.fn is None) and plan.name != name:
                self._waiting.setdefault(plan.name, set()).add(name)
                self._settings.setdefault(name, dict(settings))
        return self._put(tool)


def _check(name: str, effect: str, timeout: float | None, settle_time: float) -> None:
    if not name or not isinstance(name, str):
        raise ConfigError("a tool needs a name: a string that is not empty")
    if effect not in ("read", "write", "egress"):
        raise ConfigError(f"tool {name}: effect must be 'read', 'write' or 'egress'")
    if timeout is not None and not (_seconds(timeout) and timeout > 0):
        raise ConfigError(f"tool {name}: timeout must be seconds above 0")
    if not _seconds(settle_time):
        raise ConfigError(f"tool {name}: settle_time must be seconds, 0 or more")


def _errors(given: Any, tool: str) -> tuple[type[Exception], ...]:
    classes = (given,) if isinstance(given, type) or not isinstance(given, Iterable) else given
    for cls in classes:
        # A cancellation or an interrupt never tells that nothing was done.
        if not isinstance(cls, type) or not issubclass(cls, Exception):
            raise ConfigError(f"tool {tool}: no_effect_on takes classes of exceptions")
    return tuple(classes)


def _seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9


def _names(names: Iterable[str], tool: str, key: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ConfigError(f"tool {tool}: {key} must be a list of names, not one string")
    return tuple(names)


def _probe(tool: Tool, fn: Callable[..., Any]) -> Tool:
    if not callable(fn) or is_generator(fn):
        raise ConfigError(f"tool {tool.info.name}: probe must be a function that answers")
    refuse_injected(tool)
    probe = Tool(
        ToolInfo(f"{tool.info.name}.probe", effect="read", timeout=tool.info.timeout),
        fn,
        thread_affine=tool.thread_affine,
    )
    allowed = {*tool.parameters, *INJECTED}
    for name in probe.parameters:
        if name in tool.parameters:
            refuse_opaque(tool, name, "its probe")
        if tool.signature_known and name not in allowed and name in probe.required:
            raise ConfigError(
                f"tool {tool.info.name}: its probe takes {name!r}, which is neither one of the "
                f"tool's parameters ({', '.join(tool.parameters)}) nor result, call or key"
            )
    return probe


def _name_of(fn: Callable[..., Any]) -> str:
    while hasattr(fn, "func") and not hasattr(fn, "__name__"):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))
