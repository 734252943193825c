"""Spans: nothing without an SDK, one for each call with one, and no content on them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace

from checkrein import Answer, Ask, Call, Deny, Plugin, Rein, Unchecked, errors
from checkrein.verdicts import Approved

sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402, I001 - meant so
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402 - meant so
    InMemorySpanExporter,
)
import contextlib  # noqa: E402 - meant so


class Ends(sdk.SpanProcessor):  # type: ignore[misc,name-defined]
    """Counts how often each span was ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def on_end(self, span: Any) -> None:
        self.ended.append(f"{span.context.span_id:x}")


class Traced:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.ends = Ends()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider.add_span_processor(self.ends)

    @property
    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def traced() -> Traced:
    return Traced()


class Says(Plugin):
    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def pre_call(self, call: Call) -> Any:
        return self.verdict

    def on_approval(self, call: Call, request: Any) -> Any:
        return Approved("anna")


def tool(secret: str) -> str:
    return secret


def test_a_call_is_a_span_inside_its_session(go, traced) -> None:
    with Rein(tracer_provider=traced.provider) as rein, rein.session(agent="billing") as session:
        go.call(rein, tool, "x")
    call, run = traced.spans["execute_tool tool"], traced.spans["invoke_agent billing"]
    assert call.attributes["gen_ai.tool.name"] == "tool"
    assert call.attributes["gen_ai.conversation.id"] == session.id
    assert call.attributes["checkrein.effect.state"] == "done"
    if go.mode == "sync":
        assert call.parent.span_id == run.context.span_id
    assert len(traced.ends.ended) == len(set(traced.ends.ended)) == 2


def test_a_call_inside_a_call_is_a_span_inside_its_span(traced) -> None:
    def outer() -> None:
        rein.call(tool, "x")

    with Rein(tracer_provider=traced.provider) as rein, rein.session():
        rein.call(outer)
    assert traced.spans["execute_tool tool"].parent.span_id == (
        traced.spans["execute_tool outer"].context.span_id
    )


@pytest.mark.parametrize(
    "verdict", [None, Deny("secret!"), Answer("secret!"), Ask("secret!"), ValueError("secret!")],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_no_content_is_on_any_span_and_each_ends_once(go, traced, verdict) -> None:
    def fails(secret: str) -> None:
        raise RuntimeError(secret)

    with Rein(plugins=[Says(verdict)], tracer_provider=traced.provider) as rein:  # noqa: SIM117 - the order of endings is the point
        with rein.session(on_error="keep"):
            for fn in (tool, fails):
                with contextlib.suppress(errors.Denied, RuntimeError):
                    go.call(rein, fn, "secret!")
    for span in traced.exporter.get_finished_spans():
        assert "secret!" not in span.to_json()
    assert len(traced.ends.ended) == len(set(traced.ends.ended)) == 3


def test_the_span_of_the_caller_stays_current(go, traced) -> None:
    tracer = traced.provider.get_tracer("app")
    with Rein(tracer_provider=traced.provider) as rein:
        with tracer.start_as_current_span("mine") as mine:
            with rein.session(agent="a", on_error="keep"):
                inside = trace.get_current_span()
                with pytest.raises(ValueError):
                    go.call(rein, int, "x")
                assert trace.get_current_span() is inside
            assert trace.get_current_span() is mine
        assert mine.is_recording() is False
    assert traced.spans["invoke_agent a"].parent.span_id == mine.context.span_id
    failed = traced.spans["execute_tool int"]
    assert failed.attributes["error.type"] == "ValueError"
    assert failed.attributes["checkrein.effect.state"] == "unknown"
    assert not failed.events
    assert len(traced.ends.ended) == len(set(traced.ends.ended)) == 3


def test_a_session_left_in_another_task_ends_its_span_and_disturbs_nobody(traced) -> None:
    async def main() -> None:
        before = trace.get_current_span()
        session = rein.session(agent="a")
        await asyncio.create_task(session.__aenter__())
        await asyncio.create_task(session.__aexit__(None, None, None))
        assert trace.get_current_span() is before

    with Rein(tracer_provider=traced.provider) as rein:
        asyncio.run(main())
    assert list(traced.spans) == ["invoke_agent a"]


def test_a_cancelled_call_ends_its_span(traced) -> None:
    async def main() -> None:
        async def slow() -> None:
            await asyncio.sleep(60)

        async with rein.session(on_error="keep"):
            task = asyncio.create_task(rein.acall(slow))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with Rein(tracer_provider=traced.provider) as rein:
        asyncio.run(main())
    assert traced.spans["execute_tool slow"].attributes["error.type"] == "CancelledError"


LATER = """
from opentelemetry import trace
from checkrein import Rein
rein = Rein()
with rein.session(agent="before"):
    rein.call(len, [])
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with rein.session(agent="after"):
    rein.call(len, [])
print(sorted(s.name for s in exporter.get_finished_spans()))
rein.close()
"""


def test_an_sdk_that_is_set_up_after_the_rein_is_used(child) -> None:
    out, err = child(LATER).communicate(timeout=60)
    assert out == "['execute_tool len', 'invoke_agent after']\n", err


def test_nothing_is_loaded_and_nothing_recorded_without_an_sdk(child) -> None:
    code = """
import sys
from checkrein import Rein
with Rein() as rein, rein.session():
    rein.call(len, [])
print([m for m in sys.modules if m.startswith("opentelemetry.sdk")])
"""
    out, err = child(code).communicate(timeout=60)
    assert out == "[]\n", err


def test_the_import_is_light() -> None:
    code = (
        "import sys, checkrein; print([m for m in ('asyncio', 'pydantic', 'sqlite3', "
        "'importlib.metadata.__x__', 'typer') if m in sys.modules])"
    )
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": "core"},
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_bound_thread_keeps_the_tree_whole(traced: Traced) -> None:
    """A plain thread carries no context: `session.bind` brings the span around it along."""
    import threading

    with (
        Rein(tracer_provider=traced.provider) as rein,
        rein.session(agent="clerk") as session,
    ):
        thread = threading.Thread(target=session.bind(lambda: rein.call(abs, -1)))
        thread.start()
        thread.join()
    spans = traced.spans
    assert spans["execute_tool abs"].parent.span_id == spans["invoke_agent clerk"].context.span_id


def test_what_could_not_be_checked_is_on_the_span(go, traced) -> None:
    class Late(Says):
        def post_call(self, call: Call, outcome: Any) -> Any:
            return Unchecked("tone of the answer")

    plugin = Late(Unchecked("tone"))
    with Rein(plugins=[plugin], tracer_provider=traced.provider) as rein, rein.session():
        go.call(rein, tool, "x")
    noted = [event.attributes for event in traced.spans["execute_tool tool"].events]
    assert [(n["checkrein.plugin"], n["checkrein.verdict"]) for n in noted] == [
        ("late", "unchecked")
    ] * 2
