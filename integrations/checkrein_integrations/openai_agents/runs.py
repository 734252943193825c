"""One run of an agent: its session, and ids of calls that stay the same when it is run again."""

from __future__ import annotations

import contextvars
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checkrein.session import active
from checkrein_integrations._shared.keys import key_digest

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Outcome
    from checkrein.errors import Denied
    from checkrein.session import Session

RUN: contextvars.ContextVar[Run | None] = contextvars.ContextVar(
    "checkrein_openai_agents_run", default=None
)
"""The run that this code is part of."""
SCOPE: contextvars.ContextVar[str] = contextvars.ContextVar(
    "checkrein_openai_agents_scope", default=""
)
"""Key of the tool call inside which an inner agent runs; empty for the outer agent."""

_numbers: weakref.WeakKeyDictionary[Session, int] = weakref.WeakKeyDictionary()


class Run:
    """One run, from its first call to its end, however often it is interrupted.

    The calls of a run are told apart by what they are, and by how many equal ones came before:
    who runs the same agent again on the same input meets the same ids, and gets what is
    recorded under them.
    """

    def __init__(
        self, session: Session, number: int, counts: Mapping[str, int] | None = None
    ) -> None:
        self.session = session
        self.number = number
        """Running number of the run in its session."""
        self.counts: Counter[str] = Counter(counts or {})
        self.waits: dict[str, list[str]] = {}
        """Token of an approval -> [id of the tool call, name of its tool]."""
        self.decided: dict[str, Denied | Outcome] = {}
        """What became of calls that were decided before the SDK wanted them run."""

    def key(self, kind: str, arguments: Mapping[str, Any], *about: str) -> tuple[str, str]:
        """(mark, key): the mark is the same for equal calls, the key tells them apart."""
        session = self.session
        mark = key_digest(
            session.rein.store.key, arguments, session.id, str(self.number), SCOPE.get(), kind,
            *about,
        )  # fmt: skip
        count = self.counts[mark]
        return mark, f"oa-{mark}-{count}" if count else f"oa-{mark}"


def begin(session: Session) -> Run:
    """A new run in a session."""
    number = _numbers[session] = _numbers.get(session, 0) + 1
    return Run(session, number)


def run_of(rein: Rein) -> Run | None:
    """The run of this Rein that this code is part of."""
    run = RUN.get()
    if run is None or run.session.rein is not rein:
        return None
    session = active(rein)
    return run if session is None or session is run.session else None


def continued(session: Session, number: int, counts: Mapping[str, int]) -> Run:
    """A run that was interrupted, perhaps in another process."""
    _numbers[session] = max(number, _numbers.get(session, 0))
    return Run(session, number, counts)


def acting(session: Session, agent: str) -> dict[str, str]:
    """The label by which the journal names who acts, where it is not the session's own agent."""
    return {} if agent in ("", session.agent) else {"agent": agent}
