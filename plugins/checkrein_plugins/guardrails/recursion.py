"""RecursionDetector: an agent that goes round in circles.

Three kinds of circles:

    the same call             the same tool with the same arguments
    nearly the same call      only a nonce differs (`request_id`, `attempt`), or it reads, one
                              argument differs and the result is the same every time
    ping-pong                 two calls that alternate, A B A B A B

The first two are counted with `Hold`, so they are exact over threads and processes. The rest
looks at what this session did last, which is read from the journal where the session is taken
up by another process.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Never

from pydantic import Field, StrictBool, StrictInt

from checkrein._locks import Lock
from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Hold, PostVerdict, PreOne, PreVerdict, new_hold
from checkrein_plugins._config import (
    Name,
    Seconds,
    Settings,
    Text,
    Texts,
    listed,
    read,
    refuse_twins,
    refuse_unknown,
)
from checkrein_plugins._digests import digest_arguments, digest_of
from checkrein_plugins._selection import selected

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Store

SESSIONS = 256
"""Sessions of which the last calls are kept in memory."""

NONCES = frozenset(
    (
        "_", "attempt", "cachebuster", "correlation_id", "guid", "idempotency_key", "iteration",
        "nonce", "now", "rand", "random", "request_id", "retries", "retry", "rnd", "run_id",
        "salt", "seed", "timestamp", "trace_id", "tries", "try", "ts", "uid", "uuid",
    )
)  # fmt: skip
"""Names of arguments that change while the request stays the same."""

_TELLING = 16
"""Characters of a result from which on two equal ones are no accident (`ok`, `[]`, `True` are)."""


class _Settings(Settings):
    repeats: Annotated[StrictInt, Field(ge=1)] = 5
    near_repeats: Annotated[StrictInt, Field(ge=1)] = 10
    cycles: Annotated[StrictInt, Field(ge=2)] = 3
    window: Seconds | None = 600
    tools: Texts | None = None
    exempt: Texts | None = None
    nonces: list[Text] = Field(default_factory=list)
    halt: StrictBool = False
    name: Name = "recursion"


class RecursionDetector(Plugin):
    """Stops calls that repeat themselves within one session.

    `repeats`: how often the very same call may run within `window` seconds (None: in all).
    `near_repeats`: the same for calls that differ in a nonce only, and for calls that read, differ
    in one argument and get the same result. An argument is a nonce by its name (`nonce`,
    `request_id`, `attempt` ...); `nonces` adds names. `cycles`: how often two calls may alternate
    without a third one. `tools`, `exempt`: globs; a tool that polls belongs into `exempt`.
    `halt`: end the run instead of refusing the call.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        repeats: int = 5,
        near_repeats: int = 10,
        cycles: int = 3,
        window: float | None = 600,
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        nonces: Sequence[str] = (),
        halt: bool = False,
        name: str = "recursion",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "recursion", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "repeats": repeats,
                "near_repeats": near_repeats,
                "cycles": cycles,
                "window": window,
                "tools": listed(tools),
                "exempt": listed(exempt),
                "nonces": listed(nonces),
                "halt": halt,
                "name": name,
            },
            "recursion",
        )
        if settings.near_repeats < settings.repeats:
            raise ConfigError(
                "recursion.near_repeats: below repeats; the very same call is nearly the same too"
            )
        self.name = settings.name
        self._repeats = settings.repeats
        self._near = settings.near_repeats
        self._cycles = settings.cycles
        self._window = None if settings.window is None else float(settings.window)
        self._halt = settings.halt
        self._nonces = NONCES | {nonce.lower() for nonce in settings.nonces}
        self._looks = selected(settings.tools, settings.exempt, "recursion")
        self._time = "" if settings.window is None else f" in {settings.window:g} s"
        self._pasts: OrderedDict[str, _Past] = OrderedDict()
        self._lock = Lock()
        self._key = b""
        self._store: Store | None = None

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name; take the store's key for digests."""
        refuse_twins(rein, self)
        self._key = rein.store.key
        self._store = rein.store

    def pre_call(self, call: Call) -> PreVerdict:
        """Hold one of the repeats; refuse what continues a circle."""
        if call.kind != "tool" or not self._looks(call.name):
            return None
        past = self._past(call.session)
        if past.calls:
            found = past.circle(call, self._near, self._cycles)
            if found:
                return Deny(found, rule=f"{self.name}/circle", halt=self._halt)
        exact = self._hold("same", call, digest_of(self._key, call), self._repeats)
        kept = without_nonces(call.arguments, self._nonces)
        if kept is None:
            return exact
        near: PreOne = self._hold(
            "near", call, digest_arguments(self._key, kept, call.tool.opaque), self._near
        )
        return exact, near

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Remember what was called and what came of it."""
        if call.kind == "tool" and self._looks(call.name):
            self._past(call.session).add(call.name, call.arguments, _result(call, outcome))
        return None

    def _hold(self, what: str, call: Call, digest: str, limit: int) -> Hold:
        same = "the same call" if what == "same" else "nearly the same call"
        return new_hold(
            f"{self.name}/{what}/{call.session}/{call.name}/{digest}", 1, "calls", limit,
            self._window, "keep", f"{self.name}/{what}", self._halt, "deny",
            f"{same} has run {limit} times{self._time}; it brings nothing new", "repeated_call",
        )  # fmt: skip

    def _past(self, session: str) -> _Past:
        past = self._pasts.get(session)
        if past is None:
            with self._lock:
                past = self._pasts.get(session)
                if past is None:
                    past = _Past(max(self._near, 2 * self._cycles))
                    if self._store is not None:
                        past.load(self._store, session)
                    if len(self._pasts) >= SESSIONS:
                        self._pasts.popitem(last=False)
                    self._pasts[session] = past
        return past


class _Past:
    """The last calls of one session: what they were, part by part, and what they gave."""

    __slots__ = ("calls",)

    def __init__(self, length: int) -> None:
        self.calls: deque[tuple[str, dict[str, int], int, int | None]] = deque(maxlen=length)
        """Name, hash of each argument, hash of all, hash of the result if that tells anything."""

    def add(self, name: str, arguments: Mapping[str, Any], result: int | None) -> None:
        parts = _hashes(arguments)
        self.calls.append((name, parts, _whole(name, parts), result))

    def load(self, store: Store, session: str) -> None:
        """Read what another process, or an earlier run, did last."""
        if store.session(session) is None:
            return
        found = store.events(
            session=session,
            kinds=("intent",),
            reverse=True,
            limit=self.calls.maxlen or 1,
        )
        for event in reversed(found):
            view = event.view
            if view.get("kind") == "tool" and isinstance(view.get("arguments"), dict):
                # Views may be masked: then two calls look more alike, never less.
                self.add(view["name"], view["arguments"], None)

    def circle(self, call: Call, near: int, cycles: int) -> str:
        """Which circle this call continues; empty if none."""
        parts = _hashes(call.arguments)
        whole = _whole(call.name, parts)
        calls = list(self.calls)
        if self._alternates(calls, whole, cycles):
            return f"two calls have alternated {cycles} times"
        if len(parts) < 2 or call.tool.effect != "read":
            return ""  # results of calls that write tell nothing: see `_result`
        alike: dict[tuple[str, int], int] = {}
        for name, other, hashed, result in calls:
            if name != call.name or hashed == whole or result is None or len(other) != len(parts):
                continue
            different = [key for key, value in parts.items() if other.get(key) != value]
            if len(different) == 1:
                mark = (different[0], result)
                alike[mark] = alike.get(mark, 0) + 1
                if alike[mark] >= near:
                    return f"the last {near} calls differed in one argument and gave the same"
        return ""

    @staticmethod
    def _alternates(
        calls: list[tuple[str, dict[str, int], int, int | None]], whole: int, cycles: int
    ) -> bool:
        """Whether this call would be one too many of A B A B ... A B, then A."""
        if len(calls) < 2 * cycles:
            return False
        tail = [hashed for _, _, hashed, _ in calls[-2 * cycles :]]
        first, second = tail[0], tail[1]
        return (
            first != second
            and whole == first
            and all(hashed == (second if i % 2 else first) for i, hashed in enumerate(tail))
        )


def without_nonces(arguments: Mapping[str, Any], nonces: frozenset[str]) -> dict[str, Any] | None:
    """The arguments without those that are called as a nonce is; None if there are none."""
    for name in arguments:
        if name in nonces or name.lower() in nonces:
            break
    else:
        return None
    return {k: v for k, v in arguments.items() if k not in nonces and k.lower() not in nonces}


def _hashes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """One hash for each argument: compared in this process only."""
    hashes: dict[str, int] = {}
    for name, value in arguments.items():
        kind = type(value)
        hashes[name] = hash((kind.__name__, value if kind in _SCALARS else _text(value)))
    return hashes


_SCALARS = frozenset((str, int, float, bool, type(None)))


def _text(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - anybody's type: one that cannot be printed equals nothing
        return f"{id(value)}"


def _whole(name: str, parts: dict[str, int]) -> int:
    return hash((name, frozenset(parts.items())))


def _result(call: Call, outcome: Outcome) -> int | None:
    """Hash of a result that two different questions would hardly have in common; else None."""
    if outcome.error is not None or call.tool.effect != "read":
        return None
    value = outcome.value
    text = value if type(value) is str else _text(value)
    return hash(text) if len(text) >= _TELLING else None
