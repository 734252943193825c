"""Spans over `opentelemetry-api`: nothing at all where no SDK is configured.

Names stand in `conventions`. Content (arguments, results, messages) is on spans only if asked for,
and then as plugins show it; reasons and texts of errors never are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace

from checkrein import conventions as names
from checkrein.counting import MEDIA
from checkrein.errors import Denied

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.context import Context

    from checkrein.call import Call, Outcome
    from checkrein.verdicts import Sink


SHORT = 256
"""Characters of an address or a name; what is longer in an image, sound or file is its data."""


class Telemetry:
    """Opens and closes spans; never sets the global provider."""

    __slots__ = (
        "_findings", "_given", "_openinference", "_tracer", "_tracer_of", "content", "none", "view"
    )  # fmt: skip

    def __init__(
        self,
        provider: trace.TracerProvider | None = None,
        *,
        content: bool = False,
        semconv: Sequence[str] = (),
    ) -> None:
        self._given = provider
        self._openinference = names.OPENINFERENCE in semconv
        self._findings = names.GUARDRAILS in semconv
        self.content = content
        """Whether arguments, results and messages are put on spans."""
        self.view: Callable[[Call, Any, Sink], Any] | None = None
        """How plugins show a value; set before the first call."""
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
                else trace.get_tracer(
                    names.SCOPE, tracer_provider=provider, schema_url=names.SCHEMA
                )
            )
        return self._tracer

    def session(self, agent: str, session: str, trace_parent: str = "") -> Any:
        """A started `invoke_agent` span, or None.

        `trace_parent`: what `place` gave in the process where the session began; the span then
        belongs to that run's trace.
        """
        tracer = self.tracer()
        if tracer is None:
            return None
        span = tracer.start_span(
            f"{names.INVOKE_AGENT} {agent}".strip(), context=_context(trace_parent)
        )
        if span.is_recording():
            span.set_attribute(names.OPERATION, names.INVOKE_AGENT)
            if agent:
                span.set_attribute(names.AGENT, agent)
            span.set_attribute(names.CONVERSATION, session)
            if self._openinference:
                span.set_attribute(names.OPENINFERENCE_KIND, "AGENT")
        return span

    def call(self, call: Call) -> Any:
        """A started span for a call, or None."""
        tracer = self.tracer()
        if tracer is None:
            return None
        model = call.kind == "model"
        operation = names.CHAT if model else names.EXECUTE_TOOL
        span = tracer.start_span(
            f"{operation} {call.name}",
            kind=trace.SpanKind.CLIENT if model else trace.SpanKind.INTERNAL,
            attributes=_about(call, operation),
        )
        if self.content and span.is_recording():
            self._asked(span, call)
        if self._openinference:
            span.set_attribute(names.OPENINFERENCE_KIND, "LLM" if model else "TOOL")
        return span

    @contextmanager
    def rollback(self, session: str, cause: str, trace_parent: str) -> Iterator[None]:
        """A span around a rollback: its undos lie in it, and it in the trace of the run."""
        tracer = self.tracer()
        if tracer is None:
            yield
            return
        inside = trace.get_current_span().get_span_context().is_valid
        span = tracer.start_span(names.ROLLBACK, context=None if inside else _context(trace_parent))
        if span.is_recording():
            span.set_attribute(names.CONVERSATION, session)
            span.set_attribute(names.CAUSE, cause)
        problem: BaseException | None = None
        try:
            with use(span):
                yield
        except BaseException as error:
            problem = error
            raise
        finally:
            self.finish(span, None, problem)

    def verdict(self, span: Any, plugin: str, verdict: str) -> None:
        """One verdict other than None, as a span event."""
        if span is None:
            return
        span.add_event(names.VERDICT_EVENT, {names.PLUGIN: plugin, names.VERDICT: verdict})
        if self._findings and verdict in names.FINDINGS:
            about = {names.GUARDRAIL: plugin, names.VERDICT_TYPE: names.FINDINGS[verdict]}
            span.add_event(names.FINDING, about)

    def unchecked(self, what: list[str]) -> None:
        """What could not be checked, on the span of the call that is running."""
        if self.tracer() is not None:
            for one in what:
                self.verdict(trace.get_current_span(), one.partition(":")[0], "unchecked")

    def approval(self, state: str) -> None:
        """A person is asked about the call that is running, or has answered."""
        if self.tracer() is not None:
            trace.get_current_span().add_event(names.APPROVAL_EVENT, {names.STATE: state})

    def finish(
        self,
        span: Any,
        outcome: Outcome | None,
        error: BaseException | None,
        call: Call | None = None,
    ) -> None:
        """Close a span with what became of it."""
        if span is None:
            return
        if span.is_recording():
            if outcome is not None:
                self._became(span, outcome)
                if self.content and call is not None and error is None:
                    self._gave(span, call, outcome)
            if error is not None:
                kind = type(error).__name__
                span.set_attribute(names.ERROR_TYPE, kind)
                if isinstance(error, Denied):
                    span.set_attribute(names.CODE, error.code)
                    span.set_attribute(names.PLUGIN, error.plugin)
                    span.set_attribute(names.RULE, error.rule)
                # Never the text: it may hold what the call was about.
                span.set_status(trace.Status(trace.StatusCode.ERROR, kind))
        span.end()

    def _became(self, span: Any, outcome: Outcome) -> None:
        span.set_attribute(names.EFFECT_STATE, outcome.state)
        span.set_attribute(names.SOURCE, outcome.source)
        span.set_attribute(names.ATTEMPTS, outcome.attempts)
        usage = outcome.usage
        if usage is not None:
            span.set_attribute(names.INPUT_TOKENS, usage.input_tokens)
            span.set_attribute(names.OUTPUT_TOKENS, usage.output_tokens)
            for name, tokens in (
                (names.CACHE_READ_TOKENS, usage.cache_read_tokens),
                (names.CACHE_WRITE_TOKENS, usage.cache_write_tokens),
            ):
                if tokens:
                    span.set_attribute(name, tokens)
            if usage.model:
                span.set_attribute(names.RESPONSE_MODEL, usage.model)
            if usage.provider:
                span.set_attribute(names.PROVIDER, usage.provider)
        if outcome.cost is not None:
            span.set_attribute(names.COST, outcome.cost)
        if outcome.cost_state is not None:
            span.set_attribute(names.COST_STATE, outcome.cost_state)

    # -- content, where it was asked for

    def _asked(self, span: Any, call: Call) -> None:
        if call.kind != "model":
            span.set_attribute(names.TOOL_ARGUMENTS, self._shown(call, call.arguments))
            return
        for name, key in (
            (names.SYSTEM_INSTRUCTIONS, "system"),
            (names.INPUT_MESSAGES, "messages"),
        ):
            if call.arguments.get(key):
                span.set_attribute(name, self._shown(call, _without_media(call.arguments[key])))

    def _gave(self, span: Any, call: Call, outcome: Outcome) -> None:
        name = names.OUTPUT_MESSAGES if call.kind == "model" else names.TOOL_RESULT
        span.set_attribute(name, self._shown(call, outcome.value))

    def _shown(self, call: Call, value: Any) -> str:
        """Viewed by every plugin, then bounded; binary as its type and size."""
        assert self.view is not None
        return json.dumps(self.view(call, value, "span"), ensure_ascii=False, default=str)


def _about(call: Call, operation: str) -> dict[str, Any]:
    about: dict[str, Any] = {
        names.OPERATION: operation,
        names.CONVERSATION: call.session,
        names.CALL: call.id,
        names.STEP: call.step,
    }
    if call.kind == "model":
        about[names.REQUEST_MODEL] = call.name
    else:
        about[names.TOOL] = call.name
        about[names.TOOL_CALL] = call.id
        about[names.TOOL_TYPE] = "function"
        about[names.KIND] = call.kind
    if call.agent:
        about[names.AGENT] = call.agent
    return about


def _without_media(value: Any) -> Any:
    """Messages whose images, sounds and files are told by type and size."""
    if isinstance(value, (list, tuple)):
        return [_without_media(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("type") in MEDIA:
        return {k: f"[{len(v)} long]" if _is_data(v) else v for k, v in value.items()}
    return {key: _without_media(item) for key, item in value.items()}


def _is_data(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray, str)) and len(value) > SHORT


def place(span: Any) -> str:
    """Where a span stands in its trace, as W3C's `traceparent` says it; empty for none."""
    if span is None:
        return ""
    here = span.get_span_context()
    if not here.is_valid:
        return ""
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"


def _context(trace_parent: str) -> Context | None:
    """The context that a stored `traceparent` names; None if it names none."""
    parts = trace_parent.split("-")
    try:
        _, trace_id, span_id, flags = parts
        there = trace.SpanContext(
            int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16))
        )
    except ValueError:  # none was stored, or something else than this wrote it
        return None
    return trace.set_span_in_context(trace.NonRecordingSpan(there)) if there.is_valid else None


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
