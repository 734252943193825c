"""A run whose process was killed goes on in another one: what is recorded is not paid again."""

from __future__ import annotations

import json
import signal

from checkrein import Rein

from .conftest import states

PROCESS = """
import json, sys
from pathlib import Path
from crewai import Agent, Crew, Task
from crewai.tools import tool
from checkrein import Rein
from checkrein_integrations.crewai import resume, supervise
from checkrein_integrations.testing.crewai import ScriptedLLM, call
from checkrein_plugins.cost import Cost

folder, how, session = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
done = folder / "done.txt"
counted = folder / "models.txt"


@tool("step")
def step(number: int) -> str:
    "Do a step."
    with done.open("a") as out:
        out.write(f"{number}\\n")
    return f"did {number}"


def think(messages):
    with counted.open("a") as out:
        out.write("x")
    turns = sum(m["role"] == "tool" for m in messages)
    if how == "first" and turns == 4:
        print("ready", flush=True)
        sys.stdin.read()
    return [call("step", f"c{turns}", number=turns)] if turns < 6 else "finished"


def crew():
    llm = ScriptedLLM(script=[think] * 20)
    agent = Agent(role="worker", goal="g", backstory="b", llm=llm, tools=[step], max_iter=30)
    return Crew(agents=[agent], tasks=[Task(description="d", expected_output="x", agent=agent)])


rein = Rein(plugins=[Cost(overlay={"scripted-1": {"input": 1, "output": 2}})],
            store=f"sqlite:///{folder}/run.db")
if how == "first":
    with supervise(rein, session=rein.session(id=session)):
        crew().kickoff()
else:
    result = resume(rein, session, crew)
    spend = rein.read(session).spend()
    print(json.dumps([result.raw, spend.tokens, spend.nano_usd]), flush=True)
rein.close()
"""


def test_a_killed_run_goes_on_and_nothing_is_paid_or_done_twice(child, tmp_path):
    first = child(PROCESS, tmp_path, "first", "run-1")
    assert "ready" in next(line for line in first.stdout if "ready" in line)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (tmp_path / "done.txt").read_text().split() == ["0", "1", "2", "3"]

    second = child(PROCESS, tmp_path, "second", "run-1")
    out, problems = second.communicate(timeout=120)
    assert second.returncode == 0, problems
    answer, tokens, nano = json.loads(out.strip().splitlines()[-1])
    assert answer == "finished"
    assert (tmp_path / "done.txt").read_text().split() == ["0", "1", "2", "3", "4", "5"]
    # Four answers were recorded; the fifth was asked for when the process died, and again.
    assert len((tmp_path / "models.txt").read_text()) == 5 + 3
    # The fifth attempt that died may have cost something: it is charged as far as it is known.
    assert tokens == 15 * 7
    assert nano == 20_000 * 7
    rein = Rein(store=f"sqlite:///{tmp_path}/run.db")
    try:
        assert states(rein) == [("COMPLETED", "none")]
    finally:
        rein.close()
