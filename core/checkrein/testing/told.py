"""Assertions over the journal: what was called, refused, asked and undone in a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from checkrein.call import NANO
from checkrein.replay import Frame
from checkrein.timeline import timeline

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Event


class Told:
    """What the journal of a Rein tells, as assertions; a failing one shows the timeline.

        told = Told(rein)
        told.called("charge", order="o1")
        told.denied("wipe", by="scope")
        told.undone("charge")

    `called` and its like compare the arguments that they name with the journal's view of them:
    redacted where plugins redact. All raise `AssertionError`.
    """

    def __init__(self, rein: Rein) -> None:
        self._store = rein.store

    def frames(self) -> list[Frame]:
        """Every frame of every session, in the order in which they began."""
        return list(timeline(self._events()))

    def called(self, name: str, times: int | None = None, **arguments: Any) -> Frame:
        """`name` ran with these arguments (others may be there): the first such call.

        `times`: exactly so often.
        """
        found = self._found(name, arguments, "call")
        wanted = _call(name, arguments)
        if times is not None:
            self._check(len(found) == times, f"{wanted} ran {len(found)} times, not {times}")
        self._check(bool(found) or times == 0, f"{wanted} did not run")
        return found[0] if found else Frame(0, 0, name)

    def not_called(self, name: str, **arguments: Any) -> None:
        """`name` did not run with these arguments."""
        found = self._found(name, arguments, "call")
        self._check(not found, f"{_call(name, arguments)} ran {len(found)} times")

    def order(self, *names: str) -> None:
        """Calls with these names ran, in this order; others may lie between."""
        ran = [frame.what for frame in self.frames() if frame.phase == "call"]
        rest = iter(ran)
        missing = [name for name in names if name not in rest]
        self._check(not missing, f"{missing[:1]} did not run in the order {list(names)}")

    def denied(self, name: str, by: str = "", **arguments: Any) -> Frame:
        """`name` was refused with these arguments, `by` a plugin (or a part of what it said)."""
        found = [
            frame
            for frame in self._found(name, arguments, "check")
            if frame.state == "denied" and by in f"{frame.verdict} {frame.detail}"
        ]
        who = f" by {by}" if by else ""
        self._check(bool(found), f"{_call(name, arguments)} was not denied{who}")
        return found[0]

    def asked(self, name: str) -> Frame:
        """A person was asked about `name`."""
        found = [
            frame
            for frame in self.frames()
            if frame.what == "approval_requested" and f"tool {name}" in frame.detail
        ]
        self._check(bool(found), f"nobody was asked about {name}")
        return found[0]

    def undone(self, name: str, times: int | None = None) -> None:
        """An effect of `name` was undone; `times`: exactly so many."""
        count = sum(
            frame.kind == "undo" and frame.state == "done" and self._name_of(frame.parent) == name
            for frame in self.frames()
        )
        if times is not None:
            self._check(count == times, f"{name} was undone {count} times, not {times}")
        self._check(count > 0 or times == 0, f"{name} was not undone")

    def spent(self, *, at_most: float) -> None:
        """All calls together cost at most so many dollars."""
        cost = sum(frame.cost or 0 for frame in self.frames())
        self._check(cost <= at_most * NANO, f"${cost / NANO:.6f} was spent, not ${at_most:.6f}")

    def lines(self) -> list[str]:
        """The life of each call and decision, a line each."""
        return [_line(frame) for frame in self.frames()]

    # -- reading

    def _events(self) -> Iterator[Event]:
        after = 0
        while page := self._store.events(after=after, limit=1000):
            yield from page
            after = page[-1].seq

    def _found(self, name: str, arguments: dict[str, Any], phase: str) -> list[Frame]:
        return [
            frame
            for frame in self.frames()
            if frame.what == name
            and frame.phase == phase
            and frame.attempt <= 1
            and all(
                key in (frame.arguments or {}) and frame.arguments[key] == value
                for key, value in arguments.items()
            )
        ]

    def _name_of(self, call: str) -> str:
        found = self._store.events(call=call, kinds=("intent",), limit=1)
        return str(found[0].view["name"]) if found else ""

    def _check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            __tracebackhide__ = True
            story = "\n".join(f"  {line}" for line in self.lines()) or "  (nothing)"
            raise AssertionError(f"{otherwise}; this happened:\n{story}")


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _line(frame: Frame) -> str:
    given = frame.arguments if isinstance(frame.arguments, dict) else {}
    what = _call(frame.what, given) if frame.kind and frame.kind != "model" else frame.what
    parts = [
        "" if frame.step is None else f"{frame.step}.",
        f"{frame.kind} {what}" if frame.kind in ("model", "undo") else what,
        f"[{frame.verdict}]" if frame.verdict else "",
        f"-> {frame.state}" if frame.state else "",
        repr(frame.result) if frame.result is not None and frame.kind != "model" else "",
        f"${frame.cost / NANO:.6f}" if frame.cost else "",
        f"{frame.us / 1000:.1f} ms" if frame.us is not None else "",
        f"undo {frame.undo}" if frame.undo else "",
        frame.detail,
    ]
    return " ".join(filter(None, parts))
