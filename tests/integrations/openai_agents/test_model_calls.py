"""Model calls of an agent: redacted, limited, priced, recorded, replaced."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import ModelProvider, RunConfig, Runner, SQLiteSession, function_tool
from agents.run_config import ModelInputData

from checkrein import Deny, Fallback, Plugin, Replace, Retry, Rewrite
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein_integrations.openai_agents import run, run_config, run_sync, supervise_agent
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call, say
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.redaction import Redaction

from .conftest import Rules, agent_of, effects, outputs, states

MAIL = "ann@example.org"
PIXELS = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"


@function_tool
def lookup(mail: str) -> str:
    """Look somebody up."""
    effects.append(mail)
    return f"found {mail}"


def history() -> list[Any]:
    return [
        {"role": "user", "content": [
            {"type": "input_text", "text": f"I am {MAIL}"},
            {"type": "input_image", "image_url": PIXELS, "detail": "auto"},
        ]},
        {"type": "reasoning", "id": "r1", "summary": [
            {"type": "summary_text", "text": f"mail {MAIL}"}], "encrypted_content": "sealed"},
        {"type": "function_call", "call_id": "old", "name": "lookup", "id": "f1",
         "arguments": json.dumps({"mail": MAIL})},
        {"type": "function_call_output", "call_id": "old", "output": f"found {MAIL}"},
        {"type": "function_call_output", "call_id": "old2", "output": [
            {"type": "input_text", "text": f"also {MAIL}"},
            {"type": "input_image", "image_url": PIXELS}]},
        {"type": "web_search_call", "id": "w1", "status": "completed",
         "action": {"type": "search", "query": f"who is {MAIL}"}},
        {"type": "message", "role": "assistant", "id": "m1", "status": "completed", "content": [
            {"type": "output_text", "text": f"Hello {MAIL}", "annotations": []}]},
        {"role": "user", "content": f"again {MAIL}"},
    ]  # fmt: skip


def test_nothing_private_leaves_and_images_stay_byte_for_byte(go, rein):
    model = ScriptedModel(["done"])
    agent = agent_of(model, instructions=f"You serve {MAIL}")
    go(rein(Redaction()), agent, history())
    assert MAIL not in model.sent
    assert len(model.seen[0]) == 8
    image = model.seen[0][0]["content"][1]
    assert image == {"type": "input_image", "image_url": PIXELS, "detail": "auto"}
    assert model.seen[0][4]["output"][1]["image_url"] == PIXELS
    assert "serve" in str(model.systems[0])
    call_item = next(i for i in model.seen[0] if i.get("type") == "function_call")
    assert set(json.loads(call_item["arguments"])) == {"mail"}
    assert model.seen[0][1].get("encrypted_content") is None


def test_what_no_plugin_changes_is_the_object_that_came(rein):
    model = ScriptedModel(["done"])
    given = history()
    r = rein(Rules(pre=lambda call: Rewrite(call.replace(arguments=call.arguments)), kind="model"))
    supervised = supervise_agent(r, agent_of(model)).model
    request: Any = (None, given, None, [], None, [], None)
    asyncio.run(supervised.get_response(*request, previous_response_id=None,
                                        conversation_id=None, prompt=None))  # fmt: skip
    assert all(a is b for a, b in zip(model.seen[0], given, strict=True))


def test_tool_results_are_redacted_on_their_way_back(go, rein):
    model = ScriptedModel([ask(call("lookup", mail="x")), "done"])

    @function_tool
    def lookup(mail: str) -> str:
        """Look somebody up."""
        return f"found {MAIL}"

    go(rein(Redaction()), agent_of(model, lookup), "go")
    assert MAIL not in model.sent


def test_the_sdks_session_keeps_the_filtered_answer(rein, tmp_path):
    session = SQLiteSession("s", tmp_path / "sdk.db")
    model = ScriptedModel([f"write to {MAIL}"])
    try:
        asyncio.run(run(rein(Redaction()), agent_of(model), "hello", session=session))
        kept = asyncio.run(session.get_items())
    finally:
        session.close()
    assert MAIL not in json.dumps(kept[1:])
    assert len(kept) == 2


def test_usage_and_cost_are_booked(go, rein):
    r = rein(Cost())
    model = ScriptedModel(["done"], model="gpt-4o-mini", input_tokens=1000, output_tokens=100)
    with r.session() as session:
        go(r, agent_of(model))
        spend = session.spend()
    assert spend.tokens == 1100
    assert spend.nano_usd > 0


def test_a_budget_ends_the_run_before_the_call(go, rein):
    r = rein(Budget(calls=4, halt=True))
    model = ScriptedModel([ask(call("lookup", mail=f"{n}")) for n in range(9)])
    with pytest.raises(BudgetExceeded):
        go(r, agent_of(model, lookup))
    assert 1 <= len(model.seen) < 9
    assert states(r)[0][0] == "FAILED"


def test_a_denied_model_call_ends_the_run(go, rein):
    r = rein(Rules(pre=lambda call: Deny("not now"), kind="model"))
    model = ScriptedModel(["never"])
    with pytest.raises(Denied, match="not now"):
        go(r, agent_of(model))
    assert model.seen == []


def test_an_answer_that_is_refused_is_not_the_result(go, rein):
    r = rein(Rules(post=lambda call, outcome: Deny("bad words"), kind="model"))
    model = ScriptedModel(["secret text"])
    with pytest.raises(Denied, match="bad words") as caught:
        go(r, agent_of(model))
    assert "secret" not in str(getattr(caught.value, "run_data", "") or "")
    assert any(e.view.get("usage") for e in r.store.events(kinds=("outcome",)))


PLAIN = {"role": "assistant", "parts": [{"type": "text", "content": "plain text"}]}


@pytest.mark.parametrize("value", ["plain text", PLAIN])
def test_an_answer_is_replaced(go, rein, value):
    r = rein(Rules(post=lambda call, outcome: Replace(value), kind="model"))
    went = go(r, agent_of(ScriptedModel(["secret text"])))
    assert went.result.final_output == "plain text"


def test_a_plugin_may_take_tool_calls_out_of_an_answer(go, rein):
    def post(call: Any, outcome: Any) -> Any:
        parts = [p for p in outcome.value["parts"] if p["type"] == "text"]
        return Replace({**outcome.value, "parts": parts}) if parts else None

    r = rein(Rules(post=post, kind="model"))
    model = ScriptedModel([ask(call("lookup", mail="x"), text="I will look")])
    assert go(r, agent_of(model, lookup)).result.final_output == "I will look"
    assert effects == []


def test_what_is_no_answer_is_refused(go, rein):
    r = rein(Rules(post=lambda call, outcome: Replace(7), kind="model"))
    with pytest.raises(ConfigError, match="neither text nor a message"):
        go(r, agent_of(ScriptedModel(["x"])))


def test_another_model_takes_over(go, rein):
    small = ScriptedModel(["from the small one"], model="small")

    def post(call: Any, outcome: Any) -> Any:
        return Fallback("small") if call.name != "small" else None

    r = rein(Rules(post=post, kind="model"))
    agent = supervise_agent(r, agent_of(ScriptedModel(["big"])), models={"small": small})
    assert go(r, agent).result.final_output == "from the small one"
    with pytest.raises(ConfigError, match="supervise_agent"):
        go(r, agent_of(ScriptedModel(["big"])))


def test_a_model_call_is_repeated(go, rein):
    tries: list[int] = []

    def post(call: Any, outcome: Any) -> Any:
        tries.append(call.attempt)
        return Retry() if call.attempt == 1 else None

    r = rein(Rules(post=post, kind="model"))
    model = ScriptedModel([ValueError("down"), "second"])
    assert go(r, agent_of(model)).result.final_output == "second"
    assert tries == [1, 2]


def test_tools_are_taken_out_of_a_request(go, rein):
    def pre(call: Any) -> Any:
        return Rewrite(call.replace(arguments={**call.arguments, "tools": []}))

    model = ScriptedModel(["done"])
    go(rein(Rules(pre=pre, kind="model")), agent_of(model, lookup))
    assert model.offered == [[]]


def test_the_shape_is_the_same_as_everywhere(go, rein):
    seen: list[Any] = []
    r = rein(Rules(pre=lambda call: seen.append(call.arguments), kind="model"))
    model = ScriptedModel([ask(call("lookup", "c1", mail="x"), text="looking"), "done"])
    go(r, agent_of(model, lookup, instructions="Serve."))
    assert seen[1] == {
        "system": [{"type": "text", "content": "Serve."}],
        "messages": [
            {"role": "user", "parts": [{"type": "text", "content": "go"}]},
            {"role": "assistant", "parts": [
                {"type": "text", "content": "looking"},
                {"type": "tool_call", "id": "c1", "name": "lookup", "arguments": {"mail": "x"}},
            ]},
            {"role": "tool", "parts": [
                {"type": "tool_call_response", "id": "c1", "response": "found x"}]},
        ],
        "tools": [
            {"type": "function", "name": "lookup", "description": "Look somebody up."}
        ],
    }  # fmt: skip


class Provider(ModelProvider):
    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.asked: list[Any] = []

    def get_model(self, model_name: str | None) -> Any:
        self.asked.append(model_name)
        return self.model


def test_a_name_is_looked_up_where_the_run_says_so(rein):
    provider = Provider(ScriptedModel(["done"]))
    seen: list[str] = []
    r = rein(Rules(pre=lambda call: seen.append(call.name), kind="model"))
    agent = agent_of("gpt-x")
    asyncio.run(run(r, agent, "go", run_config=RunConfig(model_provider=provider)))
    assert (provider.asked, seen) == (["gpt-x"], ["gpt-x"])


def test_a_name_is_looked_up_by_the_supervisions_own_provider(rein):
    provider = Provider(ScriptedModel(["done"]))
    agent = supervise_agent(rein(), agent_of("gpt-x"), model_provider=provider)
    assert asyncio.run(Runner.run(agent, "go")).final_output == "done"
    assert provider.asked == ["gpt-x"]


def test_the_runs_own_filter_and_model_are_kept(rein):
    def filter(data: Any) -> ModelInputData:
        return ModelInputData(input=data.model_data.input, instructions="filtered")

    model = ScriptedModel(["done"])
    config = RunConfig(model=model, call_model_input_filter=filter)
    r = rein(Redaction())
    asyncio.run(run(r, agent_of(ScriptedModel([])), f"I am {MAIL}", run_config=config))
    assert model.systems == ["filtered"]
    assert MAIL not in model.sent
    assert run_config(r, run_config(r)).trace_include_sensitive_data is False


def test_a_model_in_the_config_of_ours_is_supervised_once(rein):
    model = ScriptedModel(["done"])
    r = rein()
    agent = agent_of(ScriptedModel([]))
    config = run_config(r, RunConfig(model=model))
    with r.session() as session:
        asyncio.run(run(r, agent, "go", run_config=config))
    assert [e.kind for e in session.events()].count("intent") == 1


def test_output_types_and_final_tools_work(go, rein):
    from pydantic import BaseModel

    class Answer(BaseModel):
        text: str

    model = ScriptedModel(['{"text": "yes"}'])
    assert go(rein(), agent_of(model, output_type=Answer)).result.final_output == Answer(text="yes")
    model = ScriptedModel([ask(call("lookup", mail="x"))])
    agent = agent_of(model, lookup, tool_use_behavior="stop_on_first_tool")
    assert go(rein(), agent).result.final_output == "found x"


def test_the_tool_calls_of_a_blocked_answer_never_run(go, rein):
    r = rein(Rules(post=lambda call, outcome: Deny("no"), kind="model"))
    model = ScriptedModel([ask(call("lookup", mail="x"))])
    with pytest.raises(Denied):
        go(r, agent_of(model, lookup))
    assert effects == []


class Filter(Plugin):
    """Hides tool arguments by a stream filter."""

    def open_stream(self, call: Any, channel: str) -> Any:
        return Stars() if channel.startswith("tool:") else None


class Stars:
    holdback = 0

    def feed(self, text: str) -> str:
        return text.replace("secret", "******")

    def flush(self) -> str:
        return ""

    def abort(self) -> None: ...


def test_tool_arguments_are_filtered_before_the_tool_sees_them(go, rein):
    model = ScriptedModel([ask(call("lookup", mail="secret")), "done"], chunk_size=1)
    model.script[0][0].arguments = '{"mail": "s\\u0065cret"}'
    go(rein(Filter()), agent_of(model, lookup))
    assert effects == ["******"]
    assert outputs(model) == ["found ******"]


def test_say_and_sync_runs_share_a_loop(rein):
    r = rein()
    for _ in range(2):
        assert run_sync(r, agent_of(ScriptedModel([[say("x")]])), "go").final_output == "x"
