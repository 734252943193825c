"""The parts of the OpenAI Agents SDK that the adapter stands on, and a check that they are there.

The SDK is below version 1 and moves its internals between minor releases: a part that is missing
must stop the start, not a run.
"""

from __future__ import annotations

import dataclasses
from importlib.metadata import version
from typing import Any

from checkrein.errors import ConfigError

SUPPORTED = "0.24 or newer, below 1"
"""Versions of openai-agents whose parts below are known to the adapter."""

try:
    from agents import (
        Agent,
        AgentsException,
        CustomTool,
        FunctionTool,
        GuardrailFunctionOutput,
        Handoff,
        InputGuardrail,
        ItemHelpers,
        Model,
        ModelBehaviorError,
        ModelProvider,
        ModelResponse,
        MultiProvider,
        OutputGuardrail,
        RunConfig,
        Runner,
        RunResult,
        RunResultStreaming,
        RunState,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolOutputGuardrail,
        Usage,
        handoff,
    )
    from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
    from agents.models.default_models import get_default_model
    from agents.run_config import CallModelData, ModelInputData
    from agents.tool import (
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
        _FailureHandlingFunctionToolInvoker,  # a decorated function and its failure policy
        maybe_invoke_function_tool_failure_error_function,
    )
    from agents.tool_context import ToolContext
except ImportError as error:
    if (error.name or "") == "agents":
        raise ConfigError(
            f"checkrein_integrations.openai_agents needs openai-agents {SUPPORTED} ({error}): "
            "pip install 'checkrein[openai-agents]'"
        ) from error
    if not (error.name or "").startswith("agents"):
        raise
    raise ConfigError(
        f"openai-agents {version('openai-agents')} has parts in other places than the adapter "
        f"knows ({error}); supported: openai-agents {SUPPORTED}: "
        "pip install 'checkrein[openai-agents]'"
    ) from error

FailureHandling = _FailureHandlingFunctionToolInvoker

__all__ = [
    "SUPPORTED",
    "Agent",
    "AgentsException",
    "CallModelData",
    "CustomTool",
    "FailureHandling",
    "FunctionTool",
    "GuardrailFunctionOutput",
    "Handoff",
    "InputGuardrail",
    "ItemHelpers",
    "Model",
    "ModelBehaviorError",
    "ModelInputData",
    "ModelProvider",
    "ModelResponse",
    "MultiProvider",
    "OutputGuardrail",
    "RunConfig",
    "RunResult",
    "RunResultStreaming",
    "RunState",
    "Runner",
    "ToolContext",
    "ToolGuardrailFunctionOutput",
    "ToolInputGuardrail",
    "ToolOutputFileContent",
    "ToolOutputGuardrail",
    "ToolOutputImage",
    "ToolOutputText",
    "Usage",
    "check",
    "get_agent_tool_state_scope",
    "get_default_model",
    "handoff",
    "maybe_invoke_function_tool_failure_error_function",
    "moved",
    "peek_agent_tool_run_result",
]

_METHODS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Agent, ("get_all_tools", "as_tool")),
    (Model, ("get_response", "stream_response")),
    (ModelProvider, ("get_model",)),
    (RunResult, ("to_state",)),
    (RunResultStreaming, ("to_state", "stream_events")),
    (RunState, ("from_string", "to_string", "approve", "get_interruptions")),
    (Handoff, ("get_transfer_message",)),
    (FailureHandling, ("__call__", "__agents_bind_function_tool__")),
)
_FIELDS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Agent, ("name", "tools", "handoffs", "model", "input_guardrails", "mcp_servers")),
    (FunctionTool, ("on_invoke_tool", "needs_approval", "_is_agent_tool", "_agent_instance",
                    "_use_default_failure_error_function")),
    (Handoff, ("on_invoke_handoff", "tool_name", "agent_name", "_agent_ref")),
    (RunConfig, ("model", "model_provider", "call_model_input_filter", "input_guardrails",
                 "trace_include_sensitive_data", "tool_error_formatter")),
    (InputGuardrail, ("run_in_parallel",)),
)  # fmt: skip


def check() -> None:
    """Raise `ConfigError` where the installed SDK lacks what the adapter stands on."""
    for owner, names in _METHODS:
        for name in names:
            if not hasattr(owner, name):
                raise moved(f"{owner.__name__}.{name}")
    for owner, names in _FIELDS:
        known = {field.name for field in dataclasses.fields(owner)}
        for name in names:
            if name not in known:
                raise moved(f"{owner.__name__}.{name}")


def moved(what: str) -> ConfigError:
    """The error for a part that is not where it was."""
    return ConfigError(
        f"openai-agents {version('openai-agents')} has no {what}: this adapter cannot supervise "
        f"it; supported: openai-agents {SUPPORTED}"
    )
