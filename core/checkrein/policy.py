"""From a configuration to a `Rein`: plugins built in order, tools declared, a checksum.

    store = "sqlite:///checkrein.db"

    [plugins.budget]            # the name is an entry point, the keys its constructor's arguments
    usd = 5

    [plugins.budget-2]          # a second one of the same kind
    calls = 100

    [plugins.office-hours]      # or under a name of one's own
    use = "maintenance_window"

    [tools.send_mail]           # as rein.declare("send_mail", ...)
    effect = "egress"

Plugins run in the order of the file. Whatever is wrong is a `ConfigError` with file, line and
key, and nothing has been started.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkrein import _config_file
from checkrein._config_file import Document, Key
from checkrein.errors import CheckreinError, ConfigError

if TYPE_CHECKING:
    from checkrein._config_model import Settings, ToolSettings
    from checkrein.rein import Rein

_DECIDING = (
    "mode", "on_error", "on_rejected", "on_failed", "on_drift", "failure_mode", "approvals",
    "approval_expires", "unattributed",
)  # fmt: skip
"""Settings that belong to a policy; where things are stored does not."""


def rein_from_file(cls: type[Rein], path: Path, overrides: dict[str, Any]) -> Rein:
    """A Rein from a file. `overrides` are arguments of `Rein`; `plugins` are added at the end."""
    return _rein(cls, _config_file.read(path), overrides)


def rein_from_config(cls: type[Rein], config: Mapping[str, Any], overrides: dict[str, Any]) -> Rein:
    """A Rein from a mapping of a file's shape. Relative paths are the process's own."""
    if not isinstance(config, Mapping):
        raise ConfigError("configuration: must be a mapping of a file's shape")
    return _rein(cls, Document(_plain(config)), overrides)


def _plain(value: Any) -> Any:
    """Copies, so that nobody changes a policy afterwards; other mappings become dicts."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _rein(cls: type[Rein], document: Document, overrides: dict[str, Any]) -> Rein:
    settings = check(document)
    _check_overrides(cls, overrides)
    plugins = build_plugins(document, settings)
    added = list(overrides.get("plugins", ()))
    _refuse_twice(document, plugins, added)
    given = rein_arguments(document, settings)
    given.update({key: value for key, value in overrides.items() if key != "plugins"})
    try:
        rein = cls([*plugins, *added], **given)
    except ConfigError as error:
        raise _placed(document, error) from error
    try:
        declare_tools(rein, document, settings)
        rein.configured = {
            name: (used(name, options), {k: v for k, v in options.items() if k != "use"})
            for name, options in settings.plugins.items()
        }
        if "policy" not in overrides:
            rein.policy = checksum(rein.store.key, settings, added, rein.pinning.digest)
    except BaseException:
        rein.close()
        raise
    return rein


def check(document: Document) -> Settings:
    """Check a configuration's shape; builds and imports nothing of it."""
    from checkrein._config_model import validate

    return validate(document)


def rein_arguments(document: Document, settings: Settings) -> dict[str, Any]:
    """Arguments of `Rein` that a configuration sets, plugins left out."""
    from checkrein._config_model import NOT_REIN

    given = settings.model_dump(include=settings.model_fields_set - set(NOT_REIN))
    if "store" in given:
        given["store"] = store_url(document, settings)
    return given


def store_url(document: Document, settings: Settings) -> str:
    """The store, a relative SQLite path taken from the file's own directory.

    Then every process that reads the file has the same store, wherever it was started.
    """
    url = settings.store
    scheme = "sqlite:///"
    if document.path is None or not url.startswith(scheme) or url.startswith(scheme + "/"):
        return url
    base = document.path.resolve().parent.as_posix().replace("%", "%25").replace("?", "%3F")
    return f"{scheme}{base}/{url.removeprefix(scheme)}"


def _check_overrides(cls: type[Rein], overrides: Mapping[str, Any]) -> None:
    import inspect

    from checkrein._config_model import near

    known = sorted(set(inspect.signature(cls.__init__).parameters) - {"self"})
    for key in overrides:
        if key not in known:
            raise ConfigError(
                f"{key}: not an argument of Rein{near(key, known)}; allowed: {', '.join(known)}"
            )


def _placed(document: Document, error: ConfigError) -> ConfigError:
    """An error of the Rein itself, with the line of the key or plugin that it names."""
    text = str(error)
    found = re.match(r"(?:plugin )?([\w-]+)", text)
    key: Key = ()
    if found is not None and text.startswith("plugin "):
        key = ("plugins", found[1])
    elif found is not None and found[1] in document.data:
        key = (found[1],)
    line = document.line(key) if key else None
    where = f"{document.name}:{line}" if line is not None else document.name
    return type(error)(f"{where}: {text}")


# -- plugins


def build_plugins(document: Document, settings: Settings) -> list[tuple[str, object]]:
    """(name, plugin) in the order of the file."""
    folder = None if document.path is None else document.path.resolve().parent
    token = _config_file.FOLDER.set(folder)
    try:
        return [
            (name, _build(document, name, dict(options)))
            for name, options in settings.plugins.items()
        ]
    finally:
        _config_file.FOLDER.reset(token)


def _build(document: Document, name: str, options: dict[str, Any]) -> object:
    from checkrein import manager
    from checkrein._config_model import near

    key: Key = ("plugins", name)
    use = used(name, options)
    if not isinstance(use, str):
        raise document.error((*key, "use"), "must be the name of an installed plugin")
    options.pop("use", None)
    try:
        return manager.build(use, options)
    except ConfigError as error:
        text = str(error).removeprefix(f"plugins.{use}")
        inner = re.match(r"\.([\w-]+): ", text)
        if inner is not None:
            raise type(error)(str(document.error((*key, inner[1]), text[inner.end() :]))) from error
        text = text.removeprefix(": ")
        unknown = re.search(r"unknown key '([^']+)'; allowed: (.*)$", text)
        if unknown is not None:
            text = f"unknown key{near(unknown[1], unknown[2].split(', '))}; allowed: {unknown[2]}"
            raise type(error)(str(document.error((*key, unknown[1]), text))) from error
        named = [k for k in options if re.search(rf"(?<![\w-]){re.escape(k)}(?![\w-])", text)]
        place = document.line((*key, named[0]) if named else key)
        where = f"{document.name}:{place}" if place is not None else document.name
        dotted = _config_file.dotted(key)
        # Plugins begin with their own name, for those who construct them: here it has its place.
        text = re.sub(rf"(^|; ){re.escape(use)}(?=[.:])", rf"\g<1>{dotted}", text)
        text = text if text.startswith(dotted) else f"{dotted}: {text}"
        raise type(error)(f"{where}: {text}") from error


def used(name: str, options: Mapping[str, Any]) -> Any:
    """The installed name of the plugin that a configuration calls `name`."""
    use = options.get("use")
    if use is not None:
        return use
    numbered = re.fullmatch(r"(.+)-[0-9]+", name)
    return numbered[1] if numbered is not None and not _installed(name) else name


def _installed(name: str) -> bool:
    from importlib.metadata import entry_points

    from checkrein.manager import GROUP

    return bool(entry_points(group=GROUP, name=name))


def _refuse_twice(
    document: Document, plugins: Iterable[tuple[str, object]], added: Iterable[Any]
) -> None:
    classes = {type(plugin): name for name, plugin in plugins}
    for item in added:
        plugin = item[1] if isinstance(item, tuple) else item
        name = classes.get(type(plugin))
        if name is not None:
            raise document.error(
                ("plugins", name),
                f"a {type(plugin).__name__} is also passed as plugins=[...]: it would run twice; "
                "keep one of them",
            )


# -- tools


def declare_tools(rein: Rein, document: Document, settings: Settings) -> None:
    """Declare `[tools.NAME]`, tools that others name as their undo first."""
    waiting = dict(settings.tools)
    while waiting:
        ready = [n for n, tool in waiting.items() if _undo_name(tool) not in waiting] or [*waiting]
        for name in ready:
            _declare(rein, document, name, waiting.pop(name))


def _undo_name(tool: ToolSettings) -> str:
    return tool.undo.partition("(")[0].strip() if isinstance(tool.undo, str) else ""


def _declare(rein: Rein, document: Document, name: str, tool: ToolSettings) -> None:
    key: Key = ("tools", name)
    given = tool.model_dump(include=tool.model_fields_set, by_alias=True)
    if tool.probe is not None:
        given["probe"] = named(document, (*key, "probe"), tool.probe, "a function", callable)
    if tool.before is not None:
        given["before"] = named(document, (*key, "before"), tool.before, "a function", callable)
    if "no_effect_on" in given:
        given["no_effect_on"] = [
            named(document, (*key, "no_effect_on"), text, "an exception class", _is_exception)
            for text in tool.no_effect_on
        ]
    try:
        if tool.undo is not None and not isinstance(tool.undo, str):
            given["undo"] = tool.undo.made()
        rein.declare(name, **given)
    except ConfigError as error:
        text = str(error).removeprefix(f"tool {name}: ")
        mentioned = [k for k in given if re.search(rf"\b{k}\b", text)]
        raise document.error((*key, *mentioned[:1]), text) from error


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def named(document: Document, key: Key, text: str, what: str, fits: Callable[[Any], bool]) -> Any:
    """The object that `module:name` names. Raises `ConfigError`."""
    module, _, path = text.partition(":")
    if not module or not path:
        raise document.error(key, f"{text!r} must be module:name, for example shop.tools:find")
    try:
        value: Any = importlib.import_module(module)
    except Exception as error:
        # Importing runs other people's code: whatever it raises, the name cannot be used.
        raise document.error(
            key, f"module {module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in path.split("."):
        if not hasattr(value, part):
            half = getattr(getattr(sys.modules[module], "__spec__", None), "_initializing", False)
            raise document.error(
                key,
                f"{module} has no {path}"
                + ("; it is still being imported: put it into another module" if half else ""),
            )
        value = getattr(value, part)
    if not fits(value):
        raise document.error(key, f"{text} is not {what}")
    return value


# -- the checksum


def checksum(
    store_key: bytes, settings: Settings, added: Iterable[Any] = (), pins: str = ""
) -> str:
    """Names a policy: the same decisions give the same text, in one store.

    Keyed with the store's key, so that short secrets in a configuration cannot be guessed
    from it. Plugins that were passed as objects count by their class; `pins` names what they
    and the configured ones are pinned to, with the contents of their files.
    """
    from checkrein import codec

    tree = {
        "settings": {key: getattr(settings, key) for key in _DECIDING},
        "plugins": [[name, options] for name, options in settings.plugins.items()],
        "tools": {
            name: tool.model_dump(by_alias=True) for name, tool in sorted(settings.tools.items())
        },
        "pins": pins,
        "added": [_class_name(item[1] if isinstance(item, tuple) else item) for item in added],
    }
    try:
        return codec.digest(store_key, codec.encode(tree))
    except CheckreinError as error:
        raise ConfigError(f"configuration: {error}") from error


def _class_name(plugin: object) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"
