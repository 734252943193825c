"""A tool's definition, as far as a decision is bound to it, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.call import ToolInfo

_SHOWN = 120
"""Characters of a text that a difference shows."""


def parts(info: ToolInfo) -> list[Any]:
    """What `ToolInfo.digest` covers, as plain data."""
    return [info.name, info.server, info.description, _plain(info.schema)]


def differences(before: Any, after: list[Any]) -> list[str]:
    """How a definition differs from an earlier one, in words; empty if that is not known."""
    if not isinstance(before, list) or len(before) != 4:
        return []
    found = [
        f"{what} was {_short(was)}, is {_short(now)}"
        for what, was, now in zip(("name", "server", "description"), before, after, strict=False)
        if was != now
    ]
    was, now = _parameters(before[3]), _parameters(after[3])
    found += [f"parameter {name} is new" for name in sorted(now.keys() - was.keys())]
    found += [f"parameter {name} is gone" for name in sorted(was.keys() - now.keys())]
    found += [
        f"parameter {name} was {_short(was[name])}, is {_short(now[name])}"
        for name in sorted(was.keys() & now.keys())
        if was[name] != now[name]
    ]
    return found or (["its schema"] if before[3] != after[3] else [])


def _parameters(schema: Any) -> Mapping[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
