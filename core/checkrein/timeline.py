"""The story of a session: its events folded into one frame for each attempt and decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from checkrein.store import Event

Phase: TypeAlias = Literal["call", "check", "approval", "undo", "session"]
PHASES: tuple[Phase, ...] = ("call", "check", "approval", "undo", "session")


@dataclass(slots=True)
class Frame:
    """One step of a session's story: an attempt at a call, a decision, or a finding."""

    at: int
    """Microseconds since the epoch."""
    seq: int
    what: str
    """Name of a tool or model, or the kind of a session's event."""
    call: str = ""
    kind: str = ""
    """tool, model, undo; empty for what is no call."""
    step: int | None = None
    """Number of the call in its session, from 1."""
    verdict: str = ""
    state: str = ""
    cost: int | None = None
    """Nano-dollars."""
    cost_state: str = ""
    undo: str = ""
    arguments: Any = None
    result: Any = None
    detail: str = ""
    attempt: int = 0
    parent: str = ""
    """The call inside which this one was made; of an undo, the call that it takes back."""
    effect: str = ""
    """read, write, egress; of tools and undos."""
    tokens: int = 0
    us: int | None = None
    """Microseconds that the attempt took."""
    seqs: list[int] = field(default_factory=list)
    """Events that may have payloads."""

    @property
    def phase(self) -> Phase:
        """Where in the life of a call or session it stands."""
        if self.kind == "undo" or self.what in _UNDO:
            return "undo"
        if self.state in ("denied", "answered"):
            return "check"
        if self.kind:
            return "call"
        if self.what.startswith("approval"):
            return "approval"
        return "session" if self.what.startswith("session") else "check"

    def tree(self) -> dict[str, Any]:
        """As plain data, empty fields left out."""
        names = (
            "seq", "call", "kind", "what", "step", "attempt", "parent", "effect", "verdict",
            "state", "cost", "cost_state", "tokens", "us", "undo", "arguments", "result", "detail",
        )  # fmt: skip
        values = {name: getattr(self, name) for name in names}
        if not self.attempt:
            del values["attempt"], values["tokens"]
        return {name: v for name, v in values.items() if v not in ("", None)}


_UNDO = frozenset(
    {"rollback_started", "rollback_finished", "undo_skipped", "resolved", "needs_human"}
)


def timeline(events: Iterable[Event]) -> Iterator[Frame]:
    """Fold events, oldest first; a frame is complete only when all were read."""
    open_calls: dict[tuple[str, int], Frame] = {}
    for event in events:
        view = event.view
        if event.kind == "intent":
            frame = Frame(
                event.at, event.seq, str(view["name"]), event.call, str(view["kind"]),
                view.get("step"), _verdicts(view), "running", undo=str(view.get("undo", "")),
                arguments=view.get("arguments"), seqs=[event.seq],
                attempt=event.attempt, parent=str(view.get("parent", "")),
                effect=str(view.get("effect", "")),
            )  # fmt: skip
            if event.attempt > 1:
                frame.detail = f"attempt {event.attempt}"
            open_calls[event.call, event.attempt] = frame
            yield frame
        elif event.kind in ("outcome", "late") and (event.call, event.attempt) in open_calls:
            _ended(open_calls[event.call, event.attempt], event)
        elif event.kind in ("answered", "denied"):
            yield Frame(
                event.at, event.seq, str(view["name"]), event.call, str(view["kind"]),
                view.get("step"),
                _verdicts(view) or " ".join(filter(None, (view.get("plugin"), view.get("code")))),
                event.kind, arguments=view.get("arguments"), result=view.get("result"),
                detail=str(view.get("reason") or view.get("source") or ""), seqs=[event.seq],
            )  # fmt: skip
        else:
            yield _other(event)


def given_up(frames: Iterable[Frame]) -> None:
    """Mark what runs as of unknown outcome: nobody is left to end it."""
    for frame in frames:
        frame.state = "unknown" if frame.state == "running" else frame.state


def _ended(frame: Frame, event: Event) -> None:
    view = event.view
    frame.seqs.append(event.seq)
    frame.state = str(view["state"])
    frame.cost = view.get("cost")
    frame.cost_state = str(view.get("cost_state", ""))
    frame.result = view.get("result")
    frame.us = view.get("us")
    usage = view.get("usage", {})
    frame.tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    if "error" in view:
        error = view["error"]
        frame.detail = _join(frame.detail, f"{error['type']}: {error['message']}")
    if event.kind == "late":
        frame.detail = _join(frame.detail, "came late")
    if "not_undoable" in view:
        frame.undo = f"none: {view['not_undoable']}"
    elif "plan" in view:
        frame.undo = str(view["plan"])
    if frame.state == "not_done":
        frame.undo = ""


_APART = frozenset({"id", "expires", "verdicts", "unchecked", "result"})
"""What a frame shows in a place of its own."""


def _other(event: Event) -> Frame:
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
    return Frame(
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
