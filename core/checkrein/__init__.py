"""checkrein: a supervision layer for Python agents.

    from checkrein import Rein

    rein = Rein(plugins=[...], store="sqlite:///checkrein.db")
    with rein.session(agent="billing"):
        rein.call(charge, customer="c1", amount=10)

Plugins decide through four hooks: `pre_call`, `post_call`, `on_approval`, `on_rollback`.
"""

from __future__ import annotations

from checkrein import errors
from checkrein.call import Absent, Call, Outcome, Present, ToolInfo, Usage
from checkrein.hooks import Plugin, StreamFilter, hookimpl
from checkrein.rein import Rein
from checkrein.session import Session, Spend
from checkrein.verdicts import (
    Always,
    Answer,
    Approved,
    Ask,
    Deny,
    Fallback,
    Hold,
    Measured,
    Rejected,
    Replace,
    Retry,
    Rewrite,
    Skip,
    Unchecked,
    Undo,
)

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Always",
    "Answer",
    "Approved",
    "Ask",
    "Call",
    "Deny",
    "Fallback",
    "Hold",
    "Measured",
    "Outcome",
    "Plugin",
    "Present",
    "Rein",
    "Rejected",
    "Replace",
    "Retry",
    "Rewrite",
    "Session",
    "Skip",
    "Spend",
    "StreamFilter",
    "ToolInfo",
    "Unchecked",
    "Undo",
    "Usage",
    "__version__",
    "errors",
    "hookimpl",
]
