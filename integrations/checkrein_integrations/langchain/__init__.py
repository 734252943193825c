"""LangChain and LangGraph: agents, tool nodes, tools and models under supervision.

    from checkrein_integrations.langchain import CheckreinMiddleware

    agent = create_agent(model, tools, middleware=[CheckreinMiddleware(rein)])

Raises `ConfigError` on import where the packages of the extra are missing.
"""

from __future__ import annotations

from checkrein.errors import ConfigError

try:
    from checkrein_integrations.langchain.middleware import CheckreinMiddleware
    from checkrein_integrations.langchain.tools import tool_node_wrappers
except ImportError as error:
    if (error.name or "").partition(".")[0] in ("langchain", "langchain_core", "langgraph"):
        raise ConfigError(
            f"checkrein_integrations.langchain needs langchain 1.5 and langgraph 1.2 or newer "
            f"({error}): pip install 'checkrein[langchain]'"
        ) from error
    raise

__all__ = ["CheckreinMiddleware", "tool_node_wrappers"]
