"""What a scenario is: policy, scripted model turns and tools, with one expected result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

MODEL = "scripted-1"
"""Name of the scripted model in every framework."""
INPUT, OUTPUT = 10, 5
"""Tokens that every scripted answer reports."""


@dataclass(frozen=True)
class Ask:
    """A tool call that the scripted model asks for."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def use(tool: str, /, **arguments: Any) -> Ask:
    """A tool call of a scripted turn."""
    return Ask(tool, arguments)


Turn: TypeAlias = "str | Ask | tuple[Ask, ...] | Exception"
"""One answer of the model: text, tool calls, or what its provider raises."""


@dataclass(frozen=True)
class Says:
    """Matches a text that holds all of these: where a framework words the rest itself."""

    parts: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and all(part in other for part in self.parts)

    def __hash__(self) -> int:
        return hash(self.parts)

    def __str__(self) -> str:
        return "".join(self.parts)


def says(*parts: str) -> Says:
    """See `Says`."""
    return Says(parts)


@dataclass(frozen=True)
class Expect:
    """The one result of a scenario, in all frameworks and forms."""

    effects: Sequence[str] = ()
    """What happened to the world, in order: `pay ann 5`; `-pay ann 5` where it was undone."""
    saw: Sequence[str | Says] = ()
    """What the model read as result of each tool call, in the order of its calls."""
    journal: Sequence[str] = ()
    """One row for each tool call: its name, its events, and after `!` the error that ended it.

    `> ` before it: a call of the agent inside the tool `delegate`.
    """
    models: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    """The same for model calls, or by form; None: one `intent outcome:done` for each turn."""
    final: str | Says | None = "done"
    """The answer that the user gets; None where the run ended otherwise."""
    end: str = "done"
    """`done`, or the error that the user's call raises."""
    session: str = "COMPLETED"
    """State of the session, and what its rollback came to."""
    usd: float = 0.0
    """Dollars of each finished model call."""
    tokens: int | None = None
    """None: those of the finished model calls."""
    never_sent: Sequence[str] = ()
    """What no request to the model may hold."""
    never_shown: Sequence[str] = ()
    """What neither the journal, the spans nor the user may see."""
    never_delivered: Sequence[str] = ()
    """What the user must not get, in pieces or as a whole."""
    only_spans: Sequence[str] | None = None
    """All spans, where they do not follow from the rows."""
    more_spans: Sequence[str] = ()
    """Spans that no row of the journal stands for."""
    unordered: bool = False
    """Which of the parallel calls got what is left to chance; how many got it is not."""


@dataclass(frozen=True)
class Scenario:
    """One behaviour, written once."""

    name: str
    about: str
    turns: Sequence[Turn]
    expect: Expect
    plugins: Callable[[], Sequence[Any]] = tuple
    tools: Sequence[str] = ("pay", "note", "tick")
    declare: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of `rein.declare` for tools by name, beside the world's own."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the Rein."""
    user: str = "go"
    errors: Literal["told", "raised"] = "told"
    """Whether the framework is set to tell the model of a tool's error, or to raise it."""
    inner: Sequence[Turn] = ()
    """Turns of a second agent that the tool `delegate` runs."""
    decide: Callable[[Any, Any], None] | None = None
    """Called with (rein, pending request) for each call that is paused, before the resume."""
    modes: Sequence[str] = ("sync", "async")
    forms: Sequence[str] = ("sequential", "parallel")
    dies: tuple[Literal["intent", "outcome"], str, int] | None = None
    """When the process is killed, and another one goes on: after the intent, or before the
    outcome, of the call of that tool (or `model`) with that number."""
    cancel: bool = False
    """The caller cancels the run while a tool is running."""
    covers: str = ""


@dataclass(frozen=True)
class Variant:
    """One way of running a scenario."""

    mode: str = "sync"
    form: str = "sequential"
    streamed: bool = False
    style: str = "native"

    def __str__(self) -> str:
        parts = [self.mode, self.form]
        if self.streamed:
            parts.append("streamed")
        if self.style != "native":
            parts.append(self.style)
        return "-".join(parts)


def shaped(turns: Sequence[Turn], form: str) -> list[tuple[Ask, ...] | str | Exception]:
    """The turns of a form: sequential gives every tool call a turn of its own."""
    found: list[tuple[Ask, ...] | str | Exception] = []
    for turn in turns:
        if isinstance(turn, Ask):
            found.append((turn,))
        elif isinstance(turn, tuple) and form == "sequential":
            found += [(ask,) for ask in turn]
        else:
            found.append(turn)
    return found


def has_parallel(scenario: Scenario) -> bool:
    """Whether a turn asks for several calls at once."""
    return any(
        isinstance(turn, tuple) and len(turn) > 1 for turn in (*scenario.turns, *scenario.inner)
    )


def variants(scenario: Scenario, offered: Sequence[Variant]) -> list[Variant]:
    """Those variants in which a scenario is another one."""
    forms = scenario.forms if has_parallel(scenario) else ("sequential",)
    if not has_parallel(scenario) and "sequential" not in scenario.forms:
        forms = scenario.forms
    return [
        v for v in offered
        # Spans and what was streamed die with the process.
        if v.form in forms and v.mode in scenario.modes and not (scenario.dies and v.streamed)
    ]  # fmt: skip
