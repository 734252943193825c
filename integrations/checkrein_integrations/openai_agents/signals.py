"""Errors of ours as the SDK lets them pass."""

from __future__ import annotations

from typing import Any, TypeVar

from checkrein.errors import CheckreinError, ConfigError, Denied
from checkrein_integrations._shared.endings import ending_as
from checkrein_integrations.openai_agents.framework import AgentsException

E = TypeVar("E", bound=CheckreinError)


class Paused(Exception):
    """An agent inside a tool waits for a person: the tool's call waits with it."""


SIGNALS: tuple[type[BaseException], ...] = (Paused,)


def ending(error: E) -> E:
    """The same error, as one that ends the run.

    The SDK turns what a tool or guardrail raises into another error or into text, unless it is
    an `AgentsException`: the error becomes an instance of that class as well.
    """
    if not isinstance(error, AgentsException):
        ended: Any = ending_as(error, AgentsException)
        ended.run_data = None
    return error


def final(error: BaseException) -> BaseException:
    """An error as it may leave a tool or a model of ours."""
    if isinstance(error, Denied) and error.code == "no_approver":
        config = ConfigError(
            f"{error}: use a store that others can answer in (sqlite), or add an approver plugin"
        )
        config.__cause__ = error
        return ending(config)
    return ending(error) if isinstance(error, CheckreinError) else error
