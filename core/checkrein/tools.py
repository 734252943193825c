"""Tool declarations: the tools that one Rein knows, by name and by function."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, TypeAlias

from checkrein._declared import (
    check_settings,
    error_classes,
    merged,
    name_of,
    names_of,
    probe_of,
    reader_of,
)
from checkrein._locks import Lock
from checkrein.call import Effect, ToolInfo, Usage
from checkrein.errors import ConfigError
from checkrein.http_undo import TOOL, HttpUndo
from checkrein.tool import Tool, is_async_callable
from checkrein.undo import NONE, refuse_generator, refuse_injected, undo_of

__all__ = ["Resolve", "Tool", "Tools", "is_async_callable"]

Resolve: TypeAlias = Callable[
    [str], tuple[Callable[..., Any], Mapping[str, Any], Mapping[str, Any]] | None
]
"""From the rest of a name to a function, its default settings and its forced ones."""


NOTHING: Any = object()
"""No example is declared: None is one."""


class Tools:
    """The tools that one Rein knows, by name and by function."""

    def __init__(self) -> None:
        self._by_name: dict[str, Tool] = {}
        self.by_function: dict[Any, Tool] = {}
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
        self.examples: dict[str, Any] = {}
        """What tools answer in a sandbox, by name: a value, or a function of the arguments."""
        self._lock = Lock(reentrant=True)

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

    def settings_of(self, name: str) -> dict[str, Any]:
        """What was declared of a tool."""
        return dict(self._settings.get(name, {}))

    def __iter__(self) -> Any:
        return iter(list(self._by_name.values()))

    def of(self, fn: Callable[..., Any]) -> Tool:
        """The tool of a function; declared on first sight with the defaults."""
        try:
            tool = self.by_function.get(fn)
        except TypeError:  # unhashable callables are declared by name only
            tool = None
        if tool is not None:
            return tool
        declared = getattr(fn, "__checkrein_tool__", None)
        if isinstance(declared, Tool):
            return declared
        refuse_generator(fn)
        name = name_of(fn)
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
            if len(self.by_function) < 10_000:
                self.by_function[fn] = tool
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
            thread_affine=known.thread_affine, usage=known.usage, before=known.before,
            on_capture=known.on_capture,
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
        undo: Callable[..., Any] | str | HttpUndo | None = None,
        before: Callable[..., Any] | None = None,
        on_capture: str = "refuse",
        operation: str = "",
        irreversible: str = "",
        example: Any = NOTHING,
        probe: Callable[..., Any] | None = None,
        undo_safe_to_repeat: bool = False,
        settle_time: float = 30.0,
        opaque: Iterable[str] = (),
        sinks: Iterable[str] = (),
        trusted_fields: Iterable[str] = (),
        no_effect_on: type[Exception] | Iterable[type[Exception]] = (),
        thread_affine: bool = False,
        usage: Callable[[Any], Usage | None] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Tool:
        """Declare a tool. Raises `ConfigError` for settings that do not fit it.

        `undo` takes by parameter name what it names of the call's arguments, `result`, `before`,
        `call` and `key`; `"none"` says that nothing can take it back. `example`: what it
        answers in a sandbox, a value or a function of the arguments. `before` takes arguments of
        the call, and reads the state before the change; `on_capture` says what happens
        where it cannot: `refuse` the call, `ask` a person, `go_on` without an undo. `probe` takes
        what the undo takes; where the result is not known (a call in doubt) it
        is asked only if its `result` has a default. `usage` reads from a result what the tool
        used of a model that it calls itself.
        """
        check_settings(name, effect, timeout, settle_time)
        if usage is not None and not callable(usage):
            raise ConfigError(f"tool {name}: usage must be a function of its result")
        if example is not NOTHING:
            self.examples[name] = example
        settings: dict[str, Any] = {
            "description": description, "schema": schema, "server": server, "effect": effect,
            "idempotent": idempotent, "timeout": timeout, "undo": undo, "probe": probe,
            "before": before, "on_capture": on_capture, "operation": operation,
            "irreversible": irreversible,
            "undo_safe_to_repeat": undo_safe_to_repeat, "settle_time": float(settle_time),
            "opaque": names_of(opaque, name, "opaque"), "sinks": names_of(sinks, name, "sinks"),
            "trusted_fields": names_of(trusted_fields, name, "trusted_fields"),
            "no_effect_on": error_classes(no_effect_on, name), "thread_affine": thread_affine,
            "labels": labels or {}, "usage": usage,
        }  # fmt: skip
        with self._lock:
            known = self.get(name)
            declared = name in self._settings or (known is not None and name in self._undos)
            if declared and not (known is not None and known.fn is None and fn is not None):
                raise ConfigError(
                    f"tool {name!r} is declared twice; give one of them another name="
                )
            if name in self._settings:
                settings = merged(name, self._settings[name], settings)
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
        before, on_capture = given.pop("before", None), given.pop("on_capture", "refuse")
        if undo == NONE:
            undo = None
            given["irreversible"] = given.get("irreversible") or "declared so"
        no_effect_on = given.pop("no_effect_on", ())
        thread_affine, usage = given.pop("thread_affine", False), given.pop("usage", None)
        text = given.pop("description", "") or ((fn.__doc__ or "").strip() if fn else "")
        info = ToolInfo(
            name, text, has_probe=probe is not None, has_usage=usage is not None,
            has_before=before is not None, **given,
        )  # fmt: skip
        reader = None
        if before is not None:
            reader = reader_of(Tool(info, fn, thread_affine=thread_affine), before, on_capture)
        plain = Tool(info, fn, thread_affine=thread_affine, before=reader)
        probe_tool = None
        if probe is not None:
            probe_tool = probe_of(plain, probe)
        plan = undo_tool = None
        if undo is not None:
            plan, undo_tool = undo_of(undo, plain, self.get)
            info = dataclasses.replace(info, undo=plan.name)
            if undo_tool is not None:
                taken = self._by_name.get(plan.name)
                if taken is not None and plan.name != TOOL and self._undos.get(plan.name) != name:
                    raise ConfigError(
                        f"tool {name}: the name of its undo, {plan.name!r}, is taken by another "
                        "tool"
                    )
        tool = Tool(
            info, fn, undo=plan, probe=probe_tool, no_effect_on=no_effect_on,
            thread_affine=thread_affine, usage=usage, before=reader, on_capture=on_capture,
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
