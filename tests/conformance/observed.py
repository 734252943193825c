"""What came of a run: the world, the model's and the user's view, journal, spans and spend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PAUSES = ("ApprovalPending", "GraphInterrupt")
"""Errors of spans that stand for a pause."""


@dataclass
class Ran:
    """What a driver tells of a run."""

    final: str | None = None
    error: BaseException | None = None
    saw: list[str] = field(default_factory=list)
    """Results of tool calls as the model last read them, in the order of its calls."""
    sent: str = ""
    """Everything that was ever sent to the model."""
    streamed: str | None = None
    """The last answer as it was delivered piece by piece; None where nothing is streamed."""


@dataclass
class Observed:
    """The result of a run, in the terms of `Expect`."""

    effects: list[str]
    saw: list[str]
    journal: list[str]
    models: list[str]
    final: str | None
    end: str
    session: str
    spans: list[str]
    calls: int
    tokens: int
    usd: float
    sent: str
    shown: str
    streamed: str | None


class Spans:
    """The spans of a Rein, in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def paths(self) -> list[str]:
        """One line for each span: the names from the root down, and after `!` its error.

        Sorted. A span of a call that was only paused is left out, and so are further runs of
        the same session: how often a framework asks again before it pauses is its own affair.
        """
        spans = {s.context.span_id: s for s in self._exporter.get_finished_spans()}
        found = []
        for span in spans.values():
            about = span.attributes or {}
            error = str(about.get("error.type") or "")
            if about.get("checkrein.effect.state") == "not_done":
                error = ""  # the framework's own name for what was not started
            path = [span.name + (f" !{error}" if error else "")]
            above = span
            # A run that was taken up hangs below its own beginning, or below spans of a process
            # that is gone.
            while above.parent is not None and above.parent.span_id in spans:
                below, above = above, spans[above.parent.span_id]
                if below.name == above.name and above.name.startswith("invoke_agent"):
                    continue
                path.insert(0, above.name)
            if error not in PAUSES:
                found.append("/".join(path))
        roots = {path for path in found if "/" not in path and path.startswith("invoke_agent")}
        return sorted([*roots, *(path for path in found if path not in roots)])

    def text(self) -> str:
        """All that the spans hold."""
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


def rows(rein: Any, session: str) -> tuple[list[str], list[str]]:
    """(tool calls, model calls) of a session and of those inside it, in order of their start.

    A row that begins with `> ` belongs to the tool `delegate`.
    """
    events = [e for e in rein.store.events(limit=10_000) if e.call]
    by_call: dict[str, list[Any]] = {}
    for event in events:
        by_call.setdefault(event.call, []).append(event)
    names = {e.call: e.view["name"] for e in events if e.kind == "intent"}
    tools: list[str] = []
    models: list[str] = []
    for found in by_call.values():
        about = next((e.view for e in found if "name" in e.view), found[0].view)
        if about.get("kind") == "undo":
            continue
        words = [word for word in map(_word, found) if word]
        name = str(about.get("name") or about.get("tool") or "?")
        inside = "> " if names.get(str(about.get("parent"))) == "delegate" else ""
        told = " ".join([inside + name, *words])
        (models if about.get("kind") == "model" else tools).append(told)
    return tools, models


def _word(event: Any) -> str:
    view = event.view
    if event.kind == "outcome":
        error = (view.get("error") or {}).get("type")
        named = error and view["state"] != "not_done"
        return f"outcome:{view['state']}" + (f" !{error}" if named else "")
    if event.kind == "denied":
        return f"denied:{view['code']}"
    if event.kind.startswith("undo") or event.kind == "plan_skipped":
        return ""
    if event.kind == "amended" and view.get("error"):
        return f"amended !{view['error']['type']}"
    return str(event.kind)


def state_of(rein: Any, session: str) -> str:
    """State of a session and, where there is one, of its rollback."""
    row = rein.store.session(session)
    if row is None:
        return "unknown"
    return row.state if row.rollback == "none" else f"{row.state} {row.rollback}"


def shown_by(rein: Any, spans: Spans, ran: Ran) -> str:
    """All that people may see of a run."""
    views: Sequence[Any] = [event.view for event in rein.store.events(limit=10_000)]
    return "\n".join([str(views), spans.text(), str(ran.final), str(ran.error or "")])
