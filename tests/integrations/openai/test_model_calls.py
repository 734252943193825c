"""Model calls of supervised clients: redacted, limited, priced, recorded, replaced."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from checkrein import Answer, Ask, Deny, Fallback, Replace, Retry, Rewrite
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein.testing import Failure, OpenAIServer, Reply, ToolCall
from checkrein_plugins.approvers.callable import CallableApprover
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.redaction import Redaction

from .conftest import MODEL, Road, Rules, Watch, closed, kinds, spent, views

MAIL = "ann@example.org"
PIXELS = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"


def history(road: Road) -> list[Any]:
    if road.form == "responses":
        return [
            {"role": "user", "content": [
                {"type": "input_text", "text": f"I am {MAIL}"},
                {"type": "input_image", "image_url": PIXELS, "detail": "auto"},
            ]},
            {"type": "reasoning", "id": "r1", "encrypted_content": "sealed",
             "summary": [{"type": "summary_text", "text": f"mail {MAIL}"}]},
            {"type": "function_call", "call_id": "old", "name": "lookup",
             "arguments": json.dumps({"mail": MAIL})},
            {"type": "function_call_output", "call_id": "old", "output": f"found {MAIL}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": f"= {MAIL}"},
            {"role": "user", "content": "thanks"},
        ]  # fmt: skip
    return [
        {"role": "user", "content": [
            {"type": "text", "text": f"I am {MAIL}"},
            {"type": "image_url", "image_url": {"url": PIXELS, "detail": "auto"}},
        ]},
        {"role": "assistant", "content": None, "reasoning_content": f"mail {MAIL}", "tool_calls": [
            {"id": "old", "type": "function",
             "function": {"name": "lookup", "arguments": json.dumps({"mail": MAIL})}},
            {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": f"= {MAIL}"}},
        ]},
        {"role": "tool", "tool_call_id": "old", "content": f"found {MAIL}"},
        {"role": "assistant", "content": "", "refusal": f"not to {MAIL}"},
        {"role": "user", "content": "thanks"},
    ]  # fmt: skip


def test_nothing_private_leaves_and_images_stay_byte_for_byte(road, rein, server):
    server.say("hello")
    road.ask(
        rein(Redaction()), server, history(road), system=f"write to {MAIL}", user=MAIL,
        metadata={"who": MAIL}, extra_body={"safety_identifier": MAIL},
    )  # fmt: skip
    (sent,) = server.requests
    text = json.dumps(sent)
    assert MAIL not in text
    assert text.count("[EMAIL]") >= 8
    assert PIXELS in text
    items = sent["input" if road.form == "responses" else "messages"]
    assert history(road)[-1] in items
    calls = [i for i in items if i.get("type") == "function_call"] or [
        c["function"] for i in items for c in i.get("tool_calls") or () if "function" in c
    ]
    assert json.loads(calls[0]["arguments"]) == {"mail": "[EMAIL]"}
    assert "sealed" not in text


def test_what_no_plugin_changes_is_sent_as_it_came(road, rein, server):
    server.say("hello", "hello")
    road.ask(rein(Watch()), server, history(road), system="be brief", temperature=0.5)
    (sent,) = server.requests
    want = json.loads(json.dumps(road.request(history(road), system="be brief", temperature=0.5)))
    assert {k: v for k, v in sent.items() if k != "stream_options"} == want


def test_the_shape_is_the_same_as_everywhere(road, rein, server):
    watch = Watch()
    server.say(Reply("done", [ToolCall("lookup", {"mail": "x"})], reasoning="so"))
    flat = {"name": "lookup", "description": "Look up.", "parameters": {"type": "object"}}
    tool = (
        {"type": "function", **flat}
        if road.form == "responses"
        else {"type": "function", "function": flat}
    )
    road.ask(rein(watch), server, "hi", system="be brief", tools=[tool])
    (call,) = watch.calls
    assert (call.kind, call.name) == ("model", MODEL)
    assert call.arguments == {
        "system": [{"type": "text", "content": "be brief"}],
        "messages": [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}],
        "tools": [{"type": "function", "name": "lookup", "description": "Look up."}],
    }
    (value,) = watch.values
    assert value["role"] == "assistant"
    assert sorted(value["parts"], key=lambda part: part["type"]) == [
        {"type": "reasoning", "content": "so"},
        {"type": "text", "content": "done"},
        {"type": "tool_call", "id": "call_1_0", "name": "lookup", "arguments": {"mail": "x"}},
    ]


def test_the_answer_is_redacted_with_the_calls_in_it(road, rein, server):
    server.say(Reply(f"to {MAIL}!", [ToolCall("mail", {"to": MAIL})], reasoning=MAIL, chunk=2))
    r = rein(Redaction())
    said = road.ask(r, server)
    assert said.text == "to [EMAIL]!"
    assert said.calls == [("mail", {"to": "[EMAIL]"})]
    assert not any(MAIL in repr(each) for each in (*said.events, said.answer))
    assert not any(MAIL in json.dumps(view) for kind in ("outcome", "amended")
                   for view in views(r, kind))  # fmt: skip
    assert "checkrein.answer_retracted" not in said.kinds


def test_usage_and_cost_are_booked(road, rein, server):
    server.say(Reply("hi", input_tokens=1000, output_tokens=100, cached_tokens=400))
    r = rein(Cost(), Budget(usd=1, tokens=5000))
    said = road.ask(r, server)
    assert spent(r).tokens == 1100
    assert spent(r).usd == pytest.approx((600 * 0.15 + 400 * 0.075 + 100 * 0.6) / 1e6)
    if road.streamed and road.form == "chat":
        assert server.requests[0]["stream_options"] == {"include_usage": True}
        assert all(event.choices for event in said.events), "nobody asked for a chunk of usage"


def test_a_stream_that_wants_its_usage_gets_it(rein, server):
    server.say("hi")
    road = Road("chat", "sync", streamed=True)
    said = road.ask(rein(Cost()), server, stream_options={"include_usage": True})
    assert said.events[-1].usage.total_tokens == 18


def test_the_tokens_of_an_answer_without_usage_are_counted(road, rein, server):
    server.say(Reply("hi", usage=False))
    r = rein(Cost(), Budget(usd=1, tokens=5000))
    road.ask(r, server)
    assert spent(r).estimated == 1
    assert 0 < spent(r).tokens < 100


@pytest.mark.parametrize("status", [429, 400])
def test_what_the_provider_refuses_costs_nothing(road, rein, server, status):
    server.say(Failure(status), Failure(500))
    r = rein(Cost(), Budget(usd=1, tokens=5000))
    with pytest.raises(openai.APIStatusError):
        road.ask(r, server)
    assert (spent(r).tokens, spent(r).estimated) == (0, 0)
    assert views(r, "outcome")[0]["state"] == "not_done"
    with pytest.raises(openai.InternalServerError):
        road.ask(r, server)
    assert views(r, "outcome")[1]["state"] == "unknown"
    assert r.read(r.store.sessions().rows[0].id).spend().estimated == 1


def test_tokens_paid_before_a_failure_stay_on_the_bill(road, rein, server):
    server.say("one", "two", Failure(500))
    r = rein(Cost(), Budget(usd=1, tokens=20_000))
    one, two, failed = road.went(r, server, [road.request()] * 3)
    assert (one.text, two.text) == ("one", "two")
    assert isinstance(failed.error, openai.InternalServerError)
    outcomes = views(r, "outcome")
    assert [view["state"] for view in outcomes] == ["done", "done", "unknown"]
    assert spent(r).tokens > 36, "two answers, and what was held for the failed one"
    assert spent(r).estimated == 1


def test_a_budget_stops_before_anything_is_sent(road, rein, server):
    server.say("never")
    r = rein(Cost(), Budget(tokens=1))
    with pytest.raises(BudgetExceeded):
        road.ask(r, server)
    assert server.requests == []


def test_a_denied_call_is_not_sent(road, rein, server):
    server.say("never")
    r = rein(Rules(pre=lambda call: Deny("not now", rule="r1", halt=True)))
    with pytest.raises(Denied, match="not now"):
        road.ask(r, server)
    assert server.requests == []
    assert kinds(r) == ["denied"]


def test_a_blocked_answer_is_paid_and_not_given(road, rein, server):
    server.say(Reply("the secret plan", [ToolCall("pay", {"to": "x"})], chunk=3))
    r = rein(Rules(post=lambda call, outcome: Deny("no secrets")), Cost(), Budget(tokens=20_000))
    (said,) = road.went(r, server, [road.request()])
    assert isinstance(said.error, Denied)
    assert (said.text, said.calls, said.answer) == ("", [], None)
    assert spent(r).tokens == 18
    if road.streamed:
        assert said.kinds == ["checkrein.answer_retracted"]


@pytest.mark.parametrize("value", ["other", {"role": "assistant", "parts": [
    {"type": "text", "content": "other"}]}])  # fmt: skip
def test_an_answer_is_replaced(road, rein, server, value):
    server.say(Reply("mine", [ToolCall("pay", {"to": "x"})]))
    r = rein(Rules(post=lambda call, outcome: Replace(value)))
    said = road.ask(r, server)
    assert (said.text, said.calls) == ("other", [])


def test_a_plugin_answers_in_place_of_the_model(road, rein, server):
    r = rein(Rules(pre=lambda call: Answer("known", source="cache")), Cost())
    said = road.ask(r, server)
    assert said.text == "known"
    assert server.requests == []
    assert spent(r).tokens == 0


def test_what_is_no_answer_is_refused(road, rein, server):
    server.say("mine")
    with pytest.raises(ConfigError, match="neither text nor a message"):
        road.ask(rein(Rules(post=lambda call, outcome: Replace(7))), server)


def test_a_call_is_repeated(road, rein, server):
    server.say(Failure(500), "second")
    r = rein(Rules(post=lambda c, o: Retry(0) if o.error is not None else None), Budget(calls=9))
    assert road.ask(r, server).text == "second"
    assert [view["state"] for view in views(r, "outcome")] == ["unknown", "done"]


def test_another_model_takes_over(road, rein, server):
    server.say(Failure(500))
    fall = Rules(post=lambda c, o: Fallback("small") if o.error is not None else None)
    with OpenAIServer(["from the small one"]) as other:
        kind: Any = OpenAI if road.mode == "sync" else AsyncOpenAI
        small = kind(base_url=other.url, api_key="none", max_retries=0)
        said = road.ask(rein(fall), server, models={"small": small})
        assert said.text == "from the small one"
        assert other.requests[0]["model"] == "small"
    server.say(Failure(500))
    with pytest.raises(ConfigError, match=r"'small'.*known: none"):
        road.ask(rein(fall), server)


def test_tools_are_taken_out_of_a_request(road, rein, server):
    server.say("ok")

    def names(name: str) -> dict[str, Any]:
        flat = {"name": name, "parameters": {"type": "object", "properties": {}}}
        return {"type": "function", **flat} if road.form == "responses" else {
            "type": "function", "function": flat
        }  # fmt: skip

    def fewer(call: Any) -> Any:
        kept = [tool for tool in call.arguments["tools"] if tool["name"] != "pay"]
        return Rewrite(call.replace(arguments={**call.arguments, "tools": kept}))

    r = rein(Rules(pre=fewer))
    road.ask(r, server, tools=[names("pay"), names("look")], tool_choice="auto")
    assert server.requests[0]["tools"] == [names("look")]
    server.say("ok")
    road.ask(r, server, tools=[names("pay")], tool_choice="auto")
    assert not {"tools", "tool_choice"} & server.requests[1].keys()


def test_a_model_call_waits_for_its_approval(plain, rein, server):
    server.say("ok")
    asked: list[Any] = []
    approver = CallableApprover(lambda call, request: asked.append(request) or True)
    r = rein(Rules(pre=lambda call: Ask("sure?")), approver)
    assert plain.ask(r, server).text == "ok"
    assert len(asked) == 1


class Refund(BaseModel):
    order: int
    to: str


def test_parsed_answers_hold_what_the_filters_let_through(plain, rein, server):
    server.say(Reply(json.dumps({"order": 7, "to": MAIL})))
    client = plain.client(rein(Redaction()), server)
    if plain.form == "chat":
        settings = {"messages": [{"role": "user", "content": MAIL}], "response_format": Refund}
        answer = closed(client, lambda: client.chat.completions.parse(model=MODEL, **settings))
        parsed = answer.choices[0].message.parsed
    else:
        settings = {"input": MAIL, "text_format": Refund}
        answer = closed(client, lambda: client.responses.parse(model=MODEL, **settings))
        parsed = answer.output_parsed
    assert parsed == Refund(order=7, to="[EMAIL]")
    assert MAIL not in repr(answer)


def test_several_choices_are_each_filtered(rein):
    watch = Watch()
    with OpenAIServer([Reply(f"{MAIL} wrote")] * 2) as server:
        for streams in (False, True):
            road = Road("chat", "sync", streamed=streams)
            said = road.ask(rein(Redaction(), watch), server, n=2)
            if streams:
                texts = ["", ""]
                for event in said.events:
                    for choice in event.choices:
                        texts[choice.index] += choice.delta.content or ""
            else:
                texts = [choice.message.content for choice in said.answer.choices]
            assert texts == ["[EMAIL] wrote", "[EMAIL] wrote"]
    for value in watch.values:
        assert [part["content"] for part in value["parts"]] == ["[EMAIL] wrote"] * 2
