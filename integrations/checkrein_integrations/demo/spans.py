"""Spans of the demo: kept for the printed tree, and sent to a collector if asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from checkrein.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider


class Spans:
    """A tracer provider of the demo's own, if somebody wants to see spans."""

    def __init__(self, *, keep: bool, otlp: str | None) -> None:
        self.provider: TracerProvider | None = None
        self._kept: Any = None
        self.sent = 0
        """Spans that the collector took."""
        if not keep and otlp is None:
            return
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        except ImportError as error:
            raise ConfigError(
                f"--spans and --otlp need the extra otel ({error}): pip install 'checkrein[otel]'"
            ) from error
        provider = TracerProvider(resource=Resource.create({"service.name": "refund-desk"}))
        self.provider = provider
        self._kept = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        if otlp is not None:
            provider.add_span_processor(BatchSpanProcessor(_exporter(otlp, self._arrived)))

    def _arrived(self, count: int) -> None:
        self.sent += count

    def finished(self) -> list[Any]:
        """Every finished span, oldest first."""
        return [] if self._kept is None else list(self._kept.get_finished_spans())

    def tree(self) -> list[str]:
        """Lines of the tree of spans."""
        inner: dict[int, list[Any]] = {}
        for span in sorted(self.finished(), key=lambda s: s.start_time):
            inner.setdefault(span.parent.span_id if span.parent else 0, []).append(span)
        lines: list[str] = []

        def walk(parent: int, depth: int) -> None:
            for span in inner.get(parent, ()):
                took = (span.end_time - span.start_time) / 1e6
                state = span.attributes.get("checkrein.effect.state", "")
                failed = span.attributes.get("error.type", "")
                told = " ".join(filter(None, (state, failed)))
                lines.append(f"{'  ' * depth}{span.name}  {took:.1f} ms  {told}".rstrip())
                walk(span.context.span_id, depth + 1)

        walk(0, 0)
        return lines

    def close(self) -> None:
        """Send what is still waiting."""
        if self.provider is not None:
            self.provider.shutdown()


def _exporter(url: str, arrived: Callable[[int], None]) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError as error:
        raise ConfigError(
            f"--otlp needs the extra otel ({error}): pip install 'checkrein[otel]'"
        ) from error
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--otlp {url}: must be an http:// or https:// address")
    if not url.rstrip("/").endswith("/v1/traces"):
        url = url.rstrip("/") + "/v1/traces"

    class Counting(OTLPSpanExporter):
        """Counts what was taken: an exporter itself only logs what was not."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            if result is SpanExportResult.SUCCESS:
                arrived(len(spans))
            return result

    return Counting(endpoint=url, timeout=5)
