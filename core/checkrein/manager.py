"""Which plugins there are, in what order, and how each of their hooks is called.

pluggy validates and orders; the engine walks the chain itself, because a plain pluggy call
cannot fold rewrites, isolate a plugin that raises, or await.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from logging import Logger
from types import MethodType
from typing import TYPE_CHECKING, Any

import pluggy

from checkrein._io import is_awaitable
from checkrein.errors import ConfigError, PluginError, WouldBlock
from checkrein.hooks import DECIDING, HOOKS, PROJECT, Plugin, Spec
from checkrein.tools import is_async_callable

if TYPE_CHECKING:
    from checkrein.rein import Rein

GROUP = "checkrein"
"""Entry-point group under which installed plugins offer themselves."""

GUARDING = (*DECIDING, "open_stream", "on_event")
"""Hooks whose names mean nothing else: a method called so is meant to run."""

_NO_OPTIONS = {
    "wrapper": False,
    "hookwrapper": False,
    "optionalhook": False,
    "tryfirst": False,
    "trylast": False,
    "specname": None,
}


@dataclass(slots=True)
class Impl:
    """One plugin's implementation of one hook."""

    plugin: str
    hook: str
    function: Callable[..., Any]
    pick: tuple[int, ...]
    """Which of the hook's arguments the function takes, in the function's own order."""
    whole: bool
    """It takes all of them in the hook's order: no picking needed."""
    external: bool
    own_loop: bool
    allow_on_failure: bool
    timeout: float | None
    is_async: bool
    concerns: Callable[[Any], bool] | None = None

    def __call__(self, *values: Any) -> Any:
        """Call with all of the hook's arguments."""
        if self.whole:
            return self.function(*values)
        return self.function(*[values[i] for i in self.pick])


@dataclass(frozen=True, slots=True)
class Available:
    """An installed plugin, not imported."""

    name: str
    distribution: str
    version: str
    target: str


class _Pluggy(pluggy.PluginManager):
    """Registers overridden methods of `Plugin` without a decorator; refuses wrappers."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        marked: Any = super().parse_hookimpl_opts(plugin, name)
        if name in HOOKS and marked is None:
            function = getattr(plugin, name)
            if not isinstance(plugin, Plugin):
                if name in GUARDING and callable(function):
                    raise PluginError(
                        f"plugin {type(plugin).__name__}: {name} is not marked with @hookimpl, "
                        "so it would never run: mark it, or rename it"
                    )
            elif getattr(type(plugin), name, None) is not getattr(Plugin, name) or name in vars(
                plugin
            ):
                marked = dict(_NO_OPTIONS) if _hookable(plugin, name, function) else None
        if marked is None:
            return None
        if marked.get("wrapper") or marked.get("hookwrapper"):
            raise PluginError(
                f"plugin {type(plugin).__name__}: {name} is declared wrapper=True; hooks of "
                "checkrein return verdicts and cannot wrap each other: remove wrapper=True"
            )
        return marked


def _hookable(plugin: object, name: str, function: Any) -> bool:
    """Whether an attribute is a hook; a callable object is bound first, as pluggy wants it.

    None means: this hook of a base class is switched off.
    """
    if function is None or inspect.isroutine(function):
        return function is not None
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted
    if not inspect.isfunction(call):
        raise PluginError(f"plugin {type(plugin).__name__}: {name} must be a function or method")
    try:
        setattr(plugin, name, MethodType(call, function))
    except AttributeError:
        raise PluginError(
            f"plugin {type(plugin).__name__}: {name} is a callable object, and the plugin does "
            "not let it be bound; write a method that calls it"
        ) from None
    return True


class Plugins:
    """The plugins of one Rein: registered, validated, and compiled into call lists."""

    def __init__(self) -> None:
        self._pluggy = _Pluggy(PROJECT)
        self._pluggy.add_hookspecs(Spec)
        self._named: list[tuple[str, object]] = []
        self.chains: dict[str, tuple[Impl, ...]] = {}

    def register(self, plugins: Iterable[object | tuple[str, object]]) -> None:
        """Register all plugins, in the order in which they shall run.

        Raises `PluginError`; then nothing of this manager may be used.
        """
        named: list[tuple[str, object]] = []
        for item in plugins:
            name, plugin = item if isinstance(item, tuple) else ("", item)
            if inspect.isclass(plugin):
                raise PluginError(f"plugin {plugin.__name__} is a class: pass an instance")
            if any(plugin is other for _, other in named):
                raise PluginError(f"plugin {type(plugin).__name__} is passed twice")
            base = name or getattr(plugin, "name", "") or type(plugin).__name__.lower()
            if not isinstance(base, str):
                base = type(plugin).__name__.lower()
            number, unique = 1, base
            while any(unique == taken for taken, _ in named):
                number += 1
                unique = f"{base}-{number}"
            named.append((unique, plugin))
        # pluggy calls the last registered first; ours run in list order.
        for name, plugin in reversed(named):
            _refuse_misspelt(name, plugin)
            try:
                self._pluggy.register(plugin, name)
                self._pluggy.check_pending()
            except pluggy.PluginValidationError as error:
                raise PluginError(f"plugin {name}: {error}") from error
            if not self._pluggy.get_hookcallers(plugin):
                raise PluginError(
                    f"plugin {name} implements no hook: subclass checkrein.Plugin or mark "
                    f"methods with @hookimpl; hooks are {', '.join(HOOKS)}"
                )
        self._named = named
        self.chains = {hook: self._compile(hook) for hook in HOOKS}

    def add(self, name: str, plugin: object) -> None:
        """Register one more plugin, after a start: a guard that the core itself brings."""
        self._pluggy.register(plugin, name)
        self._named.append((name, plugin))
        self.chains = {hook: self._compile(hook) for hook in HOOKS}

    def _compile(self, hook: str) -> tuple[Impl, ...]:
        caller = getattr(self._pluggy.hook, hook)
        order: tuple[str, ...] = caller.spec.argnames if caller.spec else ()
        compiled: list[Impl] = []
        for impl in reversed(caller.get_hookimpls()):
            pick = tuple(order.index(a) for a in impl.argnames)
            plugin = impl.plugin
            if hook == "view" and 1 not in pick:
                raise PluginError(f"plugin {impl.plugin_name}: view must take `value`")
            _refuse_misfit(impl.plugin_name, hook, impl.function, len(pick))
            failure = getattr(plugin, "on_failure", "deny")
            if failure not in ("deny", "allow"):
                raise PluginError(
                    f"plugin {impl.plugin_name}: on_failure must be 'deny' or 'allow'"
                )
            timeout = getattr(plugin, "timeout", None) if hook in DECIDING else None
            if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout < 1e9):
                raise PluginError(
                    f"plugin {impl.plugin_name}: timeout must be seconds above 0, or None"
                )
            loop = getattr(plugin, "loop", "caller")
            if loop not in ("caller", "own"):
                raise PluginError(f"plugin {impl.plugin_name}: loop must be 'caller' or 'own'")
            compiled.append(
                Impl(
                    plugin=impl.plugin_name,
                    hook=hook,
                    function=impl.function,
                    pick=pick,
                    whole=pick == tuple(range(len(order))),
                    external=bool(getattr(plugin, "external", False)),
                    own_loop=loop == "own",
                    allow_on_failure=failure == "allow",
                    timeout=timeout,
                    is_async=is_async_callable(impl.function),
                    concerns=getattr(plugin, "concerns", None),
                )
            )
        return tuple(compiled)

    def start(self, rein: Rein) -> None:
        """Run the `start` hooks. Raises `ConfigError`, and `WouldBlock` on a running loop."""
        for impl in self.chains["start"]:
            try:
                waiting = impl(rein)
                if is_awaitable(waiting):
                    rein.portal.run(waiting, what=f"start of plugin {impl.plugin}", timeout=60)
            except ConfigError as error:
                told = str(error).removeprefix(f"{impl.plugin}: ")
                raise type(error)(f"plugin {impl.plugin}: {told}") from error
            except WouldBlock:
                raise
            except Exception as error:
                # Whatever a plugin raises at its start, a Rein without it would be unguarded.
                raise ConfigError(
                    f"plugin {impl.plugin} does not start: it raised {type(error).__name__}"
                ) from error

    def close(self, log: Logger) -> None:
        """Run the `close` hooks; what they raise is logged."""
        for impl in self.chains.get("close", ()):
            try:
                impl()
            except Exception as error:  # noqa: BLE001 - one plugin must not keep the store open
                log.error("close of plugin %s raised %s", impl.plugin, type(error).__name__)

    def __iter__(self) -> Any:
        """(name, plugin) in list order."""
        return iter(self._named)

    def order(self, hook: str) -> list[str]:
        """Names in the effective order for `hook`."""
        return [impl.plugin for impl in self.chains.get(hook, ())]


def _refuse_misfit(name: str, hook: str, function: Callable[..., Any], given: int) -> None:
    """A parameter that would never be filled in makes a guard that judges nothing."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # built-in callables tell nothing; what they raise denies the call
    names = [p.name for p in inspect.signature(getattr(Spec, hook)).parameters.values()][1:]
    taken = 0
    for p in parameters:
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            taken += 1
        elif p.name in names and p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD:
            raise PluginError(
                f"plugin {name}: {hook} must take {p.name!r} as a plain parameter without a "
                "default: it would never be filled in"
            )
        elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            raise PluginError(f"plugin {name}: {hook} has no parameter {p.name!r}")
    if taken != given:
        raise PluginError(
            f"plugin {name}: {hook} takes {taken} parameters, and {given} of them are known; "
            f"known are {', '.join(names)}"
        )


def _refuse_misspelt(name: str, plugin: object) -> None:
    """A public method of a `Plugin` whose name is almost a hook's is a guard that never runs."""
    if not isinstance(plugin, Plugin):
        return
    for attribute in dir(type(plugin)):
        if attribute.startswith("_") or attribute in HOOKS or hasattr(Plugin, attribute):
            continue
        if not callable(getattr(type(plugin), attribute, None)):
            continue
        near = difflib.get_close_matches(attribute, HOOKS, n=1, cutoff=0.85)
        if near:
            raise PluginError(
                f"plugin {name}: method {attribute!r} looks like the hook {near[0]!r}; "
                "rename it (a misspelt hook would never run)"
            )


def available() -> list[Available]:
    """Installed plugins by entry point, none of them imported."""
    from importlib.metadata import entry_points

    found: list[Available] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        dist = entry.dist
        found.append(
            Available(
                entry.name,
                dist.name if dist else "",
                dist.version if dist else "",
                entry.value,
            )
        )
    return found


def load(name: str) -> Any:
    """Import the plugin class (or factory) that is installed under `name`.

    Raises `PluginError`: unknown name, two distributions that offer it, or a failing import.
    """
    from importlib.metadata import entry_points

    found = list(entry_points(group=GROUP, name=name))
    distinct = {entry.value: entry for entry in found}
    if not found:
        known = ", ".join(a.name for a in available()) or "none"
        near = difflib.get_close_matches(name, [a.name for a in available()], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PluginError(f"plugin {name!r} is not installed{hint} (installed: {known})")
    if len(distinct) > 1:
        offers = ", ".join(sorted(distinct))
        raise PluginError(f"plugin {name!r} is offered twice ({offers}): uninstall one of them")
    entry = found[0]
    origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
    try:
        return entry.load()
    except Exception as error:
        # Any import may run any code: whatever it raises, the plugin is not usable.
        raise PluginError(
            f"plugin {name!r} from {origin} does not load: {type(error).__name__}: {error}"
        ) from error


def build(name: str, options: dict[str, Any]) -> object:
    """Construct the plugin installed under `name` with constructor arguments `options`.

    Raises `PluginError` for an unknown key, `ConfigError` from the plugin itself.
    """
    factory = load(name)
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        parameters = None  # a factory that cannot be inspected
    if parameters is not None and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for key in options:
            if key not in parameters:
                near = difflib.get_close_matches(key, list(parameters), n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise PluginError(
                    f"plugins.{name}.{key}: unknown key{hint} "
                    f"(known: {', '.join(parameters) or 'none'})"
                )
    try:
        made: object = factory(**options)
    except ConfigError as error:
        raise type(error)(f"plugins.{name}: {error}") from error
    except Exception as error:
        told = _told(error, options)
        raise PluginError(f"plugins.{name}: {type(error).__name__}{told}") from error
    return made


def _told(error: Exception, options: dict[str, Any]) -> str:
    """What a constructor's error says, unless it repeats a text of the configuration.

    Such a text may be a key or a password, and the message goes to logs and terminals.
    """
    text = str(error)
    if any(value[:6] in text for value in _texts(options) if len(value) > 3):
        return " (its message repeats a value of the configuration, and is not shown)"
    return f": {text}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def names(plugins: Sequence[tuple[str, object]]) -> list[str]:
    """Names in list order."""
    return [name for name, _ in plugins]
