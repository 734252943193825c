"""The parts of CrewAI that the adapter stands on, and a check that they are there.

CrewAI's interception hooks and its tool and model base classes moved in almost every minor
release; an attribute that is missing must stop the start, not a run.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

from checkrein.errors import ConfigError
from checkrein_integrations._shared.versions import numbers

OLDEST, BEYOND = (1, 15, 29), (2,)
"""Versions of crewai: older ones tell the model, on the ReAct road, of what must end the run."""
SUPPORTED = "1.15.29 or newer, below 2"

try:
    from crewai import Agent, Crew, Task
    from crewai.events import crewai_event_bus as event_bus
    from crewai.events.base_events import BaseEvent
    from crewai.hooks.dispatch import HookAborted, InterceptionPoint, scoped_hooks
    from crewai.llms import base_llm as _base_llm
    from crewai.llms.base_llm import BaseLLM, call_stream_override
    from crewai.tools import tool as make_tool
    from crewai.tools.base_tool import BaseTool, Tool
    from crewai.tools.structured_tool import CrewStructuredTool
    from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
    from crewai.types.usage_metrics import UsageMetrics
    from crewai.utilities.agent_utils import extract_tool_call_info
    from crewai.utilities.string_utils import sanitize_tool_name

    # `crewai.hooks.dispatch` as an attribute is a function of that name.
    _dispatch: Any = import_module("crewai.hooks.dispatch")
except ImportError as error:
    if error.name == "crewai":
        raise ConfigError(
            f"checkrein_integrations.crewai needs crewai {SUPPORTED} ({error}): "
            "pip install 'checkrein[crewai]'"
        ) from error
    if not (error.name or "").startswith("crewai"):
        raise
    raise ConfigError(
        f"crewai {version('crewai')} has parts in other places than the adapter knows ({error}); "
        f"supported: crewai {SUPPORTED}: pip install 'checkrein[crewai]'"
    ) from error

__all__ = [
    "SUPPORTED",
    "Agent",
    "BaseEvent",
    "BaseLLM",
    "BaseTool",
    "Crew",
    "CrewStructuredTool",
    "HookAborted",
    "InterceptionPoint",
    "Tool",
    "ToolFailure",
    "ToolFailureReason",
    "UsageMetrics",
    "call_stream_override",
    "check",
    "current_call_id",
    "event_bus",
    "extract_tool_call_info",
    "make_tool",
    "outer_hooks",
    "sanitize_tool_name",
    "scoped_hooks",
]

_POINTS = ("EXECUTION_START", "PRE_TOOL_CALL", "POST_TOOL_CALL", "PRE_MODEL_CALL")
_NEEDED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (InterceptionPoint, _POINTS),
    (_dispatch, ("_scoped_hooks_var",)),
    (_base_llm, ("_current_call_id",)),
    (
        BaseLLM,
        ("call", "acall", "_emit_call_completed_event", "_emit_call_failed_event",
         "_emit_stream_chunk_event", "_emit_thinking_chunk_event",
         "_track_token_usage_internal"),
    ),
    (BaseTool, ("run", "arun", "_run", "_validate_kwargs")),
    (UsageMetrics, ("from_provider_dict",)),
    (
        Task.__pydantic_fields__ | Task.__private_attributes__,
        ("used_tools", "tools_errors", "delegations", "retry_count", "_guardrail_retry_counts"),
    ),
)  # fmt: skip


def check() -> None:
    """Raise `ConfigError` where the installed CrewAI is not one that the adapter can supervise."""
    here = installed()
    if not OLDEST <= numbers(here) < BEYOND:
        raise ConfigError(
            f"crewai {here} is not supported: crewai {SUPPORTED}: pip install 'checkrein[crewai]'"
        )
    for owner, names in _NEEDED:
        for name in names:
            if name not in owner if isinstance(owner, dict) else not hasattr(owner, name):
                where = "Task" if isinstance(owner, dict) else getattr(owner, "__name__", "?")
                raise ConfigError(
                    f"crewai {here} has no {where}.{name}: this adapter cannot "
                    f"supervise it; supported: crewai {SUPPORTED}"
                )


def outer_hooks() -> dict[Any, list[Any]]:
    """The execution-scoped hooks that are active around this code, copied."""
    scope: Any = _dispatch._scoped_hooks_var.get()  # noqa: SLF001 - `scoped_hooks` hides them
    return {point: list(hooks) for point, hooks in (scope or {}).items()}


def current_call_id() -> Any:
    """The context variable that holds the id of the running model call, for its events."""
    return _base_llm._current_call_id  # noqa: SLF001 - events of one call share its id


@cache
def installed() -> str:
    """The version of crewai, read once: it costs a millisecond."""
    return version("crewai")
