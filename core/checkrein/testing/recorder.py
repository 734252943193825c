"""What tools did to the world, and what the journal says of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Event


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a tool did, or took back."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    undone: bool = False
    """It took an effect of the same name and arguments back."""


class Effects:
    """The outside world of a test: tools write into it, and it counts.

        effects = Effects()

        @rein.tool(undo=lambda order: effects.undo("pay", order=order))
        def pay(order: str) -> None:
            effects.do("pay", order=order)

    With a `path`, effects are lines of that file (arguments must be JSON): what processes did
    that were killed counts too. Safe in several threads and processes.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._done: list[Effect] = []
        self._lock = threading.Lock()

    def do(self, name: str, **arguments: Any) -> None:
        """An effect happens now."""
        self._add(Effect(name, arguments))

    def undo(self, name: str, **arguments: Any) -> None:
        """An effect is taken back now; whether there was one shows in `in_place`."""
        self._add(Effect(name, arguments, undone=True))

    def _add(self, effect: Effect) -> None:
        if self._path is None:
            with self._lock:
                self._done.append(effect)
            return
        line = json.dumps([effect.name, effect.arguments, effect.undone]) + "\n"
        # One write to a file opened for appending: lines of other processes stay whole.
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    @property
    def all(self) -> list[Effect]:
        """Everything that happened, in order."""
        if self._path is None:
            with self._lock:
                return list(self._done)
        if not self._path.exists():
            return []
        rows = map(json.loads, self._path.read_text(encoding="utf-8").splitlines())
        return [Effect(*row) for row in rows]

    @property
    def in_place(self) -> dict[str, int]:
        """Name and arguments of each effect -> how often it was done, less undone.

        0 is left out; below 0 means that more was taken back than was done.
        """
        count: dict[str, int] = {}
        for effect in self.all:
            told = json.dumps(effect.arguments, sort_keys=True, default=repr)
            key = f"{effect.name} {told}" if effect.arguments else effect.name
            count[key] = count.get(key, 0) + (-1 if effect.undone else 1)
        return {key: n for key, n in count.items() if n}

    def names(self) -> list[str]:
        """Names of what was done, in order; an undo has a `-` before its name."""
        return [f"-{e.name}" if e.undone else e.name for e in self.all]

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __bool__(self) -> bool:
        """Whether anything happened."""
        return bool(self.all)

    def __eq__(self, other: object) -> bool:
        """Equal to a list of names: `assert effects == ["pay"]`."""
        if isinstance(other, (list, tuple)):
            return self.names() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Effects({self.names()!r})"


class Recording:
    """The events that were committed to a store from some moment on, by any process."""

    def __init__(self, rein: Rein) -> None:
        self._store = rein.store
        last = self._store.events(reverse=True, limit=1)
        self._after = last[0].seq if last else 0

    def events(
        self, *kinds: str, session: str | None = None, call: str | None = None
    ) -> list[Event]:
        """Events since then, oldest first, of these kinds or of all."""
        wanted: Sequence[str] | None = kinds or None
        found: list[Event] = []
        after = self._after
        while True:
            page = self._store.events(
                session=session, call=call, kinds=wanted, after=after, limit=1000
            )
            found += page
            if len(page) < 1000:
                return found
            after = page[-1].seq

    @property
    def kinds(self) -> list[str]:
        """Kinds of the events since then, in order."""
        return [event.kind for event in self.events()]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())

    def __len__(self) -> int:
        return len(self.events())


def record_events(rein: Rein) -> Recording:
    """Record what is committed to a Rein's store from now on."""
    return Recording(rein)
