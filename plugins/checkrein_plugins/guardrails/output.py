"""OutputLengthLimit: a result that is too long is cut, or withheld."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Never

from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin, StreamFilter
from checkrein.verdicts import Deny, PostVerdict, Replace
from checkrein_plugins._config import Name, Settings, Text, read, refuse_unknown
from checkrein_plugins._selection import first_match
from checkrein_plugins.guardrails._arguments import DEPTH, fields_of

Size = Annotated[StrictInt, Field(ge=1)]

MARK = "… [cut: the rest is over the limit of {limit} characters]"


class _Settings(Settings):
    characters: Size = 50_000
    tools: dict[Text, Size] = Field(default_factory=dict)
    models: StrictBool = True
    action: Literal["cut", "deny"] = "cut"
    name: Name = "output"


class OutputLengthLimit(Plugin):
    """Keeps results, and answers of models, below a length.

    `characters`: of all texts of a result together, keys included (bytes count as characters).
    `tools`: other limits by glob of the tool. `models`: answers of models too, streamed ones as
    they come. `action`: `cut` at the limit and say so, or `deny` (the result is withheld). A result
    that is no plain data (text, bytes, lists, dicts) cannot be cut: over the limit it is withheld.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    rewrites = True

    def __init__(
        self,
        *,
        characters: int = 50_000,
        tools: Mapping[str, int] | None = None,
        models: bool = True,
        action: Literal["cut", "deny"] = "cut",
        name: str = "output",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "output", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "characters": characters,
                "tools": dict(tools or {}),
                "models": models,
                "action": action,
                "name": name,
            },
            "output",
        )
        self.name = settings.name
        self._most = settings.characters
        self._tools = first_match(settings.tools, "output.tools")
        self._models = settings.models
        self._cuts = settings.action == "cut"

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Cut or withhold what is too long."""
        value = outcome.value
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is float:
            return None
        if call.kind == "undo" or (call.kind == "model" and not self._models):
            return None
        limit = self._limit(call)
        if kind is str or kind is bytes:
            if len(value) <= limit:
                return None
        elif _length(value, limit, 0) <= limit:
            return None
        if self._cuts:
            try:
                return Replace(_Cutter(limit).cut(value, 0))
            except ConfigError as error:
                return Deny(str(error), rule=f"{self.name}/characters")
        return Deny(f"its result is longer than {limit} characters", rule=f"{self.name}/characters")

    def open_stream(self, call: Call, channel: str) -> StreamFilter | None:
        """Cut a streamed answer at the limit; arguments of tools are left to `post_call`."""
        if not self._models or channel.startswith("tool:"):
            return None
        return _Stream(self._limit(call), self._cuts, f"{self.name}/characters")

    def _limit(self, call: Call) -> int:
        if call.kind == "model":
            return self._most
        return self._tools(call.name) or self._most


class _Stream:
    """Counts what was let through."""

    holdback = 0

    def __init__(self, limit: int, cuts: bool, rule: str) -> None:
        self._limit = limit
        self._left = limit
        self._cuts = cuts
        self._rule = rule
        self._over = False

    def feed(self, text: str) -> str | Deny:
        """What still fits; the mark once."""
        if len(text) <= self._left:
            self._left -= len(text)
            return text
        if not self._cuts:
            return Deny(f"its answer is longer than {self._limit} characters", rule=self._rule)
        shown, self._left = text[: self._left], 0
        if self._over:
            return ""
        self._over = True
        return shown + MARK.format(limit=self._limit)

    def flush(self) -> str:
        """Nothing is kept back."""
        return ""

    def abort(self) -> None:
        """Nothing is kept back."""


def _length(value: Any, limit: int, depth: int) -> int:
    """Characters of all texts inside; counting stops above `limit`."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _sum(value, limit, depth)
    fields = fields_of(value)
    if fields is None:
        return 0 if value is None or isinstance(value, (int, float)) else len(str(value))
    return _sum([*fields, *fields.values()], limit, depth)


def _sum(values: Any, limit: int, depth: int) -> int:
    if depth > DEPTH:
        return limit + 1
    total = 0
    for value in values:
        total += _length(value, limit - total, depth + 1)
        if total > limit:
            break
    return total


class _Cutter:
    """Copies plain data until the limit is reached."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def cut(self, value: Any, depth: int) -> Any:
        """The part of `value` that fits. Raises `ConfigError` for what cannot be cut."""
        if isinstance(value, (str, bytes)):
            if len(value) <= self._left:
                self._left -= len(value)
                return value
            shown, self._left = value[: self._left], 0
            mark = MARK.format(limit=self._limit)
            return shown + mark if isinstance(shown, str) else shown + mark.encode()
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if depth > DEPTH:
            raise ConfigError("its result is nested too deeply to be cut")
        if isinstance(value, (list, tuple)):
            items = []
            for item in value:
                if self._left <= 0:
                    break
                items.append(self.cut(item, depth + 1))
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, dict):
            kept = {}
            for key, item in value.items():
                if self._left <= 0:
                    break
                if isinstance(key, str):
                    self._left = max(0, self._left - len(key))
                kept[key] = self.cut(item, depth + 1)
            return kept
        raise ConfigError(f"its result is longer than {self._limit} characters, and cannot be cut")
