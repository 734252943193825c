"""Who sits at the terminal."""

from __future__ import annotations

import getpass

from checkrein.errors import ConfigError


def user() -> str:
    """The OS user. Raises `ConfigError` where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise ConfigError("who are you? the system has no user name: use --by NAME") from error
