"""What came of a tool call: the framework's own form of it, beside the value that plugins see."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from checkrein_integrations.langchain import results
from checkrein_integrations.langchain.execution import NOTHING

if TYPE_CHECKING:
    from checkrein.call import Outcome
    from checkrein.session import Session
    from checkrein_integrations.langchain.execution import Execution


class Landed:
    """The way back of one tool call; how it is made is the subclasses' own."""

    __slots__ = ("call", "execution", "key", "result", "session", "value")

    call: Mapping[str, Any]
    """Its `name` and `id`, as the model gave them."""
    session: Session
    key: str

    def __init__(self) -> None:
        self.execution: Execution | None = None
        self.result: Any = NOTHING
        """What the framework made of the tool's value."""
        self.value: Any = NOTHING

    def _raw(self, value: Any) -> Any:
        execution = self.execution
        return value if execution is None or execution.raw is NOTHING else execution.raw

    def _left(self) -> Future[Any] | None:
        return None if self.execution is None else self.execution.end

    def _dump(self, value: Any) -> Any:
        result = self.result
        if result is NOTHING or value is not self.value:
            result = self._replaced(value)
        return results.dumped(value, result)

    def _replaced(self, value: Any) -> Any:
        return results.replaced(None if self.result is NOTHING else self.result, value, self.call)

    def given(self, outcome: Outcome) -> Any:
        """What the graph, or whoever called the tool, gets for an outcome."""
        self.session.waiting.discard(self.key)
        value = outcome.value
        if isinstance(value, results.Stored):
            return value.result
        if self.result is not NOTHING and value is self.value:
            return self.result
        return self._shown(value)

    def _shown(self, value: Any) -> Any:
        """A value that a plugin put there, or that is no longer the tool's, for the caller."""
        return self._replaced(value)
