"""The plugin that holds a policy against every call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import PreVerdict
from checkrein_plugins._config import refuse_unknown
from checkrein_plugins.policy.deciding import Deciding
from checkrein_plugins.policy.faults import refuse
from checkrein_plugins.policy.layers import Layer, read_layers

if TYPE_CHECKING:
    from checkrein.rein import Rein


class Policy(Plugin):
    """Rules with conditions, from files: the strictest that fires wins, over all layers.

        Policy(file="organisation.toml")
        Policy(files=["organisation.toml", "team.yaml"])

    `layers` takes policies as plain data of a file's shape. In a configuration, relative paths
    begin beside its file. A file is read once, here: a policy that is in force does not change.
    `name` begins the names of rules and of the accounts behind counters.

    Raises `ConfigError` with file, line and key for anything that cannot be used.
    """

    def __init__(
        self,
        *,
        file: str | os.PathLike[str] | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        layers: Sequence[Mapping[str, Any]] = (),
        name: str = "policy",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "policy", ("file", "files", "layers", "name"))
        given: Any = files
        paths = [] if isinstance(given, (str, bytes)) else list(given)
        if isinstance(given, (str, bytes)) or not all(map(_is_path, paths)):
            raise ConfigError("policy.files: must be a list of paths")
        if file is not None and not _is_path(file):
            raise ConfigError("policy.file: must be a path")
        inline: Any = layers
        if isinstance(inline, Mapping) or not all(isinstance(one, Mapping) for one in inline):
            raise ConfigError("policy.layers: must be a list of policies")
        label: Any = name
        if not isinstance(label, str) or not label.strip():
            raise ConfigError("policy.name: must be a text that is not empty")
        named = [*([file] if file is not None else []), *paths]
        if not named and not layers:
            raise ConfigError("policy: name a `file`, several `files`, or give `layers`")
        found, faults = read_layers(named, layers)
        refuse(faults)
        self.name = name
        self._rein: Rein | None = None
        self.deciding = Deciding(found, name, self._balance, self._session)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers, the highest first."""
        return self.deciding.layers

    def pre_call(self, call: Call) -> PreVerdict:
        """Deny, ask, and hold what the counters count."""
        return self.deciding.decide(call)

    def pin(self) -> tuple[str, dict[str, Any]]:
        """The installed name and the arguments by which the same policy can be built again."""
        layers = [{**layer.document.data, "name": layer.name} for layer in self.layers]
        return "policy", {"layers": layers, "name": self.name}

    def start(self, rein: Rein) -> None:
        """Refuse a policy whose guards are not there, and two that would share counters."""
        self.attach(rein)
        running: set[str] = set()
        for name, other in rein.plugins:
            running |= {name, str(getattr(other, "name", "") or "")}
            if isinstance(other, Policy) and other is not self and other.name == self.name:
                raise ConfigError(
                    f"policy: two policies are named {self.name!r}; give one another name, or "
                    "make them layers of one"
                )
        for layer in self.layers:
            for guard in layer.settings.guards:
                if guard not in running:
                    raise ConfigError(
                        f"{layer.document.name}: guards: {guard} must run beside this policy, and "
                        f"it does not; add [plugins.{guard}]"
                    )

    def attach(self, rein: Rein) -> None:
        """Read counters and sessions from this Rein."""
        self._rein = rein

    def _balance(self, account: str) -> int:
        if self._rein is None:
            return 0
        balance = self._rein.store.balance(account)
        return 0 if balance is None else balance.spent + balance.held

    def _session(self, call: Call) -> Mapping[str, Any]:
        session = None if self._rein is None else self._rein.opened(call.session)
        return {
            "id": call.session, "agent": call.agent, "user": call.user, "tenant": call.tenant,
            "task": call.task if session is None else session.task,
            "intent": "" if session is None else session.intent,
            "parent": "" if session is None else session.parent,
            "labels": {} if session is None else session.labels,
        }  # fmt: skip


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))
