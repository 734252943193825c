"""A policy ready to decide: rules found by the name of the tool, layers folded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from checkrein.accounts import NO_LIMIT
from checkrein.call import NANO, Call
from checkrein.verdicts import Ask, Deny, Hold
from checkrein_plugins.policy.layers import Counter, Layer, Rule
from checkrein_plugins.policy.shape import STRICTNESS
from checkrein_plugins.policy.view import View, fields_of

REMEMBERED = 4096
"""Kinds of calls whose rules are kept looked up; then the memory starts afresh."""

Balance = Callable[[str], int]
"""What an account holds and spent together, in its own units."""
SessionView = Callable[[Call], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Fired:
    """One rule looked at for one call."""

    layer: str
    rule: str
    action: str
    fired: bool
    why: str
    """What kept the condition from being evaluated; then the rule fires closed."""


class Deciding:
    """The rules of all layers against calls. A changed policy is another object."""

    def __init__(
        self, layers: Sequence[Layer], name: str, balance: Balance, session: SessionView
    ) -> None:
        self.layers = tuple(layers)
        self.name = name
        self._balance = balance
        self._session = session
        self._counters: dict[str, tuple[Counter, ...]] = {}
        for layer in layers:
            for label, counter in layer.counters.items():
                self._counters[label] = (*self._counters.get(label, ()), counter)
        self._plans: dict[tuple[str, str, str, str], _Plan] = {}
        self.given: Mapping[str, float] | None = None
        """Values of counters instead of what the store holds, for rehearsals."""

    def plan(self, call: Call) -> _Plan:
        """Rules and counters of calls like this one."""
        key = (call.kind, call.name, call.tool.effect, call.agent)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= REMEMBERED:
                self._plans.clear()
            plan = self._plans[key] = _Plan(self, call)
        return plan

    def decide(self, call: Call) -> Deny | tuple[Ask | Hold, ...] | None:
        """The verdict on one call."""
        plan = self._plans.get((call.kind, call.name, call.tool.effect, call.agent))
        if plan is None:
            plan = self.plan(call)
        if plan.empty:
            return None
        view = View(call, self._count, self._session)
        asks: list[Ask | Hold] = []
        denied: Deny | None = None
        for rules, default in plan.layers:
            listed = False
            for rule in rules:
                condition = rule.condition
                if condition is not None:
                    try:
                        if not condition.holds(view):
                            continue
                    except Exception as error:  # noqa: BLE001 - values of any type are compared:
                        # what cannot be told makes the rule fire, on the strict side
                        verdict = rule.closed(error)
                    else:
                        verdict = rule.verdict
                else:
                    verdict = rule.verdict
                listed = True
                if verdict is None:
                    continue
                if type(verdict) is Ask:
                    asks.append(verdict)
                elif denied is None or (verdict.halt and not denied.halt):  # type: ignore[union-attr]  # not an Ask
                    denied = verdict  # type: ignore[assignment]  # not an Ask
            if not listed and default is not None:
                if type(default) is Ask:
                    asks.append(default)
                else:
                    denied = denied or default  # type: ignore[assignment]  # not an Ask
        if denied is not None:
            return denied
        for counter in plan.counters:
            hold = self._hold(counter, call)
            if type(hold) is Deny:
                return hold
            asks.append(hold)  # type: ignore[arg-type]  # not a Deny
        return tuple(asks) or None

    def explain(self, call: Call) -> list[Fired]:
        """Every rule about this call: whether it fired, and why."""
        view = View(call, self._count, self._session)
        found: list[Fired] = []
        for layer, (rules, default) in zip(
            self.plan(call).sources, self.plan(call).layers, strict=True
        ):
            listed = False
            for rule in rules:
                fired, why = rule.tell(view)
                listed = listed or fired
                found.append(Fired(layer.name, rule.name, rule.action, fired, why))
            if default is not None:
                action = "REQUIRE_APPROVAL" if isinstance(default, Ask) else "BLOCK"
                why = "a rule fired" if listed else "no rule fired"
                found.append(Fired(layer.name, "default", action, not listed, why))
        return found

    # -- counters

    def _count(self, name: str, call: Call) -> int | float:
        if self.given is not None:
            return self.given.get(name, 0)
        counter = self._counters[name][0]
        total = self._balance(self._account(counter, call))
        return total if counter.settings.sum is None else total / NANO

    def _account(self, counter: Counter, call: Call) -> str:
        per = counter.settings.per
        whose = call.session if per == "session" else getattr(call, per)
        return f"{self.name}/{counter.name}/{per}/{whose}"

    def counted(self, call: Call) -> list[tuple[str, int, str]]:
        """(counter, amount, unit) that a call adds if it runs."""
        return [
            (counter.name, hold.amount, hold.unit)
            for counter in self.plan(call).counters
            if isinstance(hold := self._hold(counter, call), Hold)
        ]

    def _hold(self, counter: Counter, call: Call) -> Hold | Deny:
        settings = counter.settings
        rule = f"{self.name}/{counter.name}"
        limit = NO_LIMIT
        amount = 1
        if settings.sum is None:
            if settings.limit is not None:
                limit = math.floor(settings.limit)
        else:
            value = _reach(call.arguments, settings.sum)
            if value is None or value < 0:
                return Deny(
                    f"argument {settings.sum!r} is not a finite number of 0 or more, so it "
                    f"cannot be counted as {counter.name}",
                    rule=rule,
                )
            # A part of a billionth counts as a whole one: sums must not drift below.
            amount = math.ceil(value * NANO)
            if amount >= NO_LIMIT:
                return Deny(f"argument {settings.sum!r} is too large to be counted", rule=rule)
            if settings.limit is not None:
                limit = min(NO_LIMIT, math.floor(Decimal(str(settings.limit)) * NANO))
        return Hold(
            self._account(counter, call),
            amount,
            "calls" if settings.sum is None else "amount",
            limit,
            window=None if settings.window is None else float(settings.window),
            settle="keep",
            rule=rule,
        )


def _reach(arguments: Mapping[str, Any], path: str) -> Decimal | None:
    value: Any = arguments
    for step in path.removeprefix("args.").split("."):
        fields = fields_of(value)
        if fields is None or step not in fields:
            return None
        value = fields[step]
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    exact = Decimal(str(value))
    return exact if exact.is_finite() else None


class _Plan:
    """What of a policy is about calls of one kind, tool, effect and agent."""

    __slots__ = ("counters", "empty", "layers", "sources")

    def __init__(self, policy: Deciding, call: Call) -> None:
        self.sources: list[Layer] = []
        self.layers: list[tuple[tuple[_Ready, ...], Deny | Ask | None]] = []
        counters: dict[str, Counter] = {}
        for layer in policy.layers:
            if layer.for_agent is not None and not layer.for_agent(call.agent):
                continue
            rules = tuple(
                _Ready(rule, f"{policy.name}/{layer.name}")
                for rule in layer.rules
                if call.kind in rule.settings.kinds
                and (rule.settings.effects is None or call.tool.effect in rule.settings.effects)
                and rule.about(call.name)
            )
            default = None
            if call.kind == "tool":
                default = _default(layer, f"{policy.name}/{layer.name}/default")
                for label, counter in layer.counters.items():
                    if counter.counts(call.name):
                        counters[label] = _stricter(counters.get(label), counter)
            if rules or default is not None:
                self.sources.append(layer)
                self.layers.append((rules, default))
        self.counters = tuple(counters.values())
        self.empty = not self.layers and not self.counters


def _default(layer: Layer, rule: str) -> Deny | Ask | None:
    action = layer.settings.default or "ALLOW"
    if action == "ALLOW":
        return None
    if action == "BLOCK":
        return Deny(f"no rule of {layer.name} allows this tool", rule=rule)
    return Ask(f"no rule of {layer.name} lists this tool", rule=rule)


def _stricter(before: Counter | None, counter: Counter) -> Counter:
    if before is None or before.settings.limit is None:
        return counter
    if counter.settings.limit is None or counter.settings.limit > before.settings.limit:
        return before
    return counter


class _Ready:
    """A rule with the verdict that it gives."""

    __slots__ = ("action", "condition", "name", "rule", "settings", "verdict")

    def __init__(self, rule: Rule, where: str) -> None:
        self.name = rule.name
        self.rule = f"{where}/{rule.name}"
        self.settings = rule.settings
        self.action = rule.settings.action
        self.condition = rule.condition
        self.verdict = self._verdict(self.action, self._reason())

    def _reason(self) -> str:
        if self.settings.reason is not None:
            return self.settings.reason
        done = "needs approval" if self.action == "REQUIRE_APPROVAL" else "is not allowed"
        return f"{done} by rule {self.name!r}"

    def _verdict(self, action: str, reason: str) -> Deny | Ask | None:
        settings = self.settings
        if action == "ALLOW":
            return None
        if action == "BLOCK":
            return Deny(reason, rule=self.rule, halt=settings.halt)
        return Ask(
            reason, rule=self.rule, risk=settings.risk, expires=settings.expires,
            who=tuple(settings.who or ()), quorum=settings.quorum,
            then=tuple(settings.then or ()), after=settings.after,
        )  # fmt: skip

    def closed(self, error: Exception) -> Deny | Ask | None:
        """The verdict where the condition cannot be evaluated. What would allow blocks."""
        action = "BLOCK" if self.action == "ALLOW" else self.action
        return self._verdict(
            action, f"{self._reason()} (its condition cannot be evaluated: {told(error)})"
        )

    def tell(self, view: View) -> tuple[bool, str]:
        """(whether it fires, why), part by part."""
        from checkrein_plugins.policy.conditions import evaluate

        if self.condition is None:
            return True, "always"
        parts: list[str] = []
        for clause in self.condition.clauses:
            try:
                parts.append(f"{clause.text}: {'yes' if evaluate(clause.node, view) else 'no'}")
            except Exception as error:  # noqa: BLE001 - as in `decide`
                parts.append(f"{clause.text}: cannot be evaluated, {told(error)}")
        try:
            fired = self.condition.holds(view)
        except Exception:  # noqa: BLE001 - as in `decide`
            return True, "; ".join(parts) + " -> fires closed"
        return fired, "; ".join(parts)


def told(error: Exception) -> str:
    """An error of a condition, without any value."""
    from checkrein_plugins.policy.functions import Unlike
    from checkrein_plugins.policy.view import Missing

    if isinstance(error, (Unlike, Missing)):
        return str(error.args[0])
    return type(error).__name__


def strictest(fired: Sequence[Fired]) -> str:
    """The action that wins among rules that were looked at."""
    found = [
        "BLOCK" if one.action == "ALLOW" and one.why.endswith("-> fires closed") else one.action
        for one in fired
        if one.fired
    ]
    return max(found, key=STRICTNESS.__getitem__, default="ALLOW")
