"""What tests of agents, plugins and adapters need: a clock, a recorder, fakes, checks.

    from checkrein.testing import Clock, Effects, check_plugin, check_store, record_events

Nothing here imports pytest; the checks raise `AssertionError`s, so any runner shows them.
`OpenAIServer`, `check_plugin` and `check_store` are loaded when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkrein.testing.clock import Clock
from checkrein.testing.recorder import Effect, Effects, Recording, record_events

if TYPE_CHECKING:
    from checkrein.testing.check_plugin import PluginFault, check_plugin, sample_call
    from checkrein.testing.check_store import check_store
    from checkrein.testing.openai_server import Failure, OpenAIServer, Reply, ToolCall

_LATE = {
    "PluginFault": "check_plugin",
    "check_plugin": "check_plugin",
    "check_store": "check_store",
    "sample_call": "check_plugin",
    "Failure": "openai_server",
    "OpenAIServer": "openai_server",
    "Reply": "openai_server",
    "ToolCall": "openai_server",
}

__all__ = [
    "Clock",
    "Effect",
    "Effects",
    "Failure",
    "OpenAIServer",
    "PluginFault",
    "Recording",
    "Reply",
    "ToolCall",
    "check_plugin",
    "check_store",
    "record_events",
    "sample_call",
]


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    # Importing a submodule binds its own name here: the function of that name goes over it.
    loaded = import_module(f"checkrein.testing.{module}")
    for late, where in _LATE.items():
        if where == module:
            globals()[late] = getattr(loaded, late)
    return globals()[name]
