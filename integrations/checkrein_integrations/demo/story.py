"""The demo from start to end: prepares the world, plays the scenes, sums up, cleans up."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from checkrein import manager
from checkrein.errors import ConfigError
from checkrein_integrations.demo import killed
from checkrein_integrations.demo.application import application, prepare
from checkrein_integrations.demo.cast import Cast
from checkrein_integrations.demo.interrupts import Interrupts
from checkrein_integrations.demo.spans import Spans
from checkrein_integrations.demo.stage import Stage
from checkrein_integrations.demo.world import World

CAP, REAL_CAP = 0.04, 0.5
"""Dollars that a session may spend: on the scripted model, and on a real one."""


def tell(
    *,
    answer: bool | None,
    model: str | None,
    folder: Path | None,
    spans: bool,
    otlp: str | None,
    as_json: bool,
) -> int:
    """Play the demo; 0 if every scene ended as it should.

    Raises `ConfigError` for options that cannot be used; nothing has been started then.
    """
    stage = Stage(as_json=as_json)
    _check_installed()
    approver, how = _approver(answer, as_json=as_json)
    traced = Spans(keep=spans, otlp=otlp)
    place = _folder(folder)
    stage.line(
        "A refund desk: an agent with a shop in SQLite, a payment service over HTTP and a "
        "mailbox, supervised by checkrein."
    )
    stage.pairs(("model", model or "scripted, no key needed"), ("policy", place / "checkrein.toml"))
    real = _real_model(model)
    cap = REAL_CAP if real is not None else CAP
    prepare(place, cap=cap)
    try:
        with (
            Interrupts() as interrupts,
            World(place) as world,
            killed.waiting_agent(place) as worker,
        ):
            with interrupts.insist():
                cast = _play(
                    stage, world, worker,
                    real=real, cap=cap, approver=approver, how=how, traced=traced,
                )  # fmt: skip
            if spans:
                stage.table("Spans", ("span, duration, effect",), [(s,) for s in traced.tree()])
                stage.facts["spans"] = traced.tree()
            _where_next(stage, place, cast)
    finally:
        traced.close()
    every = len(traced.finished())
    if otlp is not None:
        taken = traced.sent == every
        stage.say(
            f"{traced.sent} of {every} spans were taken by {otlp}", "good" if taken else "bad"
        )
    stage.close()
    arrived = otlp is None or traced.sent == every
    return 0 if _as_it_should(stage.facts) and arrived else 1


def _play(
    stage: Stage,
    world: World,
    worker: subprocess.Popen[str],
    *,
    real: Any,
    cap: float,
    approver: Any,
    how: str,
    traced: Spans,
) -> Cast:
    # These import LangChain, which takes seconds: not before the options were checked.
    from checkrein_integrations.demo import agent, scenes, summary

    def close_case(order: str) -> None:
        cast.close_case(order)

    def model(steps: list[Any]) -> Any:
        return agent.scripted(steps) if real is None else real

    rein, desk = application(
        world.folder,
        world=world,
        case_system=close_case,
        plugins=[("console", approver)],
        tracer_provider=traced.provider,
    )
    cast = Cast(stage, world, rein, desk, model, cap)
    with rein:
        scenes.private_data(cast)
        scenes.big_refund(cast, how)
        scenes.late_failure(cast)
        scenes.runaway(cast)
        killed.crash(cast, worker)
        summary.timeline(stage, rein, cast.sessions)
        summary.bill(stage, rein, cast.sessions)
    return cast


def _check_installed() -> None:
    missing = [n for n in ("langchain", "langgraph") if importlib.util.find_spec(n) is None]
    if missing:
        raise ConfigError(
            f"checkrein demo needs {' and '.join(missing)}: pip install 'checkrein[demo]'"
        )


def _real_model(name: str | None) -> Any:
    if name is None:
        return None
    from langchain.chat_models import init_chat_model

    try:
        return init_chat_model(name, max_tokens=300)
    except Exception as error:
        # The provider's own package decides what it raises: the model cannot be used.
        raise ConfigError(f"--model {name}: {type(error).__name__}: {error}") from error


def _folder(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="checkrein-demo-"))
    place = given.absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigError(f"--folder {given}: is there already and not empty; name a new one")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--folder {given}: {error.strerror}") from error
    return place


def _approver(answer: bool | None, *, as_json: bool) -> tuple[Any, str]:
    """The console approver, and what to say about how it will answer."""
    how = ""
    if answer is None and not (sys.stdin.isatty() and (sys.stderr.isatty() or sys.stdout.isatty())):
        how = "there is no terminal to ask at, which counts as no: pass --yes or --no"
        answer = False
    options: dict[str, Any] = {}
    if answer is not None:
        options["answer"] = "yes" if answer else "no"
    if as_json:
        options["output"] = sys.stderr
    return manager.build("console", options), how


def _where_next(stage: Stage, place: Path, cast: Cast) -> None:
    stage.headline("Look around (everything is kept in that folder)")
    stage.command(f"cd {shlex.quote(str(place))}")
    own = Path(sys.executable).parent
    if shutil.which("checkrein") != str(own / "checkrein"):
        stage.command(f"export PATH={shlex.quote(str(own))}:$PATH")
    stage.command("checkrein sessions")
    stage.command(f"checkrein show {cast.sessions['c'][:8]}")
    stage.command(f"checkrein rollback {cast.sessions['a'][:8]}    # takes the refund of o1 back")
    stage.command("checkrein audit verify")
    stage.facts["folder"] = str(place)
    stage.facts["sessions"] = dict(cast.sessions)


def _as_it_should(facts: dict[str, Any]) -> bool:
    return bool(
        not facts["a"]["leaked"]
        and facts["c"]["restored"]
        and facts["d"]["within"]
        and facts["e"]["restored"]
        and not facts["e"]["undone_twice"]
    )
