"""CircuitBreaker: a tool that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Never

from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call, Outcome
from checkrein.hooks import Plugin
from checkrein.transient import is_a
from checkrein.verdicts import Hold, Measured, PreVerdict
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
from checkrein_plugins._selection import PerName, selected

if TYPE_CHECKING:
    from checkrein.rein import Rein

EVER = 1e9
"""Seconds: failures in a row count however old they are."""


class _Settings(Settings):
    threshold: Annotated[StrictInt, Field(ge=1)] = 5
    reset: Seconds = 60
    ignore: list[Text] = Field(default_factory=list)
    tools: Texts | None = None
    exempt: Texts | None = None
    models: StrictBool = True
    wait: StrictBool = True
    name: Name = "breaker"


class CircuitBreaker(Plugin):
    """Refuses calls of a tool (or model) that failed `threshold` times in a row.

    Calls that are running count as if they had failed, so no burst of parallel calls gets more
    than `threshold` of them to a tool that is down; further ones wait for one that runs (`wait`),
    or are refused. `reset` seconds after the last failure one call is let through: if it succeeds
    all are, if it fails the time begins anew. A success of a call that had begun before the last
    failure closes nothing. All of it is kept in the store: over restarts, and for all processes.

    A failure is any exception of the tool, timeouts included; `ignore` names classes that are
    none (what the caller did wrong). Refusals, cancellations and a framework's own signals never
    count, and undo calls are neither counted nor stopped.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        threshold: int = 5,
        reset: float = 60,
        ignore: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        models: bool = True,
        wait: bool = True,
        name: str = "breaker",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "breaker", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "threshold": threshold,
                "reset": reset,
                "ignore": listed(ignore),
                "tools": listed(tools),
                "exempt": listed(exempt),
                "models": models,
                "wait": wait,
                "name": name,
            },
            "breaker",
        )
        self.name = settings.name
        self._threshold = settings.threshold
        self._reset = float(settings.reset)
        self._ignore = frozenset(settings.ignore)
        self._looks = selected(settings.tools, settings.exempt, "breaker")
        self._models = settings.models
        self._wait = settings.wait
        self._holds = PerName(self._hold)
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name: they would share their counters."""
        refuse_twins(rein, self)
        self._rein = rein

    def pre_call(self, call: Call) -> PreVerdict:
        """Hold one of the failures that there may be."""
        kind = call.kind
        if kind == "undo" or (kind == "model" and not self._models):
            return None
        return self._holds(call.name)

    def measure(self, call: Call, outcome: Outcome) -> Measured | None:
        """What is not the tool's fault is no failure."""
        error = outcome.error
        if error is None or not self._ignore or not is_a(error, self._ignore):
            return None
        hold = self._holds(call.name)
        return None if hold is None else Measured(amounts={hold.account: 0})

    def opened(self, name: str) -> bool:
        """Whether the circuit of a tool or model is open, or half open, now."""
        hold = self._holds(name)
        if hold is None or self._rein is None:
            return False
        balance = self._rein.store.balance(hold.account, window=EVER)
        return balance is not None and balance.spent >= self._threshold

    def _hold(self, name: str) -> Hold | None:
        if not self._looks(name):
            return None
        return Hold(
            f"{self.name}/{name}",
            1,
            "calls",
            self._threshold,
            self._reset,
            "streak",
            f"{self.name}/open",
            on_refused="wait" if self._wait else "deny",
            reason=f"{name} has failed {self._threshold} times in a row; the circuit is open for "
            f"{self._reset:g} s after a failure",
            code="circuit_open",
        )
