"""Approvals: the run pauses, the record decides, everything runs once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, ToolErrorMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from checkrein import Always, Approved, Ask, Plugin
from checkrein.errors import ApprovalPending, ConfigError, Conflict
from checkrein_integrations.langchain import CheckreinMiddleware, aresume, resume
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, effects, states

THREAD = {"configurable": {"thread_id": "t1"}}


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    return f"paid {amount}"


@tool
def look(what: str) -> str:
    """Look at something."""
    effects.append(what)
    return f"saw {what}"


def asking(above: int = 5) -> Rules:
    def rule(c: Any) -> Any:
        if c.name == "pay" and c.arguments["amount"] > above:
            return Ask("a large payment", rule="large")
        return None

    return Rules(rule)


def script(*calls: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[ai("", *calls), ai("done"), ai("never reached")])


@pytest.fixture
def paused(agent: Any, rein: Any, tmp_path: Path) -> Any:
    """(rein, agent, model) of a run that waits for one payment, beside a look and a small one."""
    r = rein(asking(), store=f"sqlite:///{tmp_path}/c.db")
    model = script(call("pay", amount=9), call("look", what="sky"), call("pay", amount=1))
    a = agent(model, [pay, look], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    result = a.run("go", THREAD)
    return r, a, model, result


def test_only_the_gated_call_waits(paused: Any) -> None:
    r, _, _, result = paused
    (waiting,) = result["__interrupt__"]
    asked = r.approvals.pending()
    assert waiting.value["token"] == asked[0].id
    assert waiting.value["tool"] == "pay"
    assert waiting.value["arguments"] == {"amount": 9}
    assert waiting.value["rule"] == "large"
    assert waiting.value["tool_call_id"]
    assert sorted(effects, key=str) == [1, "sky"]
    row = r.store.sessions().rows[0]
    assert (row.state, row.owner) == ("ACTIVE", "")
    assert r.recover().sessions == []


def resumed(r: Any, a: Any, token: str) -> Any:
    if a.mode == "sync":
        return resume(r, token, a.graph)
    import asyncio

    return asyncio.run(aresume(r, token, a.graph))


def test_approved_runs_once_and_siblings_are_not_repeated(paused: Any) -> None:
    r, a, model, _ = paused
    token = r.approvals.pending()[0].id
    with pytest.raises(ApprovalPending):
        resumed(r, a, token)
    r.approvals.approve(token, by="ann")
    result = resumed(r, a, token)
    texts = [m.content for m in result["messages"]]
    assert texts == ["go", "", "paid 9", "saw sky", "paid 1", "done"]
    assert sorted(effects, key=str) == [1, 9, "sky"]
    assert len(model.seen) == 2
    assert states(r) == [("COMPLETED", "none")]


def test_rejected_is_told_to_the_model(paused: Any) -> None:
    r, a, _, _ = paused
    token = r.approvals.pending()[0].id
    r.approvals.reject(token, by="ann", reason="no")
    texts = [m.content for m in resumed(r, a, token)["messages"]]
    assert texts[2].startswith("[rejected] pay was not run: rejected by ann: no")
    assert 9 not in effects


def test_edited_arguments_are_what_runs(paused: Any) -> None:
    r, a, _, _ = paused
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann", arguments={"amount": 3})
    texts = [m.content for m in resumed(r, a, token)["messages"]]
    assert texts[2] == "paid 3"
    assert 9 not in effects


def test_the_graphs_own_resume_value_decides_nothing(paused: Any) -> None:
    r, a, model, _ = paused
    again = a.run(Command(resume=True), THREAD)
    assert len(again["__interrupt__"]) == 1
    assert 9 not in effects
    r.approvals.reject(r.approvals.pending()[0].id, by="ann")
    result = a.run(Command(resume="approved!"), THREAD)
    assert "[rejected]" in result["messages"][2].content
    assert 9 not in effects
    assert len(model.seen) == 2
    assert states(r) == [("COMPLETED", "none")]


def test_second_resumer_gets_the_state_and_never_enters_the_model(paused: Any) -> None:
    r, a, model, _ = paused
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    results: list[Any] = []

    def one() -> None:
        try:
            results.append(resumed(r, a, token)["messages"][-1].content)
        except Conflict as error:  # it came when all was over
            results.append(str(error))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(model.seen) == 2
    assert effects.count(9) == 1
    used = f"approval {token} was used: its run has gone on already"
    assert set(results) <= {"done", used}
    assert "done" in results
    assert len(results) == 4


def test_who_comes_while_another_one_goes_on_gets_its_state(agent: Any, rein: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @tool
    def pay(amount: int) -> str:
        """Pay, when it may."""
        begun.set()
        assert go_on.wait(30)
        effects.append(amount)
        return f"paid {amount}"

    r = rein(asking(), approvals="store")
    model = script(call("pay", amount=9))
    a = agent(model, [pay], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    a.run("go", THREAD)
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(resumed(r, a, token)))
    first.start()
    assert begun.wait(30)
    second = threading.Thread(target=lambda: results.append(resumed(r, a, token)))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    go_on.set()
    first.join(30)
    second.join(30)
    assert [x["messages"][-1].content for x in results] == ["done"] * 2
    assert (effects, len(model.seen)) == ([9], 2)


def test_a_used_token_does_nothing(paused: Any) -> None:
    r, a, model, _ = paused
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    resumed(r, a, token)
    done, seen = list(effects), len(model.seen)
    with pytest.raises(Conflict, match="was used"):
        resumed(r, a, token)
    assert (effects, len(model.seen)) == (done, seen)


@pytest.mark.parametrize("other", ["ap-nothing", "", "{token}x", "{upper}"])
def test_altered_tokens_do_nothing(paused: Any, other: str) -> None:
    r, a, model, _ = paused
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    with pytest.raises(Conflict, match="unknown"):
        resumed(r, a, other.format(token=token, upper=token.upper()))
    assert (9 in effects, len(model.seen)) == (False, 1)


def test_another_tenants_token_does_nothing(agent: Any, rein: Any, tmp_path: Path) -> None:
    r = rein(asking(), store=f"sqlite:///{tmp_path}/c.db")
    model = script(call("pay", amount=9))
    a = agent(
        model, [pay], CheckreinMiddleware(r, session=lambda state, runtime: r.session(tenant="a")),
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    a.run("go", THREAD)
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    with r.session(tenant="b"), pytest.raises(Conflict, match="another tenant"):
        resumed(r, a, token)
    assert (effects, len(model.seen)) == ([], 1)
    with r.session(tenant="a"):
        assert resumed(r, a, token)["messages"][-1].content == "done"
    assert effects == [9]


def test_unknown_token(paused: Any) -> None:
    r, a, _, _ = paused
    with pytest.raises(Conflict, match="unknown"):
        resumed(r, a, "ap-nothing")


def test_two_pauses_are_decided_one_by_one(agent: Any, rein: Any) -> None:
    r = rein(asking(), approvals="store")
    model = script(call("pay", amount=8), call("pay", amount=9))
    a = agent(model, [pay], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    assert len(a.run("go", THREAD)["__interrupt__"]) == 2
    tokens = {q.arguments["amount"]: q.id for q in r.approvals.pending()}
    r.approvals.approve(tokens[9], by="ann")
    result = resumed(r, a, tokens[9])
    assert len(result["__interrupt__"]) == 1
    assert effects == [9]
    r.approvals.approve(tokens[8], by="ann")
    texts = [m.content for m in resumed(r, a, tokens[8])["messages"]]
    assert texts[2:] == ["paid 8", "paid 9", "done"]
    assert effects == [9, 8]
    assert len(model.seen) == 2


def test_own_session_around_the_run_is_suspended_with_it(agent: Any, rein: Any) -> None:
    r = rein(asking(), approvals="store")
    model = script(call("pay", amount=8))
    a = agent(model, [pay], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    with r.session(agent="mine") as session:
        a.run("go", THREAD)
    assert states(r) == [("ACTIVE", "none")]
    token = r.approvals.pending()[0].id
    r.approvals.approve(token, by="ann")
    result = resumed(r, a, token)
    assert result["messages"][-1].content == "done"
    assert states(r) == [("COMPLETED", "none")]
    assert r.store.sessions().rows[0].id == session.id


def test_next_run_on_the_thread_has_a_session_of_its_own(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    model = ScriptedChatModel(script=[ai("one"), ai("two")])
    a = agent(model, [pay], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    a.run("go", THREAD)
    a.run("more", THREAD)
    assert states(r) == [("COMPLETED", "none")] * 2


def test_without_checkpointer_and_nobody_to_ask(agent: Any, rein: Any) -> None:
    r = rein(asking())
    outside = ToolErrorMiddleware(on_error=lambda e, q: "eaten")
    with pytest.raises(ConfigError, match="checkpointer"):
        agent(script(call("pay", amount=9)), [pay], outside, CheckreinMiddleware(r)).run()
    assert effects == []


def test_suspend_without_checkpointer_is_refused(agent: Any, rein: Any) -> None:
    r = rein(asking(), wait="suspend", approvals="store")
    with pytest.raises(ConfigError, match="checkpointer"):
        agent(script(call("look", what="x")), [look], CheckreinMiddleware(r)).run()
    assert effects == []


def test_thread_id_without_checkpointer_does_not_suspend(agent: Any, rein: Any) -> None:
    r = rein(asking())
    with pytest.raises(ConfigError, match="checkpointer"):
        agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(r)).run("go", THREAD)


class Boss(Plugin):
    def on_approval(self, call: Any, request: Any) -> Any:
        return Approved(by="boss")


def test_channel_answers_in_place(agent: Any, rein: Any) -> None:
    r = rein(asking(), Boss())
    texts = agent(script(call("pay", amount=9)), [pay], CheckreinMiddleware(r)).texts()
    assert texts[2] == "paid 9"


def test_pause_of_the_tool_itself_passes_and_is_recorded(agent: Any, rein: Any) -> None:
    @tool
    def confirm(text: str) -> str:
        """Ask the user."""
        return f"{text} {interrupt('sure?')}"

    class Outside(AgentMiddleware):
        caught: list[Any] = []

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

    r = rein(Rules())
    a = agent(
        script(call("confirm", text="x")), [confirm], Outside(), CheckreinMiddleware(r),
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    assert a.run("go", THREAD)["__interrupt__"][0].value == "sure?"
    ended = [e.view["ended"] for e in r.store.events(kinds=("outcome",)) if "ended" in e.view]
    assert ended == ["paused"]
    assert r.store.sessions().rows[0].owner == ""
    result = a.run(Command(resume="yes"), THREAD)
    assert result["messages"][2].content == "x yes"
    assert states(r) == [("COMPLETED", "none")]


def test_rounds_of_asking_do_not_repeat_what_is_done(agent: Any, rein: Any) -> None:
    """Three rounds of rejected and asked again: earlier calls are made once."""
    r = rein(asking(), approvals="store")
    model = ScriptedChatModel(
        script=[
            ai("", call("look", what="reserve")),
            ai("", call("pay", amount=7)),
            ai("", call("pay", amount=8)),
            ai("", call("pay", amount=9)),
            ai("done"),
        ]
    )
    a = agent(model, [pay, look], CheckreinMiddleware(r), checkpointer=InMemorySaver())
    a.run("go", THREAD)
    for answer in ("no", "no", "yes"):
        (asked,) = r.approvals.pending()
        if answer == "no":
            r.approvals.reject(asked.id, by="ann", reason="less")
        else:
            r.approvals.approve(asked.id, by="ann")
        result = resumed(r, a, asked.id)
    assert result["messages"][-1].content == "done"
    assert effects == ["reserve", 9]
    assert len(model.seen) == 5


PROCESS = """
    import sys
    sys.path[:0] = {path!r}
    from checkrein import Ask, Plugin, Rein
    from checkrein_integrations.langchain import CheckreinMiddleware, resume
    from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver

    class Large(Plugin):
        def pre_call(self, call):
            return Ask("large") if call.kind == "tool" and call.name == "pay" else None

    @tool
    def pay(amount: int) -> str:
        "Pay."
        with open("effects", "a") as out:
            out.write(f"paid {{amount}}\\n")
        return f"paid {{amount}}"

    @tool
    def look(what: str) -> str:
        "Look."
        with open("effects", "a") as out:
            out.write("looked\\n")
        return "saw"

    rein = Rein(plugins=[Large()], store="sqlite:///c.db")
    with SqliteSaver.from_conn_string("graph.db") as saver:
        first = sys.argv[1] == "start"
        asks = ai("", call("pay", "a", amount=3), call("look", "b", what="x"))
        script = [asks] if first else [ai("end")]
        model = ScriptedChatModel(script=script)
        agent = create_agent(model, [pay, look], middleware=[CheckreinMiddleware(rein)],
                             checkpointer=saver)
        if first:
            config = {{"configurable": {{"thread_id": "t"}}}}
            result = agent.invoke({{"messages": [("user", "go")]}}, config)
            print(result["__interrupt__"][0].value["token"])
        else:
            result = resume(rein, sys.argv[2], agent)
            print(result["messages"][-1].content, len(model.seen))
    rein.close()
"""


def test_approved_elsewhere_and_resumed_in_another_process(rein: Any, tmp_path: Path) -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite")
    path = [str(Path(p).resolve()) for p in ("core", "plugins", "integrations")]
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROCESS.format(path=path)))

    def process(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, str(program), *args], cwd=tmp_path, capture_output=True, text=True,
            check=True, timeout=120,
        )  # fmt: skip
        return done.stdout.strip()

    token = process("start")
    here = rein(store=f"sqlite:///{tmp_path}/c.db")
    assert here.recover().sessions == []
    here.approvals.approve(token, by="ann")
    assert process("resume", token) == "end 1"
    with pytest.raises(subprocess.CalledProcessError) as used:
        process("resume", token)
    assert "was used" in used.value.stderr
    assert sorted((tmp_path / "effects").read_text().split("\n")) == ["", "looked", "paid 3"]
    assert states(here) == [("COMPLETED", "none")]


@pytest.mark.parametrize("decided", [True, False])
def test_a_state_that_was_altered_between_question_and_answer_runs_nothing(
    agent: Any, rein: Any, tmp_path: Path, decided: bool
) -> None:
    """Shown was 9: what somebody writes into the checkpoint is another call, and asks again."""
    r = rein(asking(), store=f"sqlite:///{tmp_path}/c.db")
    a = agent(
        script(call("pay", amount=9)), [pay], CheckreinMiddleware(r), checkpointer=InMemorySaver()
    )
    a.run("go", THREAD)
    token = r.approvals.pending()[0].id
    if decided:
        r.approvals.approve(token, by="ann")
    (message,) = [m for m in a.graph.get_state(THREAD).values["messages"] if m.type == "ai"]
    message.tool_calls[0]["args"]["amount"] = 1_000_000
    a.graph.update_state(THREAD, {"messages": [message]})
    if not decided:
        r.approvals.approve(token, by="ann")
    a.run(Command(resume=True), THREAD)
    assert 1_000_000 not in effects


@pytest.mark.parametrize("decisions", [[], [{"type": "approve"}] * 3, ["approve"], None])
def test_a_wrong_number_of_decisions_decides_nothing(paused: Any, decisions: Any) -> None:
    r, a, _, _ = paused
    again = a.run(Command(resume={"decisions": decisions}), THREAD)
    assert len(again["__interrupt__"]) == 1
    assert 9 not in effects
    (request,) = r.approvals.pending()
    (refused,) = r.store.events(kinds=("approval_refused",))
    assert (refused.view["id"], refused.view["answer"]) == (request.id, "decision")
    assert "decides nothing" in refused.view["reason"]


def test_what_is_allowed_for_good_pauses_no_run(agent: Any, rein: Any, tmp_path: Path) -> None:
    r = rein(asking(), store=f"sqlite:///{tmp_path}/c.db")
    for number, waits in enumerate((True, False)):
        a = agent(
            script(call("pay", amount=9)), [pay], CheckreinMiddleware(r),
            checkpointer=InMemorySaver(),
        )  # fmt: skip
        thread = {"configurable": {"thread_id": f"t{number}"}}
        result = a.run("go", thread)
        assert bool(result.get("__interrupt__")) is waits
        if waits:
            token = r.approvals.pending()[0].id
            r.approvals.approve(token, by="ann", always=Always(until=600))
            assert resume(r, token, a.graph)["messages"][-1].content == "done"
    assert effects == [9, 9]
    assert len(r.store.events(kinds=("grant_used",))) == 1
