"""Which settings of a Rein and of a session there are to choose from, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkrein.errors import ConfigError

CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("enforce", "observe"),
    "record": ("all", "tools", "none"),
    "durability": ("process", "power"),
    "wait": ("auto", "block", "suspend"),
    "approvals": ("auto", "store", "channels"),
    "unattributed": ("account", "refuse"),
    "on_error": ("rollback", "keep"),
    "on_rejected": ("raise", "rollback"),
    "on_failed": ("rollback", "keep"),
    "on_drift": ("keep", "rollback"),
    "failure_mode": ("closed", "open"),
    "semconv": ("openinference", "genai-427"),
}


_COUNTS = ("max_payload", "undo_tries", "max_resumes")

MOST = 10**12
"""More seconds than a clock in microseconds can add in 64 bits are a mistake."""


def check_choices(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for a value that its setting does not have."""
    for key, value in given.items():
        if value not in CHOICES[key]:
            raise ConfigError(f"{key}: {value!r} is not one of {', '.join(CHOICES[key])}")


def check_each(key: str, given: Sequence[str]) -> tuple[str, ...]:
    """The values of a setting that takes several. Raises `ConfigError` for one that it has not."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{key}: a list of {', '.join(CHOICES[key])}")
    for value in given:
        check_choices({key: value})
    return tuple(given)


def check_numbers(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for other than numbers from 0 to 10**12; counts must be whole."""
    for key, number in given.items():
        kinds = (int,) if key in _COUNTS else (int, float)
        if isinstance(number, bool) or not isinstance(number, kinds) or not 0 <= number <= MOST:
            what = "a whole number" if key in _COUNTS else "a number"
            raise ConfigError(f"{key}: must be {what}, 0 or more (and not infinite)")


def check_texts(given: Mapping[str, object], *, names: bool = False) -> None:
    """Raise `ConfigError` for other than texts; `names`: those that are looked up by."""
    for key, text in given.items():
        if not isinstance(text, str):
            raise ConfigError(f"{key}: must be a text, not {type(text).__name__}")
        if names and not text.isascii() and any("\ud800" <= mark <= "\udfff" for mark in text):
            raise ConfigError(f"{key}: holds a lone surrogate, which has no UTF-8 form")
