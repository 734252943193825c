"""A model call in a loop of one's own, as an entry of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.call import ToolInfo, Usage
from checkrein.entry import Entry
from checkrein.tools import Tool

if TYPE_CHECKING:
    from checkrein.session import Session


def model_entry(
    session: Session,
    fn: Callable[..., Any],
    model: str,
    messages: Sequence[Any],
    system: Any,
    tools: Sequence[Any],
    usage: Callable[[Any], Usage | None] | None,
) -> Entry:
    """See `Rein.model_call`."""

    def run(call: Any, exact: dict[str, Any]) -> Any:
        return fn(model=call.name, **exact)

    return Entry(
        tool=Tool(ToolInfo(model, effect="read"), fn),
        arguments={"system": system, "messages": list(messages), "tools": list(tools)},
        session=session,
        kind="model",
        name=model,
        run=run,
        usage=usage,
    )
