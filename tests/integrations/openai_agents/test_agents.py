"""Every agent of a run: hand-offs, agents as tools, MCP servers, tools that cannot be stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    CustomTool,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunConfig,
    Runner,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool

from checkrein import Ask, Deny, Rewrite
from checkrein.errors import ConfigError, Denied
from checkrein_integrations.openai_agents import run, run_config, supervise_agent
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call

from .conftest import Pre, Rules, agent_of, effects, kinds, outputs, states


@function_tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    return f"paid {amount}"


def limit(call: Any) -> Any:
    return Deny("more than 100") if call.arguments.get("amount", 0) > 100 else None


def both(second: Any) -> tuple[Agent[Any], ScriptedModel]:
    first = ScriptedModel([ask(call("transfer_to_b")), "a speaks"])
    return agent_of(first, handoffs=[second]), first


@pytest.mark.parametrize("form", ["agent", "handoff"])
def test_the_agent_that_is_handed_to_is_supervised(go, rein, form):
    model = ScriptedModel([ask(call("pay", amount=500), call("pay", amount=5)), "b speaks"])
    b = agent_of(model, pay, name="b")
    a, _ = both(b if form == "agent" else handoff(b))
    r = rein(Pre(limit))
    assert go(r, a).result.final_output == "b speaks"
    assert effects == [5]
    names = [(e.view["name"], e.view["kind"]) for e in r.store.events(kinds=("intent",), limit=100)]
    assert ("transfer_to_b", "tool") in names


def test_the_journal_and_the_plugins_know_who_acts(go, rein):
    acted: list[tuple[str, str]] = []
    model = ScriptedModel([ask(call("pay", amount=5)), "b speaks"])
    a, _ = both(agent_of(model, pay, name="b"))
    go(rein(Pre(lambda call: acted.append((call.agent, call.name)))), a)
    assert acted[-1] == ("b", "pay")
    assert ("a", "transfer_to_b") in acted


def test_a_refused_hand_off_is_told_and_leads_nowhere(go, rein):
    b = agent_of(ScriptedModel([]), name="b")
    a, model = both(b)
    went = go(rein(Pre(lambda call: Deny("stay") if call.name == "transfer_to_b" else None)), a)
    assert went.result.final_output == "a speaks"
    assert outputs(model)[0].startswith("[denied] transfer_to_b was not run: stay")


def test_a_halted_hand_off_ends_the_run(go, rein):
    a, _ = both(agent_of(ScriptedModel([]), name="b"))
    with pytest.raises(Denied, match="stay"):
        go(rein(Pre(lambda call: Deny("stay", halt=True))), a)


def test_what_a_hand_off_does_is_part_of_the_call(go, rein):
    def note(context: Any) -> None:
        effects.append("noted")

    b = agent_of(ScriptedModel(["b speaks"]), name="b")
    a, _ = both(handoff(b, on_handoff=note))
    go(rein(Pre(lambda call: None)), a)
    assert effects == ["noted"]
    effects.clear()
    a, _ = both(handoff(b, on_handoff=note))
    go(rein(Pre(lambda call: Deny("stay"))), a)
    assert effects == []


def test_agents_that_hand_off_to_each_other(go, rein):
    back = ScriptedModel([ask(call("transfer_to_a")), "never"])
    b = agent_of(back, name="b")
    a = agent_of(ScriptedModel([ask(call("transfer_to_b")), "a again"]), handoffs=[b])
    b.handoffs = [a]
    assert go(rein(), a).result.final_output == "a again"


def test_an_agent_as_a_tool_is_supervised_with_its_tools(go, rein):
    inner = ScriptedModel([ask(call("pay", amount=500), call("pay", amount=5)), "inner done"])
    b = agent_of(inner, pay, name="b")
    outer = ScriptedModel([ask(call("helper", input="do it")), "outer done"])
    r = rein(Pre(limit))
    a = agent_of(outer, b.as_tool("helper", "Help."))
    assert go(r, a).result.final_output == "outer done"
    assert effects == [5]
    assert outputs(outer) == ["inner done"]
    assert outputs(inner)[0].startswith("[denied]")
    (around,) = [e for e in r.store.events(kinds=("intent",)) if e.view["name"] == "helper"]
    (paid,) = [e for e in r.store.events(kinds=("intent",)) if e.view["name"] == "pay"]
    assert paid.view["parent"] == around.call


def test_a_halt_inside_an_inner_agent_ends_the_outer_run(go, rein):
    inner = ScriptedModel([ask(call("pay", amount=5))])
    b = agent_of(inner, pay, name="b")
    a = agent_of(ScriptedModel([ask(call("helper", input="x")), "friendly"]),
                 b.as_tool("helper", "Help."))  # fmt: skip
    r = rein(Pre(lambda call: Deny("stop", halt=True) if call.name == "pay" else None))
    with pytest.raises(Denied, match="stop"):
        go(r, a)
    assert states(r)[0][0] == "FAILED"


def test_an_inner_agents_own_run_config_is_supervised(rein):
    own = ScriptedModel(["inner"], model="own-model")
    seen: list[str] = []

    class Models(Rules):
        def pre_call(self, call: Any) -> None:
            if call.kind == "model":
                seen.append(call.name)

    b = agent_of(ScriptedModel([]), name="b")
    tool = b.as_tool("helper", "Help.", run_config=RunConfig(model=own))
    a = agent_of(ScriptedModel([ask(call("helper", input="x")), "done"]), tool)
    asyncio.run(run(rein(Models()), a, "go"))
    assert seen == ["scripted-1", "own-model", "scripted-1"]


class Server(MCPServer):
    """An MCP server in this process."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    @property
    def name(self) -> str:
        return "bank"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        return [McpTool.model_validate({"name": "pay", "inputSchema": schema})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        effects.append(arguments["amount"])
        text = TextContent(type="text", text=f"paid {arguments['amount']}")
        return CallToolResult(content=[text])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        raise NotImplementedError


def test_tools_of_an_mcp_server_are_judged_and_rewritten_like_others(go, rein):
    def rule(call: Any) -> Any:
        if call.arguments["amount"] == 7:
            return Rewrite(call.replace(arguments={"amount": 1}))
        return limit(call)

    r = rein(Pre(rule))
    r.declare("pay", undo=lambda amount: effects.append(f"back {amount}"))
    model = ScriptedModel(
        [ask(call("pay", amount=500), call("pay", amount=7)), ask(call("pay", amount=9)), "done"]
    )
    with r.session() as session:
        go(r, agent_of(model, mcp_servers=[Server()]))
        session.rollback()
    assert effects == [1, 9, "back 9", "back 1"]
    (first, *_) = [e for e in session.events() if e.kind == "denied"]
    assert first.view["name"] == "pay"


def test_an_mcp_server_that_wants_approval_gets_it_from_the_record(rein):
    r = rein(approvals="store")
    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    agent = agent_of(model, mcp_servers=[Server(require_approval="always")])
    result = asyncio.run(run(r, agent, "go"))
    assert (len(result.interruptions), effects) == (1, [])
    assert [a.rule for a in r.approvals.pending()] == ["needs_approval"]


@pytest.mark.parametrize("tool", [WebSearchTool(), CodeInterpreterTool(tool_config={
    "type": "code_interpreter", "container": {"type": "auto"}})])  # fmt: skip
def test_tools_that_nothing_can_stop_are_refused_or_marked(rein, tool, caplog):
    r = rein()
    with pytest.raises(ConfigError, match="can be stopped"):
        supervise_agent(r, agent_of(ScriptedModel(["x"]), tool))
    with caplog.at_level("WARNING"):
        agent = supervise_agent(r, agent_of(ScriptedModel(["x"]), tool), ungated="allow")
    assert tool.name in caplog.text
    asyncio.run(run(r, agent, "go"))
    (intent,) = r.store.events(kinds=("intent",))
    assert intent.view["labels"] == {"ungated": tool.name}


def test_a_tool_that_nothing_can_stop_behind_a_hand_off_is_refused_too(rein):
    b = agent_of(ScriptedModel([]), WebSearchTool(), name="b")
    with pytest.raises(ConfigError, match="agent b"):
        supervise_agent(rein(), agent_of(ScriptedModel([]), handoffs=[b]))


def test_a_tool_that_comes_later_is_supervised_or_refused(rein):
    r, model = rein(Pre(limit)), ScriptedModel([ask(call("pay", amount=500)), "done"])
    agent = supervise_agent(r, agent_of(model))
    agent.tools.append(pay)
    asyncio.run(run(r, agent, "go"))
    assert effects == []
    assert outputs(model)[0].startswith("[denied]")
    agent.tools.append(WebSearchTool())
    with pytest.raises(ConfigError, match="can be stopped"):
        asyncio.run(run(r, agent, "go"))


def test_the_models_own_request_is_refused_where_only_the_config_is_ours(rein):
    r = rein()
    agent = agent_of(ScriptedModel([]), WebSearchTool())
    agent.model = "named"
    config = run_config(r, RunConfig(model=ScriptedModel(["x"])))
    with pytest.raises(ConfigError, match="web_search"):
        asyncio.run(_plain(agent, config))


async def _plain(agent: Any, config: Any) -> Any:
    return await Runner.run(agent, "go", run_config=config)


def test_a_custom_tool_is_supervised(go, rein):
    def patch(context: Any, text: str) -> str:
        effects.append(text)
        return "patched"

    from openai.types.responses import ResponseCustomToolCall

    asked = ResponseCustomToolCall(
        type="custom_tool_call", call_id="c1", name="patch", input="*** text", id="ct-1"
    )

    r = rein(Pre(lambda call: Deny("no") if "secret" in call.arguments["input"] else None))
    tool = CustomTool(name="patch", description="Patch.", on_invoke_tool=patch)
    agent = supervise_agent(r, agent_of(ScriptedModel([[asked], "done"]), tool))
    asyncio.run(run(r, agent, "go"))
    assert effects == ["*** text"]
    other = asked.model_copy(update={"input": "secret"})
    agent = supervise_agent(r, agent_of(ScriptedModel([[other], "done"]), tool))
    asyncio.run(run(r, agent, "go"))
    assert effects == ["*** text"]
    assert kinds(r).count("denied") == 1


def test_an_input_guardrail_is_done_before_any_tool_acts(go, rein):
    async def slow(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asyncio.sleep(0.1)
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    agent = agent_of(model, pay, input_guardrails=[InputGuardrail(slow)])
    with pytest.raises(Exception, match="tripwire"):
        go(rein(), agent)
    assert effects == []
    agent = agent_of(model, pay)
    with pytest.raises(Exception, match="tripwire"):
        go(rein(), agent, run_config=RunConfig(input_guardrails=[InputGuardrail(slow)]))
    assert effects == []


def test_an_approval_inside_an_inner_agent_waits_and_goes_on(rein, tmp_path):
    from checkrein_integrations.openai_agents import aresume

    r = rein(
        Pre(lambda call: Ask("big") if call.name == "pay" else None),
        store=f"sqlite:///{tmp_path}/c.db",
    )
    inner = ScriptedModel([ask(call("pay", amount=5)), "inner done"])
    outer = ScriptedModel([ask(call("helper", input="do it")), "outer done"])

    def make() -> Agent[Any]:
        return agent_of(outer, agent_of(inner, pay, name="b").as_tool("helper", "Help."))

    result = asyncio.run(run(r, make(), "go"))
    assert (len(result.interruptions), effects) == (1, [])
    (asked,) = r.approvals.pending()
    r.approvals.approve(asked.id, by="ann")
    result = asyncio.run(aresume(r, asked.id, make))
    assert (result.final_output, effects) == ("outer done", [5])
    assert (len(inner.seen), len(outer.seen)) == (2, 2)
    assert states(r) == [("COMPLETED", "none")]


def test_a_rejected_approval_is_told(rein):
    from checkrein_integrations.openai_agents import resume

    r = rein(Pre(lambda call: Ask("big")), approvals="store")
    model = ScriptedModel([ask(call("pay", amount=5)), "done"])
    asyncio.run(run(r, agent_of(model, pay), "go"))
    (asked,) = r.approvals.pending()
    r.approvals.reject(asked.id, by="ann", reason="too much")
    result = resume(r, asked.id, agent_of(model, pay))
    assert (result.final_output, effects) == ("done", [])
    assert outputs(model)[0].startswith("[rejected] pay was not run: rejected by ann: too much")
