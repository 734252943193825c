"""Ensemble: several guards judge a call, and so many of them must object."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Never, TypeAlias

from pydantic import Field, StrictInt

from checkrein import manager
from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Ask, Deny, Unchecked
from checkrein_plugins._config import Name, Settings, listed, read, refuse_twins, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from checkrein.rein import Rein

Agree: TypeAlias = Literal["any", "majority", "all"]


class _Settings(Settings):
    agree: Agree | Annotated[StrictInt, Field(ge=1)] = "majority"
    action: Literal["deny", "ask"] = "deny"
    name: Name = "ensemble"


class Ensemble(Plugin):
    """Asks several guards at once, and stops a call if enough of them object.

    `guards`: plugins, or tables of a file (`{use = "safety", model = ...}`). Their `pre_call` and
    `post_call` may answer `Deny`, `Ask` or nothing: an `Ask` and a guard that fails count as
    objections. One that may be missed and could not judge (`Unchecked`) has no vote, and it shows.
    `agree`: how many must object, a number, or `any`, `majority` (more than half) or `all` of
    those that judged. `action`: what comes of it, `deny` or `ask`. A guard that answers anything
    else fails the check.

    Raises `ConfigError` for fewer than two guards, or more votes than guards.
    """

    def __init__(
        self,
        *,
        guards: Sequence[Any] = (),
        agree: Agree | int = "majority",
        action: Literal["deny", "ask"] = "deny",
        name: str = "ensemble",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "ensemble", ("guards", *_Settings.model_fields))
        settings = read(_Settings, {"agree": agree, "action": action, "name": name}, "ensemble")
        self.name = settings.name
        self._guards = [_built(g, f"ensemble.guards[{i}]") for i, g in enumerate(listed(guards))]
        number = len(self._guards)
        if number < 2:
            raise ConfigError("ensemble.guards: give two guards or more")
        self._agree = settings.agree
        if isinstance(self._agree, int) and self._agree > number:
            raise ConfigError(f"ensemble.agree: {self._agree} can never agree: there are {number}")
        names = [getattr(guard, "name", type(guard).__name__) for guard in self._guards]
        if len(set(names)) != number:
            raise ConfigError("ensemble.guards: two have one name; give one another (name = ...)")
        self._names = names
        self._asks = settings.action == "ask"
        self.external = any(getattr(guard, "external", False) for guard in self._guards)

    def start(self, rein: Rein) -> None:
        """Start the guards."""
        refuse_twins(rein, self)
        for guard in self._guards:
            guard.start(rein)

    def close(self) -> None:
        """Close the guards."""
        for guard in self._guards:
            guard.close()

    def concerns(self, call: Call) -> bool:
        """Whether any of the guards has something to say."""
        return any(not guard.external or guard.concerns(call) for guard in self._guards)

    def pre_call(self, call: Call) -> Any:
        """Vote before the call."""
        return self._vote([_asked(guard.pre_call, call) for guard in self._guards])

    def post_call(self, call: Call, outcome: Outcome) -> Any:
        """Vote on what came of it."""
        return self._vote([_asked(guard.post_call, call, outcome) for guard in self._guards])

    def _vote(self, verdicts: list[Any]) -> Deny | Ask | Unchecked | Awaitable[Any] | None:
        if any(inspect.isawaitable(verdict) for verdict in verdicts):
            return self._later(verdicts)
        return self._counted(verdicts)

    async def _later(self, verdicts: list[Any]) -> Deny | Ask | Unchecked | None:
        waiting = [_settled(verdict) for verdict in verdicts]
        return self._counted(await asyncio.gather(*waiting))

    def _counted(self, verdicts: Sequence[Any]) -> Deny | Ask | Unchecked | None:
        objections: list[str] = []
        missed: list[str] = []
        halt = False
        for name, verdict in zip(self._names, verdicts, strict=True):
            for part in verdict if type(verdict) is tuple else (verdict,):
                if part is None:
                    continue
                if type(part) is Deny or type(part) is Ask:
                    objections.append(f"{name}: {part.reason}")
                    halt = halt or (type(part) is Deny and part.halt)
                    break
                if isinstance(part, Exception):
                    objections.append(f"{name}: failed with {type(part).__name__}")
                    break
                if type(part) is Unchecked:
                    missed.append(name)
                    continue
                told = f"check failed: {name} answers {type(part).__name__} inside an ensemble"
                return Deny(told, rule="check_failed")
        if objections and len(objections) >= self._needed(len(verdicts) - len(missed)):
            told = f"{len(objections)} of {len(verdicts)} guards object: {'; '.join(objections)}"
            rule = f"{self.name}/votes"
            return Ask(told, rule=rule, risk="high") if self._asks else Deny(told, rule, halt)
        return Unchecked(self.name, f"not judged by {', '.join(missed)}") if missed else None

    def _needed(self, voters: int) -> int:
        """How many objections stop a call, of so many guards that could judge it."""
        if isinstance(self._agree, int):
            return self._agree
        return {"any": 1, "majority": voters // 2 + 1, "all": voters}[self._agree]


def _built(guard: Any, where: str) -> Any:
    if isinstance(guard, Mapping):
        options = dict(guard)
        use = options.pop("use", None)
        if not isinstance(use, str):
            raise ConfigError(f"{where}.use: the name of an installed plugin")
        try:
            guard = manager.build(use, options)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
    if not isinstance(guard, Plugin):
        raise ConfigError(f"{where}: must be a plugin, or a table with `use`")
    return guard


def _asked(hook: Any, *given: Any) -> Any:
    try:
        return hook(*given)
    except Exception as error:  # noqa: BLE001 - a guard that fails has an objection
        return error


async def _settled(verdict: Any) -> Any:
    if not inspect.isawaitable(verdict):
        return verdict
    try:
        return await verdict
    except Exception as error:  # noqa: BLE001 - a guard that fails has an objection
        return error
