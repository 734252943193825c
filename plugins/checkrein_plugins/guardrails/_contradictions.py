"""What an argument's rule must not say: what can never pass, never fire, or does not fit."""

from __future__ import annotations

from checkrein.errors import ConfigError
from checkrein_plugins._patterns import fold_text
from checkrein_plugins.guardrails._arguments import kind_of, number_check
from checkrein_plugins.guardrails._rules import ArgumentSettings


def contradictions(rule: ArgumentSettings, where: str) -> None:
    """Raise `ConfigError` for what can never pass, never fire, or does not fit the type."""
    kind = kind_of(rule)
    fits = {
        "number": ("minimum", "maximum", "ask_above", "total", "one_of"),
        "text": ("allow", "block", "match", "one_of"),
        "path": ("allow", "block", "match", "one_of", "root"),
        "url": ("allow", "block", "match", "one_of"),
    }[kind]
    stated = [
        key
        for key in (
            "allow", "block", "match", "one_of", "minimum", "maximum", "ask_above", "total", "root",
        )
        if getattr(rule, key) is not None
    ]  # fmt: skip
    for key in stated:
        if key not in fits:
            raise ConfigError(
                f"{where}.{key}: has no meaning for type {kind!r}; allowed: {', '.join(fits)}"
            )
    low, high, ask = rule.minimum, rule.maximum, rule.ask_above
    if low is not None and high is not None and low > high:
        raise ConfigError(f"{where}: minimum is above maximum: no number can pass")
    if ask is not None and high is not None and ask >= high:
        raise ConfigError(f"{where}.ask_above: not below maximum, so it can never ask")
    if ask is not None and low is not None and ask < low:
        raise ConfigError(f'{where}.ask_above: below minimum; use action = "ask" to ask always')
    if rule.total is not None:
        if low is not None and low > rule.total:
            raise ConfigError(f"{where}.total: below minimum: no number can pass")
        if ask is not None and ask >= rule.total:
            raise ConfigError(f"{where}.ask_above: not below total, so it can never ask")
    both = {fold_text(p) for p in rule.allow or ()} & {fold_text(p) for p in rule.block or ()}
    if both:
        raise ConfigError(f"{where}: {min(both)!r} is both allowed and blocked")
    if kind == "number" and rule.one_of is not None:
        check = number_check(rule.model_copy(update={"one_of": None}))
        for index, value in enumerate(rule.one_of):
            problem = check(value)
            if problem is not None:
                raise ConfigError(f"{where}.one_of[{index}]: can never pass: {problem}")
