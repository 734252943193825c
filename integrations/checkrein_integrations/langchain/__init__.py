"""LangChain and LangGraph: agents, tool nodes, tools and models under supervision.

    from checkrein_integrations.langchain import CheckreinMiddleware

    agent = create_agent(model, tools, middleware=[CheckreinMiddleware(rein)])

Raises `ConfigError` on import where the packages of the extra are missing, or are others than
the adapter knows.
"""

from __future__ import annotations

from checkrein_integrations.langchain.framework import unfit

try:
    from checkrein_integrations._shared.retracting import AnswerRetracted
    from checkrein_integrations.langchain.callbacks import CheckreinCallbackHandler
    from checkrein_integrations.langchain.middleware import CheckreinMiddleware
    from checkrein_integrations.langchain.resuming import aresume, resume
    from checkrein_integrations.langchain.supervised import supervise_tool
    from checkrein_integrations.langchain.tools import tool_node_wrappers
except ImportError as error:
    problem = unfit(error)
    if problem is None:
        raise
    raise problem from error

__all__ = [
    "AnswerRetracted",
    "CheckreinCallbackHandler",
    "CheckreinMiddleware",
    "aresume",
    "resume",
    "supervise_tool",
    "tool_node_wrappers",
]
