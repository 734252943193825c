"""Replay: the calls of a recorded session answer the same calls of a new one.

    Rein(plugins=[..., Replay(session="SESSION ID", missing="deny")], store="sqlite:///run.db")
    Rein(plugins=[..., Replay()], ...)      # for sessions that `checkrein replay --from` prepared

Nothing of what was recorded runs again. A call is known by its kind, name and arguments, and by
how many like it came before in its session; so identical calls get their results in their own
order. Put it last: its key is made of the call as the other plugins leave it.

Only results that the journal holds as plain data are given out: those of tools and of loops of
one's own. Answers of models in a framework's own form count as missing; to go on with an
interrupted run of a framework, use `resume` of its adapter.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Never

from checkrein import codec
from checkrein.call import Call
from checkrein.control import REPLAY
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Answer, Deny, PreVerdict
from checkrein_plugins._config import refuse_unknown

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Store

_FORMS = ("langchain", "crewai", "openai_agents")
"""Marks of results in a framework's own form."""
_MOST_SEEN = 100_000
"""Calls of new sessions whose place is remembered; then the memory starts afresh."""
_MOST_RECORDINGS = 100
"""Sessions that are being replayed whose recordings are in memory."""


@dataclass(slots=True)
class _Step:
    """One recorded call."""

    number: int
    kind: str
    name: str
    arguments: Any
    key: bytes


@dataclass(slots=True)
class _Recording:
    """What a recorded session holds: its calls in order, and their results."""

    steps: list[_Step] = field(default_factory=list)
    results: dict[bytes, list[Any]] = field(default_factory=dict)
    """By key, in the order of the calls."""


class Replay(Plugin):
    """Answers calls with the results that a recorded session holds.

    `session`: whose results; without it, sessions are answered that were prepared for it
    (`rein.replay`, `checkrein replay --from`). `missing`: what becomes of a call that there is no
    result for: `run` lets it run, `deny` refuses it, names the step and the first difference,
    and ends the run: nothing goes live unless it is asked for.

    Raises `ConfigError` for a session that the store does not hold.
    """

    def __init__(
        self,
        *,
        session: str | None = None,
        missing: Literal["run", "deny"] = "run",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "replay", ("session", "missing"))
        given: object = session
        if given is not None and (not isinstance(given, str) or not given):
            raise ConfigError("replay.session: the id of a recorded session")
        if missing not in ("run", "deny"):
            raise ConfigError(f"replay.missing: {missing!r} is neither 'run' nor 'deny'")
        self._session = session
        self._denies = missing == "deny"
        self._always: _Recording | None = None
        self._prepared: OrderedDict[str, _Recording | None] = OrderedDict()
        self._counts: dict[tuple[str, bytes], int] = {}
        self._places: dict[str, tuple[bytes, int]] = {}
        """Place of a call among those like it, by the call's id: judged again, it keeps it."""
        self._lock = threading.Lock()
        self._store: Store | None = None

    def start(self, rein: Rein) -> None:
        """Read the recorded session."""
        self._store = rein.store
        if self._session is None:
            return
        if rein.store.session(self._session) is None:
            raise ConfigError(f"replay.session: no session {self._session} in the store")
        self._always = _read(rein.store, self._session)

    def pre_call(self, call: Call) -> PreVerdict:
        """Answer a call that is recorded."""
        if call.kind == "undo":
            return None
        recording = self._always if self._session is not None else self._recording(call.session)
        if recording is None:
            return None
        arguments = codec.encode_arguments(call.arguments, call.tool.opaque)
        key = _key(call.kind, call.name, arguments, call.labels)
        found = recording.results.get(key, ())
        place = self._place(call, key)
        if place < len(found):
            return Answer(codec.decode(found[place]), source="replay")
        if not self._denies:
            return None
        return Deny(
            f"step {call.step} is not recorded: "
            + (
                f"{call.name} was called so {_times(place)} there, and this is number {place + 1}"
                if found
                else _difference(recording, call, arguments)
            ),
            rule="replay", halt=True,
        )  # fmt: skip

    def _recording(self, session: str) -> _Recording | None:
        """What a session was prepared with; None for one that was not."""
        with self._lock:
            if session in self._prepared:
                return self._prepared[session]
        store = self._store
        row = store.session(session) if store is not None else None
        replays = row.body.get("replays") if row is not None else None
        found: _Recording | None = None
        if store is not None and replays:
            found = _read(store, replays["session"], replays["until"], _edits(store, session))
        with self._lock:
            self._prepared[session] = found
            while len(self._prepared) > _MOST_RECORDINGS:
                self._prepared.popitem(last=False)
        return found

    def _place(self, call: Call, key: bytes) -> int:
        with self._lock:
            known = self._places.get(call.id)
            if known is not None and known[0] == key:
                return known[1]
            if len(self._places) >= _MOST_SEEN:
                self._places.clear()
            count = self._counts.get((call.session, key), 0)
            self._counts[call.session, key] = count + 1
            self._places[call.id] = key, count
            return count


def _edits(store: Store, session: str) -> dict[int, Any]:
    """Results that stand in place of the recorded ones, by step."""
    found = store.events(session=session, kinds=(REPLAY,), limit=1)
    kept = store.payload(found[0].seq) if found else None
    if not isinstance(kept, dict):
        raise ConfigError(f"session {session}: what it replays was erased; prepare another one")
    return {int(step): tree for step, tree in kept["edits"].items()}


def _read(
    store: Store, session: str, until: int | None = None, edits: Mapping[int, Any] | None = None
) -> _Recording:
    """The calls of a session, up to a step, and their results as they were or were edited."""
    calls: dict[str, _Step] = {}
    results: dict[str, Any] = {}
    after = 0
    while page := store.events(session=session, after=after, limit=1000):
        for event in page:
            if event.kind not in ("intent", "answered", "outcome", "late", "amended"):
                continue
            payload = store.payload(event.seq)
            kept = payload if isinstance(payload, dict) else {}
            if event.kind == "intent" and "arguments" in kept:
                view = event.view
                labels = view.get("labels", {})
                key = _key(view["kind"], view["name"], kept["arguments"], labels)
                number = int(view.get("step", 0))
                calls[event.call] = _Step(
                    number, view["kind"], view["name"], kept["arguments"], key
                )
            elif event.view.get("state", "done") == "done" and "result" in kept:
                results[event.call] = kept["result"]
        after = page[-1].seq
    recording = _Recording()
    for call, step in calls.items():
        if step.kind == "undo" or (until is not None and step.number > until):
            continue
        recording.steps.append(step)
        result = results.get(call)
        if edits and step.number in edits:
            result = edits[step.number]
        elif call not in results or _is_framework(result):
            continue
        recording.results.setdefault(step.key, []).append(result)
    return recording


def _difference(recording: _Recording, call: Call, arguments: Any) -> str:
    """What the recorded session did instead: names and places, never values."""
    steps = recording.steps
    there = next((step for step in steps if step.number == call.step), None)
    like = [step for step in steps if (step.kind, step.name) == (call.kind, call.name)]
    if there is not None and (there.kind, there.name) == (call.kind, call.name):
        like = [there]
    if like:
        where = next(_differs(like[0].arguments, arguments, ""), "")
        if where:
            return f"{call.name} differs from step {like[0].number} first at {where}"
        return f"{call.name} differs from step {like[0].number} in its labels"
    if there is not None:
        return f"there it was {there.name}, not {call.name}"
    last = max((step.number for step in steps), default=0)
    return f"{call.name} was never called there, and its last step is {last}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _differs(one: Any, other: Any, path: str) -> Iterator[str]:
    """Places where two trees differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            below = f"{path}.{key}" if path else str(key)
            if key in one and key in other:
                yield from _differs(one[key], other[key], below)
            else:
                yield below
    elif isinstance(one, list) and isinstance(other, list):
        for index, (a, b) in enumerate(zip(one, other, strict=False)):
            yield from _differs(a, b, f"{path}[{index}]")
        if len(one) != len(other):
            yield f"{path}[{min(len(one), len(other))}]"
    elif codec.canonical(one) != codec.canonical(other):
        yield path or "its arguments"


def _key(kind: str, name: str, arguments: Any, labels: Mapping[str, str]) -> bytes:
    """What makes two calls the same. What a model is asked with beside its messages counts."""
    beside = dict(labels) if kind == "model" else {}
    return bytes(codec.canonical([kind, name, arguments, beside]))


def _is_framework(result: Any) -> bool:
    return isinstance(result, dict) and len(result) == 1 and next(iter(result)) in _FORMS
