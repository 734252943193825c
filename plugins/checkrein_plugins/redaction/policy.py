"""What to do with which category, by direction and tool: read from configuration, once."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.marks import MOST_VISIBLE, Hashes, Mark, Marks, mask, same

ACTIONS = ("redact", "mask", "hash", "pseudonym", "warn", "keep", "block")
DIRECTIONS = ("requests", "responses", "arguments", "results")
TOOL_KEYS = ("keep", "arguments", "results", "fields")


class Action(NamedTuple):
    """What to do with a category."""

    name: str
    first: int = 0
    last: int = 4
    """Of `mask`: letters and digits that stay visible at either end."""


class Policy(NamedTuple):
    """Actions for one direction: what is not named is redacted."""

    kept: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    off: bool = False
    """Every category is kept: nothing to look for."""
    warned: frozenset[str] = frozenset()
    """Passed on, and told."""
    marks: Marks | None = None
    pseudonyms: frozenset[str] = frozenset()
    """Replaced by what stands for them in the session."""


PLAIN = Policy()
"""Every category is redacted."""


class ToolPolicy(NamedTuple):
    """Policies of one tool."""

    arguments: Policy
    results: Policy
    fields: Mapping[str, Policy]
    """By name of a top-level argument."""


class ToolRule(NamedTuple):
    """One row of `per_tool`, checked."""

    names: re.Pattern[str]
    keep: frozenset[str]
    arguments: Mapping[str, Action] | None
    results: Mapping[str, Action] | None
    fields: Mapping[str, Mapping[str, Action]]


def actions(value: Any, key: str, categories: frozenset[str]) -> dict[str, Action]:
    """Read an action for all categories, or a mapping of category to action.

    An action is its name, or a table of `action` and, for `mask`, `first` and `last`.

    Raises:
        ConfigError: names `key`, and what is wrong with it.
    """
    if isinstance(value, str) or (isinstance(value, Mapping) and "action" in value):
        return dict.fromkeys(categories, action(value, key))
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}: give an action, or a table of category = action")
    chosen = dict.fromkeys(categories, Action("redact"))
    for category, given in value.items():
        if category == "keep" and not isinstance(given, str):
            for name in listed(given, f"{key}.keep", categories):
                chosen[name] = Action("keep")
            continue
        if category not in categories:
            raise ConfigError(
                f"{key}.{category}: not one of this plugin's categories, which are "
                + ", ".join(sorted(categories))
            )
        chosen[category] = action(given, f"{key}.{category}")
    return chosen


def action(value: Any, key: str) -> Action:
    """Read one action."""
    name = value.get("action") if isinstance(value, Mapping) else value
    if not isinstance(name, str) or name not in ACTIONS:
        raise ConfigError(f"{key}: unknown action {name!r}; known are {', '.join(ACTIONS)}")
    if not isinstance(value, Mapping):
        return Action(name)
    shown = {option: value[option] for option in value if option != "action"}
    for option, count in shown.items():
        if name != "mask" or option not in ("first", "last"):
            raise ConfigError(f"{key}.{option}: unknown key; `mask` has first and last")
        if type(count) is not int or count < 0:
            raise ConfigError(f"{key}.{option}: give a whole number of characters")
    made = Action(name, shown.get("first", 0), shown.get("last", 0 if shown else 4))
    if made.first + made.last > MOST_VISIBLE:
        raise ConfigError(f"{key}: at most {MOST_VISIBLE} characters may stay visible")
    return made


def listed(value: Any, key: str, categories: frozenset[str]) -> frozenset[str]:
    """Read a list of categories."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{key}: give a list of categories")
    for name in value:
        if name not in categories:
            raise ConfigError(f"{key}: {name!r} is not one of this plugin's categories")
    return frozenset(value)


def policy(
    chosen: Mapping[str, Action], hashes: Hashes, keep: frozenset[str] = frozenset()
) -> Policy:
    """Compile a mapping of category to action; those in `keep` are kept."""
    by_name: dict[str, set[str]] = {name: set() for name in ACTIONS}
    marks: dict[str, Mark] = {}
    for category, wanted in chosen.items():
        if category in keep:
            by_name["keep"].add(category)
            continue
        by_name[wanted.name].add(category)
        if wanted.name == "mask":
            marks[category] = mask(wanted.first, wanted.last)
        elif wanted.name == "hash":
            marks[category] = hashes.mark(category)
        elif wanted.name == "warn":
            marks[category] = same
    kept = frozenset(by_name["keep"])
    return Policy(
        kept,
        frozenset(by_name["block"]),
        len(kept) == len(chosen),
        frozenset(by_name["warn"]),
        marks or None,
        frozenset(by_name["pseudonym"]),
    )


def tool_rules(per_tool: Any, categories: frozenset[str]) -> list[ToolRule]:
    """Read `per_tool`: whole-name glob to a table of `TOOL_KEYS`."""
    if per_tool is None:
        return []
    if not isinstance(per_tool, Mapping):
        raise ConfigError("per_tool: give a table of tool name (or glob) = settings")
    rules = []
    for glob, table in per_tool.items():
        key = f"per_tool.{glob}"
        if not isinstance(glob, str) or not glob:
            raise ConfigError("per_tool: names of tools are strings")
        if not isinstance(table, Mapping):
            raise ConfigError(f"{key}: give a table; known keys are {', '.join(TOOL_KEYS)}")
        for name in table:
            if name not in TOOL_KEYS:
                raise ConfigError(f"{key}.{name}: unknown key; known are {', '.join(TOOL_KEYS)}")
        fields = table.get("fields", {})
        if not isinstance(fields, Mapping):
            raise ConfigError(f"{key}.fields: give a table of argument = action")
        rules.append(
            ToolRule(
                re.compile(fnmatch.translate(glob)),
                listed(table.get("keep", ()), f"{key}.keep", categories),
                _optional(table, "arguments", key, categories),
                _optional(table, "results", key, categories),
                {
                    name: actions(value, f"{key}.fields.{name}", categories)
                    for name, value in fields.items()
                },
            )
        )
    return rules


def tables(rows: Sequence[ToolRule]) -> list[Mapping[str, Action]]:
    """All tables of category to action in these rules."""
    found: list[Mapping[str, Action]] = []
    for row in rows:
        found += [table for table in (row.arguments, row.results) if table is not None]
        found += row.fields.values()
    return found


def _optional(
    table: Mapping[str, Any], name: str, key: str, categories: frozenset[str]
) -> dict[str, Action] | None:
    return actions(table[name], f"{key}.{name}", categories) if name in table else None


def tool_policy(
    name: str,
    rules: Sequence[ToolRule],
    arguments: Mapping[str, Action],
    results: Mapping[str, Action],
    hashes: Hashes,
    keep: frozenset[str] = frozenset(),
) -> ToolPolicy:
    """Join the rules that match `name`; a later rule overrides an earlier one."""
    fields: dict[str, Mapping[str, Action]] = {}
    for rule in rules:
        if rule.names.match(name):
            keep |= rule.keep
            arguments = rule.arguments or arguments
            results = rule.results or results
            fields.update(rule.fields)
    return ToolPolicy(
        policy(arguments, hashes, keep),
        policy(results, hashes),
        {name: policy(chosen, hashes, keep) for name, chosen in fields.items()},
    )
