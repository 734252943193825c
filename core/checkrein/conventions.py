"""Names of spans, attributes, events and metrics, in one place.

What OpenTelemetry's semantic conventions for generative AI name is named as they do (`SCHEMA`
says of which version); what is checkrein's own stands under `checkrein.*`.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
SCOPE: Final = "checkrein"
"""Instrumentation scope of all spans and metrics."""

# Operations: the first word of a span's name.
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
CHAT: Final = "chat"

# Attributes of the conventions.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - of a count
ERROR_TYPE: Final = "error.type"

# Metrics of the conventions.
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - a metric
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
DURATION_BUCKETS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
"""Seconds; as the conventions advise for `OPERATION_DURATION`."""
TOKEN_BUCKETS: Final = (
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
)  # fmt: skip
"""Tokens; as the conventions advise for `TOKEN_USAGE`."""

# Ours.
CALL: Final = "checkrein.call.id"
KIND: Final = "checkrein.kind"
STEP: Final = "checkrein.step"
EFFECT_STATE: Final = "checkrein.effect.state"
SOURCE: Final = "checkrein.source"
ATTEMPTS: Final = "checkrein.attempts"
COST: Final = "checkrein.cost.nano_usd"
COST_STATE: Final = "checkrein.cost.state"
PLUGIN: Final = "checkrein.plugin"
VERDICT: Final = "checkrein.verdict"
RULE: Final = "checkrein.rule"
CODE: Final = "checkrein.code"
DECISION: Final = "checkrein.decision"
UNIT: Final = "checkrein.unit"
BUDGET: Final = "checkrein.budget"
STATE: Final = "checkrein.state"
CAUSE: Final = "checkrein.cause"

VERDICT_EVENT: Final = "checkrein.verdict"
APPROVAL_EVENT: Final = "checkrein.approval"
ROLLBACK: Final = "checkrein.rollback"

# Opt-in mappings, for who reads spans by other names.
OPENINFERENCE: Final = "openinference"
OPENINFERENCE_KIND: Final = "openinference.span.kind"
GUARDRAILS: Final = "genai-427"
"""The open proposal 427 of the GenAI conventions: guardrail findings. It may still change."""
FINDING: Final = "gen_ai.security.finding"
GUARDRAIL: Final = "gen_ai.security.guardrail.name"
VERDICT_TYPE: Final = "gen_ai.security.verdict.type"
FINDINGS: Final = {
    "deny": "deny", "denied": "deny", "ask": "warn", "rewrite": "modify", "replace": "modify",
    "unchecked": "audit",
}  # fmt: skip
"""Verdict -> the proposal's type; other verdicts find nothing."""

COST_METRIC: Final = "checkrein.cost"
VERDICTS_METRIC: Final = "checkrein.verdicts"
PENDING_METRIC: Final = "checkrein.approvals.pending"
WAIT_METRIC: Final = "checkrein.approvals.wait"
REMAINING_METRIC: Final = "checkrein.budget.remaining"
UNDO_METRIC: Final = "checkrein.undo.results"
IN_DOUBT_METRIC: Final = "checkrein.in_doubt"
