"""Which settings of a Rein and of a session there are to choose from, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

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
}


def check_choices(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for a value that its setting does not have."""
    for key, value in given.items():
        if value not in CHOICES[key]:
            raise ConfigError(f"{key}: {value!r} is not one of {', '.join(CHOICES[key])}")


def check_numbers(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for other than numbers, 0 or more."""
    for key, number in given.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not number >= 0:
            raise ConfigError(f"{key}: must be a number, 0 or more")
