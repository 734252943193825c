"""What a session has done so far, as guards look at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checkrein.call import Call

if TYPE_CHECKING:
    from checkrein.rein import Rein

LINE = 300
"""Characters of one line."""


def earlier_calls(rein: Rein, call: Call, most: int) -> list[Mapping[str, Any]]:
    """What is recorded of the session's last tool calls, oldest first: views, so perhaps masked."""
    found = rein.store.events(
        session=call.session, kinds=("intent",), reverse=True, limit=min(4 * most, 1000)
    )
    views = [e.view for e in found if e.call != call.id and e.view.get("kind") == "tool"]
    return views[:most][::-1]


def told(views: list[Mapping[str, Any]]) -> str:
    """A line for each call."""
    lines = []
    for view in views:
        arguments = json.dumps(view.get("arguments"), ensure_ascii=False, default=str)
        lines.append(f"{view.get('name')}({arguments})"[:LINE])
    return "\n".join(lines)


def last_words(rein: Rein, call: Call) -> Any:
    """The result of the session's last model call of the agent, as recorded; None without one."""
    intents = rein.store.events(session=call.session, kinds=("intent",), reverse=True, limit=50)
    for intent in intents:
        if intent.view.get("kind") == "model" and not intent.view.get("guard"):
            for event in rein.store.events(call=intent.call, reverse=True, limit=16):
                if "result" in event.view:
                    return event.view["result"]
            return None
    return None


def intent_of(rein: Rein | None, call: Call) -> str:
    """What the session is for, as it was opened; empty where nobody said."""
    session = None if rein is None else rein.opened(call.session)
    if session is not None and session.intent:
        return session.intent
    row = None if rein is None else rein.store.session(call.session)
    return "" if row is None else str(row.body.get("intent") or "")
