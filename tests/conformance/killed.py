"""Runs whose process is killed: the first part in a process of its own, the rest here.

`python -m tests.conformance.killed DRIVER SCENARIO MODE FORM STYLE FOLDER` plays a scenario until
the moment that it names, and ends itself there with SIGKILL: nothing is cleaned up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from checkrein.store import Batch, NewEvent
from checkrein.store.sqlite import SqliteStore

from .play import Case, observed
from .scenario import Scenario, Variant
from .world import World

SESSION = "killed-run"
ROOT = Path(__file__).resolve().parents[2]


class DyingStore(SqliteStore):
    """Ends the process around a commit: after an intent of a call, or before its outcome."""

    kind, name, number = "", "", 0

    def commit(self, batch: Batch, *, wait: bool = True) -> Any:
        """Commit, unless this is the moment."""
        self._dies(batch, "outcome")
        done = super().commit(batch, wait=wait)
        self._dies(batch, "intent")
        return done

    def commit_many(self, batches: Any) -> Any:
        """The same, for the thread that commits for async entries."""
        for batch in batches:
            self._dies(batch, "outcome")
        done = super().commit_many(batches)
        for batch in batches:
            self._dies(batch, "intent")
        return done

    def _dies(self, batch: Batch, kind: str) -> None:
        for event in batch.events:
            if kind == self.kind == event.kind and self._is_it(event):
                os.kill(os.getpid(), signal.SIGKILL)

    def _is_it(self, event: NewEvent) -> bool:
        view: Any = event.view
        if event.kind == "outcome":
            view = self.events(call=event.call, kinds=("intent",))[-1].view
        if self.name not in (view["name"], view["kind"]):
            return False
        self.number -= 1
        return self.number == 0


def first_part(driver: str, scenario: Scenario, variant: Variant, folder: Path) -> None:
    """Run until the moment. In a process of its own: it does not return."""
    from .catalogue import drivers

    assert scenario.dies is not None
    store = DyingStore(f"sqlite:///{folder}/run.db")
    store.kind, store.name, store.number = scenario.dies
    case = Case(scenario, variant, store, World(folder / "effects"), folder)
    run = drivers()[driver].Run(case)
    case.session = SESSION
    if variant.mode == "sync":
        with case.rein.session(id=SESSION, agent="clerk"):
            run.start()
        return

    async def started() -> None:
        async with case.rein.session(id=SESSION, agent="clerk"):
            await run.astart()

    asyncio.run(started())


def play_killed(
    driver: str, module: Any, scenario: Scenario, variant: Variant, folder: Path
) -> Any:
    """Kill the first part, go on here; what came of the whole run."""
    arguments = [driver, scenario.name, variant.mode, variant.form, variant.style, str(folder)]
    path = [str(ROOT / name) for name in ("core", "plugins", "integrations")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])}
    dead = subprocess.run(
        [sys.executable, "-m", f"{__package__}.killed", *arguments], cwd=ROOT, check=False,
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    store = f"sqlite:///{folder}/run.db"
    case = Case(scenario, variant, store, World(folder / "effects"), folder)
    try:
        case.session = SESSION
        # What is recorded is not asked again: the model has the answers that are left.
        answered = sum(
            case.rein.store.events(call=event.call, kinds=("intent",))[0].view["kind"] == "model"
            for event in case.rein.store.events(session=SESSION, kinds=("outcome",))
        )
        case.turns = case.turns[answered:]
        run = module.Run(case)
        value, error = None, None
        try:
            value = run.go_on() if variant.mode == "sync" else asyncio.run(run.ago_on())
        except Exception as raised:
            error = raised
        return observed(case, run.ran(value, error))
    finally:
        case.close()


def main(driver: str, name: str, mode: str, form: str, style: str, folder: str) -> None:
    """The first part, as it is started."""
    from .catalogue import SCENARIOS

    scenario = next(s for s in SCENARIOS if s.name == name)
    first_part(driver, scenario, Variant(mode, form, style=style), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
