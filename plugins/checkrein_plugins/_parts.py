"""What a recorded call counts into: the dimensions of budgets, read from its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein.store import Event, Store


def intent_of(store: Store, event: Event) -> Mapping[str, Any]:
    """The view of the intent that an event's call began with; empty if there is none."""
    found = store.events(call=event.call, kinds=("intent",), reverse=True, limit=1)
    view: Mapping[str, Any] = found[0].view if found else {}
    return view


def parts_of(store: Store, event: Event, intent: Mapping[str, Any]) -> dict[str, str]:
    """What a Budget counts by, of the call of an event. Its session is the whole run."""
    row = store.session(event.session)
    body: Mapping[str, Any] = row.body if row is not None else {}
    name = str(intent.get("name", ""))
    model = intent.get("kind") == "model"
    return {
        "session": str(body.get("root") or event.session),
        "agent": str(body.get("agent") or ""),
        "user": str(body.get("user") or ""),
        "tenant": str(body.get("tenant") or ""),
        "task": str(intent.get("task") or body.get("task") or ""),
        "tool": "" if model else name,
        "model": name if model else "",
        "call": event.call,
    }
