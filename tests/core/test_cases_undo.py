"""What went wrong in other systems' rollbacks, played here: D29 and D30 of the list of cases.

D29: a step that timed out may have worked. D30: the undo itself fails.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Absent, Present, Rein
from checkrein.report import RollbackReport


def statuses(report: Any) -> list[tuple[str, str]]:
    assert isinstance(report, RollbackReport)
    return [(a.name, a.status) for a in report.actions]


# -- D29


@pytest.mark.parametrize("acted", [True, False])
@pytest.mark.parametrize("knows", ["probe", "safe", "nothing"])
def test_a_step_that_timed_out_may_have_worked(
    go: Any, make: Callable[..., Rein], acted: bool, knows: str
) -> None:
    rein = make()
    world: list[str] = []

    def create_order(name: str) -> None:
        if acted:
            world.append(name)
        raise TimeoutError

    def there(name: str) -> Present | Absent:
        return Present() if name in world else Absent()

    def cancel(name: str) -> None:
        if name in world:
            world.remove(name)

    settings: dict[str, Any] = {
        "probe": {"probe": there}, "safe": {"undo_safe_to_repeat": True}, "nothing": {},
    }[knows]  # fmt: skip
    order = rein.tool(create_order, undo=cancel, settle_time=0, **settings)
    later = rein.tool(
        lambda: world.append("later"), name="later", undo=lambda: world.remove("later")
    )
    with rein.session() as session:
        with pytest.raises(TimeoutError):
            go.call(rein, order, "o1")
        go.call(rein, later)
    report = go.run(rein, "rollback", session.id)
    if knows == "nothing":
        # Neither run blindly nor left out in silence: a person has to look.
        assert statuses(report) == [("later", "undone"), ("create_order", "needs_human")]
        assert world == (["o1"] if acted else []) and not report.complete
    else:
        there_was = acted or knows == "safe"
        assert statuses(report) == [
            ("later", "undone"), ("create_order", "undone" if there_was else "absent"),
        ]  # fmt: skip
        assert world == [] and report.complete


KILLED = """
import os, signal, sys
from pathlib import Path
from checkrein import Absent, Present, Rein

rein = Rein(store=sys.argv[1])
world = Path(sys.argv[2])

def act(name):
    if sys.argv[3] == "after":
        (world / name).touch()
    os.kill(os.getpid(), signal.SIGKILL)

with rein.session():
    rein.tool(act, undo=lambda name: None)("o1")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_between_effect_and_record(go: Any, child: Any, tmp_path: Path, when: str) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    world = tmp_path / "world"
    world.mkdir()
    process = child(KILLED, store, world, when)
    assert process.wait() == -signal.SIGKILL, process.stderr.read()
    with Rein(store=store) as rein:
        rein.tool(
            lambda name: None, name="act", undo=lambda name: (world / name).unlink(),
            probe=lambda name: (world / name).exists(), settle_time=0,
        )  # fmt: skip
        report = go.run(rein, "recover")
        assert report.complete and list(world.iterdir()) == []
        (action,) = report.sessions[0].actions
        assert action.status == ("undone" if when == "after" else "absent")


# -- D30


class Four:
    """Effects 1 to 4, and an undo of the third that fails as it is told."""

    def __init__(self, rein: Rein, fails: int, *, hangs: bool = False) -> None:
        self.log: list[str] = []
        self.fails = fails
        self.hangs = hangs
        self.act = rein.tool(
            lambda n: self.log.append(str(n)), name="act", undo=self.undo,
            timeout=0.3 if hangs else None, undo_safe_to_repeat=not hangs,
        )  # fmt: skip

    def undo(self, n: int) -> None:
        if n == 3 and self.fails:
            self.fails -= 1
            self.log.append("3 raised")
            raise RuntimeError
        if n == 2 and self.hangs:
            self.hangs = False
            time.sleep(0.6)
        self.log.append(f"-{n}")


def run(go: Any, rein: Rein, four: Four) -> str:
    with rein.session() as session:
        for n in (1, 2, 3, 4):
            go.call(rein, four.act, n)
    four.log.clear()
    return session.id


def test_an_undo_that_raises_twice_and_then_works(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    four = Four(rein, 2)
    session = run(go, rein, four)
    report = go.run(rein, "rollback", session)
    assert four.log == ["-4", "3 raised", "3 raised", "-3", "-2", "-1"] and report.complete


def test_an_undo_that_always_raises_stops_nobody(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    four = Four(rein, 99)
    session = run(go, rein, four)
    report = go.run(rein, "rollback", session)
    assert [status for _, status in statuses(report)] == ["undone", "failed", "undone", "undone"]
    assert four.log == ["-4", "3 raised", "3 raised", "3 raised", "-2", "-1"]
    row = rein.store.session(session)
    assert row is not None and row.rollback == "partial" and len(report.left) == 1
    # Again: what is undone stays so, and the one that is left is tried.
    four.fails = 0
    four.log.clear()
    assert go.run(rein, "rollback", session).complete and four.log == ["-3"]
    four.log.clear()
    assert go.run(rein, "rollback", session).complete and four.log == []


def test_an_undo_that_hangs_past_its_timeout(go: Any, make: Callable[..., Rein]) -> None:
    rein = make(clock=None)
    four = Four(rein, 0, hangs=True)
    session = run(go, rein, four)
    report = go.run(rein, "rollback", session)
    assert [status for _, status in statuses(report)] == [
        "undone", "undone", "needs_human", "undone",
    ]  # fmt: skip
    assert [line for line in four.log if line != "-2"] == ["-4", "-3", "-1"]
    end = time.monotonic() + 10
    while "-2" not in four.log and time.monotonic() < end:
        time.sleep(0.01)
    # It came late and is recorded: nothing is repeated.
    end = time.monotonic() + 10
    while not go.run(rein, "rollback", session).complete and time.monotonic() < end:
        time.sleep(0.05)
    assert four.log.count("-2") == 1 and go.run(rein, "rollback", session).complete


FELL = """
import os, signal, sys
from pathlib import Path
from checkrein import Rein

rein = Rein(store=sys.argv[1])
log = Path(sys.argv[2])

def undo(n):
    with log.open("a") as file:
        print(f"-{n}", file=file)
    if n == 3 and len(sys.argv) > 3:
        os.kill(os.getpid(), signal.SIGKILL)

act = rein.tool(lambda n: None, name="act", undo=undo, settle_time=0,
                probe=lambda n: f"-{n}" not in log.read_text().split())
if len(sys.argv) > 3:
    with rein.session():
        for n in (1, 2, 3, 4):
            act(n)
        raise KeyError
print([a.status for a in rein.recover().sessions[0].actions])
"""


def test_a_kill_after_the_third_undo(child: Any, tmp_path: Path) -> None:
    store, log = f"sqlite:///{tmp_path}/s.db", tmp_path / "log"
    log.touch()
    process = child(FELL, store, log, "fall")
    assert process.wait() == -signal.SIGKILL, process.stderr.read()
    assert log.read_text().split() == ["-4", "-3"]
    out, err = child(FELL, store, log).communicate()
    assert out == "['undone', 'undone', 'undone', 'undone']\n", err
    # It went on at 2; 4 and 3 were not undone again.
    assert log.read_text().split() == ["-4", "-3", "-2", "-1"]
