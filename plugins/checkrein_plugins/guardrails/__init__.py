"""Guards: plugins that stop or question a call by what it is.

A guard is imported when it is asked for: one that is not used costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein_plugins.guardrails.anomaly import AnomalyScore
    from checkrein_plugins.guardrails.ensemble import Ensemble
    from checkrein_plugins.guardrails.explanation import ExplanationRequired
    from checkrein_plugins.guardrails.hours import ActiveHours
    from checkrein_plugins.guardrails.idempotency import IdempotencyGuard
    from checkrein_plugins.guardrails.intent import GoalVerification, IntentDrift
    from checkrein_plugins.guardrails.output import OutputLengthLimit
    from checkrein_plugins.guardrails.prompt_injection import PromptInjection
    from checkrein_plugins.guardrails.quota import ResourceQuota
    from checkrein_plugins.guardrails.rates import CategoryRateLimit
    from checkrein_plugins.guardrails.recursion import RecursionDetector
    from checkrein_plugins.guardrails.safety import Safety
    from checkrein_plugins.guardrails.schema import SchemaValidator
    from checkrein_plugins.guardrails.scope import Scope
    from checkrein_plugins.guardrails.semantic_pii import SemanticPII
    from checkrein_plugins.guardrails.urls import UrlGuard

_MODULES = {
    "ActiveHours": "hours",
    "AnomalyScore": "anomaly",
    "CategoryRateLimit": "rates",
    "Ensemble": "ensemble",
    "ExplanationRequired": "explanation",
    "GoalVerification": "intent",
    "IdempotencyGuard": "idempotency",
    "IntentDrift": "intent",
    "OutputLengthLimit": "output",
    "PromptInjection": "prompt_injection",
    "RecursionDetector": "recursion",
    "ResourceQuota": "quota",
    "Safety": "safety",
    "SchemaValidator": "schema",
    "Scope": "scope",
    "SemanticPII": "semantic_pii",
    "UrlGuard": "urls",
}

__all__ = [
    "ActiveHours",
    "AnomalyScore",
    "CategoryRateLimit",
    "Ensemble",
    "ExplanationRequired",
    "GoalVerification",
    "IdempotencyGuard",
    "IntentDrift",
    "OutputLengthLimit",
    "PromptInjection",
    "RecursionDetector",
    "ResourceQuota",
    "Safety",
    "SchemaValidator",
    "Scope",
    "SemanticPII",
    "UrlGuard",
]


def __getattr__(name: str) -> Any:
    """The guards by name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
