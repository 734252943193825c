"""Policy files read into layers, each checked by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from checkrein import _config_file
from checkrein._config_file import Document, Key
from checkrein._config_model import near, plainly
from checkrein.errors import ConfigError
from checkrein_plugins._patterns import Matcher, fold_pattern, globs, names
from checkrein_plugins.policy import conditions
from checkrein_plugins.policy.conditions import Condition, ConditionError
from checkrein_plugins.policy.faults import Fault, fault, from_error
from checkrein_plugins.policy.shape import (
    CounterSettings,
    PolicySettings,
    RuleSettings,
    Text,
)

__all__ = ["Counter", "Layer", "Rule", "Text", "read_file", "read_layers", "read_mapping"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its patterns and its condition compiled."""

    index: int
    name: str
    settings: RuleSettings
    globs: tuple[str, ...]
    restricts: Matcher
    """Whether it is about a tool, names compared folded."""
    lists: Matcher
    """Whether it names a tool exactly."""
    condition: Condition | None

    @property
    def key(self) -> Key:
        """Where it stands in its file."""
        return ("rules", self.index)

    def about(self, tool: str) -> bool:
        """What permits is compared exactly, what restricts folded."""
        return self.lists(tool) if self.settings.action == "ALLOW" else self.restricts(tool)


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter with its patterns compiled."""

    name: str
    settings: CounterSettings
    counts: Matcher


@dataclass(slots=True)
class Layer:
    """One policy file."""

    document: Document
    name: str
    settings: PolicySettings
    rules: list[Rule] = field(default_factory=list)
    counters: dict[str, Counter] = field(default_factory=dict)
    for_agent: Matcher | None = None
    """None: for every agent."""


def patterns(tool: str | list[str]) -> tuple[str, ...]:
    """The globs of a rule or counter."""
    return (tool,) if isinstance(tool, str) else tuple(tool)


FOLDER: ContextVar[Path | None] = _config_file.FOLDER
"""Where relative paths begin while a configuration is built: beside its file."""


def read_file(path: str | os.PathLike[str]) -> tuple[Layer | None, list[Fault]]:
    """Read one policy file. A relative path begins beside the configuration that names it."""
    place = Path(path)
    base = FOLDER.get()
    if base is not None and not place.is_absolute():
        place = base / place
    try:
        document = _config_file.read(place)
    except ConfigError as error:
        return None, [from_error(Document({}, str(place), place), error)]
    return _read(document, place.name.split(".")[0])


def read_mapping(data: Mapping[str, Any], name: str) -> tuple[Layer | None, list[Fault]]:
    """Read a policy that is given as plain data of a file's shape."""
    return _read(Document(dict(data), name), name)


def _read(document: Document, name: str) -> tuple[Layer | None, list[Fault]]:
    data = {key: value for key, value in document.data.items() if key != "$schema"}
    try:
        settings = PolicySettings.model_validate(data)
    except ValidationError as error:
        return None, _invalid(document, error)
    layer = Layer(document, settings.name or name, settings)
    faults: list[Fault] = []
    if settings.agents is not None:
        layer.for_agent = names(settings.agents)
    elif settings.layer == "agent":
        faults.append(fault(document, ("layer",), "an agent's layer needs `agents`: for whom?"))
    for label, counter in settings.counters.items():
        counted = patterns(counter.tool)
        faults += _unnamed(document, ("counters", label, "tool"), counted)
        layer.counters[label] = Counter(label, counter, names(counted))
    known = frozenset(settings.counters)
    taken: dict[str, int] = {}
    for index, rule in enumerate(settings.rules):
        key: Key = ("rules", index)
        listed = patterns(rule.tool)
        faults += _unnamed(document, (*key, "tool"), listed)
        label = rule.name or ",".join(listed)
        if rule.name is not None and label in taken:
            faults.append(
                fault(document, (*key, "name"), f"{label!r} is taken by rules[{taken[label]}]")
            )
        if rule.name is None and label in taken:
            label = f"{label} #{index + 1}"
        taken.setdefault(label, index)
        condition = None
        if rule.when is not None:
            try:
                condition = conditions.read(rule.when, known)
            except ConditionError as error:
                faults.append(fault(document, (*key, "when"), str(error)))
                continue
            for counter_name in sorted(condition.counters()):
                if settings.counters[counter_name].window is not None:
                    text = (
                        f"counters.{counter_name} has a window, which only its own limit can look "
                        "through; give it a limit, or leave the window out"
                    )
                    faults.append(fault(document, (*key, "when"), text))
        layer.rules.append(
            Rule(index, label, rule, listed, names(listed), globs(listed), condition)
        )
        faults += _meaningless(document, key, rule)
    return layer, faults


def _unnamed(document: Document, key: Key, listed: Sequence[str]) -> list[Fault]:
    return [
        fault(document, key, f"{glob!r} names no tool") for glob in listed if not fold_pattern(glob)
    ]


_ONLY_FOR = {
    "who": "REQUIRE_APPROVAL", "quorum": "REQUIRE_APPROVAL", "expires": "REQUIRE_APPROVAL",
    "then": "REQUIRE_APPROVAL", "after": "REQUIRE_APPROVAL", "risk": "REQUIRE_APPROVAL",
    "halt": "BLOCK",
}  # fmt: skip


def _meaningless(document: Document, key: Key, rule: RuleSettings) -> list[Fault]:
    return [
        fault(document, (*key, name), f"can never matter: action is {rule.action}, not {action}")
        for name, action in _ONLY_FOR.items()
        if name in rule.model_fields_set and rule.action != action
    ]


def _invalid(document: Document, error: ValidationError) -> list[Fault]:
    found: list[Fault] = []
    for item in error.errors(include_url=False, include_context=True):
        key = _within(document.data, item["loc"])
        text = plainly(item["msg"])
        if item["type"] == "extra_forbidden":
            allowed = _allowed(key[:-1])
            name = str(key[-1])
            text = f"unknown key{near(name, allowed)}; allowed: {', '.join(allowed)}"
        elif item["type"] == "literal_error":
            text = f"must be one of {item.get('ctx', {})['expected'].replace(' or ', ', ')}"
        elif item["type"] == "missing":
            key = (*key, str(item["loc"][-1]))
        found.append(fault(document, key, text))
    # Both branches of `text or list of texts` tell their own story of one fault.
    by_key: dict[tuple[int | None, str], Fault] = {}
    for one in found:
        before = by_key.get((one.line, one.key))
        if before is None:
            by_key[one.line, one.key] = one
        elif one.text not in before.text:
            text = f"{before.text} or {one.text}".replace(" or must be ", " or ")
            by_key[one.line, one.key] = Fault("error", one.file, one.line, one.key, text)
    return list(by_key.values())


def _within(data: Any, loc: tuple[str | int, ...]) -> Key:
    """`loc` without what pydantic adds to it for unions."""
    key: Key = ()
    for part in loc:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        key = (*key, part)
    return key


def _allowed(key: Key) -> list[str]:
    model: type[PolicySettings | RuleSettings | CounterSettings] = PolicySettings
    if key[:1] == ("rules",):
        model = RuleSettings
    elif key[:1] == ("counters",):
        model = CounterSettings
    return sorted(model.model_fields)


def read_layers(
    files: Sequence[str | os.PathLike[str]], inline: Sequence[Mapping[str, Any]]
) -> tuple[list[Layer], list[Fault]]:
    """All layers of a policy, the highest first, and everything that is wrong with them."""
    from checkrein_plugins.policy.checking import check
    from checkrein_plugins.policy.shape import LEVELS

    layers: list[Layer] = []
    faults: list[Fault] = []
    for file in files:
        layer, wrong = read_file(file)
        faults += wrong
        layers += [layer] if layer is not None else []
    for index, data in enumerate(inline):
        layer, wrong = read_mapping(data, f"layers[{index}]")
        faults += wrong
        layers += [layer] if layer is not None else []
    layers.sort(key=lambda layer: LEVELS[layer.settings.layer])
    faults += check(layers)
    return layers, faults
