"""Ids of calls that stay the same when the graph runs a step again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from checkrein_integrations._shared.keys import key_digest
from checkrein_integrations.langchain.framework import CHECKPOINTER

THREAD = "langgraph.thread_id"
"""Label of calls by which `resume` finds the run again."""


class Place(NamedTuple):
    """Where a call is made."""

    thread: str
    """Id of the checkpointed thread; empty without a checkpointer."""
    agent: str


NOWHERE = Place("", "")


def place_of(config: Mapping[str, Any] | None) -> Place:
    """Read a run's config. A thread id without a checkpointer keeps nothing, so it is none."""
    if not config:
        return NOWHERE
    configurable = config.get("configurable") or {}
    metadata = config.get("metadata") or {}
    thread = configurable.get("thread_id") if configurable.get(CHECKPOINTER) else None
    return Place("" if thread is None else str(thread), str(metadata.get("lc_agent_name") or ""))


def message_of(messages: Sequence[Any], tool_call_id: str) -> str:
    """Id of the AI message that asked for a tool call; its position where it has no id."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        calls = getattr(message, "tool_calls", None)
        if calls and any(call["id"] == tool_call_id for call in calls):
            return message.id or f"#{index}"
    return "?"


def call_key(secret: bytes, arguments: Mapping[str, Any], *place: str | None) -> str:
    """A call id from what makes the call this one."""
    return f"lc-{key_digest(secret, arguments, *place)}"
