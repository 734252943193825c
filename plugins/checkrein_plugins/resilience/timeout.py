"""Timeout: how long a call may take, and how old a session may become."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Never

from pydantic import Field, StrictBool

from checkrein.call import Call, ToolInfo
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, PreVerdict, Rewrite
from checkrein_plugins._config import Name, Seconds, Settings, Text, read, refuse_unknown
from checkrein_plugins._selection import KEPT, first_match

if TYPE_CHECKING:
    from checkrein.rein import Rein


class _Settings(Settings):
    seconds: Seconds | None = None
    tools: dict[Text, Seconds] = Field(default_factory=dict)
    models: Seconds | None = None
    session: Seconds | None = None
    halt: StrictBool = True
    name: Name = "timeout"


class Timeout(Plugin):
    """Ends calls that take too long, and refuses calls of a session that is too old.

    `seconds`: for every tool; `tools`: by glob; `models`: for model calls. A shorter timeout that
    the tool was declared with stands. `session`: seconds from the session's begin to the end of
    its last call: what is left of it bounds each call too. `halt`: the end of a session's time
    ends the run.

    The caller of a call that is given up gets a `TimeoutError`, and its effect is unknown. A sync
    tool with a timeout runs on a thread of its own, which nobody can stop: what it does later is
    recorded as late.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    rewrites = False

    def __init__(
        self,
        *,
        seconds: float | None = None,
        tools: Mapping[str, float] | None = None,
        models: float | None = None,
        session: float | None = None,
        halt: bool = True,
        name: str = "timeout",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "timeout", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "seconds": seconds,
                "tools": dict(tools or {}),
                "models": models,
                "session": session,
                "halt": halt,
                "name": name,
            },
            "timeout",
        )
        if (seconds, models, session) == (None, None, None) and not settings.tools:
            raise ConfigError("timeout: state a limit: seconds, tools, models or session")
        self.name = settings.name
        self._seconds = settings.seconds
        self._tools = first_match(settings.tools, "timeout.tools")
        self._models = settings.models
        self._session = settings.session
        self._halt = settings.halt
        self._begun: dict[str, int] = {}
        self._limited: dict[int, tuple[ToolInfo, float, ToolInfo]] = {}
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """Its clock and sessions are the Rein's."""
        self._rein = rein

    def pre_call(self, call: Call) -> PreVerdict:
        """Shorten the call's timeout; deny what comes too late."""
        kind = call.kind
        if kind == "undo":
            return None
        limit = self._models if kind == "model" else self._tools(call.name) or self._seconds
        if self._session is not None:
            left = self._session - (self._now() - self._beginning(call.session)) / 1_000_000
            if left <= 0:
                return Deny(
                    f"the session's {self._session:g} s are over",
                    rule=f"{self.name}/session",
                    halt=self._halt,
                )
            # Whole seconds, rounded down: the next calls then share one declaration.
            left = max(1.0, left // 1) if left > 2 else left
            limit = left if limit is None else min(limit, left)
        known = call.tool.timeout
        if limit is None or (known is not None and known <= limit):
            return None
        return Rewrite(call.replace(tool=self._with(call.tool, float(limit))))

    def _with(self, tool: ToolInfo, limit: float) -> ToolInfo:
        found = self._limited.get(id(tool))
        if found is not None and found[0] is tool and found[1] == limit:
            return found[2]
        limited = replace(tool, timeout=limit)
        if len(self._limited) >= KEPT:
            self._limited.clear()
        self._limited[id(tool)] = (tool, limit, limited)
        return limited

    def _now(self) -> int:
        return time.time_ns() // 1000 if self._rein is None else self._rein.clock()

    def _beginning(self, session: str) -> int:
        """When a session began, microseconds."""
        began = self._begun.get(session)
        if began is None:
            row = self._rein.store.session(session) if self._rein is not None else None
            began = self._now() if row is None else row.created
            if len(self._begun) >= KEPT:
                self._begun.clear()
            if row is not None:
                self._begun[session] = began
        return began
