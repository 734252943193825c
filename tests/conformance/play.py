"""Plays one scenario through one driver, and holds the result against the expected one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkrein import Rein
from checkrein.errors import ApprovalPending

from .observed import Observed, Ran, Spans, rows, shown_by, state_of
from .scenario import INPUT, MODEL, OUTPUT, Scenario, Variant, shaped
from .world import World

TEST_SETTINGS: dict[str, Any] = {"attended": False}


class Case:
    """Everything that a driver needs to run a scenario."""

    def __init__(
        self,
        scenario: Scenario,
        variant: Variant,
        store: Any = "memory:",
        world: Any = None,
        folder: Path | None = None,
    ) -> None:
        self.scenario = scenario
        self.folder = folder
        """Where a framework may keep what has to outlive the process."""
        self.variant = variant
        self.turns = shaped(scenario.turns, variant.form)
        self.inner = shaped(scenario.inner, variant.form)
        self.world = world or World()
        self.spans = Spans()
        self.rein = Rein(
            plugins=list(scenario.plugins()),
            tracer_provider=self.spans.provider,
            **{**TEST_SETTINGS, "store": store, **scenario.settings},
        )
        every = self.world.functions()
        self.functions = {name: every[name] for name in scenario.tools}
        self.world.declare(self.rein, scenario.tools, scenario.declare)
        self.session = ""

    def close(self) -> None:
        """Release what still waits, and close the store."""
        self.world.release.set()
        self.rein.close()


def play(module: Any, scenario: Scenario, variant: Variant) -> Observed:
    """Run a scenario; what came of it."""
    case = Case(scenario, variant)
    try:
        run = module.Run(case)
        if variant.mode == "sync":
            value, error = _sync(case, run)
        else:
            value, error = asyncio.run(_async(case, run))
        _settled(case)
        return observed(case, run.ran(value, error))
    finally:
        case.close()


def _settled(case: Case) -> None:
    """Let a tool that was given up come to its end: its late result belongs to the record."""
    case.world.release.set()
    until = time.monotonic() + 10
    while "slow" in case.functions and not case.rein.store.events(kinds=("late",), limit=1):
        assert time.monotonic() < until, "the late result was not recorded"
        time.sleep(0.005)


def _sync(case: Case, run: Any) -> tuple[Any, BaseException | None]:
    value, error = None, None
    try:
        with case.rein.session(agent="clerk") as session:
            case.session = case.world.session = session.id
            value = run.start()
    except Exception as raised:
        error = raised
    while (token := _decided(case, error)) is not None:
        value, error = None, None
        try:
            value = run.resume(token)
        except Exception as raised:
            error = raised
    return value, error


async def _async(case: Case, run: Any) -> tuple[Any, BaseException | None]:
    value, error = None, None

    async def started() -> Any:
        async with case.rein.session(agent="clerk") as session:
            case.session = case.world.session = session.id
            return await run.astart()

    try:
        if case.scenario.cancel:
            task = asyncio.ensure_future(started())
            await asyncio.to_thread(case.world.started.wait, 10)
            task.cancel()
            value = await task
        else:
            value = await started()
    except (Exception, asyncio.CancelledError) as raised:
        error = raised
    while (token := _decided(case, error)) is not None:
        value, error = None, None
        try:
            value = await run.aresume(token)
        except Exception as raised:
            error = raised
    return value, error


def _decided(case: Case, error: BaseException | None) -> str | None:
    """Decide what waits; the token of a run to resume. None where nothing is paused."""
    if case.scenario.decide is None or not (error is None or isinstance(error, ApprovalPending)):
        return None
    pending = case.rein.approvals.pending()
    if not pending:
        return None
    case.scenario.decide(case.rein, pending[0])
    return str(pending[0].id)


def observed(case: Case, ran: Ran) -> Observed:
    """The run in the terms of `Expect`."""
    rein = case.rein
    tools, models = rows(rein, case.session)
    spend = rein.read(case.session).spend()
    return Observed(
        effects=case.world.did(),
        saw=ran.saw,
        journal=tools,
        models=models,
        final=ran.final,
        end="done" if ran.error is None else type(ran.error).__name__,
        session=state_of(rein, case.session),
        spans=case.spans.paths(),
        calls=spend.calls,
        tokens=spend.tokens,
        usd=spend.usd,
        sent=ran.sent,
        shown=shown_by(rein, case.spans, ran),
        streamed=ran.streamed,
    )


def expected(scenario: Scenario, variant: Variant) -> dict[str, Any]:
    """What must come of a variant. What follows from the rest is not written down twice."""
    expect = scenario.expect
    outer, inner = (len(shaped(t, variant.form)) for t in (scenario.turns, scenario.inner))
    models = expect.models
    if models is None:
        models = ["intent outcome:done"] * outer + ["> intent outcome:done"] * inner
    elif isinstance(models, Mapping):
        models = models[variant.form]
    done = [m for m in models if "outcome:done" in m]
    tokens = len(done) * (INPUT + OUTPUT) if expect.tokens is None else expect.tokens
    intents = sum(row.split().count("intent") for row in (*models, *expect.journal))
    names = [f"> {MODEL}" if m.startswith("> ") else MODEL for m in models]
    models = [f"{n} {m.removeprefix('> ')}" for n, m in zip(names, models, strict=True)]
    return {
        "effects": list(expect.effects),
        "saw": list(expect.saw),
        "journal": list(expect.journal),
        "models": models,
        "final": expect.final,
        "end": expect.end,
        "session": expect.session,
        "calls": intents,
        "tokens": tokens,
        "usd": expect.usd * len(done),
        "spans": spans(scenario, models),
    }


_ERRORS = {
    "denied": "Denied",
    "check_failed": "Denied",
    "budget_exceeded": "BudgetExceeded",
    "rejected": "ApprovalRejected",
    "expired": "ApprovalExpired",
}
"""Code of a denial -> the error that its span names."""


def spans(scenario: Scenario, models: Sequence[str]) -> list[str]:
    """The span tree that follows from the rows: see `Spans.paths`."""
    expect = scenario.expect
    if expect.only_spans is not None:
        return sorted(expect.only_spans)
    root = "invoke_agent clerk"
    found = [root + ("" if expect.end == "done" else f" !{expect.end}")]
    for verb, calls in (("execute_tool", expect.journal), ("chat", models)):
        for row in calls:
            inside = "/execute_tool delegate" if row.startswith("> ") else ""
            name, *words = row.removeprefix("> ").split()
            path = f"{root}{inside}/{verb} {name}"
            error = _error(words)
            if words[-1] != "approval_decided":
                found.append(path + (f" !{error}" if error else ""))
    rollback = f"{root}/checkrein.rollback"
    if " " in expect.session:
        found.append(rollback)
    undone = [e.split()[0].removeprefix("-") for e in expect.effects if e.startswith("-")]
    found += [f"{rollback}/execute_tool {name}.undo" for name in undone]
    return sorted([*found, *(f"{root}/{path}" for path in expect.more_spans)])


def _error(words: Sequence[str]) -> str:
    """The error that a call ended with."""
    last = ""
    for word in words:
        if word.startswith("denied:"):
            last = _ERRORS[word.removeprefix("denied:")]
        elif word.startswith("!"):
            last = word[1:]
        elif word in ("outcome:done", "amended"):
            last = ""
    return last


def found(scenario: Scenario, variant: Variant, seen: Observed) -> dict[str, Any]:
    """What came of a variant, in the same terms."""
    return {key: getattr(seen, key) for key in expected(scenario, variant)}


def compare(
    scenario: Scenario, variant: Variant, seen: Observed, changes: Mapping[str, Any] | None = None
) -> tuple[Any, Any]:
    """(expected, found), with what is left to chance put in one order."""
    want = expected(scenario, variant) | dict(changes or {})
    got = found(scenario, variant, seen)
    want["spans"] = sorted(want["spans"])
    for side in (want, got):
        # An inner agent's calls come between the outer one's: the tree of spans tells which.
        side["models"] = sorted(side["models"], key=lambda row: row.startswith("> "))
    if variant.form == "parallel":
        for key in ("effects", "journal"):
            want[key], got[key] = sorted(want[key], key=str), sorted(got[key])
    if scenario.expect.unordered:
        for key in ("saw", "journal"):
            want[key], got[key] = sorted(want[key], key=str), sorted(got[key])
    return want, got


def differing(want: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, Any]:
    """Field -> (expected, found) where they are not the same."""
    return {key: (want[key], got[key]) for key in want if want[key] != got[key]}


def leaks(scenario: Scenario, seen: Observed) -> list[str]:
    """What was sent or shown that must not have been."""
    expect: Any = scenario.expect
    sent = [f"sent: {text}" for text in _held(expect.never_sent, seen.sent)]
    shown = _held(expect.never_shown, f"{seen.shown}\n{seen.streamed or ''}")
    delivered = _held(expect.never_delivered, f"{seen.final}\n{seen.streamed}")
    return sent + [f"shown: {t}" for t in shown] + [f"delivered: {t}" for t in delivered]


def _held(texts: Sequence[str], inside: str) -> list[str]:
    return [text for text in texts if text in inside]
