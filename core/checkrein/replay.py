"""Looking at a recorded session step by step: what happened, and how things stood then.

    replay = Replay(rein.read(session_id))
    for frame in replay.frames(phase="call"):
        print(frame.step, frame.what, frame.state)
    replay.state_at(3).in_place      # effects that stood after step 3
    replay.summary().cost            # nano-dollars

Nothing runs. Everything shown is the journal's view: what plugins redact is redacted here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from checkrein.effects import folded
from checkrein.errors import ConfigError, Conflict
from checkrein.journal import is_effect
from checkrein.timeline import PHASES, Frame, Phase, given_up, timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from checkrein.store import Event

__all__ = ["PHASES", "Figures", "Frame", "Phase", "Replay", "State", "Summary"]


class Recorded(Protocol):
    """What has events: a session, or what `rein.read(id)` gives."""

    @property
    def id(self) -> str: ...

    def events(self) -> Iterable[Event]: ...


@dataclass(frozen=True, slots=True)
class State:
    """How a session stood right after one of its steps."""

    step: int
    at: int
    """Microseconds since the epoch."""
    frame: Frame
    """The step itself, its last attempt."""
    in_place: tuple[Frame, ...]
    """Calls whose effects stood, oldest first."""
    in_doubt: tuple[Frame, ...]
    """Calls of which it was not known whether their effects stood."""
    undone: tuple[Frame, ...]
    running: tuple[Frame, ...]
    waiting: tuple[Frame, ...]
    """Requests for approval that nobody had decided."""
    cost: int
    """Nano-dollars so far."""
    tokens: int
    calls: int
    """Attempts at tools and models that had begun."""


@dataclass(slots=True)
class Figures:
    """The attempts at one tool or model, added up."""

    calls: int = 0
    failed: int = 0
    """Ended otherwise than `done`."""
    denied: int = 0
    us: int = 0
    """Microseconds, all attempts together."""
    cost: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Summary:
    """A session in figures."""

    session: str
    begun: int = 0
    ended: int = 0
    """Microseconds since the epoch, of the first and of the last event."""
    frames: int = 0
    steps: int = 0
    cost: int = 0
    tokens: int = 0
    unpriced: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    """State of an attempt -> how many: done, not_done, unknown, denied, answered, running."""
    tools: dict[str, Figures] = field(default_factory=dict)
    models: dict[str, Figures] = field(default_factory=dict)
    denials: dict[str, int] = field(default_factory=dict)
    """What said no (a plugin, with its code) -> how often."""
    approvals: dict[str, int] = field(default_factory=dict)
    """Kind of an approval's event -> how many."""
    undos: dict[str, int] = field(default_factory=dict)
    """State of an attempt at an undo -> how many."""


class Replay:
    """The frames of one session. The journal is read anew each time.

    `over`: nobody is left to end what runs, so its outcome counts as unknown. Every method
    raises `Conflict` where the session has no events: it is not in this store.
    """

    def __init__(self, session: Recorded, *, over: bool = False) -> None:
        self.id = session.id
        self._session = session
        self._over = over

    def frames(self, *, phase: Phase | None = None, outcome: str | None = None) -> Iterator[Frame]:
        """Every frame, oldest first; only those of a `phase`, or with an `outcome`.

        `outcome`: done, not_done, unknown, running, denied or answered. Raises `ConfigError`
        for a phase that there is not.
        """
        if phase is not None and phase not in PHASES:
            raise ConfigError(f"phase {phase!r}: one of {', '.join(PHASES)}")
        return (
            frame
            for frame in self._all()
            if phase in (None, frame.phase) and outcome in (None, frame.state)
        )

    def _all(self) -> list[Frame]:
        # A frame is whole when the last event was read, so all are read first.
        frames = list(timeline(self._session.events()))
        if not frames:
            raise Conflict(f"session {self.id} has no events in this store")
        if self._over:
            given_up(frames)
        return frames

    def frame(self, step: int) -> Frame:
        """The last attempt at a step. Raises `Conflict` for a step that there is not."""
        frames = self._all()
        found = [frame for frame in frames if frame.step == step and frame.phase != "undo"]
        if not found:
            last = max((frame.step or 0 for frame in frames if frame.phase != "undo"), default=0)
            if any(frame.step == step for frame in frames):
                raise Conflict(
                    f"session {self.id}: step {step} is an undo; calls are among steps 1 to {last}"
                )
            raise Conflict(f"session {self.id} has no step {step}: its steps are 1 to {last}")
        return found[-1]

    def state_at(self, step: int) -> State:
        """How things stood when `step` had ended. Raises `Conflict` for an unknown step."""
        frame = self.frame(step)
        until = max(frame.seqs)
        told = takewhile(lambda event: event.seq <= until, self._session.events())
        return _state(step, list(told), frame)

    def summary(self) -> Summary:
        """The whole session in figures."""
        frames = self._all()
        total = Summary(self.id, begun=frames[0].at, frames=len(frames))
        outcomes, denials = Counter[str](), Counter[str]()
        approvals, undos = Counter[str](), Counter[str]()
        for frame in frames:
            total.ended = max(total.ended, frame.at + (frame.us or 0))
            total.cost += frame.cost or 0
            total.tokens += frame.tokens
            total.unpriced += frame.cost_state == "unpriced"
            if frame.phase == "undo":
                if frame.kind:
                    undos[frame.state] += 1
            elif frame.kind:
                total.steps = max(total.steps, frame.step or 0)
                outcomes[frame.state] += 1
                _count(total.models if frame.kind == "model" else total.tools, frame)
                if frame.state == "denied":
                    denials[frame.verdict or "denied"] += 1
            elif frame.phase == "approval":
                approvals[frame.what] += 1
        total.outcomes, total.denials = dict(outcomes), dict(denials)
        total.approvals, total.undos = dict(approvals), dict(undos)
        return total


def _count(figures: dict[str, Figures], frame: Frame) -> None:
    one = figures.setdefault(frame.what, Figures())
    if frame.state == "denied":
        one.denied += 1
        return
    one.calls += 1
    one.failed += frame.state not in ("done", "answered")
    one.us += frame.us or 0
    one.cost += frame.cost or 0
    one.tokens += frame.tokens


def _state(step: int, events: Sequence[Event], asked: Frame) -> State:
    frames = list(timeline(events))
    calls: dict[str, list[Event]] = {}
    waiting: dict[str, Frame] = {}
    for event in events:
        calls.setdefault(event.call, []).append(event)
    for frame in frames:
        if frame.what == "approval_requested":
            waiting[frame.call] = frame
        elif frame.phase == "approval":
            waiting.pop(frame.call, None)
    begun = {frame.call: frame for frame in frames if frame.phase == "call"}
    running = {frame.call for frame in frames if frame.state == "running"}
    in_place, in_doubt, undone = list[Frame](), list[Frame](), list[Frame]()
    for call, frame in begun.items():
        effect = folded(call, calls[call], lambda undo: calls.get(undo, ()))
        if effect is None or not is_effect(effect.intent) or call in running:
            continue
        if effect.undone:
            undone.append(frame)
        elif effect.state != "not_done":
            (in_place if effect.state == "done" else in_doubt).append(frame)
    return State(
        step=step,
        at=asked.at,
        frame=begun.get(asked.call, asked),
        in_place=tuple(in_place),
        in_doubt=tuple(in_doubt),
        undone=tuple(undone),
        running=tuple(begun[call] for call in begun if call in running),
        waiting=tuple(waiting.values()),
        cost=sum(frame.cost or 0 for frame in frames),
        tokens=sum(frame.tokens for frame in frames),
        calls=sum(frame.phase == "call" for frame in frames),
    )
