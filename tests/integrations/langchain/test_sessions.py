"""The session of a run: whose it is, how it ends, and what an error does to it."""

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from checkrein.errors import ConfigError, SessionClosed
from checkrein_integrations.langchain import CheckreinMiddleware
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, effects, kinds, states

THREAD = {"configurable": {"thread_id": "t1"}}


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    if amount == 13:
        raise ValueError("unlucky")
    return f"paid {amount}"


def script(*calls: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*[ai("", c) for c in calls], ai("done"), ai("again")])


def undoing(r: Any) -> Any:
    r.declare(
        "pay", undo=lambda amount: effects.append(("undone", amount)),
        probe=lambda amount: amount in effects and ("undone", amount) not in effects,
        settle_time=0,
    )  # fmt: skip
    return r


def test_named_after_the_agent(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    agent(script(call("pay", amount=1)), [pay], CheckreinMiddleware(r), name="billing").run()
    assert r.store.sessions().rows[0].body["agent"] == "billing"


def test_made_by_a_function_of_the_state(agent: Any, rein: Any) -> None:
    r = rein(Rules())

    def session(state: Any, runtime: Any) -> Any:
        return r.session(agent="mine", user=state["messages"][0].content)

    agent(script(), [pay], CheckreinMiddleware(r, session=session)).run("ann")
    body = r.store.sessions().rows[0].body
    assert (body["agent"], body["user"]) == ("mine", "ann")


def test_what_is_no_session_is_refused(agent: Any, rein: Any) -> None:
    wrong: Any = lambda state, runtime: "mine"  # noqa: E731 - what it refuses
    made = CheckreinMiddleware(rein(Rules()), session=wrong)
    with pytest.raises(ConfigError, match="session"):
        agent(script(), [pay], made).run()


def test_open_session_is_used_and_rolled_back_on_error(agent: Any, rein: Any) -> None:
    r = undoing(rein(Rules()))
    a = agent(script(call("pay", amount=1), call("pay", amount=13)), [pay], CheckreinMiddleware(r))
    with pytest.raises(ValueError, match="unlucky"), r.session():
        a.run()
    assert effects == [1, 13, ("undone", 13), ("undone", 1)]
    assert states(r) == [("FAILED", "rolled_back")]


def test_two_runs_in_one_open_session(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    a = agent(script(), [pay], CheckreinMiddleware(r))
    with r.session():
        a.run()
        a.run()
    assert states(r) == [("COMPLETED", "none")]
    assert [k for k, _ in kinds(r)].count("session_started") == 1


@pytest.mark.parametrize("fails", ["tool", "model"])
def test_plain_error_in_a_run_of_its_own_is_undone_at_once(
    agent: Any, rein: Any, fails: str
) -> None:
    r = undoing(rein(Rules()))
    last = ai("", call("pay", amount=13)) if fails == "tool" else OSError("unlucky line")
    model = ScriptedChatModel(script=[ai("", call("pay", amount=1)), last])
    with pytest.raises((ValueError, OSError), match="unlucky"):
        agent(model, [pay], CheckreinMiddleware(r)).run()
    assert states(r) == [("FAILED", "rolled_back")]
    done = [1, 13] if fails == "tool" else [1]
    assert effects == [*done, *(("undone", amount) for amount in reversed(done))]


def taken_up(error: Exception, request: Any) -> ToolMessage:
    return ToolMessage(f"told: {error}", tool_call_id=request.tool_call["id"])


class Outside(AgentMiddleware):
    """Takes every error of a tool up."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except ValueError as error:
            return taken_up(error, request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except ValueError as error:
            return taken_up(error, request)


def test_plain_error_that_somebody_outside_may_handle_ends_nothing(agent: Any, rein: Any) -> None:
    r = undoing(rein(Rules()))
    model = ScriptedChatModel(script=[ai("", call("pay", amount=13)), ai("went on")])
    ours = CheckreinMiddleware(r)
    messages = agent(model, [pay], Outside(), ours).run()["messages"]
    assert [m.content for m in messages[2:]] == ["told: unlucky", "went on"]
    assert states(r) == [("COMPLETED", "none")]
    assert effects == [13]
    # Of a model's error nobody outside knows what to do: it ends the run.
    model = ScriptedChatModel(script=[ai("", call("pay", amount=2)), OSError("line")])
    with pytest.raises(OSError, match="line"):
        agent(model, [pay], Outside(), CheckreinMiddleware(r)).run()
    assert states(r)[0] == ("FAILED", "rolled_back")


def test_one_middleware_in_two_agents_goes_by_the_one_with_somebody_outside(
    agent: Any, rein: Any
) -> None:
    r = undoing(rein(Rules()))
    ours = CheckreinMiddleware(r)
    first = agent(script(call("pay", amount=13)), [pay], ours)
    agent(script(), [pay], Outside(), ours)
    with pytest.raises(ValueError, match="unlucky"):
        first.run()
    assert states(r) == [("ACTIVE", "none")]


def test_plain_error_in_a_checkpointed_run_is_undone_when_the_next_begins(
    agent: Any, rein: Any
) -> None:
    r = undoing(rein(Rules()))
    model = ScriptedChatModel(
        script=[ai("", call("pay", amount=1)), ai("", call("pay", amount=13)), ai("fresh")]
    )
    a = agent(model, [pay], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="unlucky"):
        a.run("go", THREAD)
    assert states(r) == [("ACTIVE", "none")]
    assert a.run("again", THREAD)["messages"][-1].content == "fresh"
    assert states(r) == [("COMPLETED", "none"), ("FAILED", "rolled_back")]
    assert effects == [1, 13, ("undone", 13), ("undone", 1)]


def test_error_outside_our_hooks_can_still_be_rolled_back_by_a_session_around(
    agent: Any, rein: Any
) -> None:
    class Breaks(AgentMiddleware):
        def after_model(self, state: Any, runtime: Any) -> None:
            if len(state["messages"]) > 3:
                raise RuntimeError("elsewhere")

    r = undoing(rein(Rules()))
    a = agent(script(call("pay", amount=1)), [pay], CheckreinMiddleware(r), Breaks())
    with pytest.raises(RuntimeError, match="elsewhere"), r.session():
        a.run()
    assert effects == [1, ("undone", 1)]


def test_cancelled_run_is_rolled_back(rein: Any) -> None:
    @tool
    async def hang() -> str:
        """Hang."""
        effects.append("hanging")
        await asyncio.sleep(30)
        return "never"

    r = undoing(rein(Rules()))
    r.declare("hang", effect="read")
    model = script(call("pay", amount=1), call("hang"))
    graph = create_agent(model, [pay, hang], middleware=[CheckreinMiddleware(r)])

    async def run() -> None:
        task = asyncio.create_task(graph.ainvoke({"messages": [("user", "go")]}))
        while "hanging" not in effects:  # noqa: ASYNC110 - a tool has no event to set
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            if states(r) == [("FAILED", "rolled_back")]:
                break
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert effects == [1, "hanging", ("undone", 1)]
    assert states(r) == [("FAILED", "rolled_back")]
    ended = [e.view["ended"] for e in r.store.events(kinds=("outcome",)) if "ended" in e.view]
    assert ended == ["cancelled"]


def test_pause_of_another_middleware_suspends_the_session_around(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    a = agent(
        script(call("pay", amount=1)), [pay], CheckreinMiddleware(r),
        HumanInTheLoopMiddleware(interrupt_on={"pay": True}), checkpointer=InMemorySaver(),
    )  # fmt: skip
    with r.session() as session:
        assert a.run("go", THREAD)["__interrupt__"]
    row = r.store.session(session.id)
    assert (row.state, row.owner) == ("ACTIVE", "")
    with r.session(id=session.id):
        a.run(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)
    assert effects == [1]
    assert states(r) == [("COMPLETED", "none")]


def test_rejected_inside_ours_runs_nothing_and_is_not_undone(agent: Any, rein: Any) -> None:
    class Refuses(AgentMiddleware):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            from langchain_core.messages import ToolMessage

            return ToolMessage("not today", tool_call_id=request.tool_call["id"], name="pay")

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return self.wrap_tool_call(request, handler)

    r = undoing(rein(Rules()))
    a = agent(script(call("pay", amount=1)), [pay], CheckreinMiddleware(r), Refuses())
    with r.session() as session:
        texts = a.texts()
        session.rollback()
    assert texts[2] == "not today"
    assert effects == []


def test_ended_session_takes_no_run(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    with r.session() as session:
        pass
    made = CheckreinMiddleware(r, session=lambda s, runtime: r.session(id=session.id))
    with pytest.raises(SessionClosed):
        agent(script(), [pay], made).run()


def test_two_agents_at_once_have_two_sessions(rein: Any) -> None:
    r = rein(Rules())

    async def run() -> None:
        graphs = [
            create_agent(script(call("pay", amount=n)), [pay], middleware=[CheckreinMiddleware(r)])
            for n in range(3)
        ]
        await asyncio.gather(*(g.ainvoke({"messages": [("user", "go")]}) for g in graphs))

    asyncio.run(run())
    assert states(r) == [("COMPLETED", "none")] * 3
    owners = {e.session for e in r.store.events(kinds=("intent",)) if e.view["name"] == "pay"}
    assert len(owners) == 3
