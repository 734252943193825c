"""Soft thresholds of a budget: what happens before the cap is reached."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, StrictStr

from checkrein.call import NANO, Call
from checkrein.errors import ConfigError
from checkrein.verdicts import Ask, Deny, Hold, PreOne, Rewrite
from checkrein_plugins._config import MOST_STORED, Number, Settings

if TYPE_CHECKING:
    from checkrein.rein import Rein

_log = logging.getLogger("checkrein.budget")
_WARNED_AT_MOST = 10_000
_SCALE = {"usd": NANO, "seconds": 1_000_000}
"""What a unit of people is in the account's own."""


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError("must be above 0 and at most 1")
    return value


class Step(Settings):
    """What is done from a share of the limit on."""

    at: Annotated[Number, AfterValidator(_share)]
    do: Literal["warn", "cheaper", "ask", "best_effort", "halt"]
    model: Annotated[StrictStr, Field(min_length=1)] | None = None
    """For `cheaper`: the model that is called instead."""
    more: Annotated[Number, Field(gt=0, le=1_000_000_000)] | None = None
    """For `ask`: what one approval adds, in the unit of the limit."""


def check_steps(steps: Sequence[Step]) -> None:
    """Raise `ConfigError` for a step that lacks what it needs, or has what it cannot use."""
    for number, step in enumerate(steps):
        place = f"budget.soft[{number}]"
        for key, needed_by in (("model", "cheaper"), ("more", "ask")):
            given = getattr(step, key) is not None
            if given != (step.do == needed_by):
                wrong = "has no meaning with" if given else "is needed with"
                raise ConfigError(f"{place}.{key}: {wrong} do = {step.do!r}")


class Soft:
    """Applies steps to the holds of one call. Reads balances, and changes nothing."""

    def __init__(self, steps: Sequence[Step], rein: Rein, window: float | None, name: str) -> None:
        self._steps = sorted(steps, key=lambda step: step.at)
        self._rein = rein
        self._window = window
        self._name = name
        self._warned: set[tuple[str, float]] = set()

    def _used(self, account: str) -> int:
        at = self._rein.clock()
        balance = self._rein.store.balance(account, at=at, window=self._window)
        return 0 if balance is None else balance.spent + balance.held

    def apply(
        self,
        call: Call,
        holds: Sequence[PreOne],
        again: Callable[[Call], tuple[PreOne, ...]],
    ) -> tuple[PreOne, ...]:
        """The verdicts on a call that wants `holds`. `again`: the holds of another call."""
        found: list[PreOne] = []
        for hold in holds:
            if type(hold) is not Hold:
                found.append(hold)
                continue
            used = self._used(hold.account)
            for step in self._steps:
                if used + hold.amount <= step.at * hold.limit:
                    break
                if step.do == "warn":
                    self._warn(hold, used, step.at)
                elif step.do == "cheaper":
                    if call.kind == "model" and call.name != step.model:
                        other = call.replace(name=step.model)
                        return (Rewrite(other), *self.apply(other, again(other), again))
                elif step.do == "halt":
                    found.append(
                        Deny(
                            f"{self._name}: more than {step.at:.0%} of the limit of "
                            f"{hold.account} would be spent",
                            rule=f"{hold.rule}/soft",
                            halt=True,
                        )
                    )
                elif step.do == "best_effort":
                    if 0 < hold.limit - used < hold.amount:
                        hold = replace(hold, amount=hold.limit - used)  # noqa: PLW2901 - less of it
                else:
                    asked, hold = self._ask(hold, used, step)  # noqa: PLW2901 - with more room
                    found += asked
            found.append(hold)
        return tuple(found)

    def _ask(self, hold: Hold, used: int, step: Step) -> tuple[list[PreOne], Hold]:
        """An approval adds `more`: booked like anything else, so it is granted once."""
        account = f"{hold.account}/more@{step.at:g}"
        granted = self._used(account)
        room = int(step.at * hold.limit) + granted
        asked: list[PreOne] = []
        if used + hold.amount > room:
            more = int((step.more or 0) * _SCALE.get(hold.unit, 1))
            asked = [
                Ask(
                    f"{self._name}: {step.at:.0%} of the limit of {hold.account} is spent; may it "
                    f"have {step.more:g} {hold.unit} more?",
                    rule=f"{hold.rule}/more/{granted}",
                ),
                Hold(account, more, "amount", MOST_STORED, self._window, "keep", hold.rule),
            ]
            granted += more
        if step.at == 1:
            hold = replace(hold, limit=hold.limit + granted)
        return asked, hold

    def _warn(self, hold: Hold, used: int, at: float) -> None:
        key = (hold.account, at)
        if key in self._warned or len(self._warned) >= _WARNED_AT_MOST:
            return
        self._warned.add(key)
        _log.warning(
            "%s: more than %.0f%% of the limit of %s is spent or held (%d of %d)",
            self._name, at * 100, hold.account, used + hold.amount, hold.limit,
        )  # fmt: skip
