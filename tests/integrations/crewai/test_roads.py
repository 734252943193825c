"""All roads to a tool: delegation, flows, parallel, direct, repeated and unknown calls."""

from __future__ import annotations

import asyncio
import threading

import pytest
from crewai import Agent, Crew, Process, Task
from crewai.flow.flow import Flow, listen, start
from crewai.hooks.dispatch import InterceptionPoint, get_hooks, get_scoped_hooks, scoped_hooks
from crewai.tools import BaseTool, tool

from checkrein import Deny, Plugin
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein_integrations.crewai import supervise, supervise_tools, supervised_tool
from checkrein_integrations.testing.crewai import ScriptedLLM
from checkrein_plugins.budget import Budget

from .conftest import Road, Rules, call, effects, kinds, told


@tool("write")
def write(text: str) -> str:
    """Write a text."""
    effects.append(text)
    return f"wrote {text}"


class Write(BaseTool):
    name: str = "write"
    description: str = "Write a text."

    def _run(self, text: str) -> str:
        return write.func(text)


class Read(BaseTool):
    name: str = "read"
    description: str = "Read."

    def _run(self) -> str:
        return f"read {len(effects)}"


no_secrets = Rules(lambda call: Deny("secret") if call.arguments.get("text") == "s" else None)


def rows(rein, name="write"):
    return [kind for kind, about in kinds(rein) if about == name and kind in ("intent", "denied")]


# -- nothing stays behind


def test_hooks_tools_and_models_are_as_before_after_the_block(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm([call("write", text="a")], "done")
    made = Write()
    crew = road.crew(llm, [made, write])
    before = (type(made), write.func, type(llm))
    points = list(InterceptionPoint)
    with supervise(rein()):
        crew.kickoff()
        assert type(llm) is not before[2]
    assert (type(made), write.func, type(llm)) == before
    assert all(get_hooks(point) == [] and get_scoped_hooks(point) == [] for point in points)


def test_hooks_of_the_user_around_the_block_stay(rein):
    road = Road(native=True, mode="sync")
    seen = []
    point = InterceptionPoint.PRE_TOOL_CALL
    with scoped_hooks({point: [lambda context: seen.append(context.tool_name)]}):
        road.run(rein(), road.crew(road.llm([call("write", text="a")], "done"), [write]))
    assert seen == ["write"]


def test_a_hook_of_the_user_that_blocks_leaves_a_record_of_nothing_run(rein):
    road = Road(native=True, mode="sync")
    r = rein()
    llm = road.llm([call("write", text="a")], "done")
    with scoped_hooks({InterceptionPoint.PRE_TOOL_CALL: [lambda context: False]}):
        road.run(r, road.crew(llm, [write]))
    assert effects == []
    assert "blocked by hook" in told(llm)[-1]
    assert ("outcome", "not_done") in kinds(r)


# -- two adapters, another Rein


@pytest.mark.parametrize("made", [write, Write()], ids=["function", "class"])
def test_supervised_twice_is_decided_and_recorded_once(road, rein, made):
    r = rein(Budget(calls=10), no_secrets)
    proxy = supervised_tool(r, made)
    assert supervised_tool(r, proxy) is proxy
    llm = road.llm([call("write", text="a")], [call("write", text="s")], "done")
    with supervise(r):
        road.run(r, road.crew(llm, [proxy]))
    assert effects == ["a"]
    assert rows(r) == ["intent", "denied"]
    assert told(llm)[-1].startswith("[denied] write was not run: secret")
    row = r.store.sessions().rows[0]
    assert r.read(row.id).spend().calls == 4


def test_two_reins_are_refused(rein):
    first, second = rein(), rein()
    with supervise(first), pytest.raises(ConfigError, match="another Rein"), supervise(second):
        pass
    proxy = supervised_tool(first, write)
    with pytest.raises(ConfigError, match="another Rein"):
        supervised_tool(second, proxy)
    road = Road(native=True, mode="sync")
    with pytest.raises(ConfigError, match="another Rein"):
        road.run(second, road.crew(road.llm([call("write", text="a")], "done"), [proxy]))
    assert effects == []


def test_bad_input_is_refused(rein):
    r = rein()
    for bad in (3, object(), ["x"], [lambda: None]):
        with pytest.raises(ConfigError):
            supervise_tools(r, bad)
    for bad in (3, object()):
        with pytest.raises(ConfigError):
            supervised_tool(r, bad)
    with pytest.raises(ConfigError, match="can be no CrewAI tool"):
        supervised_tool(r, lambda x: x)
    with pytest.raises(ConfigError, match="session"):
        supervise(r, session=rein().session())
    with pytest.raises(ConfigError, match="not a CrewAI LLM"):
        supervise(r, models={"a": "b"})
    block = supervise(r)
    with block, pytest.raises(ConfigError, match="once"), block:
        pass


def test_a_tool_whose_calls_go_past_the_hooks_is_refused(rein):
    class Own(Write):
        def run(self, *args, **kwargs):
            return self._run(*args, **kwargs)

    road = Road(native=True, mode="sync")
    with pytest.raises(ConfigError, match="supervise_tools"):
        road.run(rein(), road.crew(road.llm([call("write", text="a")], "done"), [Own()]))
    assert effects == []
    r = rein(no_secrets)
    llm = road.llm([call("write", text="a")], [call("write", text="s")], "done")
    road.run(r, road.crew(llm, supervise_tools(r, [Own()])))
    assert effects == ["a"]


# -- direct calls


@pytest.mark.parametrize("made", [write, Write()], ids=["function", "class"])
def test_direct_calls_of_a_supervised_tool(rein, made):
    r = rein(no_secrets)
    proxy = supervised_tool(r, made)
    with r.session():
        assert proxy.run(text="a") == "wrote a"
        with pytest.raises(Denied, match="secret"):
            proxy.run(text="s")
        with pytest.raises(Denied, match="secret"):
            proxy._run(text="s")
        with pytest.raises(ValueError, match="validation failed"):
            proxy.run(txt="a")
    assert effects == ["a"]
    assert rows(r) == ["intent", "denied", "denied"]


def test_an_async_tool_is_supervised_on_both_ways(rein):
    @tool("later")
    async def later(text: str) -> str:
        """Write later."""
        await asyncio.sleep(0)
        effects.append(text)
        return f"wrote {text}"

    r = rein(no_secrets)
    proxy = supervised_tool(r, later)

    async def direct():
        assert await proxy.arun(text="a") == "wrote a"
        with pytest.raises(Denied):
            await proxy.arun(text="s")

    asyncio.run(direct())
    assert proxy.run(text="b") == "wrote b"
    road = Road(native=True, mode="akickoff")
    llm = road.llm([call("later", text="c")], [call("later", text="s")], "done")
    road.run(r, road.crew(llm, [later]))
    assert effects == ["a", "b", "c"]


def test_a_tool_made_of_a_function_with_its_undo(rein):
    balance = {"ann": 0}
    r = rein()

    def take_back(result):
        balance[result["who"]] -= result["amount"]

    @supervised_tool(r, undo=take_back)
    def refund(who: str, amount: int) -> dict:
        """Refund an amount."""
        balance[who] += amount
        return {"who": who, "amount": amount}

    road = Road(native=True, mode="sync")
    llm = road.llm([call("refund", who="ann", amount=7)], ValueError("the model is down"))
    crew = road.crew(llm, [refund])
    crew.agents[0].max_retry_limit = 0
    with pytest.raises(ValueError, match="down"):
        road.run(r, crew)
    assert balance == {"ann": 0}
    assert [row.rollback for row in r.store.sessions().rows] == ["rolled_back"]


def test_a_declared_tool_is_undone_by_another_crewai_tool(road, rein):
    class Delete(BaseTool):
        name: str = "delete"
        description: str = "Delete."

        def _run(self, text: str) -> str:
            effects.remove(text)
            return "deleted"

    r = rein()
    r.declare("write", undo="delete")
    made = [Write(), Delete()]
    llm = road.llm([call("write", text="a")], "done")
    with r.session() as session:
        supervise_tools(r, made)
        road.run(r, road.crew(llm, made))
        assert effects == ["a"]
        session.rollback()
    assert effects == []


# -- more than one agent


def test_delegated_agents_are_supervised(rein):
    r = rein(no_secrets)
    boss_llm = ScriptedLLM(script=[
        [call("delegate_work_to_coworker", task="write it", context="none", coworker="writer")],
        "done",
    ])  # fmt: skip
    writer_llm = ScriptedLLM(script=[[call("write", text="s")], [call("write", text="a")], "ok"])
    writer = Agent(role="writer", goal="g", backstory="b", llm=writer_llm, tools=[write])
    boss = Agent(role="boss", goal="g", backstory="b", llm=boss_llm, allow_delegation=True)
    task = Task(description="d", expected_output="x", agent=boss)
    with supervise(r) as session:
        assert Crew(agents=[boss, writer], tasks=[task]).kickoff().raw == "done"
    assert effects == ["a"]
    roles = {}
    for event in session.events():
        if event.kind in ("intent", "denied"):
            roles.setdefault(event.view["name"], []).append(event.view["labels"]["crewai.role"])
    assert roles["write"] == ["writer", "writer"]
    assert roles["delegate_work_to_coworker"] == ["boss"]
    assert session.spend().tokens == 15 * 5


def test_a_hierarchy_with_a_manager(rein):
    r = rein(no_secrets)
    manager = ScriptedLLM(script=[
        [call("delegate_work_to_coworker", task="write", context="-", coworker="writer")], "done",
    ])  # fmt: skip
    writer_llm = ScriptedLLM(script=[[call("write", text="a")], "ok"])
    writer = Agent(role="writer", goal="g", backstory="b", llm=writer_llm, tools=[write])
    crew = Crew(
        agents=[writer],
        tasks=[Task(description="d", expected_output="x")],
        process=Process.hierarchical,
        manager_llm=manager,
    )
    with supervise(r) as session:
        assert crew.kickoff().raw == "done"
    assert effects == ["a"]
    assert session.spend().tokens == 15 * 4


def test_an_agent_without_a_crew(road, rein):
    r = rein(no_secrets)
    llm = road.llm([call("write", text="s")], "done")
    agent = Agent(role="solo", goal="g", backstory="b", llm=llm, tools=[write])
    if road.mode == "sync":
        with supervise(r):
            agent.kickoff("go")
    else:

        async def entry():
            async with supervise(r):
                await agent.kickoff_async("go")

        asyncio.run(entry())
    assert effects == []
    assert rows(r) == ["denied"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_flows(rein, mode):
    r = rein(no_secrets)
    road = Road(native=True, mode="sync")
    llms = [road.llm([call("write", text=text)], "done") for text in ("a", "s")]

    class Steps(Flow):
        @start()
        def first(self):
            return road.crew(llms[0], [write]).kickoff().raw

        @listen(first)
        async def second(self, raw):
            return (await road.crew(llms[1], [write]).akickoff()).raw

    if mode == "sync":
        with supervise(r) as session:
            assert Steps().kickoff() == "done"
    else:

        async def entry():
            async with supervise(r) as session:
                assert await Steps().kickoff_async() == "done"
                return session

        session = asyncio.run(entry())
    assert effects == ["a"]
    assert rows(r) == ["intent", "denied"]
    assert session.spend().calls == 5
    assert session.state == "COMPLETED"


# -- several calls of one turn


def test_a_limit_holds_for_parallel_calls(rein):
    road = Road(native=True, mode="sync")
    r = rein(Budget(calls=4))
    llm = road.llm([call("write", text=t) for t in "abcd"], "done")
    with pytest.raises(BudgetExceeded) as caught:
        road.run(r, road.crew(llm, [write]))
    # One of the model, three of the tool; the next one of the model has no room either.
    assert len(effects) == 3
    assert caught.value.tool == "scripted-1"
    assert rows(r).count("intent") == 3
    assert rows(r).count("denied") == 1


def test_a_halt_of_one_parallel_call_ends_the_run(rein):
    road = Road(native=True, mode="sync")
    gate = threading.Event()

    def rule(call):
        if call.arguments["text"] == "b":
            gate.wait(5)
            return Deny("stop", halt=True)
        return None

    @tool("write")
    def opening(text: str) -> str:
        """Write a text."""
        effects.append(text)
        gate.set()
        return text

    r = rein(Rules(rule))
    with pytest.raises(Denied, match="stop"):
        road.run(r, road.crew(road.llm([call("write", text=t) for t in "ab"], "x"), [opening]))
    assert effects == ["a"]


# -- what the framework answers itself


def test_identical_calls(road, rein):
    """A write that is asked for twice is done twice, unless the framework suppresses it."""
    r = rein()
    llm = road.llm([call("write", text="a")], [call("write", text="a")], "done")
    road.run(r, road.crew(llm, [write], cache=True))
    done = [about for kind, about in kinds(r) if kind == "outcome" and about == "not_done"]
    # What was answered by the framework is in the journal as not executed.
    assert len(effects) + len(done) == 2
    assert [kind for kind, about in kinds(r) if about == "write"] == ["intent"] * 2


def test_a_cached_answer_still_passes_policy(rein):
    road = Road(native=True, mode="sync")
    seen = []

    def second_time(call):
        seen.append(call.id)
        return Deny("once only") if len(set(seen)) > 1 else None

    llm = road.llm([call("write", text="a")], [call("write", text="a")], "done")
    road.run(rein(Rules(second_time)), road.crew(llm, [write], cache=True))
    assert effects == ["a"]
    assert "once only" in told(llm)[-1]


def test_an_unknown_tool_is_judged_and_recorded(rein):
    road = Road(native=True, mode="sync")
    r = rein(Rules(lambda call: Deny("no such thing") if call.name == "hack" else None))
    llm = road.llm([call("nothing")], [call("hack")], "done")
    road.run(r, road.crew(llm, [write]))
    said = told(llm)
    assert said[0] == "Tool not found"
    assert "no such thing" in said[1]
    assert rows(r, "nothing") == ["intent"]
    assert rows(r, "hack") == ["denied"]


def test_arguments_that_do_not_fit_run_nothing(road, rein):
    r = rein()
    llm = road.llm([call("write", wrong="a")], "done")
    road.run(r, road.crew(llm, [write]))
    assert effects == []
    assert "alidation failed" in told(llm)[-1]
    assert ("outcome", "not_done") in kinds(r)


def test_the_result_of_a_final_tool_is_the_answer(road, rein):
    class Final(Write):
        result_as_answer: bool = True

    r = rein(no_secrets)
    assert road.run(r, road.crew(road.llm([call("write", text="a")]), [Final()])).raw == "wrote a"
    denied = road.run(r, road.crew(road.llm([call("write", text="s")], "gave up"), [Final()]))
    assert denied.raw == "gave up"
    assert effects == ["a"]


def test_async_policies_hold(road, rein):
    class Later(Plugin):
        async def pre_call(self, call):
            await asyncio.sleep(0)
            return Deny("later") if call.kind == "tool" else None

    llm = road.llm([call("write", text="a")], "done")
    road.run(rein(Later()), road.crew(llm, [write]))
    assert effects == []
    assert told(llm)[-1].startswith("[denied]")


def test_a_timeout_leaves_the_effect_unknown(rein):
    road = Road(native=True, mode="sync")
    gate = threading.Event()

    @tool("slow")
    def slow() -> str:
        """Take long."""
        gate.wait(10)
        effects.append("slow")
        return "done"

    r = rein()
    r.declare("slow", timeout=0.1)
    llm = road.llm([call("slow")], "done")
    with supervise(r):
        road.crew(llm, [slow]).kickoff()
        assert told(llm)[-1].startswith("[in_doubt] slow was started")
        assert ("outcome", "unknown") in kinds(r)
        gate.set()


def test_a_guardrail_that_rejects_pays_for_every_attempt(road, rein):
    r = rein()
    answers = iter([False, True])
    agent = Agent(role="a", goal="g", backstory="b", llm=road.llm("first", "second"))
    task = Task(
        description="d",
        expected_output="x",
        agent=agent,
        guardrail=lambda output: (next(answers), output.raw),
        guardrail_max_retries=2,
    )
    result = road.run(r, Crew(agents=[agent], tasks=[task]))
    assert result.raw == "second"
    row = r.store.sessions().rows[0]
    assert r.read(row.id).spend().tokens == 30


def test_calls_outside_any_block_are_not_supervised(rein):
    rein(no_secrets)
    road = Road(native=True, mode="sync")
    llm = road.llm([call("write", text="s")], "done")
    assert road.crew(llm, [write]).kickoff().raw == "done"
    assert effects == ["s"]


def test_read_write_read_gives_live_values(road, rein):
    llm = road.llm([call("read")], [call("write", text="a")], [call("read")], "done")
    road.run(rein(), road.crew(llm, [Read(), write]))
    assert told(llm)[0] == "read 0"
    assert told(llm)[-1] == "read 1"
