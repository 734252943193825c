"""ModelFallback: another model where one is not to be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Never

from pydantic import Field

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.transient import is_a, transient
from checkrein.verdicts import Fallback, PostVerdict
from checkrein_plugins._config import (
    Name,
    Settings,
    Text,
    Texts,
    listed,
    read,
    refuse_unknown,
)


class _Settings(Settings):
    models: Annotated[dict[Text, Texts], Field(min_length=1)]
    on: list[Text] = Field(default_factory=list)
    name: Name = "fallback"


class ModelFallback(Plugin):
    """Calls the next model after 429, 5xx, a timeout or a lost connection; never after a 400.

    `models`: for a model, the ones to go on to, in order. `on`: further exception classes. With
    `Retry`, a model is tried again first. The whole chain of plugins runs again for the other
    model: scopes, budgets and prices are those of its own name.

    Raises `ConfigError` for a circle, and for a model with two successors.
    """

    def __init__(
        self,
        *,
        models: Mapping[str, Sequence[str]],
        on: Sequence[str] = (),
        name: str = "fallback",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "fallback", tuple(_Settings.model_fields))
        given = {model: listed(chain) for model, chain in dict(models).items()}
        settings = read(_Settings, {"models": given, "on": listed(on), "name": name}, "fallback")
        self.name = settings.name
        self._on = frozenset(settings.on)
        self._next: dict[str, str] = {}
        for model, chain in settings.models.items():
            where = f"fallback.models.{model}"
            if len({model, *chain}) != len(chain) + 1:
                raise ConfigError(f"{where}: a model stands there twice")
            for one, following in zip((model, *chain), chain, strict=False):
                if self._next.setdefault(one, following) != following:
                    raise ConfigError(
                        f"{where}: {one!r} goes on to {following!r} here and to "
                        f"{self._next[one]!r} elsewhere"
                    )
        for model in self._next:
            seen = {model}
            while (following := self._next.get(model, "")) and following not in seen:
                seen.add(following)
                model = following  # noqa: PLW2901 - the walk along the chain
            if following:
                raise ConfigError(f"fallback.models: a circle leads back to {following!r}")

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Name the next model."""
        error = outcome.error
        if error is None or call.kind != "model" or call.guard:
            return None
        following = self._next.get(call.name)
        if following is None or not (transient(error) or is_a(error, self._on)):
            return None
        return Fallback(following)
