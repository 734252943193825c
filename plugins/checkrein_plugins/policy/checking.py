"""Rules against each other: contradictions, rules that can never matter, layers that widen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checkrein_plugins._patterns import fold_pattern, is_glob
from checkrein_plugins.policy.faults import Fault, fault
from checkrein_plugins.policy.layers import Counter, Layer, Rule
from checkrein_plugins.policy.shape import LEVELS, STRICTNESS


def check(layers: Sequence[Layer]) -> list[Fault]:
    """Everything that is wrong between the rules of these layers, highest layer first."""
    found: list[Fault] = []
    for index, layer in enumerate(layers):
        found += _impossible(layer)
        found += _against_each_other(layer)
        found += _unused_counters(layer)
        for above in layers[:index]:
            if LEVELS[above.settings.layer] < LEVELS[layer.settings.layer]:
                found += _widens(layer, above)
        for other in layers[:index]:
            if other.name == layer.name:
                text = f"{layer.name!r} is the name of {other.document.name} as well"
                found.append(fault(layer.document, ("name",), text))
            found += _counters_twice(layer, other)
    return found


# -- within one layer


def _impossible(layer: Layer) -> Iterator[Fault]:
    for rule in layer.rules:
        if rule.condition is not None and not rule.condition.possible:
            yield fault(
                layer.document, (*rule.key, "when"), "can never fire: no call meets this condition"
            )
        if rule.settings.effects is not None and set(rule.settings.kinds) == {"model"}:
            if "read" not in rule.settings.effects:
                yield fault(
                    layer.document, (*rule.key, "effects"),
                    "can never fire: a model call has the effect `read`",
                )  # fmt: skip


def _against_each_other(layer: Layer) -> Iterator[Fault]:
    seen: dict[object, Rule] = {}
    hiding = _Hiding(layer.rules)
    for rule in layer.rules:
        before = seen.setdefault(_calls(rule), rule)
        one, other = rule.settings.action, before.settings.action
        if before is not rule and one != other:
            text = (
                f"contradicts rules[{before.index}] {before.name!r}: the same calls, {one} here "
                f"and {other} there; keep one of them"
            )
            yield fault(layer.document, rule.key, text)
        elif before is not rule:
            text = f"says the same as rules[{before.index}] {before.name!r}; keep one of them"
            yield fault(layer.document, rule.key, text)
        else:
            yield from _hidden(layer, rule, hiding)


def _calls(rule: Rule) -> object:
    """What calls a rule is about, so that two rules can be compared."""
    return _folded(rule), _condition(rule), frozenset(rule.settings.kinds), _effects(rule)


class _Hiding:
    """Rules without a condition: they may leave nothing for others. Found by name or glob."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._named: dict[str, list[Rule]] = {}
        self._globs: list[Rule] = []
        for rule in rules:
            if rule.condition is None and rule.settings.action != "ALLOW":
                folded = _folded(rule)
                if any(map(is_glob, folded)):
                    self._globs.append(rule)
                for name in folded:
                    self._named.setdefault(name, []).append(rule)

    def of(self, rule: Rule) -> list[Rule]:
        """Candidates that may cover `rule`."""
        named = [other for name in _folded(rule) for other in self._named.get(name, ())]
        return [*named, *self._globs]


def _hidden(layer: Layer, rule: Rule, hiding: _Hiding) -> Iterator[Fault]:
    for other in hiding.of(rule):
        # The strictest rule wins wherever it stands.
        if STRICTNESS[other.settings.action] > STRICTNESS[rule.settings.action] and _covers(
            other, rule
        ):
            if _calls(other) == _calls(rule):
                return  # a contradiction, told at the second of the two
            text = (
                f"can never fire: rules[{other.index}] {other.name!r} answers "
                f"{other.settings.action} to every call that it is about"
            )
            yield fault(layer.document, rule.key, text)
            return


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Whether every call that `narrow` is about also meets `wide`, whatever its arguments."""
    return (
        wide.condition is None
        and set(narrow.settings.kinds) <= set(wide.settings.kinds)
        and _effects(narrow) <= _effects(wide)
        and all(any(_includes(w, n) for w in _folded(wide)) for n in _folded(narrow))
    )


def _includes(wide: str, narrow: str) -> bool:
    """Whether a glob matches everything that another one does, as far as is easily seen."""
    if wide in ("*", narrow):
        return True
    if wide.endswith("*") and not is_glob(wide[:-1]):
        return (_head(narrow) if is_glob(narrow) else narrow).startswith(wide[:-1])
    return False


def _overlaps(one: str, other: str) -> bool:
    """Whether two globs may match the same name, as far as is easily seen."""
    if is_glob(one) and is_glob(other):
        a, b = _head(one), _head(other)
        return a.startswith(b) or b.startswith(a)
    if is_glob(other):
        one, other = other, one
    from checkrein_plugins._patterns import globs

    return globs([one])(other)


def _head(glob: str) -> str:
    return glob.split("*", maxsplit=1)[0].split("?", maxsplit=1)[0]


def _folded(rule: Rule) -> frozenset[str]:
    return frozenset(map(fold_pattern, rule.globs))


def _condition(rule: Rule) -> str:
    return rule.condition.key if rule.condition is not None else ""


def _effects(rule: Rule) -> frozenset[str]:
    return frozenset(rule.settings.effects or ("read", "write", "egress"))


def _unused_counters(layer: Layer) -> Iterator[Fault]:
    used = {name for rule in layer.rules if rule.condition for name in rule.condition.counters()}
    for name, counter in layer.counters.items():
        if name not in used and counter.settings.limit is None:
            yield fault(
                layer.document, ("counters", name),
                "has no limit, and no condition looks at it", "warning",
            )  # fmt: skip


# -- between layers


def _widens(layer: Layer, above: Layer) -> Iterator[Fault]:
    """What a lower layer says as if it could loosen a higher one."""
    top = above.document.name
    stated = layer.settings.default
    default = above.settings.default or "ALLOW"
    if stated is not None and STRICTNESS[stated] < STRICTNESS[default]:
        text = f"widens: {top} says {default}; a lower layer can only narrow"
        yield fault(layer.document, ("default",), text)
    for rule in layer.rules:
        if rule.settings.action == "BLOCK":
            continue
        for higher in above.rules:
            if STRICTNESS[higher.settings.action] > STRICTNESS[rule.settings.action] and _covers(
                higher, rule
            ):
                text = (
                    f"widens: {top} rules[{higher.index}] {higher.name!r} answers "
                    f"{higher.settings.action} to these calls; a lower layer can only narrow"
                )
                yield fault(layer.document, rule.key, text)
                break
        else:
            if STRICTNESS[default] > STRICTNESS[rule.settings.action] and not any(
                _overlaps(a, b)
                for listed in above.rules
                for a in _folded(listed)
                for b in _folded(rule)
            ):
                text = (
                    f"widens: no rule of {top} lists these tools, and its default is {default}; "
                    "a lower layer can only narrow"
                )
                yield fault(layer.document, rule.key, text)


def _counters_twice(layer: Layer, other: Layer) -> Iterator[Fault]:
    for name, counter in layer.counters.items():
        before = other.counters.get(name)
        if before is None:
            continue
        if _counted(counter) != _counted(before):
            text = f"{other.document.name} counts something else under this name"
            yield fault(layer.document, ("counters", name), text)
        elif before.settings.limit is not None and (
            counter.settings.limit is None or counter.settings.limit > before.settings.limit
        ):
            text = f"widens: the limit of {other.document.name} is {before.settings.limit:g}"
            yield fault(layer.document, ("counters", name, "limit"), text)


def _counted(counter: Counter) -> object:
    settings = counter.settings
    listed = settings.tool if isinstance(settings.tool, list) else [settings.tool]
    return sorted(listed), settings.sum, settings.per, settings.window
