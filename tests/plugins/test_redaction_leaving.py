"""Everything that leaves: tools, models, errors, records, spans, logs, people, webhooks."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from checkrein import Ask, Call, Plugin, Rein, errors
from checkrein.verdicts import Approved
from checkrein_plugins.alerts import Alert, Alerts
from checkrein_plugins.redaction import Redaction

VALUES = (
    "casey.lund@example.org", "4111 1111 1111 1111", "536-22-4127",
    "sk-ant-api03-" + "Zx9aB" * 8, "GB33 BUKB 2020 1555 5555 55",
)  # fmt: skip
TEXT = f"mail {VALUES[0]} card {VALUES[1]} SSN {VALUES[2]} key {VALUES[3]} to {VALUES[4]}"
MASKED = "mail [EMAIL] card [CREDIT_CARD] SSN [US_SSN] key [SECRET] to [IBAN]"
IMAGE = {"type": "blob", "mime_type": "image/png", "data": b"\x89PNG\xff" + VALUES[0].encode()}


def held(value: object) -> list[str]:
    """Which of the values are in `value`, however it is nested."""
    shown = value if isinstance(value, str) else repr(value)
    return [one for one in VALUES if one in shown]


class Watch(Plugin):
    """What people, subscribers and other plugins see."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.events: list[Any] = []

    def pre_call(self, call: Call) -> Any:
        return Ask(f"to {VALUES[0]}?") if call.name == "transfer" else None

    def on_approval(self, call: Call, request: Any) -> Any:
        self.requests.append(request)
        return Approved("kim")

    def on_event(self, event: Any) -> None:
        self.events.append(event.view)


def test_nothing_of_it_leaves_through_tools_records_people_logs_and_webhooks(
    go: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[Any] = []
    told: list[Alert] = []
    watch = Watch()

    def note(text: str, more: Any) -> Any:
        got.append((text, more))
        return {"echo": [TEXT, (TEXT,)], VALUES[0]: 1}

    def transfer(text: str) -> str:
        got.append(text)
        return TEXT

    def fails(text: str) -> None:
        got.append(text)
        raise ValueError(TEXT, {"why": TEXT})

    caplog.set_level(logging.DEBUG)
    plugins = [Redaction(), watch, Alerts(to=told.append)]
    results: list[Any] = []

    def run(rein: Rein) -> None:
        with rein.session(agent="desk", intent="x", id="0" * 32):
            results.append(go.call(rein, note, TEXT, {"deep": [{"er": (TEXT, {TEXT})}]}))
            results.append(go.call(rein, transfer, TEXT))
            go.call(rein, fails, TEXT)

    with Rein(plugins=plugins, store=f"sqlite:///{tmp_path / 'x.db'}") as rein:
        with pytest.raises(ValueError, match=r"\[EMAIL\]") as caught:
            run(rein)
        events = [event.view for event in rein.read("0" * 32).events()]
    seen, moved = results
    assert not held(got)
    assert got[0][0] == MASKED
    assert got[0][1] == {"deep": [{"er": (MASKED, {MASKED})}]}
    assert seen == {"echo": [MASKED, (MASKED,)], "[EMAIL]": 1}
    assert moved == MASKED
    assert not held(events)
    assert not held(watch.events)
    assert watch.requests
    assert not held(watch.requests)
    assert not held((caught.value.args, str(caught.value)))
    assert not held(caplog.text)
    assert told
    assert not held([alert.tree() for alert in told])


def test_nothing_of_it_is_on_spans(go: Any) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))

    def fails(text: str) -> None:
        raise ValueError(TEXT)

    def run(rein: Rein) -> None:
        with rein.session(agent="desk"):
            go.call(rein, str, TEXT)
            go.call(rein, fails, TEXT)

    rein = Rein(plugins=[Redaction()], tracer_provider=provider)
    with pytest.raises(ValueError, match="EMAIL"), rein:
        run(rein)
    spans = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert spans
    assert not held(spans)


def history() -> list[dict[str, Any]]:
    return [
        {"role": "user", "parts": [{"type": "text", "content": TEXT}, IMAGE]},
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "tool_call",
                    "id": "1",
                    "name": "send",
                    "arguments": {"to": VALUES[0], "deep": [{"card": VALUES[1]}]},
                },
                {"type": "tool_call", "id": "2", "name": "send", "arguments": json.dumps(TEXT)},
            ],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "1", "response": {"sent": TEXT}}],
        },
        {"role": "user", "parts": [{"type": "text", "content": "thanks"}]},
    ]


def test_the_whole_request_and_the_answer_of_a_model(go: Any) -> None:
    sent: list[Any] = []

    def model(**request: Any) -> Any:
        sent.append(request)
        return {"role": "assistant", "parts": [{"type": "text", "content": TEXT}, IMAGE]}

    given = history()
    with Rein(plugins=[Redaction()]) as rein, rein.session() as session:
        answer = go.run(
            rein, "model_call", model, model="m", messages=given, system=f"You are {VALUES[0]}"
        )
        events = [event.view for event in session.events()]
    request = sent[0]
    images = [part for row in request["messages"] for part in row["parts"] if part == IMAGE]
    assert images == [IMAGE]
    assert images[0]["data"] == IMAGE["data"]
    image = repr(IMAGE)
    assert not held(repr(request).replace(image, ""))
    assert request["messages"][3] == given[3]
    assert answer["parts"][0]["content"] == MASKED
    assert answer["parts"][1]["data"] == IMAGE["data"]
    assert not held(repr(events).replace(image, ""))
    assert given == history(), "the caller's own history is as it was"


@pytest.mark.parametrize("place", ["first", "system", "tool", "nested", "json"])
def test_block_stops_a_request_wherever_the_value_stands(go: Any, place: str) -> None:
    called: list[Any] = []

    def model(**request: Any) -> Any:
        called.append(request)

    rows: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"type": "text", "content": "hello"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "hi"}]},
        {"role": "user", "parts": [{"type": "text", "content": "thanks"}]},
    ]
    system = "You help."
    if place == "first":
        rows[0]["parts"][0]["content"] = TEXT
    elif place == "system":
        system = TEXT
    elif place == "tool":
        rows[1]["parts"] = [{"type": "tool_call_response", "id": "1", "response": TEXT}]
    elif place == "nested":
        call = {"type": "tool_call", "id": "1", "name": "s", "arguments": {"a": [{"b": VALUES[0]}]}}
        rows[1]["parts"] = [call]
    else:
        arguments = json.dumps({"to": VALUES[0]}).replace("@", "\\u0040")
        rows[1]["parts"] = [{"type": "tool_call", "id": "1", "name": "s", "arguments": arguments}]
    with (
        Rein(plugins=[Redaction(requests="block")]) as rein,
        rein.session(on_error="keep"),
        pytest.raises(errors.Denied) as caught,
    ):
        go.run(rein, "model_call", model, model="m", messages=rows, system=system)
    assert called == []
    assert not held(str(caught.value))
