"""SIGKILL at each step between a decision and its record: the decision stays usable or the
effect is not repeated, and nothing is stuck.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checkrein import Ask, Call, Plugin, Rein, errors

Child = Callable[..., "subprocess.Popen[str]"]

APP = """
import os, pathlib, signal, sys
from checkrein import Absent, Ask, Plugin, Present, Rein, errors

url, log, what, token, kill, kind = sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:7]

def die(point):
    if point == kill:
        os.kill(os.getpid(), signal.SIGKILL)

class Asks(Plugin):
    def pre_call(self, call):
        if what == "resume":
            die("decided")
        return Ask("sure?")

    def post_call(self, call, outcome):
        die("recorded")

    def on_event(self, event):
        if event.kind == "approval_decided":
            die("deciding")

rein = Rein(plugins=[Asks()], store=url)

def there(amount):
    return Present("paid") if log.read_text() else Absent()

settings = {
    "probed": {"probe": there, "settle_time": 0},
    "idempotent": {"idempotent": True},
    "neither": {},
}[kind]

@rein.tool(**settings)
def pay(amount: int) -> str:
    die("started")
    if kind != "idempotent" or not log.read_text():
        with log.open("a") as file:
            file.write("x")
    die("effect")
    return "paid"

try:
    if what == "ask":
        with rein.session(wait="suspend"):
            pay(5)
    elif what == "approve":
        print(rein.approvals.approve(token, by="anna"))
        import time
        time.sleep(0.2)
    elif what == "resume":
        print(rein.resume(token))
    else:
        print(len(rein.recover().left))
        print(rein.approvals.get(token).state)
except errors.ApprovalPending as pending:
    print(pending.token)
except errors.CheckreinError as error:
    print(type(error).__name__)
rein.close()
"""


@pytest.mark.parametrize("kind", ["probed", "idempotent", "neither"])
@pytest.mark.parametrize("point", ["decided", "started", "effect", "recorded"])
def test_a_kill_on_the_way_leaves_nothing_stuck_and_nothing_done_twice(
    child: Child, tmp_path: Path, point: str, kind: str
) -> None:
    url, log = f"sqlite:///{tmp_path}/s.db", tmp_path / "log"
    log.write_text("")

    def run(what: str, token: str = "-", kill: str = "-") -> tuple[int, str]:
        process = child(APP, url, log, what, token, kill, kind)
        out, err = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), err
        return process.returncode, out.strip()

    _, token = run("ask")
    assert token.startswith("ap-")
    assert run("approve", token) == (0, "approved")
    assert run("resume", token, point)[0] == -signal.SIGKILL
    expected = "paid"
    if kind == "neither" and point in ("started", "effect"):
        # Nobody can tell whether it took effect: it is never run on a guess.
        expected = "InDoubt"
    for _ in range(2):
        assert run("resume", token) == (0, expected)
    assert log.read_text() == ("" if (kind, point) == ("neither", "started") else "x")
    left, state = run("recover", token)[1].split()
    if expected == "paid":
        assert (left, state) == ("0", "done")
    else:
        # It is reported to a person, and the approval does not look usable.
        assert (left, state) == ("1", "started")


def test_a_decision_stands_from_the_moment_it_is_written(child: Child, tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path}/s.db", tmp_path / "log"
    log.write_text("")

    def run(*arguments: str) -> tuple[int, str]:
        process = child(APP, url, log, *arguments)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out.strip()

    _, token = run("ask", "-", "-", "neither")
    assert run("approve", token, "deciding", "neither")[0] == -signal.SIGKILL
    assert run("resume", token, "-", "neither") == (0, "paid")
    assert log.read_text() == "x"


MANY = """
import os, pathlib, sqlite3, sys
from checkrein import Absent, Ask, Plugin, Present, Rein, errors

url, place, tokens = sys.argv[1:4]

class Asks(Plugin):
    def pre_call(self, call):
        return Ask("sure?")

def world(text, *values):
    db = sqlite3.connect(place, timeout=60, isolation_level=None)
    try:
        return db.execute(text, values).fetchall()
    finally:
        db.close()

def there(amount):
    found = world("SELECT 1 FROM effects WHERE amount = ?", amount)
    return Present(amount) if found else Absent()

rein = Rein(plugins=[Asks()], store=url, max_resumes=1000)

@rein.tool(probe=there, settle_time=0)
def pay(amount: int) -> int:
    world("INSERT INTO effects VALUES (?)", amount)
    return amount

print("ready", flush=True)
for line in open(tokens):
    amount, token = line.split()
    try:
        rein.approvals.approve(token, by="anna")
    except errors.Conflict:
        pass
    assert rein.resume(token) == int(amount)
rein.close()
print("all", flush=True)
"""


def test_kills_at_any_instant_leave_one_effect_for_each_approval(
    child: Child, tmp_path: Path, full: bool
) -> None:
    count, kills = (400, 60) if full else (40, 5)
    url, place, tokens = f"sqlite:///{tmp_path}/s.db", tmp_path / "world.db", tmp_path / "tokens"
    world = sqlite3.connect(place, isolation_level=None)
    world.execute("CREATE TABLE effects (amount INTEGER)")

    class Asks(Plugin):
        def pre_call(self, call: Call) -> Ask:
            return Ask("sure?")

    def pay(amount: int) -> int:
        raise AssertionError

    with Rein(plugins=[Asks()], store=url, max_resumes=1000) as rein, tokens.open("w") as file:
        rein.declare("pay", fn=pay)
        for amount in range(count):
            try:
                with rein.session(wait="suspend"):
                    rein.call(pay, amount)
            except errors.ApprovalPending as pending:
                file.write(f"{amount} {pending.token}\n")
    chance = random.Random(8)
    for _ in range(kills):
        process = child(MANY, url, place, tokens)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(chance.uniform(0.005, 0.08))
        process.kill()
        process.wait()
    process = child(MANY, url, place, tokens)
    out, err = process.communicate(timeout=120)
    assert out == "ready\nall\n", err
    found = [amount for (amount,) in world.execute("SELECT amount FROM effects ORDER BY amount")]
    world.close()
    assert found == list(range(count))
    with Rein(store=url) as rein:
        for line in tokens.read_text().splitlines():
            assert rein.store.record("approval", line.split()[1]).state == "done"
