"""Channels that tell somebody about a waiting call, or decide it."""

from checkrein_plugins.approvers.callable import CallableApprover
from checkrein_plugins.approvers.console import Console

__all__ = ["CallableApprover", "Console"]
