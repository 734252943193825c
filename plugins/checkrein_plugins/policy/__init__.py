"""Policy files: rules with conditions, in layers, that can be tested before they are live.

`Policy` is the plugin; `checkrein policy ...` checks, explains, tests and rehearses its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein_plugins.policy.plugin import Policy

__all__ = ["Policy"]


def __getattr__(name: str) -> Any:
    """The plugin, imported when it is asked for."""
    if name != "Policy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from checkrein_plugins.policy.plugin import Policy

    return Policy
