"""One way into the engine, and what the code that runs inside a call knows of it."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from checkrein.call import Call, CallKind, Outcome, Usage
from checkrein.errors import Denied
from checkrein.undo import MISSING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from checkrein.session import Session
    from checkrein.tools import Tool
    from checkrein.verdicts import Ask

CURRENT: contextvars.ContextVar[tuple[str, str, Any, CallKind] | None] = contextvars.ContextVar(
    "checkrein_call", default=None
)
"""(session, call, the same of the enclosing call, kind) that this code runs inside."""


def outermost(session: str) -> str:
    """The outermost call of `session` that this code runs inside; empty if there is none."""
    found = ""
    current = CURRENT.get()
    while current is not None:
        if current[0] == session:
            found = current[1]
        current = current[2]
    return found


def inside(session: str) -> bool:
    """Whether this code runs inside a call of `session`, at any depth."""
    return outermost(session) != ""


def in_model_call(session: str) -> bool:
    """Whether this code is what a model call of `session` runs: it has been judged already."""
    current = CURRENT.get()
    return current is not None and current[0] == session and current[3] == "model"


def undone_around() -> str:
    """Session whose effect the undo takes back that this code runs inside; empty if none."""
    current = CURRENT.get()
    while current is not None:
        if ".undo." in current[1]:
            return str(current[0])
        current = current[2]
    return ""


_EMPTY: Mapping[str, str] = MappingProxyType({})
OPTIONS: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "checkrein_options", default=_EMPTY
)
"""Settings for the calls inside a block (`rein.options`)."""


class Entry:
    """One way into the engine: what an adapter, `rein.call` or a rollback wants run.

    A plain class with defaults on the class: an entry of `rein.call` then sets three fields
    instead of twenty.
    """

    def __init__(
        self, tool: Tool, arguments: dict[str, Any], session: Session, **settings: Any
    ) -> None:
        self.tool = tool
        self.arguments = arguments
        self.session = session
        if not settings.keys() <= _SETTINGS:
            raise TypeError(f"Entry has no setting {sorted(settings.keys() - _SETTINGS)}")
        self.__dict__.update(settings)

    kind: CallKind = "tool"
    name: str = ""
    """Model name for `kind="model"`; the tool's name otherwise."""
    run: Callable[[Call, dict[str, Any]], Any] | None = None
    """Executes the final call; None = the tool's own function."""
    is_async: bool = False
    """Whether `run` gives an awaitable."""
    only_reads: bool = False
    """`run` changes nothing in its arguments and hands them to nobody: it needs no copy."""
    call_id: str = ""
    """Derived from the framework's own ids, so that a resumed run finds its earlier self."""
    keyed: bool = False
    """`call_id` is such a key: a finished call with it is answered from the journal."""
    tried: int = 0
    """Attempts that the journal holds under this key; the engine fills it in."""
    parent: str = ""
    task: str = ""
    agent: str = ""
    """Who acts, where several agents share the session; empty for the session's own."""
    guard: str = ""
    """The plugin that asks a model for itself: see `Call.guard`."""
    asks: Sequence[tuple[str, Ask]] = ()
    """(who, what): questions of the framework's own, beside those of the plugins."""
    asks_only: bool = False
    """Stop before the intent: a framework wants to know first whether a person has to decide."""
    labels: Mapping[str, str] = _EMPTY
    wait: str = ""
    """`block`, `suspend`, or empty for the session's setting."""
    can_suspend: bool = False
    """The framework can pause a run here (`auto` then suspends)."""
    timeout: float | None = None
    signals: tuple[type[BaseException], ...] = ()
    """Control-flow exceptions of the framework: passed through, recorded as paused."""
    dump: Callable[[Any], Any] | None = None
    """Plain data for a result of the framework's own type; `load` is its inverse."""
    load: Callable[[Any], Any] | None = None
    raw: Callable[[Any], Any] | None = None
    """The tool's own result behind the value that the framework gives: undo plans use it."""
    usage: Callable[[Any], Usage | None] | None = None
    """Reads what the call used from its result, in place of the tool's own `usage`."""
    paid: Callable[[], Usage | None] | None = None
    """What a model call used that ended in an error: an answer that was blocked is paid for."""
    said: Callable[[], str | None] | None = None
    """What came of a streamed answer that broke off, or whose usage nobody reported: its tokens
    are counted. None where the provider's report stands, and where nothing came."""
    stream: Callable[[Call, dict[str, Any], float | None], Awaitable[Any]] | None = None
    """Executes the final call piece by piece, in place of `run`; its third argument is the
    timeout, and it raises `Abandoned` where that is over."""
    left: Callable[[], Future[Any] | None] | None = None
    """The end of a tool that goes on in a thread of the framework after its call was given up."""
    approved: tuple[str, ...] = ()
    """Ids of the approvals under which this call runs."""
    grants: tuple[str, ...] = ()
    """Ids of the standing grants by which nobody was asked."""
    begun: tuple[Call, list[Any]] | None = None
    """The call, and what the first plugins have said of it (or `HookFailed`): not asked again."""
    role: str = ""
    """What the attempt is on the bill: `fallback`, or empty for what it can be told from."""
    unreadable: bool = False
    """What it reported of its usage is none: it is charged at its hold, and marked."""
    mark: str = ""
    """Under which `Session.running` knows this run."""
    refusal: Denied | None = None
    """The limit that something which has happened already went over."""
    asked_again: bool = False
    """The plugins were asked again because a limit was used up meanwhile."""
    happened: bool = False
    """It has been done and paid for already: it is recorded, and nothing can refuse it."""
    whole: bool = True
    """What the tool gives is all of its result, and can be given again."""
    unrecorded: bool = False
    """The store could not be reached, and the call runs all the same (`failure_mode="open"`)."""
    before: Any = MISSING
    """The state before the change, where the tool has it read."""
    admit: bool = True
    fence: int | None = -1
    """-1: the session's own; None: not checked."""


_SETTINGS = frozenset(vars(Entry))
"""What an entry can be made with, beside its first three fields."""


def seen(outcome: Outcome) -> Outcome:
    """The outcome as its caller sees it: an error is raised."""
    if outcome.error is not None:
        raise outcome.error
    return outcome


def ended(outcome: Outcome | None, problem: BaseException | None) -> bool:
    """Whether a call that was only asked about has come to its end: refused, or answered.

    Nothing more comes of it then, and it is told like any other.
    """
    return isinstance(problem, Denied) or (outcome is not None and outcome.source != "")
