"""Looking at a recorded session: frames, how things stood at a step, figures."""

import json
import subprocess
import sys

import pytest

from checkrein import Answer, Deny, Plugin, Rein
from checkrein.errors import ConfigError, Conflict, Denied
from checkrein.replay import Replay
from checkrein.testing import Effects


class Guard(Plugin):
    def pre_call(self, call):
        if call.name == "wipe":
            return Deny("not today", rule="no-wiping")
        return Answer("from the cache", source="cache") if call.name == "cached" else None


@pytest.fixture
def recorded(tmp_path):
    """A session with a read, two effects, a failure, a refusal, an answer, and its rollback."""
    effects = Effects()
    url = f"sqlite:///{tmp_path}/r.db"
    rein = Rein(plugins=[Guard()], store=url)

    @rein.tool(effect="read")
    def look(order):
        return {"order": order, "price": 40}

    @rein.tool(undo=lambda order: effects.undo("pay", order=order), name="pay")
    def pay(order):
        effects.do("pay", order=order)
        return f"paid {order}"

    @rein.tool(no_effect_on=(OSError,))
    def flaky():
        raise OSError("down")

    @rein.tool
    def wipe():
        effects.do("wipe")

    @rein.tool
    def cached():
        effects.do("cached")

    def work():
        look("o1")
        pay("o1")
        pay("o2")
        with pytest.raises(OSError, match="down"):
            flaky()
        with pytest.raises(Denied):
            wipe()
        cached()
        raise ValueError("no end")

    with pytest.raises(ValueError, match="no end"), rein.session(agent="a") as session:
        work()
    assert effects.in_place == {}
    yield rein, url, session.id
    rein.close()


def test_frames_tell_the_life_of_a_session(recorded):
    rein, _, id = recorded
    frames = list(Replay(rein.read(id)).frames())
    assert [(f.phase, f.what, f.step, f.state) for f in frames if f.kind and f.phase != "undo"] == [
        ("call", "look", 1, "done"),
        ("call", "pay", 2, "done"),
        ("call", "pay", 3, "done"),
        ("call", "flaky", 4, "not_done"),
        ("check", "wipe", 5, "denied"),
        ("check", "cached", 6, "answered"),
    ]
    assert frames[0].what == "session_started"
    assert frames[1].result == {"order": "o1", "price": 40}
    assert [f.parent for f in frames if f.kind == "undo"] == [frames[3].call, frames[2].call]


def test_frames_are_filtered_by_phase_and_outcome(recorded):
    rein, _, id = recorded
    replay = Replay(rein.read(id))
    assert [f.what for f in replay.frames(phase="call", outcome="not_done")] == ["flaky"]
    assert [f.what for f in replay.frames(outcome="denied")] == ["wipe"]
    assert {f.phase for f in replay.frames(phase="undo")} == {"undo"}
    with pytest.raises(ConfigError, match="phase 'later': one of call"):
        replay.frames(phase="later")


def test_the_state_at_a_step_is_what_stood_when_it_had_ended(recorded):
    rein, _, id = recorded
    replay = Replay(rein.read(id))
    stood = [[f.arguments["order"] for f in replay.state_at(n).in_place] for n in range(1, 7)]
    assert stood == [[], ["o1"], ["o1", "o2"], ["o1", "o2"], ["o1", "o2"], ["o1", "o2"]]
    state = replay.state_at(3)
    assert (state.calls, state.frame.result, state.undone) == (3, "paid o2", ())
    with pytest.raises(Conflict, match="step 7 is an undo; calls are among steps 1 to 6"):
        replay.state_at(7)
    with pytest.raises(Conflict, match="has no step 99: its steps are 1 to 6"):
        replay.state_at(99)


def test_a_summary_adds_up(recorded):
    rein, _, id = recorded
    total = Replay(rein.read(id)).summary()
    assert total.outcomes == {"done": 3, "not_done": 1, "denied": 1, "answered": 1}
    assert (total.tools["pay"].calls, total.tools["flaky"].failed) == (2, 1)
    assert (total.tools["wipe"].calls, total.tools["wipe"].denied) == (0, 1)
    assert total.undos == {"done": 2}
    assert list(total.denials) == ["guard denied"]
    assert 0 < total.begun <= total.ended


def test_a_session_itself_can_be_replayed_and_an_unknown_one_cannot():
    rein = Rein(store="memory:")
    with rein.session() as session:
        rein.call(max, 1, 2)
        rein.call(max, 3, 4)
    assert Replay(session).state_at(2).frame.result == 4
    with pytest.raises(Conflict, match="session nobody has no events"):
        Replay(rein.read("nobody")).summary()
    rein.close()


def test_a_call_that_a_killed_process_left_is_of_unknown_outcome():
    rein = Rein(store="memory:")
    seen = []

    def inside():
        seen.extend(Replay(session).frames(outcome="running"))
        seen.append(Replay(session, over=True).state_at(1))

    with rein.session() as session:
        rein.call(inside)
    assert [seen[0].what.rpartition(".")[2], seen[1].in_doubt] == ["inside", ()]
    assert Replay(session).state_at(1).in_place[0].state == "done"
    rein.close()


def command(url, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "checkrein", "replay", "--store", url, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_the_command_shows_frames_a_state_and_figures(recorded):
    _, url, id = recorded
    code, printed, _ = command(url, id[:8], "--phase", "call")
    assert code == 0
    assert [line.split()[2] for line in printed.splitlines()[1:]] == ["look", "pay", "pay", "flaky"]
    code, printed, _ = command(url, id, "--at", 3)
    assert code == 0
    assert [line.split()[:4] for line in printed.splitlines()[-2:]] == [
        ["in", "place", "2", "pay"],
        ["in", "place", "3", "pay"],
    ]
    code, printed, _ = command(url, id, "--summary", "--json")
    assert json.loads(printed)["tools"]["pay"]["calls"] == 2


def test_the_command_says_what_it_was_not_given(recorded):
    _, url, id = recorded
    assert command(url, id, "--at", 9)[2] == (
        f"checkrein: session {id} has no step 9: its steps are 1 to 6\n"
    )
    assert "--phase x: one of call, check" in command(url, id, "--phase", "x")[2]
    assert "--outcome x: one of done" in command(url, id, "--outcome", "x")[2]
