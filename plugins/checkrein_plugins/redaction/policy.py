"""What to do with which category, by direction and tool: read from configuration, once."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from checkrein.errors import ConfigError

ACTIONS = ("redact", "keep", "block")
DIRECTIONS = ("requests", "responses", "arguments", "results")
TOOL_KEYS = ("keep", "arguments", "results", "fields")


class Policy(NamedTuple):
    """Actions for one direction: what is not named is redacted."""

    kept: frozenset[str]
    blocked: frozenset[str]
    off: bool
    """Every category is kept: nothing to look for."""


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
    arguments: Mapping[str, str] | None
    results: Mapping[str, str] | None
    fields: Mapping[str, Mapping[str, str]]


def actions(value: Any, key: str, categories: frozenset[str]) -> dict[str, str]:
    """Read an action for all categories, or a mapping of category to action.

    Raises:
        ConfigError: names `key`, and what is wrong with it.
    """
    if isinstance(value, str):
        if value not in ACTIONS:
            raise ConfigError(f"{key}: unknown action {value!r}; known are {', '.join(ACTIONS)}")
        return dict.fromkeys(categories, value)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}: give an action, or a table of category = action")
    chosen = dict.fromkeys(categories, "redact")
    for category, action in value.items():
        if category == "keep" and not isinstance(action, str):
            for name in listed(action, f"{key}.keep", categories):
                chosen[name] = "keep"
            continue
        if category not in categories:
            raise ConfigError(f"{key}.{category}: not one of this plugin's categories")
        if action not in ACTIONS:
            raise ConfigError(
                f"{key}.{category}: unknown action {action!r}; known are {', '.join(ACTIONS)}"
            )
        chosen[category] = action
    return chosen


def listed(value: Any, key: str, categories: frozenset[str]) -> frozenset[str]:
    """Read a list of categories."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{key}: give a list of categories")
    for name in value:
        if name not in categories:
            raise ConfigError(f"{key}: {name!r} is not one of this plugin's categories")
    return frozenset(value)


def policy(chosen: Mapping[str, str], keep: frozenset[str] = frozenset()) -> Policy:
    """Compile a mapping of category to action."""
    kept = frozenset(name for name, action in chosen.items() if action == "keep") | keep
    blocked = frozenset(name for name, action in chosen.items() if action == "block") - kept
    return Policy(kept, blocked, len(kept) == len(chosen))


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


def _optional(
    table: Mapping[str, Any], name: str, key: str, categories: frozenset[str]
) -> dict[str, str] | None:
    return actions(table[name], f"{key}.{name}", categories) if name in table else None


def tool_policy(
    name: str, rules: Sequence[ToolRule], arguments: Mapping[str, str], results: Mapping[str, str]
) -> ToolPolicy:
    """Join the rules that match `name`; a later rule overrides an earlier one."""
    keep: frozenset[str] = frozenset()
    fields: dict[str, Mapping[str, str]] = {}
    for rule in rules:
        if rule.names.match(name):
            keep |= rule.keep
            arguments = rule.arguments or arguments
            results = rule.results or results
            fields.update(rule.fields)
    return ToolPolicy(
        policy(arguments, keep),
        policy(results),
        {name: policy(chosen, keep) for name, chosen in fields.items()},
    )
