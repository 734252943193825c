"""Settings of plugins: read strictly, refused with their place.

Constructors take what a `[plugins.NAME]` table of a file can hold. Each builds one pydantic
model through `read`, so that every wrong key or value becomes a `ConfigError` that names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from checkrein._config_model import near, plainly
from checkrein.errors import ConfigError

if TYPE_CHECKING:
    from checkrein.rein import Rein


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be above 0")
    return value


def _countable(value: int) -> int:
    if value > MOST:
        raise ValueError(f"must not be above {MOST:_}")
    return value


MOST = 2**53
"""Largest count, token or dollar limit: beyond it a float cannot hold every integer."""

MOST_STORED = 2**61
"""Largest amount that a store takes for one hold: sums of several still fit in 64 bits."""

MOST_USD = 2_000_000_000
"""Largest amount of money in dollars: below `MOST_STORED` nano-dollars."""


def _payable(value: float) -> float:
    if value > MOST_USD:
        raise ValueError(f"must not be above {MOST_USD:_}")
    return value


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


Text = Annotated[StrictStr, AfterValidator(_filled)]
Texts = Annotated[list[Text], Field(min_length=1)]
Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
"""What the names of a plugin's rules and accounts begin with."""
Number = Annotated[StrictInt | StrictFloat, AfterValidator(_finite)]
"""A finite number; a bool or a numeric string is refused."""
Dollars = Annotated[Number, AfterValidator(_not_negative), AfterValidator(_payable)]
Seconds = Annotated[Number, AfterValidator(_positive)]
Positive = Annotated[Number, AfterValidator(_positive), AfterValidator(_payable)]
Count = Annotated[StrictInt, AfterValidator(_not_negative), AfterValidator(_countable)]


class Settings(BaseModel):
    """Base of every settings model: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Escalates(Settings):
    """Base of rules that ask people: who is asked after the first."""

    then: Texts | None = None
    """Who may approve as well once `after` seconds have passed."""
    after: Seconds | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.then is None) != (self.after is None):
            raise ValueError("then and after go together: who is asked later, and when")
        return self


S = TypeVar("S", bound=Settings)


def read(model: type[S], values: Mapping[str, Any], where: str) -> S:
    """Validate `values` as `model`.

    Raises `ConfigError` naming `where`, the key, what is wrong and, for an unknown key, which
    keys there are.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(_describe(error, model, where)) from None


def listed(value: Any) -> Any:
    """Tuples are as good as lists; everything else is left for the model to refuse."""
    return list(value) if isinstance(value, tuple) else value


def refuse_twins(rein: Rein, plugin: Any, key: str = "name") -> None:
    """Raise `ConfigError` if this Rein has another plugin of the same kind and name.

    They would count into the same accounts.
    """
    for _, other in rein.plugins:
        if type(other) is type(plugin) and other is not plugin and other.name == plugin.name:
            raise ConfigError(
                f"two plugins of the kind {type(plugin).__name__} are named {plugin.name!r}; "
                f"give one of them another name ({key} = ...)"
            )


def refuse_unknown(unknown: Mapping[str, object], where: str, allowed: tuple[str, ...]) -> None:
    """Raise `ConfigError` if a constructor was given keys that it does not have."""
    if unknown:
        key = min(unknown)
        raise ConfigError(f"{where}: unknown key {key!r}; allowed: {', '.join(allowed)}")


def _describe(error: ValidationError, model: type[Settings], where: str) -> str:
    lines: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_context=True):
        place = _place(item["loc"])
        text = plainly(item["msg"])
        if item["type"] == "extra_forbidden":
            known = _keys_at(model, item["loc"][:-1])
            text = f"unknown key{near(str(item['loc'][-1]), known)}; allowed: {', '.join(known)}"
        found = lines.setdefault(place, [])
        if text not in found:
            found.append(text)
    # Faults of one place are the branches of a union: "must be a or must be b".
    told = {place: " or ".join(texts) for place, texts in lines.items()}
    return "; ".join(
        f"{where}{'.' + place if place else ''}: {text.replace(' or must be ', ' or ')}"
        for place, text in told.items()
    )


def _place(loc: tuple[int | str, ...]) -> str:
    """`rules[0].arguments.amount`: without the branch names that pydantic adds for unions."""
    place = ""
    for index, part in enumerate(loc):
        if isinstance(part, int):
            place += f"[{part}]"
        elif not _is_branch(part, last=index == len(loc) - 1):
            place += f".{part}" if place else part
    return place


def _is_branch(part: str, *, last: bool) -> bool:
    return "[" in part or (last and part in {"int", "float", "str", "bool", "none"})


def _keys_at(model: type[Settings], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of the model found by following `loc` down from `model`."""
    here: type[Settings] = model
    for part in loc:
        field = here.model_fields.get(part) if isinstance(part, str) else None
        inner = _settings_in(field.annotation) if field is not None else None
        if inner is not None:
            here = inner
    return sorted(here.model_fields)


def _settings_in(annotation: Any) -> type[Settings] | None:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _settings_in(inner)
        if found is not None:
            return found
    return None
