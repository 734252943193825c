"""A call whose beginning and end are told by two callbacks, in one pass through the engine.

The engine is a coroutine. At the point where the tool would run it is left suspended, holding
its committed intent, and goes on when the end or the error of the tool is told.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from checkrein._io import SyncIO
from checkrein.errors import ConfigError
from checkrein_integrations.langchain.execution import NothingRan

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Outcome
    from checkrein.engine import Entry


class Uncarried(NothingRan):
    """A verdict that a callback cannot carry out."""


class _Running:
    """Awaited where the tool runs; resumed with its result."""

    def __await__(self) -> Generator[None, Any, Any]:
        return (yield)


class _StepIO(SyncIO):
    """As the sync port, but suspends at `_Running`."""

    async def call(
        self,
        fn: Callable[[], Any],
        *,
        timeout: float | None,
        is_async: bool,
        late: Callable[[Future[Any]], None],
        own: bool = False,
    ) -> Any:
        if is_async:
            # Only an entry of ours is async here; somebody else's execution has no timeout.
            value = fn()
            return await value if isinstance(value, _Running) else value
        return await super().call(fn, timeout=timeout, is_async=is_async, late=late, own=own)


class Step:
    """One call between its two callbacks."""

    def __init__(self, rein: Rein, entry: Entry) -> None:
        self._begun = False
        given, name = dict(entry.arguments), entry.name or entry.tool.info.name

        def run(call: Any, exact: dict[str, Any]) -> _Running:
            if self._begun:
                raise Uncarried("a plugin wants another attempt, which nobody here can make")
            if exact != given or call.name != name:
                raise Uncarried("a plugin rewrites this call")
            self._begun = True
            return _Running()

        self.name = name
        entry.run, entry.is_async = run, True
        self._io = _StepIO(rein.store, rein.portal)
        self._coroutine = rein.engine.outcome(cast("Any", self._io), entry)
        # A context of its own: the two callbacks may come in different ones.
        self._context = contextvars.copy_context()

    def begin(self) -> None:
        """Check and commit the intent. Raises what stops the call."""
        try:
            self._context.run(self._coroutine.send, None)
        except StopIteration as done:
            outcome: Outcome = done.value
            if outcome.error is not None and not isinstance(outcome.error, Uncarried):
                raise outcome.error from None
            raise self._uncarried("rewrites or answers") from None

    def end(self, value: Any) -> None:
        """The tool returned. Raises what `post_call` makes of it."""
        outcome = self._finish(self._coroutine.send, value)
        if isinstance(outcome.error, Uncarried):
            raise self._uncarried("repeats")
        if outcome.error is not None:
            raise outcome.error
        if outcome.value is not value:
            raise self._uncarried("replaces the result of")

    def fail(self, error: BaseException) -> None:
        """The tool raised. Raises what `post_call` makes of it."""
        try:
            outcome = self._finish(self._coroutine.throw, error)
        except BaseException as raised:
            if raised is not error:
                raise
            return
        if isinstance(outcome.error, Uncarried):
            raise self._uncarried("repeats")
        if outcome.error is not None and outcome.error is not error:
            raise outcome.error

    def _finish(self, resume: Callable[[Any], Any], value: Any) -> Outcome:
        try:
            self._context.run(resume, value)
        except StopIteration as done:
            return cast("Outcome", done.value)
        raise RuntimeError(f"{self.name}: the engine did not come to its end: please report this")

    def _uncarried(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self.name}: a plugin {what} this call, which a callback handler cannot do; use "
            "CheckreinMiddleware or supervise_tool"
        )
