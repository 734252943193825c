"""Guardrails of tasks: every attempt is a call that is judged, recorded and paid for."""

from __future__ import annotations

import pytest
from crewai import Agent, Crew, Task
from crewai.flow.flow import Flow, start

from checkrein import Ask
from checkrein.errors import ApprovalPending
from checkrein_integrations.crewai import resume, supervise

from .conftest import Rules, call, effects, kinds, states
from .test_approvals import note, pay


def guarded(road, llm, guardrail, tools=(), retries=2):
    agent = Agent(role="a", goal="g", backstory="b", llm=llm, tools=list(tools))
    task = Task(
        description="d", expected_output="x", agent=agent, guardrail=guardrail,
        guardrail_max_retries=retries,
    )  # fmt: skip
    return Crew(agents=[agent], tasks=[task])


def spent(r):
    return r.read(r.store.sessions().rows[0].id).spend()


def test_a_guardrail_that_always_rejects_ends_after_its_attempts(road, rein):
    r = rein()
    llm = road.llm("one", "two", "three", "never asked for")
    with pytest.raises(Exception, match="guardrail"):
        road.run(r, guarded(road, llm, lambda output: (False, "not good")))
    assert len(llm.seen) == 3
    assert [n for k, n in kinds(r) if k == "intent"] == ["scripted-1"] * 3
    assert (spent(r).tokens, spent(r).calls) == (45, 3)
    assert states(r) == [("FAILED", "rolled_back")]


def test_a_guardrail_that_raises_accepts_nothing(road, rein):
    def broken(output):
        raise RuntimeError("the check is broken")

    r = rein()
    llm = road.llm("one", "two", "three", "never asked for")
    with pytest.raises(Exception, match=r"broken|guardrail"):
        road.run(r, guarded(road, llm, broken))
    assert len(llm.seen) <= 3
    assert spent(r).tokens == 15 * len(llm.seen)
    assert states(r) == [("FAILED", "rolled_back")]


def test_tools_of_a_rejected_attempt_are_undone_with_the_run(road, rein):
    undone = []
    r = rein()
    r.declare("pay", undo=lambda amount: undone.append(amount))
    steps = [[call("pay", amount=1)], "one", [call("pay", amount=2)], "two"]
    llm = road.llm(*steps)
    with pytest.raises(Exception, match="guardrail"):
        road.run(r, guarded(road, llm, lambda output: (False, "no"), [pay], retries=1))
    assert effects == [("pay", 1), ("pay", 2)]
    assert undone == [2, 1]


ask = Rules(lambda call: Ask("a person decides") if call.name == "pay" else None)


@pytest.mark.parametrize("same", [True, False], ids=["same-object", "made-anew"])
def test_a_flow_that_waits_goes_on(road, rein, tmp_path, same):
    if road.mode != "sync":
        pytest.skip("a flow is run sync here")
    r = rein(ask, store=f"sqlite:///{tmp_path}/r.db")
    llm = road.llm([call("note", text="a")], [call("pay", amount=20)], "done")

    class Desk(Flow):
        @start()
        def work(self):
            return road.crew(llm, [note, pay]).kickoff().raw

    flow = Desk()
    with pytest.raises(ApprovalPending) as caught, supervise(r, session=r.session(wait="suspend")):
        flow.kickoff()
    r.approvals.approve(caught.value.token, by="ann")
    assert resume(r, caught.value.token, flow if same else Desk) == "done"
    assert effects == [("note", "a"), ("pay", 20)]
    assert len(llm.seen) == 3
