"""What tests of agents, plugins and stores need: a clock, a recorder, fakes, checks.

    from checkrein.testing import Clock, Effects, check_plugin, check_store, record_events

Nothing here imports pytest; the checks raise `AssertionError`s, so any runner shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkrein.testing.check_plugin import PluginFault, check_plugin, sample_call
from checkrein.testing.check_store import check_store
from checkrein.testing.clock import Clock
from checkrein.testing.recorder import Effect, Effects, Recording, record_events
from checkrein.testing.told import Told

if TYPE_CHECKING:
    from checkrein.testing.openai_server import Failure, OpenAIServer, Reply, ToolCall

_SERVER = ("Failure", "OpenAIServer", "Reply", "ToolCall")

__all__ = [
    "Clock",
    "Effect",
    "Effects",
    "Failure",
    "OpenAIServer",
    "PluginFault",
    "Recording",
    "Reply",
    "Told",
    "ToolCall",
    "check_plugin",
    "check_store",
    "record_events",
    "sample_call",
]


def __getattr__(name: str) -> Any:
    """The server's names: an HTTP server is loaded only where one is wanted."""
    if name not in _SERVER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from checkrein.testing import openai_server

    return getattr(openai_server, name)
