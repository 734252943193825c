"""OpenAI Agents SDK: agents, their tools, hand-offs, inner agents and models under supervision.

    from checkrein_integrations.openai_agents import run

    result = await run(rein, agent, "Refund order 7")

Raises `ConfigError` on import where the packages of the extra are missing.
"""

from __future__ import annotations

from checkrein_integrations._shared.retracting import AnswerRetracted
from checkrein_integrations.openai_agents.guardrails import (
    as_input_guardrail,
    as_output_guardrail,
    as_tool_input_guardrail,
    as_tool_output_guardrail,
)
from checkrein_integrations.openai_agents.resuming import aresume, resume
from checkrein_integrations.openai_agents.running import run, run_streamed, run_sync
from checkrein_integrations.openai_agents.supervision import run_config, supervise_agent

__all__ = [
    "AnswerRetracted",
    "aresume",
    "as_input_guardrail",
    "as_output_guardrail",
    "as_tool_input_guardrail",
    "as_tool_output_guardrail",
    "resume",
    "run",
    "run_config",
    "run_streamed",
    "run_sync",
    "supervise_agent",
]
