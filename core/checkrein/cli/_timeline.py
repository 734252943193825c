"""The story of a session: its events folded into one entry for each attempt and decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from checkrein.store import Event


@dataclass(slots=True)
class Entry:
    """One line of a timeline."""

    at: int
    """Microseconds since the epoch."""
    seq: int
    what: str
    """Name of a tool or model, or the kind of a session's event."""
    call: str = ""
    kind: str = ""
    """tool, model, undo; empty for what is no call."""
    step: int | None = None
    verdict: str = ""
    state: str = ""
    cost: int | None = None
    """Nano-dollars."""
    cost_state: str = ""
    undo: str = ""
    arguments: Any = None
    result: Any = None
    detail: str = ""
    seqs: list[int] = field(default_factory=list)
    """Events that may have payloads."""

    def tree(self) -> dict[str, Any]:
        """As plain data, empty fields left out."""
        names = (
            "seq", "call", "kind", "what", "step", "verdict", "state", "cost", "cost_state",
            "undo", "arguments", "result", "detail",
        )  # fmt: skip
        values = {name: getattr(self, name) for name in names}
        return {name: v for name, v in values.items() if v not in ("", None)}


def timeline(events: Iterable[Event]) -> Iterator[Entry]:
    """Fold events, oldest first; an entry is complete only when all were read."""
    open_calls: dict[tuple[str, int], Entry] = {}
    for event in events:
        view = event.view
        if event.kind == "intent":
            entry = Entry(
                event.at, event.seq, str(view["name"]), event.call, str(view["kind"]),
                view.get("step"), _verdicts(view), "running", undo=str(view.get("undo", "")),
                arguments=view.get("arguments"), seqs=[event.seq],
            )  # fmt: skip
            if event.attempt > 1:
                entry.detail = f"attempt {event.attempt}"
            open_calls[event.call, event.attempt] = entry
            yield entry
        elif event.kind in ("outcome", "late") and (event.call, event.attempt) in open_calls:
            _ended(open_calls[event.call, event.attempt], event)
        elif event.kind in ("answered", "denied"):
            yield Entry(
                event.at, event.seq, str(view["name"]), event.call, str(view["kind"]),
                view.get("step"),
                _verdicts(view) or " ".join(filter(None, (view.get("plugin"), view.get("code")))),
                event.kind, arguments=view.get("arguments"), result=view.get("result"),
                detail=str(view.get("reason") or view.get("source") or ""), seqs=[event.seq],
            )  # fmt: skip
        else:
            yield _other(event)


def _ended(entry: Entry, event: Event) -> None:
    view = event.view
    entry.seqs.append(event.seq)
    entry.state = str(view["state"])
    entry.cost = view.get("cost")
    entry.cost_state = str(view.get("cost_state", ""))
    entry.result = view.get("result")
    if "error" in view:
        error = view["error"]
        entry.detail = _join(entry.detail, f"{error['type']}: {error['message']}")
    if event.kind == "late":
        entry.detail = _join(entry.detail, "came late")
    if "not_undoable" in view:
        entry.undo = f"none: {view['not_undoable']}"
    elif "plan" in view:
        entry.undo = str(view["plan"])
    if entry.state == "not_done":
        entry.undo = ""


_APART = frozenset({"id", "expires", "verdicts", "unchecked", "result"})
"""What an entry shows in a place of its own."""


def _other(event: Event) -> Entry:
    """An event about the session, an approval or a finding."""
    view = event.view
    shown = {
        key: value
        for key, value in view.items()
        if key not in _APART and value not in ("", None, [], False)
    }
    detail = ", ".join(f"{key} {_plain(value)}" for key, value in shown.items())
    if view.get("id"):
        detail = _join(str(view["id"]), detail)
    return Entry(
        event.at, event.seq, event.kind, event.call, verdict=_verdicts(view), detail=detail,
        result=view.get("result"), seqs=[event.seq],
    )  # fmt: skip


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_plain, value))
    if isinstance(value, dict):
        return " ".join(str(v) for v in value.values())
    return str(value)


def _verdicts(view: Any) -> str:
    told = [f"{plugin} {said}" for plugin, said in view.get("verdicts", ()) if said != "unchecked"]
    told += [f"{plugin} unchecked" for plugin in view.get("unchecked", ())]
    return ", ".join(told)


def _join(one: str, other: str) -> str:
    return f"{one}; {other}" if one and other else one or other
