"""IdempotencyGuard: what has been done is not done again by accident.

The first call of a kind takes an account that holds one. While it runs, equal calls wait for it
(single flight). When it has ended, a record says which call it was; an equal call with another
id is a possible duplicate: it is answered with the recorded result, put to a person, or refused.
Account and record are written in the transactions of the call itself, so all of this holds over
threads, processes and restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never

from pydantic import Field

from checkrein.call import Call, Outcome
from checkrein.effects import effect_of
from checkrein.errors import CheckreinError, ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Answer, Ask, Deny, Hold, Measured, PreVerdict, new_hold
from checkrein_plugins._config import (
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
from checkrein_plugins._digests import digest_arguments, digest_of
from checkrein_plugins._selection import first_match, selected

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Balance, Record

_ABSENT = object()

Duplicates = Literal["ask", "deny", "answer"]


class _Settings(Settings):
    tools: Texts | None = None
    exempt: Texts | None = None
    keys: dict[Text, Texts] = Field(default_factory=dict)
    duplicates: Duplicates = "ask"
    per: Literal["session", "agent", "user", "tenant", "all"] = "session"
    window: Seconds | None = None
    name: Name = "idempotency"


class IdempotencyGuard(Plugin):
    """Lets an equal call run once.

    `tools`: which; by default all that change something and are not declared idempotent.
    `keys`: for a tool (glob), the arguments that say which operation it is; without an entry all
    arguments do. `duplicates`: what of an equal call under another call id: `ask` a person,
    `deny`, or `answer` with the recorded result (for tools in `keys` that is the default, since
    the key says that it is the same operation). A duplicate of a call whose effect is unknown is
    never answered: it is asked, or refused where `duplicates="deny"`. What was undone or had no
    effect may run again.

    `per`: where equal calls are looked for. `window`: seconds after which a call is forgotten.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        keys: Mapping[str, Sequence[str]] | None = None,
        duplicates: Duplicates | None = None,
        per: Literal["session", "agent", "user", "tenant", "all"] = "session",
        window: float | None = None,
        name: str = "idempotency",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "idempotency", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "tools": listed(tools),
                "exempt": listed(exempt),
                "keys": {tool: listed(names) for tool, names in (keys or {}).items()},
                "duplicates": "ask" if duplicates is None else duplicates,
                "per": per,
                "window": window,
                "name": name,
            },
            "idempotency",
        )
        self.name = settings.name
        self._stated = settings.tools is not None
        self._looks = selected(settings.tools, settings.exempt, "idempotency")
        for tool, wanted in settings.keys.items():
            if len(set(wanted)) != len(wanted):
                raise ConfigError(f"idempotency.keys.{tool}: an argument stands there twice")
        self._keys = first_match(settings.keys, "idempotency.keys")
        self._duplicates: Duplicates = settings.duplicates
        self._keyed: Duplicates = "answer" if duplicates is None else settings.duplicates
        self._per = settings.per
        self._window = None if settings.window is None else float(settings.window)
        self._rein: Rein | None = None
        self._key = b""

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name; take the store's key for digests."""
        refuse_twins(rein, self)
        self._rein = rein
        self._key = rein.store.key

    def pre_call(self, call: Call) -> PreVerdict:
        """Take the account of the operation, or say what of a duplicate."""
        if call.kind != "tool" or not self._guards(call):
            return None
        fields = self._keys(call.name)
        account = self._account(call, fields)
        if account is None:
            return Deny(
                "an argument that tells which operation it is, is missing", f"{self.name}/key"
            )
        rein = self._rein
        balance = None
        if rein is not None:
            if self._window is None:
                balance = rein.store.balance(account)
            else:
                balance = rein.store.balance(account, at=rein.clock(), window=self._window)
        if rein is None or balance is None or not balance.spent:
            return self._hold(account, 1)
        return self._again(
            rein, call, account, balance, self._keyed if fields else self._duplicates
        )

    def measure(self, call: Call, outcome: Outcome) -> Measured | None:
        """A call that may be repeated is not used up by an attempt that failed."""
        if outcome.state == "unknown" and call.tool.idempotent and call.kind == "tool":
            if self._guards(call):
                account = self._account(call, self._keys(call.name))
                return None if account is None else Measured(amounts={account: 0})
        return None

    def _guards(self, call: Call) -> bool:
        if not self._looks(call.name):
            return False
        if self._stated or self._keys(call.name) is not None:
            return True
        return call.tool.effect != "read" and not call.tool.idempotent

    def _account(self, call: Call, fields: Sequence[str] | None) -> str | None:
        """Where the operation is counted; None if its key is incomplete."""
        if fields is None:
            digest = digest_of(self._key, call)
        else:
            found = {field: _reach(call.arguments, field) for field in fields}
            if any(value is _ABSENT or value is None for value in found.values()):
                return None
            digest = digest_arguments(self._key, found)
        scope = "all" if self._per == "all" else getattr(call, self._per) or "unattributed"
        return f"{self.name}/{self._per}/{scope}/{call.name}/{digest}"

    def _hold(self, account: str, limit: int) -> Hold:
        return new_hold(
            account, 1, "calls", limit, self._window, "once", f"{self.name}/duplicate", False,
            "wait", "the same call has been made, and what came of it is not known",
            "possible_duplicate",
        )  # fmt: skip

    def _again(
        self, rein: Rein, call: Call, account: str, balance: Balance, duplicates: Duplicates
    ) -> PreVerdict:
        """The operation has been done, or may have been."""
        hold = self._hold(account, balance.spent + 1)
        record = rein.store.record("once", account)
        if record is None:
            return self._doubt("the same call was made before, by a process that died", hold)
        earlier = str(record.body["call"])
        if earlier == call.id:
            return hold
        effect = effect_of(rein.store, earlier)
        if effect is not None and (effect.undone or effect.state == "not_done"):
            return hold
        told = f"possible duplicate of {earlier}"
        if effect is None or effect.state != "done":
            return self._doubt(f"{told}, of which the effect is unknown", hold, duplicates)
        if duplicates == "answer":
            try:
                return Answer(self._result(rein, record, call.name), source=self.name)
            except CheckreinError:
                return self._doubt(f"{told}, of which the result was not kept", hold)
        if duplicates == "ask":
            return Ask(told, rule=f"{self.name}/duplicate"), hold
        return Deny(f"{told}, which was done", rule=f"{self.name}/duplicate")

    def _doubt(self, told: str, hold: Hold, duplicates: Duplicates = "ask") -> PreVerdict:
        if duplicates == "deny":
            return Deny(told, rule=f"{self.name}/duplicate")
        return Ask(told, rule=f"{self.name}/duplicate", risk="high"), hold

    @staticmethod
    def _result(rein: Rein, record: Record, tool: str) -> Any:
        declared = rein.tools.get(tool)
        classes = declared.classes if declared is not None else {}
        return rein.read(record.session).result(str(record.body["call"]), classes)


def _reach(arguments: Mapping[str, Any], field: str) -> Any:
    """An argument, or a part of one: `order.id`."""
    if field in arguments:
        return arguments[field]
    value: Any = arguments
    for step in field.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return _ABSENT
        value = value[step]
    return value
