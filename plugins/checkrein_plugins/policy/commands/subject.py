"""What a policy command is about: policy files, or a whole configuration with its plugins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkrein import _config_file
from checkrein._config_file import Document
from checkrein._io import finish
from checkrein.attendance import unattended
from checkrein.call import NANO, Call
from checkrein.checks import PreFold
from checkrein.errors import ConfigError
from checkrein.manager import Plugins
from checkrein.verdicts import Hold
from checkrein_plugins.policy.deciding import Deciding, Fired
from checkrein_plugins.policy.faults import refuse
from checkrein_plugins.policy.layers import Layer, read_layers
from checkrein_plugins.policy.plugin import Policy
from checkrein_plugins.policy.shape import PolicySettings

if TYPE_CHECKING:
    from checkrein._config_model import Settings
    from checkrein.cli._place import Place
    from checkrein.rein import Rein


def is_policy(document: Document) -> bool:
    """Whether a file is a policy and not a configuration."""
    return bool(set(document.data) & (set(PolicySettings.model_fields) - {"name", "version"}))


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says of one call."""

    verdict: str
    """ALLOW, REQUIRE_APPROVAL or BLOCK."""
    by: tuple[tuple[str, str, str], ...]
    """(plugin, rule, reason) of what is not ALLOW, the strictest first."""
    limits: tuple[str, ...] = ()
    """Limits that a call like this is counted against when it runs."""
    unasked: tuple[str, ...] = ()
    """Plugins that ask a model or a person: what they would say is not known."""


@dataclass(slots=True)
class Subject:
    """Plugins that decide, ready to be asked."""

    name: str
    plugins: list[tuple[str, object]]
    configured: list[tuple[str, object]] = field(default_factory=list)
    """Those of a configuration, all of them; empty for policy files."""
    options: dict[str, Any] = field(default_factory=dict)
    """The tables of a configuration, by plugin."""

    @property
    def policies(self) -> list[Policy]:
        """The policies among them."""
        return [plugin for _, plugin in self.plugins if isinstance(plugin, Policy)]

    @property
    def layers(self) -> list[Layer]:
        """The policy files, the highest layer first."""
        return [layer for policy in self.policies for layer in policy.layers]

    @contextmanager
    def asked(self) -> Iterator[Asked]:
        """The plugins started in a Rein of their own, with a store that is empty and forgotten."""
        from checkrein.rein import Rein

        with unattended(nobody=True), Rein(self.configured, store="memory:") as rein:
            chain = rein.plugins
            if not self.configured:
                # Policy files alone: what they must run beside is not here, and not needed.
                chain = Plugins()
                chain.register(self.plugins)
                for policy in self.policies:
                    policy.attach(rein)
            yield Asked(self, rein, chain)


class Asked:
    """A subject that can be asked about calls."""

    def __init__(self, subject: Subject, rein: Rein, chain: Plugins) -> None:
        self.subject = subject
        self._rein = rein
        self._chain = [impl for impl in chain.chains["pre_call"] if not impl.external]
        self._unasked = tuple(impl.plugin for impl in chain.chains["pre_call"] if impl.external)

    def decide(self, call: Call, counts: Mapping[str, float] | None = None) -> Decision:
        """The verdict of all plugins on a call. `counts`: values of counters."""
        for policy in self.subject.policies:
            policy.deciding.given = counts
        fold = PreFold(self._rein.sync_io, self._chain, self._rein.hook_timeout)
        checked = finish(fold.run(call))
        by: list[tuple[str, str, str]] = []
        limits: list[str] = []
        verdict = "ALLOW"
        if checked.denied is not None:
            verdict = "BLOCK"
            by.append((checked.denied.plugin, checked.denied.rule, checked.denied.reason))
        for plugin, hold in checked.holds:
            limits.append(_limit(hold))
            if verdict != "BLOCK" and counts is not None and _over(hold, counts):
                verdict = "BLOCK"
                by.append((plugin, hold.rule, f"over the limit: {_limit(hold)}"))
        if checked.asks and verdict == "ALLOW":
            verdict = "REQUIRE_APPROVAL"
        by += [(plugin, ask.rule, ask.reason) for plugin, ask in checked.asks]
        return Decision(verdict, tuple(by), tuple(limits), self._unasked)

    def explain(self, call: Call, counts: Mapping[str, float] | None = None) -> list[Fired]:
        """Every policy rule about a call."""
        found: list[Fired] = []
        for policy in self.subject.policies:
            policy.deciding.given = counts
            found += policy.deciding.explain(call)
        return found


def counter_of(hold: Hold) -> str:
    """The counter behind a policy's hold."""
    return hold.rule.rpartition("/")[2]


def _over(hold: Hold, counts: Mapping[str, float]) -> bool:
    before = counts.get(counter_of(hold), 0)
    scaled = math.ceil(before * NANO) if hold.unit == "amount" else math.ceil(before)
    return scaled + hold.amount > hold.limit


def _limit(hold: Hold) -> str:
    from checkrein.accounts import NO_LIMIT, amount_text

    if hold.limit >= NO_LIMIT:
        return f"{hold.rule}: counted"
    window = f" within {hold.window:g} s" if hold.window is not None else ""
    return f"{hold.rule}: {amount_text(hold.limit, hold.unit)}{window}"


# -- finding it


def load(paths: Sequence[Path], place: Place) -> Subject:
    """Policy files or one configuration; without paths the one that commands find.

    Raises `ConfigError` with the first fault.
    """
    chosen = list(paths)
    if not chosen:
        file = place.file()
        if file is None:
            raise ConfigError(
                "no policy is named, and there is no checkrein.toml here: name policy files or a "
                "configuration"
            )
        chosen = [file]
    documents = [_config_file.read(path) for path in chosen]
    if all(map(is_policy, documents)):
        layers, faults = read_layers(chosen, [])
        refuse(faults)
        named = [policy_of(layers)]
        return Subject(", ".join(map(str, chosen)), named)
    if len(documents) > 1:
        other = next(d.name for d in documents if not is_policy(d))
        raise ConfigError(f"{other}: is no policy file; name policy files, or one configuration")
    return of_configuration(documents[0])


def policy_of(layers: Sequence[Layer]) -> tuple[str, object]:
    """The plugin of layers that were read and found sound."""
    data = [{**layer.document.data, "name": layer.name} for layer in layers]
    return "policy", Policy(layers=data)


def of_configuration(document: Document) -> Subject:
    """All plugins of a configuration, built as the application would build them."""
    from checkrein import policy

    settings: Settings = policy.check(document)
    plugins = policy.build_plugins(document, settings)
    chain = Plugins()
    chain.register(plugins)
    deciding = {impl.plugin for impl in chain.chains["pre_call"]}
    return Subject(
        document.name,
        [one for one in plugins if one[0] in deciding],
        plugins,
        dict(settings.plugins),
    )


def with_counts(decider: Deciding, counts: Mapping[str, Any]) -> list[str]:
    """Names among `counts` that are no counters of this policy."""
    known = {name for layer in decider.layers for name in layer.counters}
    return sorted(set(counts) - known)
