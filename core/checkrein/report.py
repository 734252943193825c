"""What a rollback says it did: one action for each effect, and what is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from checkrein.verdicts import Cause

Status: TypeAlias = Literal[
    "undone", "absent", "kept", "not_undoable", "in_doubt", "needs_human", "declined", "failed",
    "planned", "waiting",
]  # fmt: skip
"""`undone`: taken back. `absent`: there was no effect. `kept`: it stays, because a plugin or
whoever asked wants it so. `not_undoable`: there is no way back. `in_doubt`: not known yet, asked
again. `needs_human`: nobody here can tell. `declined`: a person refused the undo, or nobody allowed
it in time. `waiting`: for a person who was asked.
`failed`: its undo did not work. `planned`: would be undone (dry run)."""

LEFT: tuple[Status, ...] = (
    "kept", "not_undoable", "in_doubt", "needs_human", "declined", "failed", "waiting",
)  # fmt: skip
"""Statuses that leave an effect, or may leave one."""

TROUBLE: tuple[Status, ...] = ("in_doubt", "needs_human", "failed")
"""Statuses that somebody has to look at: the others are how it was wanted, or how it is."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a rollback did about one call."""

    call: str
    name: str
    session: str
    status: Status
    detail: str = ""
    wait: float = 0.0
    """Seconds until a probe's answer is final, for `in_doubt`."""
    asked: bool = True
    """False for what stands outside the part that was to be taken back: it is kept, rightly."""


@dataclass(slots=True)
class RollbackReport:
    """What a rollback did, effect by effect."""

    session: str
    cause: Cause
    actions: list[Action] = field(default_factory=list)
    """Newest effect first."""
    dry_run: bool = False
    sessions: list[str] = field(default_factory=list)
    """The session and the inner ones that went with it."""
    to: int | None = None
    """The step after which everything was to be taken back; None: all of it."""

    @property
    def left(self) -> list[Action]:
        """Effects that stay, or may stay, although they were to be undone."""
        return [a for a in self.actions if a.asked and a.status in LEFT]

    @property
    def complete(self) -> bool:
        """Whether nothing is left of what was to be undone."""
        return not self.left

    @property
    def troubled(self) -> bool:
        """Whether something failed, or is not known."""
        return any(a.asked and a.status in TROUBLE for a in self.actions)

    @property
    def kept(self) -> bool:
        """Whether effects stay that were not to be undone."""
        return any(not a.asked for a in self.actions)

    def summary(self) -> str:
        """One line: how many of each status, and the first ten that are left."""
        counts: dict[str, int] = {}
        for action in self.actions:
            counts[action.status] = counts.get(action.status, 0) + 1
        told = ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing to undo"
        left = self.left
        names = ", ".join(f"{a.name} {a.call}" for a in left[:10])
        more = f" and {len(left) - 10} more" if len(left) > 10 else ""
        return f"rollback: {told}" + (f"; left: {names}{more}" if names else "")
