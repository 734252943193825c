"""What the journal says of one call's effect: a fold over its events."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkrein.call import EffectState
from checkrein.journal import is_effect
from checkrein.store import Event, Store

PAGE = 256


@dataclass(slots=True)
class Attempt:
    """One try at undoing an effect."""

    call: str
    at: int
    """Microseconds since the epoch, of its intent."""
    state: EffectState | None
    """None: started, and nothing is known."""


@dataclass(slots=True)
class Effect:
    """A call that may have changed something, as far as it is known."""

    session: str
    call: str
    name: str
    intent: Event
    """The first intent: its number orders the undo."""
    last_at: int
    """Microseconds since the epoch of the newest intent: settle time counts from here."""
    state: EffectState
    ended: bool
    """An outcome was recorded for the newest attempt."""
    plan_seq: int = 0
    """Event whose payload holds the complete undo plan; 0 = none was stored."""
    why_not: str = ""
    """Why no plan could be completed."""
    undone: bool = False
    skipped: str = ""
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def undo_in_doubt(self) -> Attempt | None:
        """The newest undo attempt, if it is not known what it did."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.state in (None, "unknown") else None


def effect_of(store: Store, call: str, events: Sequence[Event] | None = None) -> Effect | None:
    """Fold one call's events; None if it has no intent."""
    events = store.events(call=call) if events is None else events
    intents = [e for e in events if e.kind == "intent"]
    if not intents:
        return None
    effect = Effect(
        session=intents[0].session,
        call=call,
        name=str(intents[0].view["name"]),
        intent=intents[0],
        last_at=intents[-1].at,
        state="unknown",
        ended=False,
    )
    states: dict[int, EffectState] = {e.attempt: "unknown" for e in intents}
    resolved: EffectState | None = None
    for event in events:
        view = event.view
        if event.kind in ("outcome", "late"):
            states[event.attempt] = view["state"]
            if event.attempt == intents[-1].attempt:
                effect.ended = True
            if view["state"] != "not_done":
                if "plan" in view:
                    effect.plan_seq, effect.why_not = event.seq, ""
                elif not effect.plan_seq:
                    effect.why_not = str(view.get("not_undoable", ""))
        elif event.kind == "resolved":
            resolved = view["state"] if view["state"] != "undone" else resolved
            effect.undone = effect.undone or view["state"] == "undone"
            if "plan" in view:
                effect.plan_seq, effect.why_not = event.seq, ""
        elif event.kind == "undo_skipped":
            effect.skipped = str(view["reason"])
    known = set(states.values())
    effect.state = "done" if "done" in known else "unknown" if "unknown" in known else "not_done"
    if resolved is not None and effect.state == "unknown":
        effect.state = resolved
    number = 1
    while True:
        undo_id = f"{call}.undo.{number}"
        tried = store.events(call=undo_id)
        begun = [e for e in tried if e.kind == "intent"]
        if not begun:
            break
        ends = [e for e in tried if e.kind in ("outcome", "late")]
        state: EffectState | None = ends[-1].view["state"] if ends else None
        effect.attempts.append(Attempt(undo_id, begun[-1].at, state))
        effect.undone = effect.undone or state == "done"
        number += 1
    return effect


def newest_first(store: Store, sessions: Sequence[str]) -> Iterator[Event]:
    """Intents of effects over several sessions, newest first, read page by page."""

    def of(session: str) -> Iterator[Event]:
        before: int | None = None
        while True:
            page = store.events(
                session=session, kinds=("intent",), before=before, reverse=True, limit=PAGE
            )
            yield from page
            if len(page) < PAGE:
                return
            before = page[-1].seq

    seen: set[str] = set()
    for event in heapq.merge(*(of(s) for s in sessions), key=lambda e: e.seq, reverse=True):
        if not is_effect(event) or event.attempt > 1 and event.call in seen:
            continue
        if event.attempt > 1:
            seen.add(event.call)
        yield event


def descendants(store: Store, session: str) -> list[str]:
    """A session and those that were opened inside it, detached ones left out."""
    found = [session]
    for parent in found:
        after: str | None = None
        while True:
            page = store.sessions(parent=parent, after=after, limit=PAGE)
            for row in page.rows:
                if not row.body.get("detached") and row.id not in found:
                    found.append(row.id)
            after = page.next
            if after is None:
                break
    return found


def unended(store: Store, session: str) -> Iterator[Event]:
    """Intents of a session without an outcome, newest first."""
    before: int | None = None
    while True:
        page = store.events(
            session=session, kinds=("intent", "outcome", "late", "resolved"), before=before,
            reverse=True, limit=PAGE,
        )  # fmt: skip
        for event in page:
            if event.kind == "intent" and not any(
                e.kind in ("outcome", "late", "resolved") and e.seq > event.seq
                for e in store.events(call=event.call)
            ):
                yield event
        if len(page) < PAGE:
            return
        before = page[-1].seq


def payload_of(store: Store, seq: int) -> dict[str, Any] | None:
    """A payload that is still there."""
    payload = store.payload(seq)
    return payload if isinstance(payload, dict) else None
