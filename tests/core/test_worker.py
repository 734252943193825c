"""Workers: what processes leave is finished, expired, told on and forgotten, by any of them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Plugin, Rein, errors
from checkrein.cli import run
from checkrein.testing import Clock
from checkrein.working import Worker

APP = """
import contextvars, os, sys, time
from pathlib import Path
from checkrein import Ask, Plugin, Rein

world = Path(os.environ["WORLD"])

class Large(Plugin):
    def pre_call(self, call):
        return Ask("large", rule="limit") if call.arguments["name"].startswith("ask") else None

def there(name):
    from checkrein import Absent, Present
    return Present(name) if (world / name).exists() else Absent()

def undo(name):
    with (world.parent / "undone").open("a") as log:
        log.write(name + "\\n")
    time.sleep(float(os.environ.get("SLOW", "0")))
    (world / name).unlink(missing_ok=True)

rein = Rein(plugins=[Large()], store=os.environ["STORE"], wait="suspend")

@rein.tool(name="make", undo=undo, probe=there, settle_time=0)
def make(name: str) -> str:
    (world / name).write_text("")
    return name

def leave(number):
    # Sessions whose process is killed in the middle.
    def one(i):
        rein.session(id=f"s{i}").__enter__()
        make(f"a{i}")
        make(f"b{i}")

    for i in range(number):
        contextvars.Context().run(one, i)
    print("up", flush=True)
    sys.stdin.read()
"""


class Place:
    """An application on a store, and the files that it makes."""

    def __init__(self, folder: Path, store: str, child: Any) -> None:
        self.folder, self.world, self.store, self._child = folder, folder / "world", store, child
        self.world.mkdir()
        (folder / "desk.py").write_text(APP, encoding="utf-8")
        self.env = {"STORE": store, "WORLD": str(self.world)}

    def killed(self, sessions: int) -> None:
        """Leave sessions behind, each with two effects."""
        process = self._child(f"import desk; desk.leave({sessions})", env=self.env, cwd=self.folder)
        assert process.stdout.readline() == "up\n", process.stderr.read()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def worker(self, *arguments: str, slow: float = 0.0) -> Any:
        """Start `checkrein worker`."""
        given = ["worker", "--app", "desk:rein", "--json", *arguments]
        return self._child(
            f"import sys; from checkrein.cli import main; main({given!r})",
            env={**self.env, "SLOW": str(slow)}, cwd=self.folder,
        )  # fmt: skip

    def once(self, *arguments: str) -> dict[str, Any]:
        out, problems = self.worker("--once", *arguments).communicate(timeout=60)
        assert out, problems
        found: dict[str, Any] = json.loads(out)
        return found

    def undone(self) -> list[str]:
        path = self.folder / "undone"
        return path.read_text(encoding="utf-8").split() if path.exists() else []


@pytest.fixture
def place(tmp_path: Path, child: Any) -> Place:
    return Place(tmp_path, f"sqlite:///{tmp_path}/store.db", child)


def check_two_workers(place: Place, sessions: int) -> None:
    """One of two is killed in the middle: every session is undone, hardly anything twice."""
    place.killed(sessions)
    assert len(list(place.world.iterdir())) == 2 * sessions
    workers = [place.worker("--every", "0.2", slow=0.05) for _ in range(2)]
    until = time.monotonic() + 60
    while len(place.undone()) < sessions and time.monotonic() < until:
        time.sleep(0.01)
    workers[0].send_signal(signal.SIGKILL)
    while any(place.world.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(place.world.iterdir())
    workers[1].send_signal(signal.SIGTERM)
    out, problems = workers[1].communicate(timeout=60)
    assert workers[1].returncode == 0, problems
    assert not any(json.loads(line)["failed"] for line in out.splitlines()), out
    # What the killed one had in hand may be asked for again, and nothing else.
    names = place.undone()
    assert len(names) - len(set(names)) <= 1
    place.once()
    rein = Rein(store=place.store)
    states = {row.id: row.stored for row in rein.store.sessions().rows if row.id[0] == "s"}
    assert states == {f"s{i}": "ROLLED_BACK" for i in range(sessions)}
    assert all(rein.store.verify(id) is None for id in states)
    rein.close()


def test_two_workers_share_and_one_is_killed(place: Place, full: bool) -> None:
    check_two_workers(place, 60 if full else 8)


def test_one_round(place: Place) -> None:
    place.killed(2)
    done = place.once()
    assert sorted(done["recovered"]) == ["s0", "s1"]
    assert (done["left"], done["failed"]) == (0, {})
    assert place.once()["recovered"] == []


class Large(Plugin):
    """Asks about everything."""

    def pre_call(self, call: Any) -> Any:
        return Ask("large", rule="limit", expires=60)


def test_requests_expire_and_old_sessions_are_forgotten_once_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    store = f"sqlite:///{tmp_path}/store.db"
    rein = Rein(plugins=[Large()], clock=clock, wait="suspend", store=store)

    @rein.tool(name="pay")
    def pay(order: str) -> None:
        raise AssertionError("nobody allowed it")

    with pytest.raises(errors.ApprovalPending), rein.session(id="waits"):
        pay("o1")
    with rein.session(id="ended"):
        pass
    first, second = Worker(rein, forget_after=3600), Worker(rein, forget_after=3600)
    assert (first.round().expired, first.round().forgotten) == (0, 0)
    clock.advance(61)
    done = second.round()
    assert (done.expired, done.failed) == (1, {})
    assert rein.store.records("approval", state="expired").rows
    clock.advance(7200)
    counts = [worker.round().forgotten for worker in (first, second)]
    assert counts[0] >= 2
    assert counts[1] == 0
    assert rein.store.session("ended").body.get("forgotten")  # type: ignore[union-attr]
    # The rows of the workers themselves stay usable.
    clock.advance(7200)
    assert first.round().failed == {}
    rein.close()


def test_what_people_must_look_at_grows_no_journal() -> None:
    rein = Rein()

    @rein.tool(name="pay", undo=lambda order: 1 / 0)
    def pay(order: str) -> str:
        return order

    with pytest.raises(KeyError), rein.session(id="s") as session:  # noqa: PT012 - see above
        pay("o1")
        raise KeyError(session.id)
    worker = Worker(rein)
    worker.round()
    before = len(rein.store.events(session="s"))
    for _ in range(3):
        worker.round()
    assert len(rein.store.events(session="s")) == before
    rein.close()


def test_a_step_that_fails_does_not_keep_the_others(monkeypatch: Any) -> None:
    rein = Rein()

    def broken(**_: Any) -> None:
        raise errors.StoreUnavailable("gone")

    monkeypatch.setattr(rein, "recover", broken)
    done = Worker(rein, forget_after=0.0).round()
    assert done.failed == {"recover": "gone"}
    rein.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--once", "--every", "5"], "--once and --every"),
        (["--every", "0"], "--every 0"),
        (["--every", "nan"], "--every nan"),
        (["--once", "--forget-after", "old"], "--forget-after old"),
        (["--once"], "--app MODULE:REIN"),
    ],
)
def test_bad_input(
    arguments: list[str], told: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["worker", *arguments]) == 2
    assert told in capsys.readouterr().err
