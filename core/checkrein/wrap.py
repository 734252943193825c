"""SDK clients whose methods, at any depth, are supervised calls.

A method reached by attributes is the tool `connector.path.method`; one of an object that a call
gave (a `Repository`, a `Customer`) is `connector.ClassName.method`, whichever way the object
came. Plain values (of the built-in types, of the standard library, data classes, models) are
given as they are.

Not closed: `type(x) is Cls`, `Cls.method(x)`, functions written in C that look at the object
itself, and code that hunts for references. What acts by item assignment or in a property is
passed on and not recorded.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkrein._proxy import is_proxy
from checkrein._wrapped import CALLABLE, DATA, Root, Settings
from checkrein.connectors import Connector, connector_of
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.operations import effect_of, operation_of
from checkrein.transient import retry_after, transient
from checkrein.verdicts import Ask, Retry

if TYPE_CHECKING:
    from checkrein.call import Call, Outcome
    from checkrein.rein import Rein

ATTEMPTS = 3
"""Of a call whose method is retryable, all together."""
DELAY = 0.5
"""Seconds before the second attempt; twice as long before each further one."""


def wrap(
    rein: Rein,
    client: Any,
    connector: str,
    account: str | None,
    requires_approval: Sequence[str],
    retryable: Sequence[str],
    table: Path | str | Mapping[str, Any] | None = None,
    record_reads: bool = False,
    on_capture: str = "refuse",
    ask_irreversible: bool = False,
) -> Any:
    """A supervised stand-in for `client`.

    `requires_approval` and `retryable` name methods by their path (`refunds.create`) or by a
    pattern for the whole path (`*.delete`). Raises `ConfigError` for an object that cannot be
    wrapped, a name that is taken, and methods that the client does not have.
    """
    for key, text in (("connector", connector), ("account", account)):
        if text is not None and not re.fullmatch(r"[\w@ .:+-]+", str(text)):
            raise ConfigError(f"wrap: {key} must be a name of letters, digits, and _ @ . : + -")
    prefix = connector if account is None else f"{connector}[{account}]"
    if is_proxy(client):
        raise ConfigError(f"wrap {prefix}: the object is wrapped already")
    if client is None or isinstance(client, (*DATA, type, enum.Enum, *CALLABLE)):
        raise ConfigError(
            f"wrap {prefix}: a {type(client).__name__} is no client; wrap the object whose methods "
            "act, or declare a function with rein.tool"
        )
    for key, names in (("requires_approval", requires_approval), ("retryable", retryable)):
        if isinstance(names, str):
            raise ConfigError(f"wrap {prefix}: {key} must be a list of names, not one string")
        for name in names:
            _must_have(client, name, f"wrap {prefix}: {key}")
    if on_capture not in ("refuse", "ask", "go_on"):
        raise ConfigError(f"wrap {prefix}: on_capture must be 'refuse', 'ask' or 'go_on'")
    found = connector_of(connector, table)
    if table is None and not found.knows(client):
        # A client of one's own that only bears the name of a ready connector.
        found = Connector(connector)
    settings = Settings(tuple(retryable), record_reads, on_capture)
    root = Root(rein, client, prefix, found, settings)
    rein.tools.open_names(prefix, root.resolve)
    _check_table(root, found, prefix)
    if requires_approval or ask_irreversible:
        irreversible = [f"{prefix}."] if ask_irreversible else []
        rein.require_approval([f"{prefix}.{name}" for name in requires_approval], irreversible)
    if retryable:
        rein.retry([f"{prefix}.{name}" for name in retryable])
    return root.proxy(client, "")


def _check_table(root: Root, connector: Connector, prefix: str) -> None:
    """Compile every undo of a table now: one that does not fit is found before any call."""
    for path, method in connector.table.methods.items() if connector.table is not None else ():
        where = f"wrap {prefix}: {path} of the connector's table"
        try:
            found = root.rein.tools.get(f"{prefix}.{path}")
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if found is None or found.fn is None:
            head, _, name = path.partition(".")
            if not hasattr(connector.cls(head), name):
                raise ConfigError(f"{where}: this client has no such method")
            continue
        place = (method.idempotency or "").partition(".")[0]
        if place and found.signature_known and not found.takes(place):
            if place not in found.parameters:
                raise ConfigError(f"{where}: it has no parameter {place!r} for a key")


def _must_have(client: Any, name: str, where: str) -> None:
    """A name that matches nothing would be a guard that never runs."""
    if any(mark in name for mark in "*?[") or name[:1].isupper():
        return
    found = client
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(f"{where}: the client has no {name!r}") from None
    if not callable(found):
        raise ConfigError(f"{where}: {name!r} is no method")


class RequiresApproval(Plugin):
    """Asks a person before calls of the tools that were named when a client was wrapped."""

    name = "requires_approval"

    def __init__(self) -> None:
        self.patterns: list[str] = []
        self.irreversible: list[str] = []
        """Beginnings of names: what cannot be undone there is asked about."""

    def pre_call(self, call: Call) -> Ask | None:
        """Ask if the tool's name matches, or nothing can take it back."""
        if call.kind == "tool" and call.tool.irreversible:
            if any(call.name.startswith(prefix) for prefix in self.irreversible):
                why = f"{call.name} cannot be undone: {call.tool.irreversible}"
                return Ask(why, rule="irreversible", risk="high")
        if call.kind == "tool" and any(matches(call.name, p) for p in self.patterns):
            return Ask(f"{call.name} requires approval", rule="requires_approval")
        return None


class RetryTransient(Plugin):
    """Tries wrapped methods again that were named retryable: after lost connections, 429, 5xx."""

    name = "retry_transient"

    def __init__(self) -> None:
        self.patterns: list[str] = []

    def post_call(self, call: Call, outcome: Outcome) -> Retry | None:
        """Another try, twice as late each time, or when the server says."""
        if call.attempt >= ATTEMPTS or call.kind != "tool" or not transient(outcome.error):
            return None
        if not any(matches(call.name, p) for p in self.patterns):
            return None
        asked = retry_after(outcome.error) if outcome.error is not None else None
        return Retry(max(asked or 0.0, DELAY * 2 ** (call.attempt - 1)))


def matches(name: str, pattern: str) -> bool:
    """Whether a tool's whole name matches; the brackets of an account stand for themselves."""
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))


def effect_of_name(name: str) -> str:
    """`read` where the words of a method's name say so, else `write`."""
    return effect_of(operation_of(name))
