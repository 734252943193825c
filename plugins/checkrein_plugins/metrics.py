"""Metrics: what calls took, used and cost, and how they were judged, for OpenTelemetry.

    Metrics()                                # the global meter provider, also one set later
    Metrics(meter_provider=provider)         # another one (in code)

Everything is read from the events that are committed anyway. Attributes are names (of tools,
models, plugins, budgets) and states, never arguments, results, reasons, users or ids; past
`most_names` different names of a kind, further ones are counted as `other`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Never

from opentelemetry import metrics
from pydantic import Field, StrictInt

from checkrein import conventions as names
from checkrein.call import NANO
from checkrein.errors import CheckreinError, ConfigError
from checkrein.hooks import Plugin
from checkrein_plugins._config import Settings, read, refuse_unknown
from checkrein_plugins._parts import parts_of
from checkrein_plugins.budget import Budget

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from checkrein.rein import Rein
    from checkrein.store import Event

REMEMBERED = 10_000
"""Calls and approvals under way that are remembered."""
ACCOUNTS = 100
"""Accounts of budgets that are looked at when metrics are collected: the latest used ones."""
PENDING = 10_000
"""Pending approvals are counted up to here."""
OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Begun:
    kind: str
    name: str
    effect: str
    task: str


class _Settings(Settings):
    most_names: Annotated[StrictInt, Field(ge=1)] = 200


class Metrics(Plugin):
    """Records metrics of calls, verdicts, approvals, budgets and undo.

    `gen_ai.client.token.usage`, `gen_ai.client.operation.duration` (as the conventions say),
    `checkrein.cost` (USD), `checkrein.verdicts`, `checkrein.approvals.pending` and `.wait` (s),
    `checkrein.budget.remaining` (the least that is left in one account of each budget),
    `checkrein.undo.results`, `checkrein.in_doubt` (effects of which nobody knows).

    `meter_provider`: instead of the global one. `most_names`: different values of one attribute.
    Raises `ConfigError` for what cannot be used.
    """

    def __init__(
        self, *, meter_provider: MeterProvider | None = None, most_names: int = 200,
        **unknown: Never,
    ) -> None:  # fmt: skip
        refuse_unknown(unknown, "metrics", ("meter_provider", *_Settings.model_fields))
        settings = read(_Settings, {"most_names": most_names}, "metrics")
        if meter_provider is not None and not isinstance(meter_provider, metrics.MeterProvider):
            raise ConfigError("metrics.meter_provider: an OpenTelemetry MeterProvider")
        self._most = settings.most_names
        self._names: dict[str, set[str]] = {}
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._accounts: OrderedDict[str, tuple[str, str, int, float | None]] = OrderedDict()
        self._lock = threading.Lock()
        self._rein: Rein | None = None
        self._budgets: list[Budget] = []
        meter = metrics.get_meter(
            names.SCOPE, meter_provider=meter_provider, schema_url=names.SCHEMA
        )
        self._duration = meter.create_histogram(
            names.OPERATION_DURATION, "s", "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )  # fmt: skip
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE, "{token}", "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )  # fmt: skip
        self._wait = meter.create_histogram(
            names.WAIT_METRIC, "s", "Time from a request for approval to its decision."
        )
        self._cost = meter.create_counter(names.COST_METRIC, "USD", "What calls cost.")
        self._verdicts = meter.create_counter(
            names.VERDICTS_METRIC, "{verdict}", "Verdicts of plugins other than none."
        )
        self._undos = meter.create_counter(names.UNDO_METRIC, "{undo}", "Attempts at undos.")
        self._doubt = meter.create_counter(
            names.IN_DOUBT_METRIC, "{call}", "Effects of which it was not known whether they stand."
        )
        meter.create_observable_gauge(
            names.PENDING_METRIC, [self._pending], "{approval}", "Calls that wait for a person."
        )
        meter.create_observable_gauge(
            names.REMAINING_METRIC, [self._remaining], description="What is left of budgets."
        )

    def start(self, rein: Rein) -> None:
        """Find out which budgets there are."""
        self._rein = rein
        self._budgets = [plugin for _, plugin in rein.plugins if isinstance(plugin, Budget)]

    def close(self) -> None:
        """Observe nothing any more: the store is being closed."""
        self._rein = None

    def on_event(self, event: Event) -> None:
        """Count one event."""
        view = event.view
        for plugin, verdict in view.get("verdicts", ()):
            self._verdict(plugin, verdict)
        for plugin in view.get("unchecked", ()):
            self._verdict(str(plugin).partition(":")[0], "unchecked")
        if event.kind == "intent":
            self._remember(
                event.call,
                _Begun(
                    str(view["kind"]), str(view["name"]), str(view.get("effect", "")),
                    str(view.get("task", "")),
                ),
            )  # fmt: skip
        elif event.kind in ("outcome", "late"):
            self._ended(event, view)
        elif event.kind == "denied":
            code = str(view.get("code", ""))
            self._verdict(str(view.get("plugin") or "checkrein"), "denied", code)
        elif event.kind == "approval_requested":
            with self._lock:
                _put(self._asked, str(view["id"]), event.at)
        elif event.kind in ("approval_decided", "approval_expired"):
            self._decided(event, view)

    # -- what events mean

    def _remember(self, call: str, begun: _Begun) -> None:
        with self._lock:
            _put(self._begun, call, begun)

    def _ended(self, event: Event, view: Mapping[str, Any]) -> None:
        with self._lock:
            begun = self._begun.get(event.call)
        if begun is None:
            return
        state = str(view["state"])
        what = self._what(begun, view)
        seconds = view.get("us", 0) / 1e6
        error = view.get("error")
        failed = {names.ERROR_TYPE: self._name("error", str(error["type"]))} if error else {}
        self._duration.record(seconds, {**what, **failed})
        usage = view.get("usage", {})
        for kind in ("input", "output"):
            count = usage.get(f"{kind}_tokens")
            if count:
                self._tokens.record(count, {**what, names.TOKEN_TYPE: kind})
        if view.get("cost"):
            about = {**what, names.COST_STATE: str(view.get("cost_state", ""))}
            self._cost.add(view["cost"] / NANO, about)
        if begun.kind == "undo":
            tool = begun.name.removesuffix(".undo")
            self._undos.add(1, {names.TOOL: self._name("tool", tool), names.STATE: state})
        elif state == "unknown" and begun.kind == "tool" and begun.effect != "read":
            self._doubt.add(1, {names.TOOL: self._name("tool", begun.name)})
        self._watch(event, begun)

    def _what(self, begun: _Begun, view: Mapping[str, Any]) -> dict[str, str]:
        if begun.kind != "model":
            return {
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL: self._name("tool", begun.name),
                names.KIND: begun.kind,
            }
        what = {
            names.OPERATION: names.CHAT,
            names.REQUEST_MODEL: self._name("model", begun.name),
        }
        usage = view.get("usage", {})
        if usage.get("model"):
            what[names.RESPONSE_MODEL] = self._name("model", str(usage["model"]))
        if usage.get("provider"):
            what[names.PROVIDER] = self._name("provider", str(usage["provider"]))
        return what

    def _verdict(self, plugin: str, verdict: str, code: str = "") -> None:
        about = {names.PLUGIN: self._name("plugin", plugin), names.VERDICT: str(verdict)}
        self._verdicts.add(1, {**about, names.CODE: code} if code else about)

    def _decided(self, event: Event, view: Mapping[str, Any]) -> None:
        state = str(view.get("state", ""))
        if state == "pending":
            return  # one of several who must agree
        with self._lock:
            asked = self._asked.pop(str(view.get("id", "")), None)
        if asked is not None:
            self._wait.record(max(0, event.at - asked) / 1e6, {names.DECISION: state})

    def _watch(self, event: Event, begun: _Begun) -> None:
        """Remember into which accounts the call counted: they are looked at when collected."""
        rein = self._rein
        if rein is None or not self._budgets:
            return
        parts = parts_of(
            rein.store, event, {"kind": begun.kind, "name": begun.name, "task": begun.task}
        )
        with self._lock:
            for budget in self._budgets:
                for account, unit, limit, window in budget.watched(parts):
                    self._accounts[account] = (budget.name, unit, limit, window)
                    self._accounts.move_to_end(account)
            while len(self._accounts) > ACCOUNTS:
                self._accounts.popitem(last=False)

    # -- what is looked at when metrics are collected

    def _pending(self, _: CallbackOptions) -> Iterable[Observation]:
        rein = self._rein
        if rein is None:
            return
        count, after = 0, None
        try:
            while count < PENDING:
                page = rein.store.records("approval", state="pending", after=after, limit=1000)
                count += len(page.rows)
                after = page.next
                if after is None:
                    break
        except CheckreinError:
            return  # the store is gone: nothing is told rather than something wrong
        yield metrics.Observation(count)

    def _remaining(self, _: CallbackOptions) -> Iterable[Observation]:
        rein = self._rein
        if rein is None:
            return
        with self._lock:
            watched = list(self._accounts.items())
        least: dict[tuple[str, str], int] = {}
        try:
            for account, (name, unit, limit, window) in watched:
                balance = rein.store.balance(account, at=rein.clock(), window=window)
                used = 0 if balance is None else balance.spent + balance.held
                left = max(0, limit - used)
                least[name, unit] = min(left, least.get((name, unit), left))
        except CheckreinError:
            return
        for (name, unit), left in least.items():
            value = left / NANO if unit == "usd" else left
            yield metrics.Observation(value, {names.BUDGET: name, names.UNIT: unit})

    def _name(self, kind: str, name: str) -> str:
        known = self._names.setdefault(kind, set())
        if name in known:
            return name
        with self._lock:
            if len(known) < self._most:
                known.add(name)
                return name
        return OTHER


def _put(known: OrderedDict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    while len(known) > REMEMBERED:
        known.popitem(last=False)
