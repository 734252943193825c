"""`checkrein worker`: looks after what the processes of an application leave."""

from __future__ import annotations

import json
import signal
import threading
from typing import Annotated, Any

import typer

from checkrein.cli._output import Out, counted, say, seconds
from checkrein.cli._place import Place, command
from checkrein.errors import ConfigError
from checkrein.working import Round, Worker

EVERY = 10.0
"""Seconds between two rounds."""


@command
def worker(
    *,
    place: Place,
    out: Out,
    once: Annotated[bool, typer.Option("--once", help="One round, for a timer.")] = False,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Between two rounds. [10]")
    ] = None,
    forget_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delete what sessions left that ended so long ago: 90d."),
    ] = None,
) -> int:
    """Look after sessions and approvals of all processes, for as long as it runs.

    Each round finishes what dead processes left behind, ends abandoned sessions, lets requests
    expire, tells others whose turn it is, and forgets what is old. Start as many as you like, on
    any host: they share the work, and any may be killed. Needs the application (--app).
    """
    if once and every is not None:
        raise ConfigError("worker: name one of --once and --every")
    if every is not None and not 0 < every <= 86_400:
        raise ConfigError(f"--every {every:g}: write seconds above 0, a day at most")
    age = None if forget_after is None else seconds(forget_after, "--forget-after")
    with place.acting() as rein:
        work = Worker(rein, age)
        if once:
            done = _round(out, work)
            out.document(_tree(done))
            _line(out, done)
            return 1 if done.left or done.failed else 0
        ended = threading.Event()
        before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
        try:
            last = Round()
            while not ended.is_set():
                done = _round(out, work)
                if out.as_json:
                    say(json.dumps(_tree(done)))
                elif done != last:
                    # What stays in doubt is told once, not in every round.
                    _line(out, done)
                last = done
                ended.wait(every or EVERY)
        finally:
            signal.signal(signal.SIGTERM, before)
    return 0


def _round(out: Out, work: Worker) -> Round:
    with out.working("working"):
        return work.round()


def _tree(done: Round) -> dict[str, Any]:
    return {
        "recovered": done.recovered, "left": done.left, "settles_in": round(done.settles_in, 3),
        "expired": done.expired, "escalated": done.escalated, "forgotten": done.forgotten,
        "failed": done.failed,
    }  # fmt: skip


def _line(out: Out, done: Round) -> None:
    out.line(
        f"{counted(len(done.recovered), 'session')} recovered, {done.expired} expired, "
        f"{done.escalated} escalated, {done.forgotten} forgotten; "
        f"{counted(done.left, 'effect')} left"
    )
    for step, why in done.failed.items():
        out.note(f"{step}: {why}")
    if done.left:
        out.note("left: people must look (checkrein recover shows them)")
