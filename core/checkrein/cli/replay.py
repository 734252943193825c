"""`checkrein replay`: a session's frames, how things stood at a step, and going on from one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from checkrein.cli._ids import session_of
from checkrein.cli._output import Out, compact, usd, when
from checkrein.cli._place import Place, command
from checkrein.errors import ConfigError
from checkrein.replay import PHASES, Frame, Replay, State, Summary

WIDTH = 60
"""Characters of arguments and results in a table."""
HEAD = ("step", "phase", "what", "outcome", "took", "cost", "detail")
OUTCOMES = ("done", "not_done", "unknown", "running", "denied", "answered")


@command
def replay(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, or how the id begins.")
    ],
    at: Annotated[
        int | None, typer.Option("--at", metavar="STEP", help="How things stood after this step.")
    ] = None,
    phase: Annotated[
        str | None, typer.Option(metavar="PHASE", help=f"Only one of {', '.join(PHASES)}.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help=f"Only one of {', '.join(OUTCOMES)}.")
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Only the figures.")] = False,
    from_step: Annotated[
        int | None,
        typer.Option("--from", metavar="STEP", help="Prepare a session that goes on from here."),
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            "--edit", metavar="FILE", help="With --from: what STEP gives instead (JSON; - = pipe)."
        ),
    ] = None,
) -> int:
    """Step through what a session did; nothing runs."""
    if edit is not None and from_step is None:
        raise ConfigError("--edit needs --from STEP: the step whose result is another one")
    if from_step is not None:
        return _go_on(place, out, session, from_step, edit)
    if outcome is not None and outcome not in OUTCOMES:
        raise ConfigError(f"--outcome {outcome}: one of {', '.join(OUTCOMES)}")
    if phase is not None and phase not in PHASES:
        raise ConfigError(f"--phase {phase}: one of {', '.join(PHASES)}")
    with place.looking() as rein:
        row = session_of(rein.store, session)
        over = not rein.rollbacks.alive(row)
        replayed = Replay(rein.read(row.id), over=over)
        if at is not None:
            _state(out, replayed.state_at(at))
        elif summary:
            _summary(out, replayed.summary())
        else:
            _frames(out, replayed, phase, outcome)
    return 0


def _go_on(place: Place, out: Out, session: str, step: int, edit: str | None) -> int:
    """Prepare a session in which the steps so far are answered from the record."""
    edits = {} if edit is None else {step: _edited(edit)}
    with place.acting() as rein:
        old = session_of(rein.store, session).id
        new = rein.replay(old, from_step=step, edits=edits)
    out.document({"session": new, "replays": old, "until": step, "edited": sorted(edits)})
    out.line(new)
    out.note(
        f"steps 1 to {step} are answered from {old}; the application takes it up with "
        f"rein.session(id={new!r})"
    )
    return 0


def _edited(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--edit {file}: {why}") from error


def _frames(out: Out, replayed: Replay, phase: Any, outcome: str | None) -> None:
    frames = list(replayed.frames(phase=phase, outcome=outcome))
    out.document({"session": replayed.id, "frames": [_tree(frame) for frame in frames]})
    rows = [
        (
            "" if frame.step is None else frame.step,
            frame.phase,
            frame.what,
            frame.state,
            took(frame.us),
            usd(frame.cost),
            _detail(frame),
        )
        for frame in frames
    ]
    out.table(HEAD, rows, empty="no such frames")


def _state(out: Out, state: State) -> None:
    groups: Sequence[tuple[str, Sequence[Frame]]] = (
        ("in place", state.in_place),
        ("in doubt", state.in_doubt),
        ("undone", state.undone),
        ("running", state.running),
        ("waiting", state.waiting),
    )
    out.document(
        {
            "step": state.step, "at": when(state.at), "frame": _tree(state.frame),
            **{name.replace(" ", "_"): [_tree(f) for f in frames] for name, frames in groups},
            "nano_usd": state.cost, "tokens": state.tokens, "calls": state.calls,
        }
    )  # fmt: skip
    frame = state.frame
    out.fields(
        {
            "step": f"{state.step} of {frame.call}",
            "what": f"{frame.what} {frame.state}",
            "begun": when(state.at),
            "arguments": compact(frame.arguments) if frame.arguments else "",
            "result": compact(frame.result) if frame.result is not None else "",
            "detail": frame.detail,
            "so far": f"{state.calls} calls, {usd(state.cost)}, {state.tokens} tokens",
        }
    )
    out.line()
    rows = [
        (name, frame.step or "", frame.what, _detail(frame))
        for name, frames in groups
        for frame in frames
    ]
    out.table(("then", "step", "what", "detail"), rows, empty="no effect stood, nobody waited")


def _summary(out: Out, total: Summary) -> None:
    out.document(asdict(total))
    out.fields(
        {
            "session": total.session,
            "begun": when(total.begun),
            "took": took(total.ended - total.begun),
            "steps": total.steps,
            "cost": f"{usd(total.cost)}, {total.tokens} tokens",
            **{
                name: ", ".join(f"{count} {key}" for key, count in counts.items())
                for name, counts in (
                    ("outcomes", total.outcomes),
                    ("denials", total.denials),
                    ("approvals", total.approvals),
                    ("undos", total.undos),
                )
            },
        }
    )
    out.line()
    rows = [
        (name, one.calls, one.failed, one.denied, took(one.us), usd(one.cost), one.tokens or "")
        for figures in (total.tools, total.models)
        for name, one in figures.items()
    ]
    out.table(("name", "calls", "failed", "denied", "took", "cost", "tokens"), rows)


def took(us: int | None) -> str:
    """A duration for people; empty if unknown."""
    if us is None:
        return ""
    return f"{us / 1e6:.2f} s" if us >= 1_000_000 else f"{us / 1e3:.1f} ms"


def _detail(frame: Frame) -> str:
    call = compact(frame.arguments, WIDTH) if frame.arguments and frame.kind != "model" else ""
    given = f"-> {compact(frame.result, WIDTH)}" if frame.result is not None and call else ""
    return " ".join(filter(None, (call, given, frame.verdict, frame.detail)))


def _tree(frame: Frame) -> dict[str, Any]:
    return {"at": when(frame.at), "phase": frame.phase, **frame.tree()}
