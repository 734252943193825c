"""What code that runs under supervision knows of the block, the call and the model around it."""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from checkrein.session import active
from checkrein_integrations._shared.keys import key_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checkrein import Rein
    from checkrein.session import Session
    from checkrein_integrations._shared.retracting import Streams
    from checkrein_integrations.crewai.instruments import Instruments

LABEL = "crewai.role"
"""Label of calls: the role of the agent that acts. `resume` knows its own calls by it."""

SCOPE: contextvars.ContextVar[Scope | None] = contextvars.ContextVar(
    "checkrein_crewai_scope", default=None
)
"""The `supervise` block that this code runs in."""
PASS: contextvars.ContextVar[Pass | None] = contextvars.ContextVar(
    "checkrein_crewai_pass", default=None
)
"""The tool call, told by the framework's hooks, that this code runs in."""
RUNNING: contextvars.ContextVar[Running | None] = contextvars.ContextVar(
    "checkrein_crewai_running", default=None
)
"""The innermost execution that is supervised."""
LIVE: contextvars.ContextVar[Any] = contextvars.ContextVar("checkrein_crewai_model", default=None)
"""The `ModelCall` that runs."""
PLACE: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar(
    "checkrein_crewai_place", default=("", "")
)
"""(task key, agent role) of the model call that runs."""

_counters: weakref.WeakKeyDictionary[Session, Counter[str]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Running:
    """One tool that runs under supervision."""

    __slots__ = ("inside", "name", "rein")

    def __init__(self, rein: Rein, name: str) -> None:
        self.rein = rein
        self.name = name
        self.inside = False
        """The tool's own code runs: what it calls are calls of their own."""


def covered(rein: Rein, name: str) -> bool:
    """Whether the call that is about to start was taken in charge further out."""
    running = RUNNING.get()
    return (
        running is not None and running.rein is rein and not running.inside and running.name == name
    )


class Pass:
    """One tool call between the framework's hook before it and the one after it."""

    __slots__ = (
        "before",
        "entered",
        "error",
        "name",
        "place",
        "task",
        "text",
        "tool",
        "tool_input",
    )

    def __init__(self, name: str, tool: Any, tool_input: Any, task: Any, agent: Any) -> None:
        self.name = name
        self.tool = tool
        """The tool that the framework is about to call; None where it has no such tool."""
        self.tool_input = tool_input
        """Kept so that its id stays this call's: both hooks are given this very dict."""
        self.place = place_of(task, agent)
        self.task = task_of(task)
        self.entered = False
        """The tool was reached: what the engine decided is done."""
        self.error: BaseException | None = None
        """Ends the run, once the hook after the call is reached."""
        self.text: str | None = None
        """What the model is told in place of the framework's own text."""
        self.before = PASS.get()


def restart(session: Session) -> None:
    """Count the calls of a session from the beginning: its run begins anew."""
    with _lock:
        _counters.pop(session, None)


class Scope:
    """One `supervise` block."""

    def __init__(
        self,
        rein: Rein,
        session: Session,
        models: Mapping[str, Any],
        instruments: Instruments,
        streams: Streams = "auto",
    ) -> None:
        self.rein = rein
        self._session = session
        self.models = models
        self.instruments = instruments
        self.streams = streams

    def session(self) -> Session:
        """The session of a call made here: the innermost that is open, or the block's."""
        return active(self.rein) or self._session

    def key(
        self,
        session: Session,
        kind: str,
        name: str,
        place: tuple[str, str],
        arguments: Mapping[str, Any],
    ) -> str:
        """The id of a call, the same when the run is done again.

        CrewAI has no ids that outlive a run: task, agent, tool, arguments, and the how-manieth
        call of that kind in the session it is.
        """
        digest = key_digest(self.rein.store.key, arguments, session.id, kind, name, *place)
        with _lock:
            counter = _counters.get(session)
            if counter is None:
                counter = _counters[session] = Counter()
            counter[digest] += 1
            return f"crew-{digest}.{counter[digest]}"


def place_of(task: Any, agent: Any) -> tuple[str, str]:
    """(task key, role): what stays of a task and an agent when a run is built again."""
    return str(getattr(task, "key", "") or ""), str(getattr(agent, "role", "") or "").strip()


def task_of(task: Any) -> str:
    """The task's name, or the beginning of its description, for records."""
    return str(getattr(task, "name", None) or getattr(task, "description", "") or "")[:200]
