"""What the journal says of one call's effect: a fold over its events."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
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
    raised: bool = False
    """It ended with an error of its own: it failed, which is no doubt."""


@dataclass(slots=True)
class Effect:
    """A call that may have changed something, as far as it is known."""

    session: str
    call: str
    name: str
    intent: Event
    """The newest intent: its number orders the undo, settle time counts from it."""
    state: EffectState
    ended: bool
    """An outcome was recorded for the newest attempt."""
    result_seq: int = 0
    """Event whose payload holds the result; 0 = it is not known."""
    plan_seq: int = 0
    """Event whose payload holds the complete undo plan; 0 = none was stored."""
    why_not: str = ""
    """Why no plan could be completed."""
    found_seq: int = 0
    """Event by which it was found in place, the newest; 0 = it was not looked for."""
    undone: bool = False
    skipped: str = ""
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def undo_in_doubt(self) -> Attempt | None:
        """The newest undo attempt, if it is not known what it did.

        One that raised is not in doubt: it has said that it failed, and is tried again.
        """
        last = self.attempts[-1] if self.attempts else None
        if last is None or last.raised or last.state not in (None, "unknown"):
            return None
        return last


def effect_of(
    store: Store, call: str, events: Sequence[Event] | None = None, *, tried: bool = True
) -> Effect | None:
    """Fold one call's events; None if it has no intent. `tried`: it may have been undone before."""
    events = every(store, call) if events is None else events
    return folded(call, events, (lambda undo: every(store, undo)) if tried else _never)


def _never(_: str) -> Sequence[Event]:
    """Events of an undo that was never tried."""
    return ()


def folded(
    call: str, events: Sequence[Event], read: Callable[[str], Sequence[Event]]
) -> Effect | None:
    """Fold one call's events; `read` gives those of its undos, by their calls' ids."""
    intents = [e for e in events if e.kind == "intent"]
    if not intents:
        return None
    effect = Effect(
        session=intents[-1].session,
        call=call,
        name=str(intents[-1].view["name"]),
        intent=intents[-1],
        state="unknown",
        ended=False,
    )
    states: dict[int, EffectState] = {}
    for event in events:
        _take_in(effect, states, event)
    known = set(states.values())
    effect.state = "done" if "done" in known else "unknown" if "unknown" in known else "not_done"
    number = 1
    while True:
        undo_id = f"{call}.undo.{number}"
        tried = read(undo_id)
        begun = [e for e in tried if e.kind == "intent"]
        if not begun:
            break
        ends = [e for e in tried if e.kind in ("outcome", "late")]
        state: EffectState | None = ends[-1].view["state"] if ends else None
        # Who found the effect in place afterwards has found that this undo did not work.
        raised = effect.found_seq > begun[-1].seq or (
            bool(ends) and ends[-1].view.get("ended") == "error"
        )
        effect.attempts.append(Attempt(undo_id, begun[-1].at, state, raised))
        effect.undone = effect.undone or state == "done"
        number += 1
    return effect


def _take_in(effect: Effect, states: dict[int, EffectState], event: Event) -> None:
    """Add one event to what is known, in order: a later attempt may be in doubt again."""
    view = event.view
    if event.kind == "intent":
        states[event.attempt] = "unknown"
    elif event.kind in ("outcome", "late"):
        state: EffectState = view["state"]
        # A late word of failure takes back nothing that is known already.
        if event.kind == "outcome" or state == "done" or states.get(event.attempt) != "done":
            states[event.attempt] = state
        effect.ended = effect.ended or event.attempt == effect.intent.attempt
        if state == "done" and "error" not in view and "unrecorded" not in view:
            effect.result_seq = event.seq
        if state != "not_done":
            if "plan" in view:
                effect.plan_seq, effect.why_not = event.seq, ""
            elif not effect.plan_seq:
                effect.why_not = str(view.get("not_undoable", ""))
    elif event.kind == "resolved":
        if view["state"] == "undone":
            effect.undone = True
            return
        for attempt, before in states.items():
            if before == "unknown":
                states[attempt] = view["state"]
        if view["state"] == "done":
            effect.found_seq = event.seq
            effect.result_seq = event.seq if view.get("result_known") else effect.result_seq
            effect.why_not = str(view.get("not_undoable", "")) if not effect.plan_seq else ""
        if "plan" in view:
            effect.plan_seq, effect.why_not = event.seq, ""
    elif event.kind == "undo_skipped":
        effect.skipped = str(view["reason"])


def every(store: Store, call: str, kinds: Sequence[str] | None = None) -> list[Event]:
    """All events of a call, oldest first: one that is tried again and again has many pages."""
    found: list[Event] = []
    while True:
        page = store.events(call=call, kinds=kinds, after=found[-1].seq if found else 0, limit=1000)
        found += page
        if len(page) < 1000:
            return found


def newest_first(
    store: Store, sessions: Sequence[str], tried: set[str] | None = None
) -> Iterator[Event]:
    """Intents of effects over several sessions, newest first, read page by page.

    `tried`: is given the calls of which an undo was begun; it knows those of each call that is
    yielded, because an undo stands after its call.
    """

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
        if not is_effect(event):
            if tried is not None and ".undo." in event.call:
                tried.add(event.call.rpartition(".undo.")[0])
            continue
        # A call that was tried several times stands where it was tried last.
        if event.call in seen:
            if event.attempt == 1:
                seen.discard(event.call)
            continue
        if event.attempt > 1:
            seen.add(event.call)
        yield event


def descendants(store: Store, session: str, *, detached: bool = False) -> list[str]:
    """A session and those that were opened inside it; `detached`: also those that stand alone."""
    found = [session]
    for parent in found:
        after: str | None = None
        while True:
            page = store.sessions(parent=parent, after=after, limit=PAGE)
            for row in page.rows:
                if row.id not in found and (detached or not row.body.get("detached")):
                    found.append(row.id)
            after = page.next
            if after is None:
                break
    return found


def root_of(store: Store, session: str) -> str:
    """The outermost session that a rollback of which takes `session` along."""
    seen = {session}
    while True:
        row = store.session(session)
        parent = str(row.body.get("parent") or "") if row is not None else ""
        if row is None or not parent or row.body.get("detached") or parent in seen:
            return session
        seen.add(parent)
        session = parent


def unended(store: Store, session: str) -> Iterator[Event]:
    """Intents of effects without a known end, newest first, in one pass over the events."""
    kinds = ("intent", "outcome", "late", "resolved")
    ends: set[tuple[str, int]] = set()
    before: int | None = None
    while True:
        page = store.events(session=session, kinds=kinds, before=before, reverse=True, limit=PAGE)
        for event in page:
            if event.kind != "intent":
                # What a probe resolved holds for all attempts before it.
                ends.add((event.call, 0 if event.kind == "resolved" else event.attempt))
                continue
            known = (event.call, event.attempt) in ends or (event.call, 0) in ends
            ends.discard((event.call, event.attempt))
            if not known and is_effect(event):
                yield event
        if len(page) < PAGE:
            return
        before = page[-1].seq


def payload_of(store: Store, seq: int) -> dict[str, Any] | None:
    """A payload that is still there."""
    payload = store.payload(seq)
    return payload if isinstance(payload, dict) else None
