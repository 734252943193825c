"""Runs that wait for a person, and go on in whatever process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from agents import Runner, function_tool

from checkrein import Approved, Ask, Plugin, Rein
from checkrein.errors import (
    ApprovalPending,
    ConfigError,
    Conflict,
    PayloadUnreadable,
)
from checkrein_integrations.openai_agents import (
    aresume,
    resume,
    run,
    run_sync,
    supervise_agent,
)
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call, raw_call

from .conftest import Pre, agent_of, effects, kinds, outputs, states


def big(call: Any) -> Any:
    return Ask("big", rule="big") if call.arguments.get("amount", 0) > 10 else None


@function_tool
def pay(amount: int) -> str:
    """Pay an amount."""
    effects.append(amount)
    return f"paid {amount}"


@pytest.fixture
def store(tmp_path: Any) -> str:
    return f"sqlite:///{tmp_path}/c.db"


def started(r: Rein, *turns: Any) -> tuple[Any, ScriptedModel, str]:
    """An agent whose run has been interrupted for one approval."""
    model = ScriptedModel([ask(call("pay", "c1", amount=50)), *turns])
    agent = agent_of(model, pay)
    result = asyncio.run(run(r, agent, "go"))
    assert result.final_output is None
    (asked,) = r.approvals.pending()
    return agent, model, asked.id


def test_a_run_waits_for_an_approval_and_goes_on(go, rein, store):
    r = rein(Pre(big), store=store)
    model = ScriptedModel([ask(call("pay", "c1", amount=1), call("pay", "c2", amount=50)), "done"])
    agent = agent_of(model, pay)
    went = go(r, agent)
    assert (effects, len(went.result.interruptions), len(model.seen)) == ([1], 1, 1)
    assert states(r) == [("ACTIVE", "none")]
    assert r.store.sessions().rows[0].owner == ""
    (asked,) = r.approvals.pending()
    assert dict(asked.arguments) == {"amount": 50}
    with pytest.raises(ApprovalPending):
        resume(r, asked.id, agent)
    r.approvals.approve(asked.id, by="ann")
    assert resume(r, asked.id, agent).final_output == "done"
    assert effects == [1, 50]
    assert outputs(model) == ["paid 1", "paid 50"]
    assert states(r) == [("COMPLETED", "none")]


def test_edited_arguments_run(rein, store):
    r = rein(Pre(big), store=store)
    agent, model, token = started(r, "done")
    r.approvals.approve(token, by="ann", arguments={"amount": 20})
    assert resume(r, token, agent).final_output == "done"
    assert effects == [20]
    assert outputs(model) == ["paid 20"]


def test_what_the_sdk_was_told_decides_nothing(rein, store):
    r = rein(Pre(big), store=store)
    model = ScriptedModel([ask(call("pay", amount=50)), "done"])
    agent = supervise_agent(r, agent_of(model, pay))

    async def go() -> Any:
        result = await run(r, agent, "go")
        state = result.to_state()
        for item in state.get_interruptions():
            state.approve(item)
        (asked,) = r.approvals.pending()
        r.approvals.reject(asked.id, by="ann", reason="no")
        return await run(r, agent, state)

    with r.session():
        asyncio.run(go())
    assert effects == []
    assert outputs(model)[0].startswith("[rejected]")


def test_several_approvals_of_one_turn(rein, store):
    r = rein(Pre(big), store=store)
    model = ScriptedModel([ask(call("pay", "c1", amount=50), call("pay", "c2", amount=60)), "done"])
    agent = agent_of(model, pay)
    asyncio.run(run(r, agent, "go"))
    first, second = sorted(r.approvals.pending(), key=lambda a: a.arguments["amount"])
    r.approvals.approve(first.id, by="ann")
    assert len(resume(r, first.id, agent).interruptions) == 1
    assert effects == [50]
    with pytest.raises(Conflict, match="used"):
        resume(r, first.id, agent)
    r.approvals.reject(second.id, by="ann")
    assert resume(r, second.id, agent).final_output == "done"
    assert effects == [50]


def test_a_call_that_needs_approval_by_the_tools_own_setting(go, rein, store):
    asked: list[Any] = []

    async def needs(context: Any, arguments: dict[str, Any], id: str) -> bool:
        asked.append(arguments)
        return bool(arguments["amount"] > 5)

    tool = function_tool(needs_approval=needs)(pay.__wrapped__)
    r = rein(store=store)
    model = ScriptedModel([ask(call("pay", amount=1), call("pay", amount=9)), "done"])
    agent = agent_of(model, tool)
    go(r, agent)
    (record,) = r.approvals.pending()
    assert (effects, record.rule) == ([1], "needs_approval")
    r.approvals.approve(record.id, by="ann")
    assert resume(r, record.id, agent).final_output == "done"
    assert effects == [1, 9]


class Yes(Plugin):
    def __init__(self, pre: Any) -> None:
        self.pre = pre

    def pre_call(self, call: Any) -> Any:
        return self.pre(call) if call.kind == "tool" else None

    def on_approval(self, call: Any, request: Any) -> Any:
        return Approved("robot")


def test_an_approver_that_answers_at_once_interrupts_nothing(go, rein):
    model = ScriptedModel([ask(call("pay", amount=50)), "done"])
    assert go(rein(Yes(big)), agent_of(model, pay)).result.final_output == "done"
    assert effects == [50]


def test_wait_block_waits_in_place(go, rein, store):
    r = rein(Pre(big), store=store, wait="block")
    model = ScriptedModel([ask(call("pay", amount=50)), "done"])

    def decide() -> None:
        while not r.approvals.pending():
            pass
        (asked,) = r.approvals.pending()
        r.approvals.approve(asked.id, by="ann")

    person = threading.Thread(target=decide)
    person.start()
    assert go(r, agent_of(model, pay)).result.final_output == "done"
    person.join()
    assert effects == [50]


def test_the_plain_runner_cannot_suspend(rein, store):
    r = rein(Pre(big), store=store, wait="suspend")
    agent = supervise_agent(r, agent_of(ScriptedModel([ask(call("pay", amount=50))]), pay))
    with pytest.raises(ConfigError, match="run\\(rein"):
        asyncio.run(_plain(agent))
    assert effects == []


async def _plain(agent: Any) -> Any:
    return await Runner.run(agent, "go")


def test_nobody_can_answer(go, rein):
    r = rein(Pre(big), approvals="channels")
    with pytest.raises(ConfigError, match="approver"):
        go(r, agent_of(ScriptedModel([ask(call("pay", amount=50))]), pay))
    assert effects == []


def test_a_call_with_broken_arguments_waits_for_nobody(rein, store):
    r = rein(Pre(big), store=store)
    model = ScriptedModel([ask(raw_call("pay", "{", "c0"), call("pay", "c1", amount=50)), "done"])
    agent = agent_of(model, pay)
    asyncio.run(run(r, agent, "go"))
    (asked,) = r.approvals.pending()
    r.approvals.approve(asked.id, by="ann")
    assert resume(r, asked.id, agent).final_output == "done"
    assert effects == [50]
    assert outputs(model)[0].startswith("[invalid_arguments]")


# -- tokens that lead nowhere


def test_a_token_is_used_once(rein, store):
    r = rein(Pre(big), store=store)
    agent, model, token = started(r, "done")
    r.approvals.approve(token, by="ann")
    resume(r, token, agent)
    with pytest.raises(Conflict, match="used"):
        resume(r, token, agent)
    assert (effects, len(model.seen)) == ([50], 2)


def test_a_used_token_in_a_session_that_is_still_open(rein, store):
    r = rein(Pre(big), store=store)
    with r.session():
        agent, model, token = started(r, "done")
        r.approvals.approve(token, by="ann")
        resume(r, token, agent)
        with pytest.raises(Conflict, match="used"):
            resume(r, token, agent)
    assert (effects, len(model.seen)) == ([50], 2)


def test_unknown_and_foreign_tokens(rein, store, tmp_path):
    r = rein(Pre(big), store=store)
    agent, _, token = started(r, "done")
    with pytest.raises(Conflict, match="neither an approval nor a session"):
        resume(r, "ap-unknown", agent)
    other = rein(Pre(big), store=f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(Conflict, match="neither"):
        resume(other, token, agent)
    with r.session(), pytest.raises(ApprovalPending) as waits:
        _suspend(r)
    r.approvals.approve(waits.value.token, by="ann")
    with pytest.raises(ConfigError, match=r"rein\.resume"):
        resume(r, waits.value.token, agent)
    assert effects == []


def _suspend(r: Rein) -> None:
    session = r.session(wait="suspend")
    with session:
        r.call(pay.__wrapped__, amount=50)


@pytest.mark.parametrize("careful", [False, True])
def test_an_altered_state_is_refused(rein, store, tmp_path, careful):
    r = rein(Pre(big), store=store)
    agent, model, token = started(r, "done")
    r.approvals.approve(token, by="ann")
    (event,) = r.store.events(kinds=("run_suspended",))
    db = sqlite3.connect(tmp_path / "c.db")
    with db:
        salt, data = db.execute(
            "SELECT salt, data FROM events WHERE seq = ?", (event.seq,)
        ).fetchone()
        changed = data.replace(b"50", b"11")
        assert changed != data
        db.execute("UPDATE events SET data = ? WHERE seq = ?", (changed, event.seq))
        if careful:
            ref = hashlib.sha256(salt + changed).digest()
            db.execute("UPDATE events SET ref = ? WHERE seq = ?", (ref, event.seq))
    db.close()
    with pytest.raises(PayloadUnreadable):
        resume(r, token, agent)
    assert (effects, len(model.seen)) == ([], 1)


def test_an_expired_approval_is_told(rein, store):
    from checkrein.testing import Clock

    clock = Clock()
    r = rein(Pre(big), store=store, clock=clock)
    agent, model, token = started(r, "done")
    clock.advance(10_000_000)
    assert resume(r, token, agent).final_output == "done"
    assert effects == []
    assert outputs(model)[0].startswith("[expired]")


# -- several resumers, several processes


def test_two_resumers_enter_the_model_once(rein, store):
    r = rein(Pre(big), store=store)
    agent, model, token = started(r, "done")
    r.approvals.approve(token, by="ann")
    gate = threading.Event()
    plain = model.get_response

    async def slow(*args: Any, **kwargs: Any) -> Any:
        gate.wait(10)
        return await plain(*args, **kwargs)

    model.get_response = slow  # type: ignore[method-assign]
    found: list[Any] = []

    def work() -> None:
        found.append(asyncio.run(aresume(r, token, agent)).final_output)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert found == ["done"] * 3
    assert (effects, len(model.seen)) == ([50], 2)
    assert kinds(r).count("intent") == 3


WORKER = """
import asyncio, json, os, signal, sys, time, traceback
from pathlib import Path
from agents import Agent, function_tool, set_tracing_disabled
from checkrein import Ask, Plugin, Rein
from checkrein_integrations.openai_agents import resume, run_streamed, run_sync
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call
from checkrein_plugins.cost import Cost

set_tracing_disabled(True)


class AskFirst(Plugin):
    def pre_call(self, call):
        return Ask("sure?") if call.name == "step" and call.arguments["number"] == 100 else None


def work(folder, name, how, token):
    def note(file, text):
        with (folder / file).open("a") as out:
            out.write(text + "\\n")

    @function_tool
    def step(number: int) -> str:
        "Do a step."
        note("done.txt", str(number))
        return f"did {number}"

    class Model(ScriptedModel):
        def _next(self, instructions, input, tools, handoffs):
            turns = 0 if isinstance(input, str) else sum(
                i.get("type") == "function_call_output" for i in input)
            note("models.txt", str(turns))
            if "die" in how and turns == 4:
                (folder / f"{name}.ready").touch()
                time.sleep(600)
            number = 100 if turns == 2 and "ask" in token else turns
            asked = ask(call("step", f"c{turns}", number=number))
            self.script = [asked if turns < 6 else "finished"]
            return super()._next(instructions, input, tools, handoffs)

    def agent():
        return Agent(name="worker", model=Model([], model="gpt-4o-mini"), tools=[step])

    async def stream():
        result = run_streamed(rein, agent(), "go", max_turns=20)
        text = ""
        async for event in result.stream_events():
            if getattr(getattr(event, "data", None), "type", "").endswith("text.delta"):
                text += event.data.delta
        note("shown.txt", text)
        return result

    rein = Rein(plugins=[Cost(), AskFirst()], store=f"sqlite:///{folder}/run.db")
    if "resume" in how:
        result = resume(rein, token, agent, max_turns=20)
    else:
        with rein.session(id=token):
            if "stream" in how:
                result = asyncio.run(stream())
            else:
                result = run_sync(rein, agent(), "go", max_turns=20)
    tokens = [rein.read(row.id).spend().tokens for row in rein.store.sessions().rows]
    paid = [rein.read(row.id).spend().nano_usd for row in rein.store.sessions().rows]
    waiting = [a.id for a in rein.approvals.pending()]
    rein.close()
    return [result.final_output, tokens, waiting, paid]


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    folder, name, how, token = json.loads(line)
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    try:
        said = work(Path(folder), name, how, token)
    except BaseException:
        said = traceback.format_exc()
    part = Path(folder) / f"{name}.part"
    part.write_text(json.dumps(said))
    part.rename(Path(folder) / f"{name}.said")
    os._exit(0)
"""


class Workers:
    """Real processes of one folder, each forked from one that has imported everything."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._count = 0

    def start(self, how: str, token: str) -> tuple[str, int]:
        """A new process at work: (its name, its id)."""
        self._count += 1
        name = f"w{self._count}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(self._folder), name, how, token]) + "\n")
        self._process.stdin.flush()
        return name, int(self._process.stdout.readline())

    def _await(self, name: str, end: str) -> Path:
        path = self._folder / f"{name}.{end}"
        for _ in range(6000):
            if path.exists():
                return path
            time.sleep(0.02)
        raise AssertionError(f"{path.name} does not come")

    def said(self, worker: tuple[str, int]) -> Any:
        """What a process ended with: a list, or the text of its error."""
        return json.loads(self._await(worker[0], "said").read_text())

    def kill(self, worker: tuple[str, int]) -> None:
        """Kill a process in the middle of its fifth model call."""
        self._await(worker[0], "ready")
        os.kill(worker[1], signal.SIGKILL)

    def lines(self, name: str) -> list[str]:
        return (self._folder / name).read_text().split()


@pytest.fixture(scope="module")
def forker(root: Path) -> Any:
    path = os.pathsep.join(str(root / name) for name in ("core", "plugins", "integrations"))
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    yield process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


@pytest.fixture
def workers(forker: subprocess.Popen[str], tmp_path: Path) -> Workers:
    return Workers(forker, tmp_path)


ALL = ["0", "1", "2", "3", "4", "4", "5", "6"]
"""Model calls by number of the results so far: the fifth was running when its process died."""


def test_a_killed_run_goes_on_and_nothing_is_paid_or_done_twice(workers, tmp_path):
    workers.kill(workers.start("die", "run-1"))
    assert workers.lines("done.txt") == ["0", "1", "2", "3"]
    answer, tokens, _, paid = workers.said(workers.start("resume", "run-1"))
    assert answer == "finished"
    assert workers.lines("done.txt") == ["0", "1", "2", "3", "4", "5"]
    assert workers.lines("models.txt") == ALL
    assert tokens == [15 * 7]
    assert paid == [7 * (10 * 150 + 5 * 600)], "nano-dollars of gpt-4o-mini"
    rein = Rein(store=f"sqlite:///{tmp_path}/run.db")
    assert states(rein) == [("COMPLETED", "none")]
    with pytest.raises(Conflict):
        resume(rein, "run-1", agent_of(ScriptedModel([])))
    rein.close()


@pytest.mark.parametrize("how", ["run", "stream"])
def test_a_killed_run_goes_on_by_running_it_again_in_its_session(workers, how):
    workers.kill(workers.start(f"{how}-die", "run-1"))
    assert workers.said(workers.start(how, "run-1"))[0] == "finished"
    assert workers.lines("models.txt") == ALL
    assert workers.lines("done.txt") == ["0", "1", "2", "3", "4", "5"]
    if how == "stream":
        assert workers.lines("shown.txt") == ["finished"]


def test_a_run_goes_on_in_another_process_even_when_that_one_is_killed(workers, tmp_path, root):
    (token,) = workers.said(workers.start("run", "run-ask"))[2]
    (tmp_path / "checkrein.toml").write_text(f'store = "sqlite:///{tmp_path}/run.db"\n')
    done = subprocess.run(
        [sys.executable, "-m", "checkrein", "approve", token, "--by", "ann"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "core"), str(root / "plugins"),
                                                          str(root / "integrations")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    workers.kill(workers.start("resume-die", token))
    assert workers.lines("done.txt") == ["0", "1", "100", "3"]
    answer, tokens, *_ = workers.said(workers.start("resume", token))
    assert answer == "finished"
    assert workers.lines("done.txt") == ["0", "1", "100", "3", "4", "5"]
    assert workers.lines("models.txt") == ALL
    assert sum(tokens) == 15 * 7


def test_two_processes_resume_one_run(workers, tmp_path):
    (token,) = workers.said(workers.start("run", "run-ask"))[2]
    rein = Rein(store=f"sqlite:///{tmp_path}/run.db")
    rein.approvals.approve(token, by="ann")
    rein.close()
    both = [workers.start("resume", token) for _ in range(2)]
    ends = [str(workers.said(worker)) for worker in both]
    assert all("finished" in end or "was used" in end for end in ends), ends
    assert any("finished" in end for end in ends)
    assert workers.lines("done.txt") == ["0", "1", "100", "3", "4", "5"]
    assert workers.lines("models.txt") == ["0", "1", "2", "3", "4", "5", "6"]


def test_run_sync_twice_in_one_session_are_two_runs(rein):
    r = rein()
    model = ScriptedModel(["one", "two"])
    with r.session():
        assert run_sync(r, agent_of(model), "go").final_output == "one"
        assert run_sync(r, agent_of(model), "go").final_output == "two"
