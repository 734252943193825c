"""Taking back what a stream has shown: an event for whoever reads it.

It goes where LangGraph has a place for events of one's own: `stream_mode="custom"`, and
`on_custom_event` of `astream_events`.
"""

from __future__ import annotations

import contextlib
from typing import Any

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event

from checkrein_integrations._shared.retracting import AnswerRetracted


def retract(runtime: Any, event: AnswerRetracted | None) -> None:
    """Send the event, if there is one."""
    if event is None:
        return
    if runtime is not None:
        runtime.stream_writer(event)
    # There is no run to tell of where a hook is called by hand.
    with contextlib.suppress(RuntimeError):
        dispatch_custom_event(event.type, event)


async def aretract(runtime: Any, event: AnswerRetracted | None) -> None:
    """The async twin of `retract`."""
    if event is None:
        return
    if runtime is not None:
        runtime.stream_writer(event)
    with contextlib.suppress(RuntimeError):
        await adispatch_custom_event(event.type, event)
