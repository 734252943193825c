"""What spans say of a run: one trace, over approvals, rollbacks and processes; names; content."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from checkrein import Ask, Deny, Plugin, Rein, conventions, errors
from checkrein.verdicts import Measured, Rejected

sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402 - meant so
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402 - meant so
    InMemorySpanExporter,
)


class Traced:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def __iter__(self) -> Any:
        return iter(self.exporter.get_finished_spans())

    def named(self, name: str) -> Any:
        (found,) = [span for span in self if span.name == name]
        return found


@pytest.fixture
def traced() -> Traced:
    return Traced()


class Guard(Plugin):
    def pre_call(self, call: Any) -> Any:
        if call.name == "wipe":
            return Deny("the reason is secret", rule="no-wiping")
        return Ask("large", rule="limit") if call.name == "big" else None

    def on_approval(self, call: Any, request: Any) -> Any:
        return Rejected("boss", "too much")

    def measure(self, call: Any, outcome: Any) -> Any:
        if call.kind != "model":
            return None
        from checkrein.call import Usage

        usage = Usage(100, 20, cache_read_tokens=40, model="m-1", provider="acme")
        return Measured(usage=usage, cost=7, state="reported")

    def view(self, call: Any, value: Any, sink: str) -> Any:
        if isinstance(value, str):
            return value.replace("secret", "[masked]")
        if isinstance(value, dict):
            return {key: self.view(call, item, sink) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.view(call, item, sink) for item in value]
        return value


def test_the_names_are_those_of_the_published_conventions() -> None:
    package = "opentelemetry.semconv._incubating"
    known: set[str] = {"error.type"}
    for module in (f"{package}.attributes.gen_ai_attributes", f"{package}.metrics.gen_ai_metrics"):
        known |= {v for v in vars(importlib.import_module(module)).values() if isinstance(v, str)}
    ours = {
        value
        for key, value in vars(conventions).items()
        if key.isupper() and isinstance(value, str) and not value.startswith("http")
    }
    optional = {conventions.OPENINFERENCE, conventions.GUARDRAILS}
    ours -= optional | {n for n in ours if n.startswith(("openinference.", "gen_ai.security."))}
    strangers = {n for n in ours if not n.startswith("checkrein") and n not in known}
    assert strangers == {"invoke_agent", "execute_tool", "chat"}
    operations = importlib.import_module(f"{package}.attributes.gen_ai_attributes")
    values = {one.value for one in operations.GenAiOperationNameValues}
    assert strangers <= values
    from opentelemetry.semconv.schemas import Schemas

    assert conventions.SCHEMA in {one.value for one in Schemas}


def test_no_name_stands_outside_of_the_one_module() -> None:
    from checkrein import telemetry
    from checkrein_plugins import metrics

    for module in (telemetry, metrics):
        text = re.sub(r'"""[\s\S]*?"""', "", Path(module.__file__).read_text(encoding="utf-8"))
        assert not re.findall(r'"(?:gen_ai|checkrein)\.[a-z_.]+"', text)


def test_usage_stands_on_the_model_calls_span_only(go: Any, traced: Traced) -> None:
    rein = Rein(plugins=[Guard()], tracer_provider=traced.provider)

    def model(**request: Any) -> str:
        return "hello"

    with rein.session(agent="desk"):
        rein.model_call(model, model="m", messages=[])
    rein.close()
    span = traced.named("chat m")
    assert span.attributes["gen_ai.usage.input_tokens"] == 100
    assert span.attributes["gen_ai.usage.cache_read.input_tokens"] == 40
    assert span.attributes["gen_ai.response.model"] == "m-1"
    assert span.attributes["gen_ai.provider.name"] == "acme"
    assert span.attributes["checkrein.cost.nano_usd"] == 7
    others = [s for s in traced if s is not span and any("usage" in key for key in s.attributes)]
    assert [s.name for s in others if s.name != "chat m"] == []


def test_denials_and_approvals_are_on_the_calls_span(traced: Traced) -> None:
    rein = Rein(plugins=[Guard()], tracer_provider=traced.provider)

    @rein.tool(name="wipe")
    def wipe() -> None: ...

    @rein.tool(name="big")
    def big() -> None: ...

    with rein.session(on_error="keep"):
        for tool in (wipe, big):
            with pytest.raises(errors.Denied):
                tool()
    rein.close()
    span = traced.named("execute_tool wipe")
    assert span.attributes["checkrein.rule"] == "no-wiping"
    assert span.attributes["checkrein.plugin"] == "guard"
    states = [
        event.attributes["checkrein.state"]
        for event in traced.named("execute_tool big").events
        if event.name == "checkrein.approval"
    ]
    assert states == ["requested", "rejected"]
    assert "secret" not in "".join(s.to_json() for s in traced)


def test_a_rollback_is_a_span_with_its_undos_inside_the_run(go: Any, traced: Traced) -> None:
    rein = Rein(tracer_provider=traced.provider)

    @rein.tool(undo=lambda order: None, name="pay")
    def pay(order: str) -> None: ...

    def run() -> None:
        with rein.session(agent="desk"):
            pay("o1")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run()
    rein.close()
    run, back = traced.named("invoke_agent desk"), traced.named("checkrein.rollback")
    undo = traced.named("execute_tool pay.undo")
    assert back.attributes["checkrein.cause"] == "error"
    assert back.parent.span_id == run.context.span_id
    assert undo.parent.span_id == back.context.span_id
    assert len({span.context.trace_id for span in traced}) == 1


WORKER = """
import os, sys
from opentelemetry.sdk.trace import TracerProvider
from checkrein import Rein

rein = Rein(store=sys.argv[1], tracer_provider=TracerProvider())

@rein.tool(undo="unpay(order)", name="pay")
def pay(order):
    pass

session = rein.session(agent="desk")
session.__enter__()
pay("o1")
print(session.id, f"{session._span.get_span_context().trace_id:x}", flush=True)
os._exit(1)
"""


def test_a_run_keeps_its_trace_in_the_process_that_takes_it_back(
    tmp_path: Any, traced: Traced
) -> None:
    url = f"sqlite:///{tmp_path}/r.db"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, url], capture_output=True, text=True, timeout=60, check=False
    )
    id, trace_id = done.stdout.split()
    with Rein(store=url, tracer_provider=traced.provider) as rein:

        @rein.tool(name="unpay")
        def unpay(order: str) -> None: ...

        @rein.tool(undo="unpay(order)", name="pay")
        def pay(order: str) -> None: ...

        assert rein.recover().complete, (done.stderr, id)
        assert traced.named("execute_tool unpay") or traced.named("execute_tool pay.undo")
    assert {f"{span.context.trace_id:x}" for span in traced} == {trace_id}


def test_a_session_that_is_taken_up_goes_on_in_its_trace(tmp_path: Any, traced: Traced) -> None:
    url = f"sqlite:///{tmp_path}/r.db"

    class Large(Plugin):
        def pre_call(self, call: Any) -> Any:
            return Ask("large", rule="limit")

    def made() -> Any:
        rein = Rein(store=url, plugins=[Large()], wait="suspend", tracer_provider=traced.provider)

        @rein.tool(name="pay")
        def pay(order: str) -> str:
            return f"paid {order}"

        return rein, pay

    first, pay = made()
    with pytest.raises(errors.ApprovalPending) as pending, first.session(agent="desk"):
        pay("o1")
    first.close()
    again, _ = made()
    again.approvals.approve(pending.value.token, by="anna")
    assert again.resume(pending.value.token) == "paid o1"
    again.close()
    assert len({span.context.trace_id for span in traced}) == 1
    assert [s.name for s in traced].count("execute_tool pay") == 2


def test_content_is_on_spans_only_if_asked_and_as_plugins_show_it(go: Any, traced: Traced) -> None:
    def run(**settings: Any) -> str:
        traced.exporter.clear()
        rein = Rein(plugins=[Guard()], tracer_provider=traced.provider, **settings)

        @rein.tool(name="tell")
        def tell(text: str, data: bytes) -> str:
            return f"{text} was told"

        def model(**request: Any) -> str:
            return "a secret answer"

        with rein.session():
            go.call(rein, tell, "the secret word", b"\x00" * 1000)
            rein.model_call(
                model, model="m", messages=[{"role": "user", "parts": [
                    {"type": "text", "content": "a secret question"}]}]
            )  # fmt: skip
        rein.close()
        return "".join(span.to_json() for span in traced)

    assert "word" not in run()
    text = run(span_content=True)
    assert "the [masked] word" in text
    assert "was told" in text
    assert "gen_ai.input.messages" in text
    assert "secret" not in text
    assert "\\u0000" not in text
    assert "1000" in text


def test_other_names_are_added_if_asked_for(traced: Traced) -> None:
    rein = Rein(
        plugins=[Guard()], tracer_provider=traced.provider, semconv=["openinference", "genai-427"]
    )

    @rein.tool(name="wipe")
    def wipe() -> None: ...

    with rein.session(agent="desk", on_error="keep"), pytest.raises(errors.Denied):
        wipe()
    rein.close()
    kind = "openinference.span.kind"
    assert traced.named("invoke_agent desk").attributes[kind] == "AGENT"
    span = traced.named("execute_tool wipe")
    assert span.attributes[kind] == "TOOL"
    (finding,) = [e for e in span.events if e.name == "gen_ai.security.finding"]
    assert dict(finding.attributes) == {
        "gen_ai.security.guardrail.name": "guard", "gen_ai.security.verdict.type": "deny",
    }  # fmt: skip
    with pytest.raises(errors.ConfigError, match="semconv: 'x' is not one of openinference"):
        Rein(semconv=["x"])  # type: ignore[list-item]


def test_a_session_that_cannot_be_opened_ends_its_span(traced: Traced) -> None:
    rein = Rein(tracer_provider=traced.provider)

    def refuses(*_: Any, **__: Any) -> Any:
        raise errors.StoreUnavailable("gone")

    rein.store.commit = refuses  # type: ignore[method-assign]
    with pytest.raises(errors.StoreUnavailable), rein.session(agent="desk"):
        pass
    assert traced.named("invoke_agent desk").attributes["error.type"] == "StoreUnavailable"


# -- faults that others had


def children(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


RUN = """
with Rein(**given) as rein, rein.session(agent="desk"):
    rein.call(max, 1, 2)
"""
USER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_users_provider_is_used_whenever_it_was_set_and_never_replaced(order: str) -> None:
    """D31: set before or after the import, every span is seen exactly once."""
    setting = "trace.set_tracer_provider(provider)\n"
    importing = "from checkrein import Rein\ngiven = {}\n"
    steps = setting + importing if order == "before" else importing + setting
    told = children(
        USER + steps + RUN + "print(sorted(s.name for s in spans.get_finished_spans()))\n"
        "assert trace.get_tracer_provider() is provider\n"
    )
    assert told == "['execute_tool max', 'invoke_agent desk']\n"


def test_without_a_provider_nothing_is_said_and_none_is_set() -> None:
    """D31: a real no-op."""
    told = children(
        "from opentelemetry import trace\nfrom checkrein import Rein\ngiven = {}\n" + RUN +
        "print(type(trace.get_tracer_provider()).__name__)\n"
    )  # fmt: skip
    assert told == "ProxyTracerProvider\n"


def test_two_reins_with_exporters_of_their_own_do_not_mix(traced: Traced) -> None:
    """D31: each gets its own spans."""
    other = Traced()
    for number, one in enumerate((traced, other)):
        with Rein(tracer_provider=one.provider) as rein, rein.session(agent=f"a{number}"):
            rein.call(max, 1, 2)
    names = [sorted(span.name for span in one) for one in (traced, other)]
    assert names == [
        ["execute_tool max", "invoke_agent a0"],
        ["execute_tool max", "invoke_agent a1"],
    ]


def test_the_naive_sum_of_usage_over_all_spans_is_what_was_used(traced: Traced) -> None:
    """D32: two model calls and a tool; a provider's own instrumentation beside them."""
    counts = iter([(100, 10), (200, 20)])
    foreign = traced.provider.get_tracer("somebody-elses")

    class Counts(Plugin):
        def measure(self, call: Any, outcome: Any) -> Any:
            return Measured(usage=outcome.value) if call.kind == "model" else None

    def model(**request: Any) -> Any:
        from checkrein.call import Usage

        with foreign.start_as_current_span("chat m") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
        return Usage(*next(counts))

    with Rein(plugins=[Counts()], tracer_provider=traced.provider) as rein, rein.session():
        rein.model_call(model, model="m", messages=[])
        rein.call(max, 1, 2)
        rein.model_call(model, model="m", messages=[])
    ours = [s for s in traced if s.instrumentation_scope.name == "checkrein"]
    for key, total in (("input", 300), ("output", 30)):
        assert sum(s.attributes.get(f"gen_ai.usage.{key}_tokens", 0) for s in ours) == total
    assert {s.instrumentation_scope.name for s in traced if s.name == "chat m"} == {
        "checkrein", "somebody-elses",
    }  # fmt: skip
    inner = [s for s in traced if s.instrumentation_scope.name == "somebody-elses"]
    assert {s.parent.span_id for s in inner} <= {s.context.span_id for s in ours}


MARK = "MARKER-93-secret"


def test_nothing_of_the_contents_is_exported_unless_it_is_asked_for(traced: Traced) -> None:
    """D33: a marker in every place where content can stand, also in errors."""

    def run(**settings: Any) -> None:
        traced.exporter.clear()
        rein = Rein(plugins=[Guard()], tracer_provider=traced.provider, **settings)

        @rein.tool(name="tell", description=MARK)
        def tell(text: str) -> Any:
            if text == "fail":
                raise RuntimeError(MARK)
            return MARK + "x" * 5_000_000

        def model(**request: Any) -> str:
            return MARK

        image = {"type": "blob", "mime_type": "image/png", "content": "iVBORw0KGgo" * 100_000}
        message = {"role": "user", "parts": [{"type": "text", "content": MARK}, image]}
        with rein.session(agent="desk", intent=MARK, on_error="keep"):
            rein.model_call(model, model="m", messages=[message], system=MARK)
            tell(MARK)
            with pytest.raises(RuntimeError):
                tell("fail")
        rein.close()

    run()
    assert MARK not in "".join(span.to_json() for span in traced)
    run(span_content=True)
    text = "".join(span.to_json() for span in traced)
    assert MARK not in text, "redacted first"
    assert "MARKER-93-[masked]" in text
    assert len(text) < 40_000, "then bounded"
    assert "iVBORw0KGgo" not in text
    assert "image/png" in text
    assert "[1100000 long]" in text
    assert "more]" in text
    assert len(list(traced)) == 4, "the other spans arrive"


# -- a run is one trace


def test_threads_sub_agents_and_cancelled_calls_stay_in_one_trace(traced: Traced) -> None:
    from concurrent.futures import ThreadPoolExecutor

    rein = Rein(tracer_provider=traced.provider)

    @rein.tool(name="think")
    def think(n: int) -> int:
        return n

    @rein.tool(name="ask_sub_agent")
    def ask_sub_agent() -> int:
        with rein.session(agent="sub"):
            return think(7)

    @rein.tool(name="slow")
    async def slow() -> None:
        await asyncio.sleep(60)

    async def run() -> None:
        async with rein.session(agent="main") as session:
            with ThreadPoolExecutor(4) as pool:
                assert list(pool.map(session.bind(think), range(4))) == [0, 1, 2, 3]
            ask_sub_agent()
            task = asyncio.ensure_future(slow())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    rein.close()
    by_id = {span.context.span_id: span for span in traced}
    assert len(by_id) == len(list(traced)) == 4 + 1 + 1 + 1 + 1 + 1, "each ended once"
    assert len({span.context.trace_id for span in traced}) == 1
    sub = traced.named("invoke_agent sub")
    assert by_id[sub.parent.span_id].name == "execute_tool ask_sub_agent"
    (thought,) = [s for s in traced if s.parent and s.parent.span_id == sub.context.span_id]
    assert thought.name == "execute_tool think"
    assert traced.named("execute_tool slow").attributes["error.type"] == "CancelledError"
    assert traced.named("invoke_agent main").parent is None


def test_a_wrapped_generator_that_ends_early_ends_its_span_once(traced: Traced) -> None:
    class Client:
        def lines(self, count: int) -> Any:
            yield from map(str, range(count))

    rein = Rein(tracer_provider=traced.provider)
    client = rein.wrap(Client(), connector="files_of_a_test")
    with rein.session(agent="main"):
        before = trace.get_current_span()
        lines = client.lines(10)
        assert next(lines) == "0"
        lines.close()
        assert trace.get_current_span() is before
    rein.close()
    assert len([span for span in traced if "lines" in span.name]) == 1
    assert len({span.context.trace_id for span in traced}) == 1


def test_no_log_line_holds_contents(caplog: pytest.LogCaptureFixture) -> None:
    """D33 for logs: of everything that goes wrong names and kinds are told."""

    class Breaks(Plugin):
        def on_event(self, event: Any) -> None:
            raise RuntimeError(MARK)

        def measure(self, call: Any, outcome: Any) -> Any:
            raise RuntimeError(MARK)

        def view(self, call: Any, value: Any, sink: str) -> Any:
            raise RuntimeError(MARK)

    rein = Rein(plugins=[Breaks()])

    @rein.tool(undo=lambda text: 1 / 0, name="tell")
    def tell(text: str) -> str:
        if text == "fail":
            raise RuntimeError(MARK)
        return MARK

    def run() -> None:
        with rein.session(agent="desk", intent=MARK):
            tell(MARK)
            tell("fail")

    with caplog.at_level(0), pytest.raises(RuntimeError):
        run()
    rein.close()
    assert caplog.records
    assert MARK not in caplog.text


class Receiver:
    """An OTLP receiver over HTTP that counts spans and knows their tree."""

    def __init__(self, status: int = 200) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        self.spans: dict[bytes, Any] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        outer.spans |= {span.span_id: span for span in scope.spans}
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def path(self, span: Any) -> list[str]:
        """Names from the root down to a span."""
        above = self.path(self.spans[span.parent_span_id]) if span.parent_span_id else []
        return [*above, span.name]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_receiver_gets_every_span_in_its_place() -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    receiver = Receiver()
    provider = sdk.TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=receiver.url)))
    rein = Rein(tracer_provider=provider)

    @rein.tool(undo=lambda n: None, name="pay")
    def pay(n: int) -> None: ...

    def run() -> None:
        with rein.session(agent="desk"):
            for n in range(20):
                pay(n)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run()
    rein.close()
    provider.shutdown()
    receiver.close()
    paths = [receiver.path(span) for span in receiver.spans.values()]
    assert paths.count(["invoke_agent desk"]) == 1
    assert paths.count(["invoke_agent desk", "execute_tool pay"]) == 20
    back = ["invoke_agent desk", "checkrein.rollback"]
    assert paths.count(back) == 1
    assert paths.count([*back, "execute_tool pay.undo"]) == 20
    assert len(paths) == 42
