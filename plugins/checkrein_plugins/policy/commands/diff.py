"""`checkrein policy diff`: what another policy would narrow, loosen or change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from checkrein.cli._output import Out, compact
from checkrein.cli._place import Place, command
from checkrein_plugins.policy.commands.subject import Subject, load
from checkrein_plugins.policy.layers import Counter, Layer, Rule
from checkrein_plugins.policy.shape import STRICTNESS

_ENDLESS = float("inf")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    effect: str
    """`narrows`, `loosens`, or `changes` where neither is certain."""
    what: str
    before: str
    after: str


@command
def diff(
    *,
    place: Place,
    out: Out,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A policy file or configuration.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The one after it.")],
) -> int:
    """Show what differs between two policies, rule by rule."""
    changes = list(compare(load([old], place), load([new], place)))
    order = ("loosens", "changes", "narrows")
    changes.sort(key=lambda change: (order.index(change.effect), change.what))
    out.document(
        {
            "old": str(old), "new": str(new),
            "changes": [
                {"effect": c.effect, "what": c.what, "before": c.before, "after": c.after}
                for c in changes
            ],
        }
    )  # fmt: skip
    out.table(
        ("effect", "what", "before", "after"),
        [(c.effect, c.what, c.before, c.after) for c in changes],
        empty="the two policies say the same",
    )
    return 0


def compare(old: Subject, new: Subject) -> Iterator[Change]:
    """All differences."""
    yield from _plugins(old, new)
    before = {layer.name: layer for layer in old.layers}
    after = {layer.name: layer for layer in new.layers}
    if len(before) == len(after) == 1:
        # Two single files are two versions of one policy, whatever they are called.
        (one,), (other,) = before.values(), after.values()
        before, after = {other.name: one}, {other.name: other}
    for name in [*before, *(n for n in after if n not in before)]:
        yield from _layer(name, before.get(name), after.get(name))


def _plugins(old: Subject, new: Subject) -> Iterator[Change]:
    one, other = _deciding(old), _deciding(new)
    for name in [*one, *(n for n in other if n not in one)]:
        if name not in other:
            yield Change("loosens", f"plugin {name}", "there", "gone")
        elif name not in one:
            yield Change("narrows", f"plugin {name}", "not there", "there")
        elif one[name] != other[name]:
            yield from _tables(f"plugin {name}", one[name], other[name])


def _deciding(subject: Subject) -> dict[str, Any]:
    from checkrein_plugins.policy.plugin import Policy

    return {
        name: subject.options.get(name, {})
        for name, plugin in subject.plugins
        if not isinstance(plugin, Policy)
    }


def _tables(what: str, old: Any, new: Any) -> Iterator[Change]:
    """Where two tables of a configuration differ. What a key means is its plugin's to know."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from _tables(f"{what}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _tables(f"{what}[{index}]", one, other)
    elif old != new:
        yield Change("changes", what, compact(old, 60), compact(new, 60))


def _layer(name: str, old: Layer | None, new: Layer | None) -> Iterator[Change]:
    before = "ALLOW" if old is None else old.settings.default or "ALLOW"
    after = "ALLOW" if new is None else new.settings.default or "ALLOW"
    if before != after:
        yield Change(_by(STRICTNESS[before], STRICTNESS[after]), f"{name}: default", before, after)
    agents = [None if layer is None else layer.settings.agents for layer in (old, new)]
    if old is not None and new is not None and agents[0] != agents[1]:
        yield Change("changes", f"{name}: agents", _listed(agents[0]), _listed(agents[1]))
    rules = [{} if layer is None else {r.name: r for r in layer.rules} for layer in (old, new)]
    for rule in [*rules[0], *(n for n in rules[1] if n not in rules[0])]:
        yield from _rule(f"{name}: rule {rule}", rules[0].get(rule), rules[1].get(rule))
    counters = [{} if layer is None else layer.counters for layer in (old, new)]
    for counter in [*counters[0], *(n for n in counters[1] if n not in counters[0])]:
        one, other = counters[0].get(counter), counters[1].get(counter)
        yield from _counter(f"{name}: counter {counter}", one, other)


def _by(before: float, after: float) -> str:
    return "narrows" if after > before else "loosens"


def _listed(agents: list[str] | None) -> str:
    return "all" if agents is None else ", ".join(agents)


def _rule(what: str, old: Rule | None, new: Rule | None) -> Iterator[Change]:
    if old is None or new is None:
        there = old or new
        assert there is not None
        permits = there.settings.action == "ALLOW"
        loosens = (old is None) is permits
        said = f"{there.settings.action} {', '.join(there.globs)}" + (
            f" when {there.condition.text}" if there.condition else ""
        )
        effect = "loosens" if loosens else "narrows"
        yield Change(effect, what, "" if old is None else said, "" if new is None else said)
        return
    one, other = old.settings.action, new.settings.action
    if one != other:
        yield Change(_by(STRICTNESS[one], STRICTNESS[other]), f"{what}: action", one, other)
    texts = [r.condition.text if r.condition else "always" for r in (old, new)]
    keys = [r.condition.key if r.condition else "" for r in (old, new)]
    if keys[0] != keys[1]:
        effect = "changes"
        if one == other and "" in keys:
            wider = keys[1] == ""
            effect = "narrows" if wider is (other != "ALLOW") else "loosens"
        yield Change(effect, f"{what}: when", texts[0], texts[1])
    before, after = old.settings.model_dump(), new.settings.model_dump()
    for key in before:
        if key not in ("action", "when", "name") and before[key] != after[key]:
            effect = "changes"
            if key == "quorum":
                effect = _by(before[key], after[key])
            yield Change(effect, f"{what}: {key}", _told(before[key]), _told(after[key]))


def _told(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _counter(what: str, old: Counter | None, new: Counter | None) -> Iterator[Change]:
    limits = [None if c is None else c.settings.limit for c in (old, new)]
    if limits[0] != limits[1]:
        before, after = (_ENDLESS if limit is None else limit for limit in limits)
        texts = ["no limit" if limit is None else f"{limit:g}" for limit in limits]
        yield Change(_by(-before, -after), f"{what}: limit", *texts)
    if old is None or new is None:
        return
    one, other = old.settings.model_dump(), new.settings.model_dump()
    for key in one:
        if key != "limit" and one[key] != other[key]:
            yield Change("changes", f"{what}: {key}", _told(one[key]), _told(other[key]))
