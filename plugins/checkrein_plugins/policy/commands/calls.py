"""Calls as people write them: `refund(amount=500, to="casey")`, or one JSON object."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, StrictInt

from checkrein.call import Call, ToolInfo
from checkrein.errors import ConfigError
from checkrein_plugins._config import Settings, read
from checkrein_plugins.policy.shape import Text


class CallSettings(Settings):
    """A call, written out."""

    tool: Text
    """The tool's (or model's) name."""
    args: dict[str, Any] = Field(default_factory=dict)
    kind: str = Field(default="tool", pattern="^(tool|model|undo)$")
    agent: str = ""
    user: str = ""
    tenant: str = ""
    task: str = ""
    session: str = "session"
    step: StrictInt = 1
    effect: str = Field(default="", pattern="^(|read|write|egress)$")
    """Default: `write`, for a model `read`."""
    labels: dict[str, str] = Field(default_factory=dict)


def call_of(settings: CallSettings, tools: Mapping[str, ToolInfo] | None = None) -> Call:
    """The call that was written out, of a tool that may be known."""
    known = (tools or {}).get(settings.tool)
    effect: Any = settings.effect or ("read" if settings.kind == "model" else "write")
    info = known if known is not None and not settings.effect else None
    kind: Any = settings.kind
    return Call(
        "call", settings.session, kind, settings.tool, settings.args,
        info or ToolInfo(settings.tool, effect=effect), agent=settings.agent, task=settings.task,
        user=settings.user, tenant=settings.tenant, step=settings.step, labels=settings.labels,
    )  # fmt: skip


def parse(text: str, **given: str) -> CallSettings:
    """Read a call. Raises `ConfigError`."""
    if text.lstrip().startswith("{"):
        try:
            tree = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"call: not JSON: {error}") from None
        return read(CallSettings, {**{k: v for k, v in given.items() if v}, **tree}, "call")
    name, paren, rest = text.partition("(")
    if not paren and any(letter in name.strip() for letter in " {}[]=,"):
        # Taken for a name no rule knows, `refund {"amount": 500}` would be allowed.
        raise ConfigError(
            f"call: {text!r} cannot be read; write it like refund(amount=500, to='casey'), or as "
            """JSON: {"tool": "refund", "args": {"amount": 500}}"""
        )
    arguments: dict[str, Any] = {}
    if paren:
        if not rest.rstrip().endswith(")"):
            raise ConfigError(f"call: {text!r}: the closing ) is missing")
        try:
            tree = ast.parse(f"f({rest}", mode="eval").body
            if not isinstance(tree, ast.Call) or tree.args:
                raise ConfigError("call: name the arguments: refund(amount=500)")
            for keyword in tree.keywords:
                if keyword.arg is None:
                    raise ConfigError("call: name the arguments: refund(amount=500)")
                arguments[keyword.arg] = ast.literal_eval(keyword.value)
        except (SyntaxError, ValueError):
            raise ConfigError(
                f"call: {text!r} cannot be read; write it like refund(amount=500, to='casey'), "
                "with values written out"
            ) from None
    return read(
        CallSettings,
        {"tool": name.strip(), "args": arguments, **{k: v for k, v in given.items() if v}},
        "call",
    )
