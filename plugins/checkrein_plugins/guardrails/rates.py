"""CategoryRateLimit: at most so many calls of a kind of tool, or of one tool, in a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Never

from pydantic import Field, StrictBool

from checkrein._config_model import near
from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Hold, PreVerdict
from checkrein_plugins._config import (
    Count,
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
from checkrein_plugins._patterns import Matcher, fold_pattern, names
from checkrein_plugins._selection import KEPT, PerName

if TYPE_CHECKING:
    from checkrein.rein import Rein

EFFECTS = ("read", "write", "egress")
"""Categories that there always are: what tools are declared to do."""

UNATTRIBUTED = "unattributed"
"""The account of calls without the thing that is counted by (no user, no tenant)."""


class LimitSettings(Settings):
    """One limit: `calls` in `window` seconds, of a category or of the tools that `tool` matches."""

    category: Text | None = None
    tool: Text | Texts | None = None
    calls: Count
    window: Seconds | None = None
    """Sliding; None: in all."""
    per: Literal["session", "agent", "user", "tenant", "all"] = "session"
    halt: StrictBool = False


class _Settings(Settings):
    categories: dict[Name, Texts] = Field(default_factory=dict)
    limits: list[LimitSettings] = Field(min_length=1)
    name: Name = "rates"


@dataclass(slots=True)
class _Limit:
    rule: str
    settings: LimitSettings
    matches: Matcher | None
    """None: by the declared effect."""
    what: str
    holds: dict[str, Hold] = field(default_factory=dict)

    def hold(self, call: Call) -> Hold:
        """The hold of one call: always the same for an account, and frozen, so it is kept."""
        settings = self.settings
        per = settings.per
        key = "all" if per == "all" else getattr(call, per) or UNATTRIBUTED
        hold = self.holds.get(key)
        if hold is None:
            window = settings.window
            slide = "" if window is None else f"@{window:g}s"
            time = "in all" if window is None else f"in {window:g} s"
            hold = Hold(
                f"{self.rule}/{per}{slide}/{key}",
                1,
                "calls",
                settings.calls,
                None if window is None else float(window),
                "keep",
                self.rule,
                settings.halt,
                reason=f"at most {settings.calls} calls of {self.what} {time}"
                + ("" if per == "all" else f" per {per}"),
                code="rate_limited",
            )
            if len(self.holds) < KEPT:
                self.holds[key] = hold
        return hold


class CategoryRateLimit(Plugin):
    """Limits how often kinds of tools, or single tools, are called: exact over all processes.

    `categories`: globs of tools by name of the category; `read`, `write` and `egress` are there
    already, by what tools are declared to do. `limits`: see `LimitSettings`. What was not run is
    not counted; an undo is neither counted nor stopped.

    Raises `ConfigError` for an unknown or unused category and for a limit that can never matter.
    """

    def __init__(
        self,
        *,
        limits: Sequence[Mapping[str, Any]] = (),
        categories: Mapping[str, Sequence[str]] | None = None,
        name: str = "rates",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "rates", tuple(_Settings.model_fields))
        given = {key: listed(value) for key, value in (categories or {}).items()}
        settings = read(
            _Settings, {"categories": given, "limits": listed(limits), "name": name}, "rates"
        )
        self.name = settings.name
        self._limits: list[_Limit] = []
        kinds = settings.categories
        for kind, patterns in kinds.items():
            if kind in EFFECTS:
                raise ConfigError(f"rates.categories.{kind}: tools are declared as {kind} already")
            _refuse_empty(patterns, f"rates.categories.{kind}")
        for index, limit in enumerate(settings.limits):
            self._limits.append(self._limit(limit, kinds, f"rates.limits[{index}]"))
        unused = sorted(set(kinds) - {limit.category for limit in settings.limits})
        if unused:
            raise ConfigError(f"rates.categories.{unused[0]}: no limit names it")
        _refuse_idle(settings.limits)
        self._plans = PerName(self._plan)

    def pre_call(self, call: Call) -> PreVerdict:
        """Hold one call of each limit that applies."""
        if call.kind != "tool":
            return None
        by_name, by_effect = self._plans(call.name)
        if not by_effect:
            if not by_name:
                return None
            if len(by_name) == 1:
                return by_name[0].hold(call)
            return tuple([limit.hold(call) for limit in by_name])
        effect = call.tool.effect
        holds = [limit.hold(call) for limit in by_name]
        holds += [limit.hold(call) for limit in by_effect if limit.settings.category == effect]
        return tuple(holds) or None

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name: they would share counters."""
        refuse_twins(rein, self)

    def _plan(self, name: str) -> tuple[list[_Limit], list[_Limit]]:
        """(limits that apply to a tool, limits that apply if it has their effect)."""
        by_name = [x for x in self._limits if x.matches is not None and x.matches(name)]
        return by_name, [x for x in self._limits if x.matches is None]

    def _limit(self, limit: LimitSettings, kinds: Mapping[str, list[str]], where: str) -> _Limit:
        if (limit.category is None) == (limit.tool is None):
            raise ConfigError(f"{where}: state either category or tool")
        if limit.tool is not None:
            patterns = [limit.tool] if isinstance(limit.tool, str) else limit.tool
            _refuse_empty(patterns, f"{where}.tool")
            what = ",".join(patterns)
            return _Limit(f"{self.name}/tool/{what}", limit, names(patterns), what)
        category = limit.category or ""
        rule = f"{self.name}/category/{category}"
        if category in EFFECTS:
            return _Limit(rule, limit, None, f"{category} tools")
        if category not in kinds:
            known = [*kinds, *EFFECTS]
            raise ConfigError(
                f"{where}.category: unknown category {category!r}{near(category, known)}; "
                f"known: {', '.join(sorted(known))}"
            )
        return _Limit(rule, limit, names(kinds[category]), f"{category} tools")


def _refuse_empty(patterns: Sequence[str], where: str) -> None:
    for pattern in patterns:
        if not fold_pattern(pattern):
            raise ConfigError(f"{where}: {pattern!r} names no tool")


def _refuse_idle(limits: Sequence[LimitSettings]) -> None:
    """Refuse a limit that another one, of the same calls, always comes before."""
    for index, limit in enumerate(limits):
        for at, other in enumerate(limits):
            same = (limit.category, limit.tool, limit.per) == (
                other.category, other.tool, other.per,
            )  # fmt: skip
            if at == index or not same:
                continue
            longer = other.window is None or (
                limit.window is not None and other.window >= limit.window
            )
            alike = (other.calls, other.window) == (limit.calls, limit.window)
            if longer and other.calls <= limit.calls and not (alike and at > index):
                raise ConfigError(
                    f"rates.limits[{index}]: can never matter: limits[{at}] allows no more in a "
                    "time that is as long"
                )
