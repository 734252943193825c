"""The parts of LangChain and LangGraph that the adapter stands on, and a check that they are there.

A part that is missing must stop the start, not a run: above all the key under which a node finds
its checkpointer, without which no run would ever be found again.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from checkrein.errors import ConfigError
from checkrein_integrations._shared.versions import numbers

SUPPORTED = "langchain 1.5 and langgraph 1.2 or newer, below 2"
_OLDEST = {"langchain": (1, 5), "langgraph": (1, 2)}
_BEYOND = (2,)
_REMEDY = "pip install 'checkrein[langchain]'"

CHECKPOINTER = "__pregel_checkpointer"
"""Where langgraph 1.x hands a run's checkpointer to its nodes."""

_NEEDED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "langchain.agents.middleware", "AgentMiddleware",
        ("before_agent", "abefore_agent", "after_agent", "aafter_agent", "wrap_model_call",
         "awrap_model_call", "wrap_tool_call", "awrap_tool_call"),
    ),
    ("langchain.agents.middleware", "ModelRequest", ("override",)),
    ("langgraph.prebuilt.tool_node", "ToolCallRequest", ("override",)),
    ("langgraph.pregel", "Pregel", ("get_state", "aget_state")),
    ("langchain_core.tracers._streaming", "_StreamingCallbackHandler", ()),
    ("langchain_core.tools", "BaseTool",
     ("run", "arun", "_run", "_arun", "tool_call_schema", "get_input_schema")),
    ("langchain_core.language_models", "BaseChatModel",
     ("_generate", "_agenerate", "_stream", "_astream", "_should_stream", "_get_ls_params")),
    ("langchain_core.callbacks", "BaseCallbackHandler",
     ("on_tool_start", "on_tool_error", "on_chat_model_start", "on_llm_error",
      "on_retriever_start", "on_retriever_error")),
)  # fmt: skip
"""(module, class, attributes) that calls and runs of ours go through."""


def unfit(error: ImportError) -> ConfigError | None:
    """The error for an import that failed because of the framework; None if it is not that."""
    package = (error.name or "").partition(".")[0]
    if package not in ("langchain", "langchain_core", "langgraph"):
        return None
    if error.name == package or _installed("langchain") is None:
        return ConfigError(
            f"checkrein_integrations.langchain needs {SUPPORTED} ({error}): {_REMEDY}"
        )
    return ConfigError(
        f"{_here()} have parts in other places than the adapter knows ({error}); supported: "
        f"{SUPPORTED}: {_REMEDY}"
    )


def check() -> None:
    """Raise `ConfigError` where what is installed is not what the adapter can supervise."""
    for name, oldest in _OLDEST.items():
        here = _installed(name)
        if here is None or not oldest <= numbers(here) < _BEYOND:
            raise ConfigError(
                f"{name} {here or 'is not installed, and'} is not supported: {SUPPORTED}: {_REMEDY}"
            )
    missing = _missing()
    if missing:
        raise ConfigError(
            f"{_here()} have no {missing}: this adapter cannot supervise them; supported: "
            f"{SUPPORTED}"
        )


@cache
def _missing() -> str:
    """The first part that is not where it was; empty if all are."""
    for module, owner, names in _NEEDED:
        found = getattr(import_module(module), owner, None)
        if found is None:
            return f"{module}.{owner}"
        for name in names:
            if not hasattr(found, name):
                return f"{owner}.{name}"
    try:
        constants = import_module("langgraph._internal._constants")
    except ImportError:
        return "langgraph._internal._constants"
    key = getattr(constants, "CONFIG_KEY_CHECKPOINTER", None)
    return "" if key == CHECKPOINTER else f"configurable[{CHECKPOINTER!r}]"


@cache
def _installed(package: str) -> str | None:
    """The version of a package, read once: it costs a millisecond."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _here() -> str:
    return f"langchain {_installed('langchain')} and langgraph {_installed('langgraph')}"
