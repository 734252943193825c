"""Recovery: processes are really killed and really stopped, and the world is a real file."""

# Undos and probes are bound by parameter names, so a lambda's names matter; and what must not
# run stands inside the block that raises.

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Call, Hold, Plugin, Rein, errors
from checkrein.recovery import RecoverReport

Child = Callable[..., "subprocess.Popen[str]"]

APP = """
import os, signal, sqlite3, sys, time
from checkrein import Ask, Hold, Plugin, Rein

class World:
    # Effects in a file of their own; `die` names the moment at which the process ends.

    def __init__(self, path, die=""):
        self.path, self.die = path, die
        self.run("CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY, name TEXT, key TEXT)")

    def run(self, sql, *values):
        db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def now(self, moment):
        if self.die == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.die == "stop " + moment:
            self.die = ""
            os.kill(os.getpid(), signal.SIGSTOP)

    def act(self, name):
        self.now("before " + name)
        self.run("INSERT INTO log (name) VALUES (?)", name)
        self.now("after " + name)
        return name

    def undo(self, name, key):
        self.now("before -" + name)
        # The world honours the key: one effect, however often it is asked for.
        self.run("INSERT INTO log (name, key) SELECT ?, ? WHERE NOT EXISTS "
                 "(SELECT 1 FROM log WHERE key = ?)", "-" + name, key, key)
        self.now("after -" + name)

    def probe(self, name):
        done = self.run("SELECT count(*) FROM log WHERE name = ?", name)[0][0]
        undone = self.run("SELECT count(*) FROM log WHERE name = ?", "-" + name)[0][0]
        return done > undone

    def names(self):
        return [name for name, in self.run("SELECT name FROM log ORDER BY n")]

def declare(rein, world, **settings):
    settings = {"probe": world.probe, "settle_time": 0, **settings}
    return rein.tool(world.act, name="act", undo=world.undo, **settings)
"""

scope: dict[str, Any] = {}
exec(APP, scope)  # the very text that the children run
World, declare = scope["World"], scope["declare"]

RUN = (
    APP
    + """
store, path, die, names = sys.argv[1:5]
rein = Rein(store=store)
world = World(path, die)
act = declare(rein, world)
with rein.session(agent="child", on_error=(sys.argv[5:] or ["rollback"])[0]) as session:
    print(session.id, flush=True)
    for name in names.split(","):
        act(name)
    if die == "wait":
        sys.stdin.readline()
    if die == "error":
        raise KeyError
print("end", flush=True)
"""
)

RECOVER = (
    APP
    + """
store, path, die = sys.argv[1:4]
rein = Rein(store=store)
declare(rein, World(path, die))
print(rein.recover().complete, flush=True)
"""
)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "world.db")


@pytest.fixture
def here(store: str) -> Iterator[Callable[..., Rein]]:
    made: list[Rein] = []

    def build(*plugins: object, **settings: Any) -> Rein:
        rein = Rein(plugins, store=store, **settings)
        made.append(rein)
        return rein

    yield build
    for rein in made:
        rein.close()


def ended(process: subprocess.Popen[str]) -> str:
    """The first line that a child printed, once it has ended (killed or not)."""
    out, err = process.communicate(timeout=60)
    assert process.returncode in (0, 1, -signal.SIGKILL), err
    return out.split("\n")[0].strip()


def recovered(go: Any, rein: Rein, **options: Any) -> RecoverReport:
    report = go.run(rein, "recover", **options)
    assert isinstance(report, RecoverReport)
    return report


def stopped(process: subprocess.Popen[str]) -> None:
    """Wait until a child stands still."""
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert pid == process.pid and os.WIFSTOPPED(status)


# -- killed in a call


@pytest.mark.parametrize(
    ("die", "done"),
    [("before b", ["a"]), ("after b", ["a", "b"]), ("before a", []), ("after c", ["a", "b", "c"])],
)
def test_killed_in_a_call(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str, die: str,
    done: list[str],
) -> None:  # fmt: skip
    session = ended(child(RUN, store, place, die, "a,b,c"))
    world = World(place)
    assert world.names() == done
    rein = here()
    declare(rein, world)
    report = recovered(go, rein)
    assert report.complete and [r.session for r in report.sessions] == [session]
    assert world.names() == [*done, *(f"-{name}" for name in reversed(done))]
    row = rein.store.session(session)
    assert row is not None and (row.state, row.rollback, row.owner) == ("FAILED", "rolled_back", "")
    # Nothing is left to do, and the dead owner is forgotten.
    assert recovered(go, rein).sessions == []
    assert [o.pid for o in rein.store.owners()] == [os.getpid()]


def test_killed_between_two_calls(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    process = child(RUN, store, place, "wait", "a,b")
    world = World(place)
    assert process.stdout is not None
    process.stdout.readline()
    wait_for(lambda: world.names() == ["a", "b"])
    rein = here()
    declare(rein, world)
    # While it lives, nothing of it is touched.
    assert recovered(go, rein).sessions == []
    assert world.names() == ["a", "b"]
    process.kill()
    process.wait()
    assert recovered(go, rein).complete and world.names() == ["a", "b", "-b", "-a"]


def wait_for(ready: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_absent_before_and_after_settle_time(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    session = ended(child(RUN, store, place, "before a", "a"))
    world = World(place)
    rein = here()
    declare(rein, world, settle_time=3600)
    report = recovered(go, rein)
    assert [a.status for a in report.left] == ["in_doubt"] and 3500 < report.wait <= 3600
    # It lands after all, and the next recovery takes it back.
    world.act("a")
    assert recovered(go, rein).complete and world.names() == ["a", "-a"]
    row = rein.store.session(session)
    assert row is not None and row.rollback == "rolled_back"


def test_recover_can_wait_until_answers_are_final(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    ended(child(RUN, store, place, "before a", "a"))
    world = World(place)
    rein = here()
    declare(rein, world, settle_time=1.5)
    assert recovered(go, rein, settle=True).complete and world.names() == []


def test_what_this_process_does_not_declare_is_listed(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    ended(child(RUN, store, place, "after b", "a,b"))
    rein = here()
    report = recovered(go, rein)
    assert [(a.name, a.status) for a in report.left] == [
        ("act", "needs_human"), ("act", "failed"),
    ]  # fmt: skip
    assert "not declared" in report.left[1].detail
    assert World(place).names() == ["a", "b"]


# -- killed in an undo


@pytest.mark.parametrize("die", ["before -b", "after -b", "before -a", "after -a"])
def test_killed_in_a_rollback(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str, die: str
) -> None:
    """In the process's own rollback, and then in a recovery as well."""
    ended(child(RUN, store, place, "after b", "a,b"))
    ended(child(RECOVER, store, place, die))
    world = World(place)
    rein = here()
    declare(rein, world)
    assert recovered(go, rein).complete
    assert world.names() == ["a", "b", "-b", "-a"]


def test_an_undo_in_doubt_waits_for_its_settle_time(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    ended(child(RUN, store, place, "after b", "a,b"))
    ended(child(RECOVER, store, place, "before -b"))
    world = World(place)
    rein = here()
    declare(rein, world, settle_time=3600)
    report = recovered(go, rein)
    assert [(a.status, a.detail) for a in report.left] == [("in_doubt", "an undo may still land")]
    world.run("INSERT INTO log (name) VALUES ('-b')")
    assert recovered(go, rein).complete and world.names() == ["a", "b", "-a", "-b"]


def test_an_undo_in_doubt_without_a_probe(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    ended(child(RUN, store, place, "after b", "a,b"))
    ended(child(RECOVER, store, place, "after -b"))
    world = World(place)
    careful = here()
    declare(careful, world, probe=None)
    report = recovered(go, careful)
    assert [(a.status) for a in report.left] == ["needs_human"]
    assert world.names() == ["a", "b", "-b", "-a"]
    bold = here()
    declare(bold, world, probe=None, undo_safe_to_repeat=True)
    session = report.sessions[0].session
    again = go.run(bold, "rollback", session)
    assert again.complete and world.names() == ["a", "b", "-b", "-a"]
    # Every attempt bore the same key.
    keys = {key for (key,) in world.run("SELECT key FROM log WHERE name = '-b'")}
    assert len(keys) == 1


# -- who is alive


def test_a_stalled_owner_is_not_touched_and_loses_nothing(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    process = child(RUN, store, place, "stop after b", "a,b,c")
    stopped(process)
    world = World(place)
    rein = here()
    declare(rein, world)
    assert recovered(go, rein).sessions == [] and world.names() == ["a", "b"]
    process.send_signal(signal.SIGCONT)
    assert ended(process)
    assert world.names() == ["a", "b", "c"]
    assert recovered(go, rein).sessions == []


def test_an_owner_that_wakes_after_its_session_was_rolled_back(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    """An explicit rollback closes the session; the call that still ran undoes itself."""
    process = child(RUN, store, place, "stop after b", "a,b,c")
    stopped(process)
    assert process.stdout is not None
    session = process.stdout.readline().strip()
    world = World(place)
    rein = here(drain=0.1)
    declare(rein, world)
    report = go.run(rein, "rollback", session)
    assert [a.status for a in report.actions] == ["in_doubt", "undone"]
    assert world.names() == ["a", "b", "-a"]
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert "SessionClosed" in err, "its next call is refused"
    assert world.names() == ["a", "b", "-a", "-b"]
    assert recovered(go, rein).complete
    row = rein.store.session(session)
    assert row is not None and row.rollback == "rolled_back"


def test_a_stalled_undo_and_a_world_that_honours_the_key(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    """Nothing but the key closes this: the sleeper undoes when it wakes."""
    process = child(RUN, store, place, "stop before -b", "a,b", "rollback")
    process.kill()
    process.wait()
    world = World(place)
    world.run("DELETE FROM log")
    process = child(
        RUN.replace('if die == "error":', "if True:"), store, place, "stop before -b", "a,b"
    )
    stopped(process)
    rein = here()
    declare(rein, world)
    # Its lease is lost: to a host that hears nothing of it, it is dead.
    for lease in rein.store.owners():
        if lease.pid == process.pid:
            rein.store.drop_owner(lease.id)
    assert recovered(go, rein).complete
    assert world.names() == ["a", "b", "-b", "-a"]
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert world.names() == ["a", "b", "-b", "-a"]


def test_two_recoveries_race(
    child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    for _ in range(3):
        ended(child(RUN, store, place, "after c", "a,b,c"))
    processes = [child(RECOVER, store, place, "") for _ in range(3)]
    assert [ended(p) for p in processes] == ["True"] * 3
    world = World(place)
    rein = here()
    declare(rein, world)
    assert rein.recover().complete
    assert sorted(world.names()) == sorted(["a", "b", "c", "-a", "-b", "-c"] * 3)


def test_sessions_that_keep_their_effects(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    session = ended(child(RUN, store, place, "after b", "a,b", "keep"))
    world = World(place)
    rein = here()
    declare(rein, world)
    report = recovered(go, rein)
    assert report.complete and world.names() == ["a", "b"]
    row = rein.store.session(session)
    assert row is not None and (row.state, row.rollback, row.owner) == ("FAILED", "none", "")
    # What was in doubt is known now, and a rollback can still be asked for.
    assert go.run(rein, "rollback", session).complete
    assert world.names() == ["a", "b", "-b", "-a"]


def test_calls_outside_any_session_are_not_rolled_back(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    text = (
        APP
        + """
rein = Rein(store=sys.argv[1])
act = declare(rein, World(sys.argv[2], 'after b'))
act('a')
act('b')
"""
    )
    ended(child(text, store, place))
    rein = here()
    world = World(place)
    declare(rein, world)
    assert recovered(go, rein).complete and world.names() == ["a", "b"]
    assert recovered(go, rein).sessions == []


# -- waiting for a person

ASKING = (
    APP
    + """
class Guard(Plugin):
    def pre_call(self, call):
        return Ask("big") if call.kind == "tool" and call.arguments.get("name") == "big" else None

rein = Rein([Guard()], store=sys.argv[1])
act = declare(rein, World(sys.argv[2]))
with rein.session(wait="block") as session:
    print(session.id, flush=True)
    act("a")
    if len(sys.argv) > 3:
        with rein.session():
            act("big")
    act("big")
"""
)


class Guard(Plugin):
    def pre_call(self, call: Call) -> Ask | None:
        return Ask("big") if call.kind == "tool" and call.arguments.get("name") == "big" else None


@pytest.mark.parametrize("nested", [False, True])
def test_a_session_that_waits_for_a_person_is_left_alone(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str, nested: bool
) -> None:
    process = child(ASKING, store, place, *(["nested"] if nested else []))
    rein = here(Guard())
    world = World(place)
    declare(rein, world)
    wait_for(rein.approvals.pending)
    process.kill()
    session = ended(process)
    report = recovered(go, rein)
    assert report.sessions == [] and session in report.waiting and world.names() == ["a"]
    [request] = rein.approvals.pending()
    rein.approvals.approve(request.id, by="eve")
    assert recovered(go, rein).sessions == []
    # And the one call can still be run, once, by whoever resumes it.
    assert go.run(rein, "resume", request.id) == "big"
    assert go.run(rein, "resume", request.id) == "big"
    assert world.names() == ["a", "big"]


@pytest.mark.parametrize("end", ["rejected", "expired"])
def test_a_decision_against_it_ends_the_waiting(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str, end: str
) -> None:
    process = child(ASKING, store, place)
    rein = here(Guard())
    world = World(place)
    declare(rein, world)
    wait_for(rein.approvals.pending)
    process.kill()
    process.communicate()
    if end == "rejected":
        rein.approvals.reject(rein.approvals.pending()[0].id, by="eve")
    else:
        real = rein.clock
        rein.clock = lambda: real() + 10**12
    assert recovered(go, rein).complete and world.names() == ["a", "-a"]


def test_killed_after_an_approval_was_used(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    """Started and never heard of again: its probe is asked, and the permission is not free."""
    text = ASKING.replace("World(sys.argv[2])", "World(sys.argv[2], 'after big')")
    process = child(text, store, place)
    rein = here(Guard())
    world = World(place)
    declare(rein, world)
    wait_for(rein.approvals.pending)
    [request] = rein.approvals.pending()
    rein.approvals.approve(request.id, by="eve")
    ended(process)
    go.run(rein, "resume", request.id)
    assert world.names() == ["a", "big"], "what is in place is not done again"
    record = rein.store.record("approval", request.id)
    assert record is not None and record.state == "done"
    # Whoever resumed it has left the session open: it is nobody's to recover.
    assert recovered(go, rein).sessions == []
    assert go.run(rein, "rollback", record.session).complete
    assert world.names() == ["a", "big", "-big", "-a"]


# -- money

PAYING = (
    APP
    + """
class Cap(Plugin):
    def pre_call(self, call):
        if call.kind == "undo":
            return None
        return (Hold("cash", 5, "usd", 20), Hold("slots", 1, "calls", 1, settle="release"))

rein = Rein([Cap()], store=sys.argv[1])
world = World(sys.argv[2], sys.argv[3])
act = declare(rein, world, settle_time=3600 if "slow" in sys.argv else 0)
with rein.session():
    act(sys.argv[4])
"""
)


class Cap(Plugin):
    def pre_call(self, call: Call) -> Any:
        if call.kind == "undo":
            return None
        return (Hold("cash", 5, "usd", 20), Hold("slots", 1, "calls", 1, settle="release"))


def balance(rein: Rein, account: str) -> tuple[int, int]:
    found = rein.store.balance(account)
    assert found is not None
    return found.spent, found.held


def test_a_cap_is_never_passed_over_repeated_kills(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    """Each process is killed after its effect: four of them fit under the cap, no fifth."""
    for n in range(6):
        ended(child(PAYING, store, place, "after x", "x", str(n)))
    world = World(place)
    assert len(world.names()) == 4
    rein = here(Cap())
    declare(rein, world)
    assert balance(rein, "cash") == (0, 20), "held in full until the calls are resolved"
    # Undone, but paid: what was started and cannot be measured is charged in full.
    recovered(go, rein)
    assert balance(rein, "cash") == (20, 0)
    with rein.session(), pytest.raises(errors.BudgetExceeded):
        go.call(rein, rein.tools.get("act").fn, "y")  # type: ignore[union-attr]


def test_what_never_happened_is_given_back(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    ended(child(PAYING, store, place, "before x", "x"))
    rein = here(Cap())
    tool = declare(rein, World(place), settle_time=3600)
    assert balance(rein, "cash") == (0, 5) and balance(rein, "slots") == (0, 1)
    report = recovered(go, rein)
    # In doubt: the money stays held; the slot is free, because nothing runs any more.
    assert [a.status for a in report.left] == ["in_doubt"]
    assert balance(rein, "cash") == (0, 5) and balance(rein, "slots") == (0, 0)
    real = rein.clock
    rein.clock = lambda: real() + 3601 * 10**6
    assert recovered(go, rein).complete
    assert balance(rein, "cash") == (0, 0)
    assert tool is not None


def test_a_dead_process_s_slot_is_free_without_a_recovery(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    ended(child(PAYING, store, place, "after x", "x"))
    rein = here(Cap())
    tool = declare(rein, World(place))
    with rein.session():
        assert go.call(rein, tool, "y") == "y"
    assert balance(rein, "slots") == (0, 0) and balance(rein, "cash") == (5, 5)


def test_model_calls_of_a_dead_process_are_charged(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    text = PAYING.replace(
        "act(sys.argv[4])",
        "rein.model_call(lambda **r: world.act('m'), model='m', messages=[])",
    )
    ended(child(text, store, place, "after m", "x"))
    rein = here(Cap())
    declare(rein, World(place))
    assert balance(rein, "cash") == (0, 5)
    assert recovered(go, rein).complete
    assert balance(rein, "cash") == (5, 0) and balance(rein, "slots") == (0, 0)


# -- taking up a dead run


def test_a_resumed_key_finds_what_the_dead_process_did(
    go: Any, child: Child, here: Callable[..., Rein], store: str, place: str
) -> None:
    """Never ran: runs now, once; and a kill of the second run is a doubt of its own."""
    from checkrein.engine import Entry

    text = (
        APP
        + """
from checkrein.engine import Entry
rein = Rein(store=sys.argv[1])
tool = declare(rein, World(sys.argv[2], sys.argv[3])).__checkrein_tool__
session = rein.session(id="run")
session.__enter__()
rein.enter(Entry(tool, {"name": "a"}, session, call_id="key", keyed=True))
"""
    )
    ended(child(text, store, place, "before a"))
    ended(child(text, store, place, "after a"))
    world = World(place)
    assert world.names() == ["a"]
    rein = here()
    tool = declare(rein, world).__checkrein_tool__
    entry = Entry(tool, {"name": "a"}, rein.session(id="run"), call_id="key", keyed=True)
    with entry.session:
        assert go.run(rein, "enter", entry).state == "done"
        assert world.names() == ["a"], "the probe found it there: it is not repeated"
    text = text.replace('"run"', '"two"').replace('"key"', '"key two"').replace('"a"', '"b"')
    ended(child(text, store, place, "before b"))
    ended(child(text, store, place, "after b"))
    # The first attempt was found absent; the second one is not covered by that.
    assert recovered(go, rein).complete and world.names() == ["a", "b", "-b"]


def test_threads_of_one_process_share_its_life(
    go: Any, here: Callable[..., Rein], place: str
) -> None:
    """A second Rein in a living process recovers nothing of the first."""
    one, two = here(), here()
    world = World(place)
    act = declare(one, world)
    declare(two, world)
    with one.session():
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        go.call(one, act, "a")
        assert recovered(go, two).sessions == [] and world.names() == ["a"]
