"""Errors of ours as CrewAI lets them pass."""

from __future__ import annotations

from typing import Any, TypeVar

from checkrein.errors import CheckreinError, ConfigError, Denied
from checkrein_integrations._shared.endings import ending_as
from checkrein_integrations.crewai.framework import HookAborted

E = TypeVar("E", bound=CheckreinError)


def ending(error: E) -> E:
    """The same error, as one that ends the run.

    CrewAI swallows what a hook or a tool raises, or tells it to the model, unless it is a
    `HookAborted`. The error becomes an instance of that class as well, with its `reason` and
    `source`.
    """
    if not isinstance(error, HookAborted):
        ended: Any = ending_as(error, HookAborted)
        if not hasattr(ended, "reason"):
            ended.reason = str(error)
        ended.source = "checkrein"
    return error


def final(error: BaseException) -> BaseException:
    """An error as it may leave a hook, a tool or a model of ours."""
    if isinstance(error, Denied) and error.code == "no_approver":
        config = ConfigError(
            f"{error}: use a store that others can answer in (sqlite), or add an approver plugin"
        )
        config.__cause__ = error
        return ending(config)
    return ending(error) if isinstance(error, CheckreinError) else error


def failed(error: BaseException) -> BaseException:
    """What ends a run in which the adapter itself failed: a hook that raises is ignored."""
    if isinstance(error, CheckreinError):
        return final(error)
    problem = ConfigError(f"the CrewAI adapter could not judge a call ({type(error).__name__})")
    problem.__cause__ = error
    return ending(problem)
