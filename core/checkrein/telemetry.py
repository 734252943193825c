"""Spans over `opentelemetry-api`: nothing at all where no SDK is configured.

Names follow the GenAI semantic conventions; what is ours stands under `checkrein.*`. Content
(arguments, results, reasons) is never put on a span here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace

if TYPE_CHECKING:
    from checkrein.call import Call, Outcome

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
TRACER = "checkrein"

_OPERATION = {"tool": "execute_tool", "model": "chat", "undo": "execute_tool"}


class Telemetry:
    """Opens and closes spans; never sets the global provider."""

    __slots__ = ("_given", "_tracer", "_tracer_of", "none")

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._given = provider
        self.none: object = None if provider is None else self
        """The value of the global provider with which nothing is recorded; itself if one was
        given."""
        self._tracer: trace.Tracer | None = None
        self._tracer_of: object = None
        if provider is None:
            # Loads a provider that the environment names, which the question below relies on.
            trace.get_tracer_provider()

    def tracer(self) -> trace.Tracer | None:
        """The tracer now, or None where nothing would be recorded.

        Looked up each time, so that an SDK which is set up later is noticed.
        """
        if self._given is None and getattr(trace, "_TRACER_PROVIDER", self) is None:
            # Nobody has set a provider: the public question would read the environment each
            # time, at ten times the price. Where the attribute is gone, it is asked all the same.
            return None
        provider = self._given or trace.get_tracer_provider()
        if provider is not self._tracer_of:
            self._tracer_of = provider
            idle = isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))
            self._tracer = (
                None
                if idle
                else trace.get_tracer(TRACER, tracer_provider=provider, schema_url=SCHEMA)
            )
        return self._tracer

    def session(self, agent: str, session: str) -> Any:
        """A started `invoke_agent` span, or None."""
        tracer = self.tracer()
        if tracer is None:
            return None
        span = tracer.start_span(f"invoke_agent {agent}".strip())
        if span.is_recording():
            span.set_attribute("gen_ai.operation.name", "invoke_agent")
            if agent:
                span.set_attribute("gen_ai.agent.name", agent)
            span.set_attribute("gen_ai.conversation.id", session)
        return span

    def call(self, call: Call) -> Any:
        """A started span for a call, or None."""
        tracer = self.tracer()
        if tracer is None:
            return None
        kind = trace.SpanKind.CLIENT if call.kind == "model" else trace.SpanKind.INTERNAL
        span = tracer.start_span(f"{_OPERATION[call.kind]} {call.name}", kind=kind)
        if span.is_recording():
            span.set_attribute("gen_ai.operation.name", _OPERATION[call.kind])
            span.set_attribute("gen_ai.conversation.id", call.session)
            span.set_attribute("checkrein.call.id", call.id)
            if call.kind == "model":
                span.set_attribute("gen_ai.request.model", call.name)
            else:
                span.set_attribute("gen_ai.tool.name", call.name)
                span.set_attribute("gen_ai.tool.call.id", call.id)
                span.set_attribute("checkrein.kind", call.kind)
            if call.agent:
                span.set_attribute("gen_ai.agent.name", call.agent)
        return span

    def verdict(self, span: Any, plugin: str, verdict: str) -> None:
        """One verdict other than None, as a span event."""
        if span is not None:
            span.add_event("checkrein.verdict", {"plugin": plugin, "verdict": verdict})

    def unchecked(self, what: list[str]) -> None:
        """What could not be checked, on the span of the call that is running."""
        if self.tracer() is not None:
            for one in what:
                told = {"plugin": one.partition(":")[0], "verdict": "unchecked"}
                trace.get_current_span().add_event("checkrein.verdict", told)

    def finish(self, span: Any, outcome: Outcome | None, error: BaseException | None) -> None:
        """Close a call's span with what became of it."""
        if span is None:
            return
        if span.is_recording():
            if outcome is not None:
                span.set_attribute("checkrein.effect.state", outcome.state)
                span.set_attribute("checkrein.source", outcome.source)
                span.set_attribute("checkrein.attempts", outcome.attempts)
                if outcome.usage is not None:
                    span.set_attribute("gen_ai.usage.input_tokens", outcome.usage.input_tokens)
                    span.set_attribute("gen_ai.usage.output_tokens", outcome.usage.output_tokens)
                if outcome.cost is not None:
                    span.set_attribute("checkrein.cost.nano_usd", outcome.cost)
            if error is not None:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
        span.end()


def enter(span: Any) -> Any:
    """Make `span` current; returns what was current before, for `leave`."""
    before = context.get_current()
    context.attach(trace.set_span_in_context(span))
    return before


def leave(span: Any, before: Any) -> None:
    """Restore what was current, if `span` still is: the block may end in another context."""
    if trace.get_current_span() is span:
        context.attach(before)


def use(span: Any) -> Any:
    """A context manager that makes `span` current; ends nothing, records no exception."""
    return trace.use_span(
        span, end_on_exit=False, record_exception=False, set_status_on_exception=False
    )
