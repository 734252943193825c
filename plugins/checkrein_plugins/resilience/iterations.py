"""IterationLimit: how often a model may ask for tools in one session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Never

from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call, Outcome
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Hold, Measured, PostVerdict, PreVerdict
from checkrein_plugins._config import (
    Name,
    Settings,
    read,
    refuse_twins,
    refuse_unknown,
)

if TYPE_CHECKING:
    from checkrein.rein import Rein


class _Settings(Settings):
    iterations: Annotated[StrictInt, Field(ge=0)]
    final_answer: StrictBool = True
    halt: StrictBool = True
    name: Name = "iterations"


class IterationLimit(Plugin):
    """Ends an agent loop that does not come to an end.

    An iteration is one model call of the session that asks for tools. `final_answer`: after the
    last one the model may be called once more; if it asks for tools again, its answer is withheld.
    `halt`: end the run (default). Counted with `Hold`: exact over threads and processes.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        iterations: int,
        final_answer: bool = True,
        halt: bool = True,
        name: str = "iterations",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "iterations", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "iterations": iterations,
                "final_answer": final_answer,
                "halt": halt,
                "name": name,
            },
            "iterations",
        )
        self.name = settings.name
        self._most = settings.iterations
        self._extra = int(settings.final_answer)
        self._halt = settings.halt
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name: they would share a counter."""
        refuse_twins(rein, self)
        self._rein = rein

    def pre_call(self, call: Call) -> PreVerdict:
        """Hold one iteration; it is given back if the model asks for no tools."""
        if call.kind != "model" or call.guard:
            return None
        return Hold(
            self._account(call),
            1,
            "calls",
            self._most + self._extra,
            settle="measured",
            rule=f"{self.name}/limit",
            halt=self._halt,
            on_refused="wait",
            reason=self._told(),
            code="iteration_limit",
        )

    def measure(self, call: Call, outcome: Outcome) -> Measured | None:
        """Whether it was one. What cannot be read counts."""
        if call.kind != "model" or call.guard:
            return None
        asked = outcome.error is None and asks_for_tools(outcome.value) is not False
        return Measured(amounts={self._account(call): int(asked)})

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Withhold what asks for tools after the last iteration."""
        if call.kind != "model" or call.guard or not self._extra or self._rein is None:
            return None
        if outcome.error is not None or asks_for_tools(outcome.value) is False:
            return None
        balance = self._rein.store.balance(self._account(call))
        if balance is None or balance.spent <= self._most:
            return None
        return Deny(self._told(), rule=f"{self.name}/limit", halt=self._halt)

    def _account(self, call: Call) -> str:
        return f"{self.name}/session/{call.session}"

    def _told(self) -> str:
        return f"the model has asked for tools {self._most} times in this session"


def asks_for_tools(answer: Any) -> bool | None:
    """Whether a model's answer asks for tools, in the shapes of the common providers.

    None where that cannot be told.
    """
    if answer is None:
        return None
    if isinstance(answer, str):
        return False
    if isinstance(answer, (list, tuple)):
        found = [asks_for_tools(item) for item in answer]
        return True if True in found else None if None in found else False
    calls = _get(answer, "tool_calls")
    if calls:
        return True
    known = calls is not None
    for name in ("choices", "output", "content", "parts", "message", "candidates", "generations"):
        inner = _get(answer, name)
        if isinstance(inner, str):
            known = True
        elif inner is not None:
            known = True
            if _inner(inner):
                return True
    return False if known else _kind(answer)


def _inner(value: Any) -> bool:
    """Whether any part asks for a tool."""
    if isinstance(value, (list, tuple)):
        return any(_inner(item) for item in value)
    if value is None or isinstance(value, (str, bytes, int, float)):
        return False
    return asks_for_tools(value) is True


def _kind(part: Any) -> bool | None:
    """One part of an answer, by its type."""
    kind = _get(part, "type")
    if isinstance(kind, str):
        return kind.endswith(("tool_call", "tool_use", "function_call", "function", "_call"))
    if _get(part, "function_call", "functionCall") is not None:
        return True
    return False if _get(part, "text") is not None else None


def _get(source: Any, *names: str) -> Any:
    for name in names:
        value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None and not callable(value):
            return value
    return None
