"""Resilience: plugins for what goes wrong on the way: too slow, too often, down, silent.

A plugin is imported when it is asked for: one that is not used costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein_plugins.resilience.breaker import CircuitBreaker
    from checkrein_plugins.resilience.failures import FailureHandler
    from checkrein_plugins.resilience.fallback import ModelFallback
    from checkrein_plugins.resilience.iterations import IterationLimit
    from checkrein_plugins.resilience.retry import Retry
    from checkrein_plugins.resilience.silence import SilenceAlarm
    from checkrein_plugins.resilience.timeout import Timeout

_MODULES = {
    "CircuitBreaker": "breaker",
    "FailureHandler": "failures",
    "IterationLimit": "iterations",
    "ModelFallback": "fallback",
    "Retry": "retry",
    "SilenceAlarm": "silence",
    "Timeout": "timeout",
}

__all__ = [
    "CircuitBreaker",
    "FailureHandler",
    "IterationLimit",
    "ModelFallback",
    "Retry",
    "SilenceAlarm",
    "Timeout",
]


def __getattr__(name: str) -> Any:
    """The plugins by name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
