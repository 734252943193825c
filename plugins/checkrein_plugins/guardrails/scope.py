"""Scope: which tools may be called, with which arguments, and how often.

    Scope(rules=[
        {"tool": "refund", "arguments": {"amount": {"ask_above": 100, "maximum": 1000}}},
        {"tool": "read_file", "arguments": {"path": {"type": "path", "allow": ["/data/*"]}}},
        {"tool": "shell*", "action": "deny"},
    ], unlisted="allow")

All rules that match a tool's name hold together: the strictest wins. Whether a rule restricts
a tool is decided on the folded name, whether a tool is listed on the exact one; so neither
`Delete_File ` nor a name with a Cyrillic letter gets around a rule or into a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never

from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Ask, Deny, Hold, PreOne, PreVerdict
from checkrein_plugins._config import listed, read, refuse_twins, refuse_unknown
from checkrein_plugins._patterns import Matcher, fold_pattern, globs, names, nothing
from checkrein_plugins.guardrails import _paths
from checkrein_plugins.guardrails._arguments import ArgumentCheck, billionths
from checkrein_plugins.guardrails._contradictions import contradictions
from checkrein_plugins.guardrails._rules import Action, RuleSettings, ScopeSettings

if TYPE_CHECKING:
    from checkrein.rein import Rein

_REMEMBERED = 4096
"""Tool names whose rules are kept looked up; then the memory starts afresh."""

MINUTE = 60.0


class Scope(Plugin):
    """Decides on each tool call by the tool's name, its arguments and how often it ran.

    `rules`: see `RuleSettings`. `allow`, `block`: globs of tools, for short. `unlisted`: what
    of a tool that no rule and no `allow` lists; default `deny` where `allow` is given, else
    `allow`. `root`: what relative paths are read against. `undo`: hold the rules against undo
    calls too; by default an undo passes, because it takes back what has passed. `name` begins
    the names of rules and accounts; two Scopes in one Rein need two.

    Raises `ConfigError`, with the place, for anything that cannot be used.
    """

    def __init__(
        self,
        *,
        rules: Sequence[Mapping[str, Any]] = (),
        allow: Sequence[str] | None = None,
        block: Sequence[str] | None = None,
        unlisted: Literal["allow", "ask", "deny"] | None = None,
        root: str | None = None,
        undo: bool = False,
        name: str = "scope",
        **unknown: Never,
    ) -> None:
        where = "scope"
        refuse_unknown(unknown, where, tuple(ScopeSettings.model_fields))
        settings = read(
            ScopeSettings,
            {
                "rules": listed(rules),
                "allow": listed(allow),
                "block": listed(block),
                "unlisted": unlisted,
                "root": root,
                "undo": undo,
                "name": name,
            },
            where,
        )
        self.name = settings.name
        self.undo = settings.undo
        base = settings.root
        if base is not None:
            base = _paths.absolute_root(base, f"{where}.root")
        stated = list(settings.rules)
        places = [f"{where}.rules[{i}]" for i in range(len(stated))]
        for action in ("allow", "block"):
            wanted = getattr(settings, action)
            if wanted is not None:
                stated.append(
                    RuleSettings(
                        tool=wanted, name=action, action="deny" if action == "block" else "allow"
                    )
                )
                places.append(f"{where}.{action}")
        _refuse_repeats(stated, places)
        self._rules = [
            _Rule(rule, base, place, settings.name)
            for rule, place in zip(stated, places, strict=True)
        ]
        self.unlisted: Action = settings.unlisted or (
            "deny" if settings.allow is not None else "allow"
        )
        self._plans: dict[str, tuple[_Rule, ...]] = {}

    def pre_call(self, call: Call) -> PreVerdict:
        """Deny, ask, and hold one call of each limit; nothing for a tool without rules."""
        plan = self._plans.get(call.name)
        if plan is None:
            plan = self._plan(call.name)
        if not plan or call.kind == "model" or (call.kind == "undo" and not self.undo):
            return None
        verdicts: list[PreOne] = []
        for rule in plan:
            verdict = rule.decide(call)
            if isinstance(verdict, Deny):
                return verdict
            if verdict is not None:
                verdicts += verdict
        return tuple(verdicts) or None

    def start(self, rein: Rein) -> None:
        """Refuse a second Scope of this Rein under the same name: they would share counters."""
        refuse_twins(rein, self)

    def _plan(self, name: str) -> tuple[_Rule, ...]:
        found = tuple(rule for rule in self._rules if rule.restricts(name))
        if self.unlisted != "allow" and not any(rule.lists(name) for rule in self._rules):
            found = (_unlisted(self.unlisted, bool(found), self.name), *found)
        if len(self._plans) >= _REMEMBERED:
            self._plans.clear()
        self._plans[name] = found
        return found


class _Rule:
    """One compiled rule."""

    __slots__ = (
        "_checks",
        "_fixed",
        "_limits",
        "_only",
        "_settings",
        "_totals",
        "lists",
        "restricts",
        "rule",
    )

    def __init__(self, settings: RuleSettings, root: str | None, where: str, scope: str) -> None:
        patterns = _patterns(settings)
        self._settings = settings
        self.rule = f"{scope}/{settings.name or ','.join(patterns)}"
        self.lists: Matcher = globs(patterns)
        restricting = (
            settings.action != "allow"
            or settings.arguments
            or settings.other_arguments == "deny"
            or settings.calls_per_minute is not None
            or settings.max_calls is not None
        )
        self.restricts: Matcher = names(patterns) if restricting else nothing
        for name, argument in settings.arguments.items():
            contradictions(argument, f"{where}.arguments.{name}")
        self._checks = [
            ArgumentCheck(name, argument, root, f"{where}.arguments.{name}")
            for name, argument in settings.arguments.items()
        ]
        self._only = (
            frozenset(name.partition(".")[0] for name in settings.arguments)
            | frozenset(settings.arguments)
            if settings.other_arguments == "deny"
            else None
        )
        self._totals = [c for c in self._checks if settings.arguments[c.name].total is not None]
        self._limits: list[tuple[str, int, float | None]] = []
        if settings.calls_per_minute is not None:
            self._limits.append(("minute", settings.calls_per_minute, MINUTE))
        if settings.max_calls is not None:
            self._limits.append(("calls", settings.max_calls, None))
        self._fixed: Deny | Ask | None = None
        if settings.action == "deny":
            self._refuse_dead_parts(where)
            self._fixed = Deny(settings.reason or "this tool is not allowed", rule=self.rule)
        elif settings.action == "ask":
            self._fixed = self._ask(settings.reason or "this tool needs approval")

    def decide(self, call: Call) -> Deny | tuple[Ask | Hold, ...] | None:
        """The verdict on one call of a tool that the rule restricts."""
        fixed = self._fixed
        if isinstance(fixed, Deny):
            return fixed
        arguments = call.arguments
        asks: list[Ask | Hold] = []
        if fixed is not None:
            asks.append(fixed)
        for check in self._checks:
            problem = check.check(arguments)
            if problem is not None:
                return Deny(f"argument {check.name!r} {problem}", rule=self.rule)
            if check.asks(arguments):
                limit = self._settings.arguments[check.name].ask_above
                asks.append(self._ask(f"argument {check.name!r} is above {limit:g}"))
        if self._only is not None and not self._only.issuperset(arguments):
            return Deny("has an argument that the rule does not name", rule=self.rule)
        for check in self._totals:
            total = self._settings.arguments[check.name].total or 0
            asks.append(
                Hold(
                    account=f"{self.rule}/total/{check.name}/session/{call.session}",
                    amount=check.amount(arguments),
                    unit="amount",
                    limit=billionths(total),
                    settle="keep",
                    rule=self.rule,
                    reason=f"argument {check.name!r} may be {total:g} in all calls of a session",
                    code="rate_limited",
                )
            )
        for what, limit, window in self._limits:
            asks.append(
                Hold(
                    account=f"{self.rule}/{what}/session/{call.session}",
                    amount=1,
                    unit="calls",
                    limit=limit,
                    window=window,
                    settle="keep",
                    rule=self.rule,
                    code="rate_limited",
                )
            )
        return tuple(asks) or None

    def _ask(self, reason: str) -> Ask:
        settings = self._settings
        return Ask(
            reason,
            rule=self.rule,
            risk=settings.risk,
            expires=settings.expires,
            who=tuple(settings.who or ()),
            quorum=settings.quorum,
            then=tuple(settings.then or ()),
            after=settings.after,
        )

    def _refuse_dead_parts(self, where: str) -> None:
        settings = self._settings
        for key in ("arguments", "calls_per_minute", "max_calls", "who", "then", "expires"):
            if getattr(settings, key) not in (None, {}):
                raise ConfigError(f"{where}.{key}: can never matter, the rule denies every call")


def _unlisted(action: Action, similar: bool, scope: str) -> _Rule:
    reason = "this tool is not listed"
    if similar:
        reason += " (a rule has a similar name; a list takes the exact one)"
    rule = RuleSettings(tool="*", name="unlisted", action=action, reason=reason)
    return _Rule(rule, None, f"{scope}.unlisted", scope)


def _patterns(rule: RuleSettings) -> list[str]:
    return [rule.tool] if isinstance(rule.tool, str) else list(rule.tool)


def _refuse_repeats(rules: list[RuleSettings], places: list[str]) -> None:
    seen: dict[str, tuple[int, str]] = {}
    named: dict[str, str] = {}
    for index, rule in enumerate(rules):
        for pattern in _patterns(rule):
            key = fold_pattern(pattern)
            if not key:
                raise ConfigError(f"{places[index]}.tool: {pattern!r} names no tool")
            before = seen.setdefault(key, (index, pattern))
            if before[0] != index:
                raise ConfigError(
                    f"{places[index]}: tool {pattern!r} has a rule already at "
                    f"{places[before[0]]}; put the two together"
                )
            if before[1] is not pattern and before[1] == pattern:
                raise ConfigError(f"{places[index]}.tool: {pattern!r} stands there twice")
        name = rule.name or ",".join(_patterns(rule))
        if name in named:
            raise ConfigError(
                f"{places[index]}.name: {name!r} is taken by {named[name]}; "
                "accounts and reasons need different names"
            )
        named[name] = places[index]
