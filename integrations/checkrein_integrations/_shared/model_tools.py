"""What stands for a model where the engine wants a tool."""

from __future__ import annotations

from functools import lru_cache

from checkrein.call import ToolInfo
from checkrein.tools import Tool


@lru_cache(maxsize=512)
def model_tool(name: str, no_effect_on: tuple[type[BaseException], ...] = ()) -> Tool:
    """The tool of a model, by the name that policies and prices know it by.

    `no_effect_on`: errors of its provider by which nothing was asked of the model.
    """
    return Tool(ToolInfo(name, effect="read"), None, no_effect_on=no_effect_on)
