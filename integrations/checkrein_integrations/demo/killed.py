"""The fifth scene: processes that are killed with SIGKILL, and `checkrein recover`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from checkrein.errors import CheckreinError
from checkrein_integrations.demo.cast import PRICES, Cast

LATE = 0.8
"""Seconds by which the payment service answers late: room to kill its caller."""
PATIENCE = 30.0
"""Seconds after which something that should happen at once is given up."""


@contextmanager
def waiting_agent(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The agent's process, which waits for a line before it begins."""
    orders = [text for order in ("o4", "o5") for text in (order, str(PRICES[order]))]
    module = "checkrein_integrations.demo.agent_process"
    with child(folder, "-m", module, str(folder), *orders) as process:
        yield process


def crash(cast: Cast, worker: subprocess.Popen[str]) -> None:
    """(e) The agent is killed in a call, `recover` in an undo; a second `recover` finishes."""
    stage, world = cast.stage, cast.world
    stage.scene(
        "e", "A killed process is recovered",
        "The agent refunds o4 and o5 in a process of its own. It is killed in the middle of a "
        f"payment; the payment service applies each request {LATE:g} s after it received it.",
    )  # fmt: skip
    before = world.balance()
    world.be_late(LATE)
    folder = world.folder
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()
    _until(lambda: ("POST", "pay-o5") in world.pending(), worker, "the payment of o5")
    worker.kill()
    worker.wait()
    stage.say(f"SIGKILL to the agent (pid {worker.pid}) while the payment of o5 was on its way")
    killed = world.balance()
    _settled(cast)
    stage.pairs(("before", before), ("when killed", killed), ("a moment later", world.balance()))
    cast.sessions["e"] = next(
        row.id for row in cast.rein.store.sessions(state="ACTIVE", limit=20).rows
        if row.id not in cast.sessions.values()
    )  # fmt: skip

    stage.command("checkrein recover --settle")
    with child(folder, "-m", "checkrein", "recover", "--settle") as first:
        _until(lambda: any(m == "DELETE" for m, _ in world.pending()), first, "an undo")
        first.kill()
        first.wait()
    stage.say(f"SIGKILL to recover itself (pid {first.pid}) in the middle of an undo")
    stage.pairs(("when killed", world.balance()))
    _settled(cast)

    stage.command("checkrein recover --settle")
    with child(folder, "-m", "checkrein", "recover", "--settle", "--json") as second:
        told, problems = second.communicate(timeout=PATIENCE)
    if second.returncode not in (0, 1):
        raise CheckreinError(f"demo: recover failed: {problems[-2000:]}")
    report = json.loads(told)
    actions = [action for one in report["sessions"] for action in one["actions"]]
    for action in actions:
        stage.say(f"{action['status']:9} {action['name']:14} {action['detail']}")
    world.be_late(0)
    after = world.balance()
    twice = _twice(cast)
    good = after == before and not twice and second.returncode == 0
    stage.pairs(("after", after))
    stage.say(
        "the world is as it was, and nothing was undone twice" if good else
        "NOT as it was: see checkrein show", "good" if good else "bad",
    )  # fmt: skip
    stage.fact(
        before=str(before), killed=str(killed), after=str(after), restored=after == before,
        undone_twice=twice, exit_code=second.returncode, recovered=actions,
    )  # fmt: skip


def _twice(cast: Cast) -> list[str]:
    """Keys of payments that were reversed more than once."""
    with contextlib.closing(sqlite3.connect(cast.world.folder / "payments.db")) as db:
        rows = db.execute(
            "select key from applied where what = 'reversed' group by key having count(*) > 1"
        ).fetchall()
    return [str(row[0]) for row in rows]


@contextmanager
def child(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in the demo's folder; it never outlives the block."""
    process = subprocess.Popen(  # noqa: S603 - this interpreter, with modules of this package
        [sys.executable, *arguments],
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def _until(happens: Callable[[], bool], process: subprocess.Popen[str], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        if process.poll() is not None:
            _, problems = process.communicate()
            raise CheckreinError(f"demo: the process ended before {what}: {problems[-2000:]}")
        if time.monotonic() > deadline:
            raise CheckreinError(f"demo: waited {PATIENCE:g} s for {what}")
        time.sleep(0.02)


def _settled(cast: Cast) -> None:
    """Wait until the payment service has applied whatever it received."""
    while cast.world.pending():
        time.sleep(0.05)
