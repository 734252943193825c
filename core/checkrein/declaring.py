"""`@rein.tool`: a function and its supervised twin."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from checkrein.errors import ConfigError
from checkrein.undo import refuse_generator

if TYPE_CHECKING:
    from checkrein.rein import Rein


def supervised(
    rein: Rein, fn: Callable[..., Any], name: str | None, settings: dict[str, Any]
) -> Callable[..., Any]:
    """Declare `fn` and return a twin of the same signature and coroutine kind.

    Raises `ConfigError` for settings that do not fit.
    """
    if not callable(fn):
        raise ConfigError("rein.tool decorates functions")
    refuse_generator(fn)
    known = inspect.signature(rein.tools.declare).parameters
    for key in settings:
        if key not in known or key in ("name", "fn"):
            raise ConfigError(f"tool {getattr(fn, '__name__', fn)}: unknown setting {key!r}")
    tool = rein.tools.declare(name or fn.__name__, fn, **settings)
    if tool.is_async:

        @functools.wraps(fn)
        async def later(*args: Any, **kwargs: Any) -> Any:
            return await rein.acall(fn, *args, **kwargs)

        twin: Any = later
    else:

        @functools.wraps(fn)
        def now(*args: Any, **kwargs: Any) -> Any:
            return rein.call(fn, *args, **kwargs)

        twin = now
    twin.__checkrein_tool__ = tool
    return twin  # type: ignore[no-any-return]  # as `wraps` left it
