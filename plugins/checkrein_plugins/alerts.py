"""Alerts: somebody is told when something needs a person.

    Alerts(webhooks=[{"url": "https://hooks.slack.com/...", "format": "slack"}], budget=0.8)

What is told: `run_failed`, `rollback_partial`, `needs_human`, `budget` (a share of a Budget is
used), `breaker_open`, `silence`. Texts have gone through every plugin's `view`; nobody waits for
the delivery, and the same thing is told once in a while only.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Never, TypeAlias, get_args

from pydantic import Field, StrictBool, StrictInt

from checkrein._config_model import near
from checkrein._locks import Lock
from checkrein.call import Call, ToolInfo
from checkrein.errors import CheckreinError, ConfigError
from checkrein.hooks import Plugin
from checkrein_plugins._config import (
    Name,
    Number,
    Seconds,
    Settings,
    Text,
    listed,
    read,
    refuse_unknown,
)
from checkrein_plugins._objects import load_object
from checkrein_plugins._parts import intent_of, parts_of
from checkrein_plugins._webhooks import Webhook, WebhookSettings, chat
from checkrein_plugins.budget import Budget
from checkrein_plugins.resilience.breaker import CircuitBreaker

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Event

Kind: TypeAlias = Literal[
    "run_failed", "rollback_partial", "needs_human", "budget", "breaker_open", "silence"
]
KINDS: tuple[Kind, ...] = get_args(Kind)

REMEMBERED = 4096
"""Subjects of which it is known when they were told last."""

DRAIN = 10.0
"""Seconds that deliveries get to end when the Rein closes."""


@dataclass(frozen=True, slots=True)
class Alert:
    """What somebody is told."""

    id: str
    kind: Kind
    session: str
    call: str
    at: int
    """Microseconds since the epoch."""
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    suppressed: int = 0
    """Alerts of the same kind about the same thing that were not told since the last one."""

    def tree(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kind": self.kind, "session": self.session, "call": self.call, "at": self.at,
            "text": self.text, "details": dict(self.details), "suppressed": self.suppressed,
        }  # fmt: skip


class _Settings(Settings):
    webhooks: list[WebhookSettings] = Field(default_factory=list)
    log: StrictBool = True
    on: Annotated[list[Text], Field(min_length=1)]
    budget: Annotated[Number, Field(gt=0, le=1)] = 0.8
    every: Seconds = 300
    per_minute: Annotated[StrictInt, Field(ge=1)] = 30
    timeout: Seconds = 10
    name: Name = "alerts"


class Alerts(Plugin):
    """Tells a function, the log and webhooks of what needs a person.

    `to`: functions (sync or async) that take an `Alert`; in a file, `module:name` of them.
    `webhooks`: see `WebhookSettings`; the shapes are `json` (an envelope with `type`, `timestamp`
    and `data`), `slack` and `discord`.
    `log`: a warning to the logger `checkrein.alerts`. `on`: which kinds. `budget`: the share of
    a Budget's limit from which on it is told. `every`: seconds in which the same kind about the
    same thing is told once. `per_minute`: alerts in all; what is over is dropped and counted.

    Deliveries run on a thread of their own; what fails is logged. Raises `ConfigError` for what
    cannot be used.
    """

    def __init__(
        self,
        *,
        to: Callable[[Alert], Any] | str | Sequence[Callable[[Alert], Any] | str] = (),
        webhooks: Sequence[Mapping[str, Any]] = (),
        log: bool = True,
        on: Sequence[str] | None = None,
        budget: float = 0.8,
        every: float = 300,
        per_minute: int = 30,
        timeout: float = 10,
        name: str = "alerts",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "alerts", ("to", *_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "webhooks": listed(webhooks),
                "log": log,
                "on": list(KINDS) if on is None else listed(on),
                "budget": budget,
                "every": every,
                "per_minute": per_minute,
                "timeout": timeout,
                "name": name,
            },
            "alerts",
        )
        for index, kind in enumerate(settings.on):
            if kind not in KINDS:
                raise ConfigError(
                    f"alerts.on[{index}]: unknown kind {kind!r}{near(kind, list(KINDS))}; "
                    f"known: {', '.join(KINDS)}"
                )
        if not callable(to) and not isinstance(to, (str, list, tuple)):
            raise ConfigError("alerts.to: must be a function, or a list of functions")
        given = to if isinstance(to, (list, tuple)) else (to,)
        self._to = tuple(
            load_object(one, f"alerts.to[{i}]") if isinstance(one, str) else one
            for i, one in enumerate(given)
        )
        for function in self._to:
            if not callable(function):
                raise ConfigError("alerts.to: must be a function, or a list of functions")
        if not self._to and not settings.webhooks and not settings.log:
            raise ConfigError("alerts: nobody would be told; state to, webhooks or log")
        self.name = settings.name
        self._webhooks = [
            Webhook(webhook, f"alerts.webhooks[{i}]", float(settings.timeout))
            for i, webhook in enumerate(settings.webhooks)
        ]
        self._log = logging.getLogger("checkrein.alerts") if settings.log else None
        self._on = frozenset(settings.on)
        self._share = settings.budget
        self._every = settings.every
        self._per_minute = settings.per_minute
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """By kind and subject: when it was told last, how often it was not told since."""
        self._recent: deque[float] = deque()
        self._dropped = 0
        self._lock = Lock()
        self._queue: queue.Queue[Alert | None] = queue.Queue()
        self._worker: tuple[int, threading.Thread] | None = None
        self._rein: Rein | None = None
        self._budgets: list[Budget] = []
        self._breakers: list[CircuitBreaker] = []

    def start(self, rein: Rein) -> None:
        """Find out which budgets and circuits there are."""
        self._rein = rein
        plugins = [plugin for _, plugin in rein.plugins]
        if "budget" in self._on:
            self._budgets = [p for p in plugins if isinstance(p, Budget)]
        if "breaker_open" in self._on:
            self._breakers = [p for p in plugins if isinstance(p, CircuitBreaker)]

    def close(self) -> None:
        """Deliver what is waiting."""
        worker = self._worker
        if worker is not None and worker[0] == os.getpid():
            self._queue.put(None)
            worker[1].join(DRAIN)
            self._worker = None

    def on_event(self, event: Event) -> None:
        """Tell of what an event means, if it means anything."""
        view, kind = event.view, event.kind
        if kind == "outcome":
            if self._budgets:
                self._spent(event)
            if self._breakers and view.get("ended") in ("error", "timeout"):
                self._failed(event)
        elif kind == "denied":
            self._denied(event)
        elif kind == "session_ended":
            if view.get("state") == "FAILED":
                text = f"the run failed with {view.get('error') or 'an error'}"
                self._tell("run_failed", event, "", text, {"error": view.get("error")})
        elif kind == "rollback_finished":
            left = view.get("left") or []
            if left or view.get("interrupted"):
                text = f"the rollback left {len(left)} effects in place"
                text = "the rollback was broken off" if view.get("interrupted") else text
                self._tell("rollback_partial", event, "", text, {"left": left})
        elif kind == "needs_human":
            text = f"{view.get('name')}: {view.get('why')}; a person has to look"
            self._tell("needs_human", event, event.call, text, dict(view))
        elif kind == "silence":
            text = f"nothing has happened for {view.get('seconds')} s"
            self._tell("silence", event, "", text, dict(view))

    # -- what events mean

    def _denied(self, event: Event) -> None:
        view = event.view
        if view.get("code") == "circuit_open":
            name = str(view.get("name"))
            text = f"the circuit of {name} is open: it is not called"
            self._tell("breaker_open", event, name, text, {"tool": name}, everywhere=True)
        elif view.get("code") == "budget_exceeded" and self._budgets:
            text = f"a limit is used up: {view.get('reason')}"
            self._tell("budget", event, f"{view.get('rule')}", text, {"rule": view.get("rule")})

    def _failed(self, event: Event) -> None:
        """A failure may have opened a circuit."""
        name = str(self._intent(event).get("name", ""))
        for breaker in self._breakers:
            if breaker.opened(name):
                text = f"the circuit of {name} is open: it has failed too often"
                self._tell("breaker_open", event, name, text, {"tool": name}, everywhere=True)

    def _spent(self, event: Event) -> None:
        """A call may have used a share of a budget."""
        rein = self._rein
        if rein is None:
            return
        parts: Mapping[str, str] | None = None
        for budget in self._budgets:
            if parts is None:
                parts = parts_of(rein.store, event, self._intent(event))
            for account, unit, limit, window in budget.watched(parts):
                balance = rein.store.balance(account, at=rein.clock(), window=window)
                if balance is None or not limit or balance.spent < self._share * limit:
                    continue
                share = balance.spent / limit
                text = f"{share:.0%} of {account} ({unit}) is used"
                details = {"account": account, "unit": unit, "spent": balance.spent, "limit": limit}
                self._tell("budget", event, account, text, details, everywhere=True)

    def _intent(self, event: Event) -> Mapping[str, Any]:
        return {} if self._rein is None else intent_of(self._rein.store, event)

    # -- telling

    def _tell(
        self,
        kind: Kind,
        event: Event,
        subject: str,
        text: str,
        details: Mapping[str, Any],
        *,
        everywhere: bool = False,
    ) -> None:
        if kind not in self._on:
            return
        key = (kind, subject if everywhere else f"{event.session}/{subject}")
        suppressed = self._admitted(key)
        if suppressed is None:
            return
        call = Call(event.call, event.session, "tool", "", {}, ToolInfo(""))
        rein = self._rein
        shown: Any = dict(details)
        if rein is not None:
            # The journal's texts are viewed already; a webhook may be allowed less.
            text = str(rein.journal.view(call, text, "webhook"))
            shown = rein.journal.view(call, shown, "webhook")
            shown = shown if isinstance(shown, dict) else {"details": shown}
        alert = Alert(
            f"{event.session[:8]}-{event.seq}-{kind}",
            kind, event.session, event.call, event.at, text, shown, suppressed,
        )  # fmt: skip
        self._work()
        self._queue.put(alert)

    def _admitted(self, key: tuple[str, str]) -> int | None:
        """How many were not told since the last one; None if this one is not told either."""
        now = time.monotonic()
        with self._lock:
            last, missed = self._told.get(key, (-self._every, 0))
            if now - last < self._every:
                self._told[key] = (last, missed + 1)
                return None
            while self._recent and now - self._recent[0] >= 60:
                self._recent.popleft()
            if len(self._recent) >= self._per_minute:
                self._dropped += 1
                return None
            self._recent.append(now)
            self._told.pop(key, None)
            if len(self._told) >= REMEMBERED:
                self._told.popitem(last=False)
            self._told[key] = (now, 0)
            missed, self._dropped = missed + self._dropped, 0
            return missed

    def _work(self) -> None:
        """See that somebody delivers: in a forked child as well."""
        with self._lock:
            worker = self._worker
            if worker is not None and worker[0] == os.getpid() and worker[1].is_alive():
                return
            if worker is not None and worker[0] != os.getpid():
                self._queue = queue.Queue()  # the parent's may have been locked at the fork
            thread = threading.Thread(target=self._deliver, name="checkrein-alerts", daemon=True)
            self._worker = (os.getpid(), thread)
            thread.start()

    def _deliver(self) -> None:
        while (alert := self._queue.get()) is not None:
            if self._log is not None:
                self._log.warning("%s: %s (session %s)", alert.kind, alert.text, alert.session)
            for function in self._to:
                try:
                    waiting = function(alert)
                    if hasattr(type(waiting), "__await__"):
                        import asyncio

                        asyncio.run(_awaited(waiting))
                except Exception as error:  # noqa: BLE001 - anybody's function: the others are told
                    self._failing("a function", type(error).__name__)
            for webhook in self._webhooks:
                try:
                    problem = webhook.send(alert.id, body(alert, webhook.format))
                except (CheckreinError, OSError, ValueError) as error:
                    problem = type(error).__name__
                if problem:
                    self._failing(webhook.where, problem)

    def _failing(self, what: str, problem: str) -> None:
        rein = self._rein
        log = rein.log if rein is not None else logging.getLogger("checkrein")
        log.error("an alert could not be delivered to %s: %s", what, problem)


async def _awaited(waiting: Any) -> None:
    await waiting


def body(alert: Alert, shape: str) -> dict[str, Any]:
    """What is posted, in the shape of a receiver."""
    import datetime as dt

    also = f" (and {alert.suppressed} more)" if alert.suppressed else ""
    text = f"[{alert.kind}] {alert.text}{also}, session {alert.session}"
    if shape in ("slack", "discord"):
        return chat(text, shape)
    at = dt.datetime.fromtimestamp(alert.at / 1_000_000, dt.UTC)
    return {
        "type": f"checkrein.{alert.kind}",
        "timestamp": at.isoformat().replace("+00:00", "Z"),
        "data": alert.tree(),
    }
