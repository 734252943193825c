"""Replay: the calls of a recorded session answer the same calls of a new one.

    Rein(plugins=[..., Replay(session="SESSION ID", missing="deny")], store="sqlite:///run.db")

Nothing of what was recorded runs again. A call is known by its kind, name and arguments, and by
how many like it came before in its session; so identical calls get their results in their own
order. Put it last: its key is made of the call as the other plugins leave it.

Only results that the journal holds as plain data are given out: those of tools and of loops of
one's own. Answers of models in a framework's own form count as missing; to go on with an
interrupted run of a framework, use `resume` of its adapter.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, Never

from checkrein import codec
from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Answer, Deny, PreVerdict
from checkrein_plugins._config import refuse_unknown

if TYPE_CHECKING:
    from checkrein.rein import Rein

_FORMS = ("langchain", "crewai", "openai_agents")
"""Marks of results in a framework's own form."""
_MOST_SEEN = 100_000
"""Calls of new sessions whose place is remembered; then the memory starts afresh."""


class Replay(Plugin):
    """Answers calls with the results that a recorded session holds.

    `session`: whose results. `missing`: what becomes of a call that it has no result for: `run`
    lets it run, `deny` refuses it and ends the run.

    Raises `ConfigError` for a session that the store does not hold.
    """

    def __init__(
        self, *, session: str, missing: Literal["run", "deny"] = "run", **unknown: Never
    ) -> None:
        refuse_unknown(unknown, "replay", ("session", "missing"))
        given: object = session
        if not isinstance(given, str) or not given:
            raise ConfigError("replay.session: the id of a recorded session")
        if missing not in ("run", "deny"):
            raise ConfigError(f"replay.missing: {missing!r} is neither 'run' nor 'deny'")
        self._session = session
        self._denies = missing == "deny"
        self._results: dict[bytes, list[Any]] = {}
        self._counts: dict[tuple[str, bytes], int] = {}
        self._places: dict[str, tuple[bytes, int]] = {}
        """Place of a call among those like it, by the call's id: judged again, it keeps it."""
        self._lock = threading.Lock()

    def start(self, rein: Rein) -> None:
        """Read the recorded session."""
        if rein.store.session(self._session) is None:
            raise ConfigError(f"replay.session: no session {self._session} in the store")
        calls: dict[str, bytes] = {}
        results: dict[str, Any] = {}
        order: list[str] = []
        after = 0
        while page := rein.store.events(session=self._session, after=after, limit=1000):
            for event in page:
                if event.kind not in ("intent", "answered", "outcome", "late", "amended"):
                    continue
                payload = rein.store.payload(event.seq)
                kept = payload if isinstance(payload, dict) else {}
                if event.kind == "intent" and "arguments" in kept:
                    if event.call not in calls:
                        order.append(event.call)
                    calls[event.call] = _key(
                        event.view["kind"], event.view["name"], kept["arguments"]
                    )
                elif event.view.get("state", "done") == "done" and "result" in kept:
                    results[event.call] = kept["result"]
            after = page[-1].seq
        for call in order:
            if call in results and not _is_framework(results[call]):
                self._results.setdefault(calls[call], []).append(results[call])

    def pre_call(self, call: Call) -> PreVerdict:
        """Answer a call that is recorded."""
        if call.kind == "undo" or call.guard:
            return None
        key = _key(call.kind, call.name, codec.encode_arguments(call.arguments, call.tool.opaque))
        found = self._results.get(key, ())
        place = self._place(call, key)
        if place < len(found):
            return Answer(codec.decode(found[place]), source="replay")
        if not self._denies:
            return None
        return Deny(
            f"the recorded session has no result number {place + 1} for this call",
            rule="replay", halt=True,
        )  # fmt: skip

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


def _key(kind: str, name: str, arguments: Any) -> bytes:
    return bytes(codec.canonical([kind, name, arguments]))


def _is_framework(result: Any) -> bool:
    return isinstance(result, dict) and len(result) == 1 and next(iter(result)) in _FORMS
