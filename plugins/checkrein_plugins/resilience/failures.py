"""FailureHandler: what a caller gets when a tool fails or a limit is hit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Never, TypeAlias, get_args

from pydantic import Field

from checkrein._config_model import near
from checkrein.call import Call, Outcome
from checkrein.errors import BudgetExceeded, CheckreinError, ConfigError, Denied
from checkrein.hooks import Plugin, hookimpl
from checkrein.verdicts import (
    REFUSAL_CODES,
    Answer,
    DeniedVerdict,
    Deny,
    PostVerdict,
    Replace,
)
from checkrein_plugins._config import (
    Name,
    Settings,
    Text,
    Texts,
    listed,
    read,
    refuse_unknown,
)
from checkrein_plugins._selection import selected

if TYPE_CHECKING:
    from checkrein.rein import Rein

Action: TypeAlias = Literal["raise", "return_error", "best_effort", "halt"]

KINDS = ("error", "timeout", "limit", "denied", *REFUSAL_CODES)
"""`error` and `timeout` of tools; `limit`: any limit, or one by its code; `denied`: a check."""

_SEARCHED = 512
"""Calls of the session among which the last good result of a tool is looked for."""


class _Settings(Settings):
    on: Annotated[dict[Text, Text], Field(min_length=1)]
    tools: Texts | None = None
    exempt: Texts | None = None
    name: Name = "failures"


class FailureHandler(Plugin):
    """Turns failures of tools, and refusals, into what the agent can work with.

    `on`: an action for each kind of failure: `error` and `timeout` of a tool, `limit` (any
    limit, or one by its code: `budget_exceeded`, `rate_limited`, `circuit_open`,
    `iteration_limit`, `possible_duplicate`, `repeated_call`) and `denied` (any other check).

    `raise` changes nothing. `return_error` gives `{"error": ..., "message": ..., "tool": ...}`.
    `best_effort` gives `{"best_effort": true, "value": ..., "reason": ...}`: what the error
    carries as `partial`, else the last good result of the same tool in this session, as its caller
    saw it; without either it is an error. `halt` ends the run.

    Tools only; for a model, `halt` is the one action that applies. What is known of the effect,
    what is counted and what is recorded stay as they are.

    Raises `ConfigError` for an unknown kind or action.
    """

    rewrites = True

    def __init__(
        self,
        *,
        on: Mapping[str, Action],
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        name: str = "failures",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "failures", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {"on": dict(on), "tools": listed(tools), "exempt": listed(exempt), "name": name},
            "failures",
        )
        actions = get_args(Action)
        for kind, action in settings.on.items():
            if kind not in KINDS:
                raise ConfigError(
                    f"failures.on.{kind}: unknown kind of failure{near(kind, list(KINDS))}; "
                    f"known: {', '.join(KINDS)}"
                )
            if action not in actions:
                raise ConfigError(
                    f"failures.on.{kind}: unknown action{near(action, list(actions))}; "
                    f"known: {', '.join(actions)}"
                )
        self.name = settings.name
        self._on = dict(settings.on)
        self._looks = selected(settings.tools, settings.exempt, "failures")
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """The last good results are in the Rein's journal."""
        self._rein = rein

    # Last: what others say of the failure itself (Retry, for example) comes first.
    @hookimpl(trylast=True)
    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """What the caller of a tool that failed gets."""
        error = outcome.error
        if not isinstance(error, Exception) or isinstance(error, CheckreinError):
            return None
        kind = "timeout" if isinstance(error, TimeoutError) else "error"
        action = self._action(call, self._on.get(kind))
        if action == "halt":
            told = f"{call.name} failed with {type(error).__name__}"
            return Deny(told, rule=f"{self.name}/{kind}", halt=True)
        if action in (None, "raise"):
            return None
        message = str(self._shown(call, str(error)))
        partial = getattr(error, "partial", None)
        if partial is not None:
            partial = self._shown(call, partial)
        return Replace(self._value(call, action, kind, message, partial))

    def on_denied(self, call: Call, denied: Denied) -> DeniedVerdict:
        """What the caller of a call that was refused gets."""
        wanted = self._on.get(denied.code)
        if wanted is None:
            wanted = self._on.get("limit" if isinstance(denied, BudgetExceeded) else "denied")
        action = self._action(call, wanted)
        if action == "halt":
            return Deny(denied.reason, rule=denied.rule, halt=True)
        if action in (None, "raise"):
            return None
        value = self._value(call, action, denied.code, denied.refusal(), None)
        return Answer(value, source=self.name)

    def _action(self, call: Call, wanted: str | None) -> str | None:
        if wanted is None or call.kind == "undo" or call.guard:
            return None
        if call.kind == "model":
            return wanted if wanted == "halt" else None
        return wanted if self._looks(call.name) else None

    def _value(
        self, call: Call, action: str | None, kind: str, message: str, partial: Any
    ) -> dict[str, Any]:
        error = {"error": kind, "message": message, "tool": call.name}
        if action != "best_effort":
            return error
        if partial is not None:
            return {"best_effort": True, "value": partial, "partial": True, "reason": message}
        found = self._last_good(call)
        if found is None:
            return error
        value, of = found
        return {"best_effort": True, "value": value, "of": of, "reason": message}

    def _shown(self, call: Call, value: Any) -> Any:
        """What an error says, as every plugin's `view` lets it be shown: it may hold data."""
        return value if self._rein is None else self._rein.journal.view(call, value, "journal")

    def _last_good(self, call: Call) -> tuple[Any, str] | None:
        """(result as its caller saw it, call) of the same tool, the newest one of the session."""
        rein = self._rein
        if rein is None:
            return None
        intents = rein.store.events(
            session=call.session, kinds=("intent",), reverse=True, limit=_SEARCHED
        )
        declared = rein.tools.get(call.name)
        classes = declared.classes if declared is not None else {}
        reading = rein.read(call.session)
        for intent in intents:
            if intent.view.get("name") != call.name or intent.call == call.id:
                continue
            try:
                return reading.result(intent.call, classes, seen=True), intent.call
            except CheckreinError:
                # It failed, was withheld or was not kept: an earlier one may do.
                continue
        return None
