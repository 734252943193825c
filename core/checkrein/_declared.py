"""What a declaration says, checked: names, numbers, readers and probes that fit their tool."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from checkrein.call import ToolInfo
from checkrein.errors import ConfigError
from checkrein.tool import Tool
from checkrein.undo import INJECTED, is_generator, refuse_injected, refuse_opaque


def merged(name: str, file: Mapping[str, Any], code: Mapping[str, Any]) -> dict[str, Any]:
    """What a file and the code say of one tool. Raises `ConfigError` where they differ."""
    plain = _defaults()
    found = dict(code)
    for key, said in file.items():
        if said == plain.get(key) or key not in found:
            continue
        if found[key] not in (plain.get(key), said):
            raise ConfigError(
                f"tool {name}: {key} is set in the configuration and otherwise in the code; say it "
                "in one place"
            )
        found[key] = said
    return found


@functools.cache
def _defaults() -> dict[str, Any]:
    """What `declare` stores of a tool of which nothing is said."""
    from checkrein.tools import Tools

    tools = Tools()
    tools.declare("x")
    return tools.settings_of("x")


def reader_of(tool: Tool, fn: Any, on_capture: str) -> Tool:
    """The reader of the state before a change. Raises `ConfigError` where it does not fit."""
    where = f"tool {tool.info.name}"
    if on_capture not in ("refuse", "ask", "go_on"):
        raise ConfigError(f"{where}: on_capture must be 'refuse', 'ask' or 'go_on'")
    if not callable(fn) or is_generator(fn):
        raise ConfigError(f"{where}: before must be a function that reads")
    if "before" in tool.parameters and tool.signature_known:
        raise ConfigError(
            f"{where}: `before` is a parameter of it, and what its undo is given: rename it"
        )
    reader = Tool(ToolInfo(f"{tool.info.name}.before", effect="read"), fn)
    for name in reader.required:
        if tool.signature_known and name not in tool.parameters:
            raise ConfigError(
                f"{where}: before takes {name!r}, which is none of its parameters "
                f"({', '.join(tool.parameters) or 'none'})"
            )
    return reader


def check_settings(name: str, effect: str, timeout: float | None, settle_time: float) -> None:
    """Refuse a declaration that makes no sense. Raises `ConfigError`."""
    if not name or not str(name).strip():
        raise ConfigError("a tool needs a name: a string that is not empty")
    if effect not in ("read", "write", "egress"):
        raise ConfigError(f"tool {name}: effect must be 'read', 'write' or 'egress'")
    if timeout is not None and not (is_seconds(timeout) and timeout > 0):
        raise ConfigError(f"tool {name}: timeout must be seconds above 0")
    if not is_seconds(settle_time):
        raise ConfigError(f"tool {name}: settle_time must be seconds, 0 or more")


def error_classes(given: Any, tool: str) -> tuple[type[Exception], ...]:
    """Classes of exceptions that say that nothing was done. Raises `ConfigError`."""
    classes = (given,) if isinstance(given, type) or not isinstance(given, Iterable) else given
    for cls in classes:
        # A cancellation or an interrupt never tells that nothing was done.
        if not isinstance(cls, type) or not issubclass(cls, Exception):
            raise ConfigError(f"tool {tool}: no_effect_on takes classes of exceptions")
    return tuple(classes)


def is_seconds(value: object) -> bool:
    """Whether a value is a length of time."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9


def names_of(names: Iterable[str], tool: str, key: str) -> tuple[str, ...]:
    """Names of parameters. Raises `ConfigError` for one text in their place."""
    if isinstance(names, str):
        raise ConfigError(f"tool {tool}: {key} must be a list of names, not one string")
    return tuple(names)


def probe_of(tool: Tool, fn: Any) -> Tool:
    """The probe of a tool. Raises `ConfigError` where it does not fit."""
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


def name_of(fn: Callable[..., Any]) -> str:
    """The name that a function goes by."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    return str(getattr(inner, "__name__", type(inner).__name__))
