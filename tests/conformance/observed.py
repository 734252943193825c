"""What came of a run: the world, the model's and the user's view, journal, spans and spend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


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

    def tree(self) -> list[str]:
        """`depth name !error` of each span, in order of their beginning."""
        spans = sorted(self._exporter.get_finished_spans(), key=lambda s: s.start_time or 0)
        depth: dict[int, int] = {}
        found = []
        for span in spans:
            parent = span.parent.span_id if span.parent is not None else 0
            depth[span.context.span_id] = depth.get(parent, -1) + 1
            error = (span.attributes or {}).get("error.type")
            found.append(
                "  " * depth[span.context.span_id] + span.name + (f" !{error}" if error else "")
            )
        return found

    def text(self) -> str:
        """All that the spans hold."""
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


def rows(rein: Any, session: str) -> tuple[list[str], list[str]]:
    """(tool calls, model calls) of a session and of those inside it, in order of their start."""
    events = [e for e in rein.store.events(limit=10_000) if e.call]
    by_call: dict[str, list[Any]] = {}
    for event in events:
        by_call.setdefault(event.call, []).append(event)
    tools: list[str] = []
    models: list[str] = []
    for found in by_call.values():
        about = next((e.view for e in found if "name" in e.view), {})
        if about.get("kind") == "undo":
            continue
        words = [word for word in map(_word, found) if word]
        told = " ".join([str(about.get("name", "?")), *words])
        (models if about.get("kind") == "model" else tools).append(told)
    return tools, models


def _word(event: Any) -> str:
    view = event.view
    if event.kind == "outcome":
        error = (view.get("error") or {}).get("type")
        return f"outcome:{view['state']}" + (f" !{error}" if error else "")
    if event.kind == "denied":
        return f"denied:{view['code']}"
    if event.kind.startswith("undo") or event.kind in ("plan_skipped",):
        return ""
    if event.kind == "amended" and view.get("error"):
        return f"amended !{view['error']['type']}"
    return str(event.kind)


def state_of(rein: Any, session: str) -> str:
    """State of a session and, where there is one, of its rollback."""
    row = rein.store.session(session)
    return " ".join(filter(None, [row.state, row.rollback])) if row is not None else "none"


def shown_by(rein: Any, spans: Spans, ran: Ran) -> str:
    """All that people may see of a run."""
    views: Sequence[Any] = [event.view for event in rein.store.events(limit=10_000)]
    return "\n".join([str(views), spans.text(), str(ran.final), str(ran.error or "")])
