"""Objects of the application that a configuration names: `module:name`."""

from __future__ import annotations

import importlib
from typing import Any

from checkrein.errors import ConfigError


def load_object(path: str, where: str) -> Any:
    """What `module:name` (or `module:name.attribute`) names.

    Raises `ConfigError` with `where` if there is no such thing.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{where}: {path!r} is not of the form 'module:name'")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        # The module is the user's: whatever it raises on import, the start must name it.
        raise ConfigError(
            f"{where}: module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(f"{where}: {module_name!r} has no {name!r}") from None
    return found
