"""One supervised execution as the code inside it sees it.

Middleware, supervised tools and callback handlers may all stand on one road to a tool. The
execution in this context variable tells the inner ones that the call was decided, charged and
recorded already. It also sees the tool's own return value and each time the tool starts: a
middleware between us and the tool may repeat it, and may turn its error into text.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from checkrein.errors import CheckreinError, ConfigError
from checkrein_integrations.langchain.signals import ending, is_signal

if TYPE_CHECKING:
    from checkrein import Rein

RUNNING: contextvars.ContextVar[Execution | None] = contextvars.ContextVar(
    "checkrein_langchain", default=None
)
NOTHING = object()


class NothingRan(Exception):
    """The framework answered in place of the tool: unknown name, arguments that do not fit."""


class Repeated(Exception):
    """A tool whose effect is unknown was about to be started again; it was not."""


class Execution:
    """One tool or model call that is running under supervision."""

    __slots__ = ("end", "error", "harmless", "inside", "kind", "name", "raw", "rein",
                 "repeatable", "repeated", "runs", "state", "threaded")  # fmt: skip

    def __init__(
        self,
        rein: Rein,
        name: str,
        kind: str = "tool",
        repeatable: bool = True,
        harmless: tuple[type[BaseException], ...] = (),
        threaded: bool = False,
        state: Any = NOTHING,
    ) -> None:
        self.rein = rein
        self.name = name
        self.kind = kind
        self.repeatable = repeatable
        self.harmless = harmless
        self.threaded = threaded
        """An async call: a sync tool of it runs in a thread that no cancellation ends."""
        self.state = state
        """The graph's state that the call was made in."""
        self.end: Future[Any] | None = None
        """The end of the tool in its thread."""
        self.inside = False
        """The tool's own code runs: what it calls are calls of their own."""
        self.runs = 0
        self.raw: Any = NOTHING
        self.error: BaseException | None = None
        """What the last start of the tool ended with."""
        self.repeated = False

    def covers(self, rein: Rein, name: str, kind: str = "tool") -> bool:
        """Whether this is the execution of that very call, seen from between us and the tool.

        Raises `ConfigError` where another Rein decides on it already.
        """
        if self.inside or self.kind != kind or (kind != "model" and self.name != name):
            return False
        if self.rein is not rein:
            raise ending(
                ConfigError(
                    f"{name or 'this model'} is supervised by another Rein already: one agent, "
                    "one Rein"
                )
            )
        return True

    def _start(self) -> None:
        if self.error is not None and not self.repeatable:
            self.repeated = True
            raise Repeated(self.name)
        self.runs += 1
        self.error = None
        self.raw = NOTHING
        self.inside = True

    def _failed(self, error: BaseException) -> BaseException:
        if is_signal(error):
            return error
        if not isinstance(error, self.harmless):
            self.error = error
        return ending(error) if isinstance(error, CheckreinError) else error

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the tool's own code."""
        self._start()
        end = self.end = Future() if self.threaded else None
        try:
            self.raw = body()
        except BaseException as error:  # noqa: BLE001 - raised again
            if end is not None:
                end.set_exception(error)
            raise self._failed(error)  # noqa: B904 - the same error
        finally:
            self.inside = False
        if end is not None:
            end.set_result(self.raw)
        return self.raw

    async def arun(self, body: Callable[[], Awaitable[Any]]) -> Any:
        """The async twin of `run`."""
        self._start()
        try:
            self.raw = await body()
        except BaseException as error:  # noqa: BLE001 - raised again
            raise self._failed(error)  # noqa: B904 - the same error
        finally:
            self.inside = False
        return self.raw


def covered(rein: Rein, name: str, kind: str = "tool") -> bool:
    """Whether the call that is about to start was taken in charge further out.

    Raises `ConfigError` where another Rein has it in charge.
    """
    execution = RUNNING.get()
    return execution is not None and execution.covers(rein, name, kind)


def first(rein: Rein, name: str, state: Any, kind: str = "tool") -> None:
    """Raise `ConfigError` where middleware of ours stands further out on the same agent.

    `state` is the graph's at this call: an agent inside another one has a state of its own.
    """
    execution = RUNNING.get()
    if execution is not None and execution.state is state and execution.covers(rein, name, kind):
        raise ending(
            ConfigError(
                "CheckreinMiddleware stands on this agent twice: a call would be decided and "
                "charged twice; leave one"
            )
        )
