"""A clock that a test moves, Reins that are closed with the test, and the command line as
people run it: real processes in a folder of their own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein, cli
from checkrein.store import Store, StoreOptions, open_store
from checkrein.testing._store_batches import opened

SECOND = 1_000_000
ROOT = Path(__file__).resolve().parents[2]

SHOP = '''
import os
import signal
import sys
import time
from pathlib import Path

from checkrein import Absent, Ask, Plugin, Present, Rein

HERE = Path(__file__).parent
EFFECTS = HERE / "effects"
EFFECTS.mkdir(exist_ok=True)


class AskAbove(Plugin):
    """Asks about big refunds; masks cards."""

    def pre_call(self, call):
        if call.name == "refund" and call.arguments["amount"] > 100:
            return Ask("more than 100", rule="big", risk="high")

    def view(self, call, value, sink):
        if isinstance(value, dict) and "card" in value:
            return {**value, "card": "****"}
        return value


rein = Rein.from_file(HERE / "checkrein.toml", plugins=[AskAbove()])


def take_back(order):
    (EFFECTS / order).unlink()


def there(order):
    return Present(order) if (EFFECTS / order).exists() else Absent()


@rein.tool(undo=take_back, probe=there, settle_time=0)
def refund(order: str, amount: int, card: str = "4242"):
    (EFFECTS / order).write_text(str(amount))
    if order == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return order


@rein.tool
def mail(to: str, text: str = ""):
    (EFFECTS / f"mail-{to}").write_text(text)
    return "sent"


def run(*steps, **settings):
    with rein.session(agent="desk", intent="refunds", **settings) as session:
        print(session.id, flush=True)
        for order, amount in steps:
            refund(order, amount)
'''


@dataclass
class Done:
    """What a process left behind."""

    code: int
    out: str
    err: str

    @property
    def tree(self):
        return json.loads(self.out)


class Desk:
    """A folder with an application, and the command line run in it."""

    root = ROOT

    def __init__(self, folder):
        self.folder = folder
        self.effects = folder / "effects"
        self.started = []
        (folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\napp = "shop:rein"\n')
        (folder / "shop.py").write_text(SHOP)

    def env(self, **extra):
        roots = [str(ROOT / name) for name in ("core", "plugins", "integrations")]
        path = [*roots, os.environ.get("PYTHONPATH", "")]
        clean = {k: v for k, v in os.environ.items() if k not in ("CHECKREIN_CONFIG", "NO_COLOR")}
        return {**clean, "PYTHONPATH": os.pathsep.join(filter(None, path)), **extra}

    def cli(self, *arguments, cwd=None, stdin="", **env):
        return self.process(["-m", "checkrein.cli", *arguments], cwd=cwd, stdin=stdin, **env)

    def look(self, *arguments):
        """A command run in this process: for what looks and decides, and imports no application."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = cli.run([str(a) for a in arguments])
        return Done(code, out.getvalue(), err.getvalue())

    def python(self, text):
        return self.process(["-c", textwrap.dedent(text)])

    def process(self, arguments, cwd=None, stdin="", **env):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd or self.folder,
            env=self.env(**env),
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, text):
        """A process that goes on while the test looks."""
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text)],
            cwd=self.folder,
            env=self.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.started.append(process)
        return process

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    # -- what tests look at

    def sessions(self):
        return self.look("sessions", "--json").tree["sessions"]

    def approvals(self):
        return self.look("approvals", "--json").tree["approvals"]

    def done(self):
        found = self.effects.iterdir() if self.effects.exists() else ()
        return {path.name: path.read_text() for path in sorted(found)}


@pytest.fixture
def desk(tmp_path):
    found = Desk(tmp_path)
    yield found
    found.close()


class Clock:
    """Microseconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * SECOND)


@pytest.fixture
def clock() -> Clock:
    """Time of the test's Reins."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store in memory, and one in a file."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def make(url: str, clock: Clock) -> Iterator[Callable[..., Rein]]:
    """`make(*plugins, **settings)`: a Rein on `url` by `clock`; errors keep effects."""
    made: list[Rein] = []

    def build(*plugins: object, **settings: Any) -> Rein:
        settings = {"store": url, "clock": clock, "on_error": "keep", **settings}
        rein = Rein(plugins, **settings)
        made.append(rein)
        return rein

    yield build
    for rein in made:
        rein.close()


def open_at(path: Path, **options: Any) -> Store:
    """The SQLite store of a file."""
    return open_store(f"sqlite:///{path}", StoreOptions(**options))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where `store` lies."""
    return tmp_path / "checkrein.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A SQLite store with an open session."""
    store = open_at(path)
    opened(store)
    yield store
    store.close()


def mode(path: Path) -> int:
    """A file's permissions."""
    return stat.S_IMODE(path.stat().st_mode)
