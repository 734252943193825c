"""Retry: another try where that repeats nothing."""

from __future__ import annotations

import hmac
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Never

from pydantic import Field, StrictBool, StrictInt

from checkrein import verdicts
from checkrein.call import Call, Outcome
from checkrein.errors import CheckreinError, ConfigError
from checkrein.hooks import Plugin
from checkrein.transient import is_a, retry_after, transient
from checkrein.verdicts import Deny, PostVerdict, PreVerdict, Rewrite
from checkrein_plugins._config import (
    Name,
    Number,
    Seconds,
    Settings,
    Text,
    Texts,
    listed,
    read,
    refuse_unknown,
)
from checkrein_plugins._digests import KEY_MARK
from checkrein_plugins._selection import first_match, selected

if TYPE_CHECKING:
    from checkrein.rein import Rein


class _Settings(Settings):
    attempts: Annotated[StrictInt, Field(ge=2, le=100)] = 3
    delay: Annotated[Number, Field(ge=0)] = 0.5
    factor: Annotated[Number, Field(ge=1)] = 2
    longest: Seconds = 30
    jitter: Annotated[Number, Field(ge=0, le=1)] = 0.5
    on: list[Text] = Field(default_factory=list)
    never: list[Text] = Field(default_factory=list)
    tools: Texts | None = None
    exempt: Texts | None = None
    models: StrictBool = True
    keys: dict[Text, Text] = Field(default_factory=dict)
    name: Name = "retry"


class Retry(Plugin):
    """Tries again what failed on the way: 429, 5xx, timeouts, lost connections.

    Only tools that are declared idempotent, and model calls. `attempts`: all together. Before
    the next one it waits `delay` seconds, `factor` times as long each time, at most `longest`,
    less up to `jitter` of that at random; what a server asks for (`Retry-After`) counts if it is
    longer, and ends the tries if it is longer than `longest`.

    `on`: further exception classes to try again after; `never`: classes not to. `keys`: for a
    tool (glob), the parameter that takes an idempotency key: the same one for all attempts of a
    call, and for a call that a restarted run makes again. A key that the caller gave stays.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    rewrites = True

    def __init__(
        self,
        *,
        attempts: int = 3,
        delay: float = 0.5,
        factor: float = 2,
        longest: float = 30,
        jitter: float = 0.5,
        on: Sequence[str] = (),
        never: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        models: bool = True,
        keys: Mapping[str, str] | None = None,
        name: str = "retry",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "retry", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "attempts": attempts,
                "delay": delay,
                "factor": factor,
                "longest": longest,
                "jitter": jitter,
                "on": listed(on),
                "never": listed(never),
                "tools": listed(tools),
                "exempt": listed(exempt),
                "models": models,
                "keys": dict(keys or {}),
                "name": name,
            },
            "retry",
        )
        both = set(settings.on) & set(settings.never)
        if both:
            raise ConfigError(f"retry.never: {min(both)!r} stands in `on` too")
        if settings.delay > settings.longest:
            raise ConfigError("retry.delay: longer than `longest`")
        self.name = settings.name
        self._attempts = settings.attempts
        self._delay = settings.delay
        self._factor = settings.factor
        self._longest = settings.longest
        self._jitter = settings.jitter
        self._on = frozenset(settings.on)
        self._never = frozenset(settings.never)
        self._looks = selected(settings.tools, settings.exempt, "retry")
        self._models = settings.models
        self._keys = first_match(settings.keys, "retry.keys")
        self._keyed = bool(settings.keys)
        # The plugin may be asked before it is started; then keys are only shorter-lived.
        self._secret = b"checkrein"

    def start(self, rein: Rein) -> None:
        """Refuse a key for a tool that is declared here and does not take it."""
        self._secret = rein.store.key
        for tool in rein.tools:
            parameter = self._keys(tool.info.name)
            if parameter is not None and tool.signature_known and not tool.takes(parameter):
                raise ConfigError(
                    f"retry.keys: tool {tool.info.name} takes no parameter {parameter!r}"
                )

    def pre_call(self, call: Call) -> PreVerdict:
        """Hand the idempotency key to the call."""
        if not self._keyed or call.kind != "tool":
            return None
        parameter = self._keys(call.name)
        if parameter is None or call.arguments.get(parameter):
            return None
        schema = call.tool.schema
        if schema is not None and parameter not in schema.get("properties", {}):
            return Deny(
                f"it takes no parameter {parameter!r}, so no idempotency key would arrive",
                rule=f"{self.name}/key",
            )
        key = key_of(self._secret, call.id)
        return Rewrite(call.replace(arguments={**call.arguments, parameter: key}))

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Ask for another attempt, or leave it at that."""
        error = outcome.error
        if error is None or call.attempt >= self._attempts:
            return None
        if call.kind == "model":
            if not self._models:
                return None
        elif call.kind != "tool" or not call.tool.idempotent or not self._looks(call.name):
            return None
        if isinstance(error, CheckreinError) or is_a(error, self._never):
            return None
        if not (transient(error) or is_a(error, self._on)):
            return None
        after = min(self._delay * self._factor ** (call.attempt - 1), self._longest)
        after *= 1 - self._jitter * random.random()  # noqa: S311 - spreads tries, guards nothing
        asked = retry_after(error)
        if asked is not None:
            if asked > self._longest:
                return None
            after = max(after, asked)
        return verdicts.Retry(after, type(error).__name__)


def key_of(secret: bytes, call: str) -> str:
    """The idempotency key of a call: the same for every attempt, and nobody can guess it."""
    return KEY_MARK + hmac.digest(secret, b"idempotency:" + call.encode(), "sha256").hex()[:32]
