"""`checkrein policy replay`: what another policy would have said of recorded calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from checkrein.call import NANO
from checkrein.cli._ids import rows_of, session_of
from checkrein.cli._output import Out, counted
from checkrein.cli._place import Place, command
from checkrein.errors import ConfigError
from checkrein.rein import Rein
from checkrein.store import SessionRow
from checkrein_plugins.policy.commands.recorded import Recorded, calls_of
from checkrein_plugins.policy.commands.subject import Asked, Decision, load
from checkrein_plugins.policy.deciding import Deciding

DAY = 86_400_000_000
"""Microseconds."""

_CHANGES = {
    "BLOCK": "newly blocked",
    "REQUIRE_APPROVAL": "newly asked",
    "ALLOW": "newly allowed",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One call of which the new policy says something else."""

    recorded: Recorded
    decision: Decision

    @property
    def what(self) -> str:
        """In words."""
        return _CHANGES[self.decision.verdict]


@command
def replay(
    *,
    place: Place,
    out: Out,
    policy: Annotated[
        Path, typer.Option("--policy", metavar="NEW", help="A policy file or configuration.")
    ],
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="One session.")
    ] = None,
    since: Annotated[
        float | None, typer.Option("--since", metavar="DAYS", help="Sessions changed since then.")
    ] = None,
) -> int:
    """Hold a new policy against recorded calls. Nothing is executed."""
    if (session is None) == (since is None):
        raise ConfigError("name --session ID or --since DAYS")
    subject = load([policy], place)
    seen = unclear = 0
    changes: list[Change] = []
    sessions = 0
    unasked: set[str] = set()
    with place.looking() as rein, subject.asked() as asked:
        for row in _sessions(rein, session, since):
            sessions += 1
            for recorded, decision in _again(asked, rein, row):
                seen += 1
                unclear += not recorded.exact
                unasked.update(decision.unasked)
                if decision.verdict != recorded.verdict:
                    changes.append(Change(recorded, decision))
    counts = {what: sum(change.what == what for change in changes) for what in _CHANGES.values()}
    out.document(
        {
            "policy": subject.name, "sessions": sessions, "calls": seen,
            **{what.replace(" ", "_"): number for what, number in counts.items()},
            "judged_by_view": unclear, "not_asked": sorted(unasked),
            "changes": [
                {
                    "session": c.recorded.call.session, "call": c.recorded.call.id,
                    "tool": c.recorded.call.name, "step": c.recorded.call.step,
                    "change": c.what, "before": c.recorded.verdict, "before_rule": c.recorded.rule,
                    "now": c.decision.verdict, "by": c.decision.by[0][1] if c.decision.by else "",
                    "reason": c.decision.by[0][2] if c.decision.by else "",
                    "exact": c.recorded.exact,
                }
                for c in changes
            ],
        }
    )  # fmt: skip
    out.table(
        ("call", "session", "step", "tool", "change", "before", "by"),
        [
            (
                c.recorded.call.id, out.id(c.recorded.call.session), c.recorded.call.step,
                c.recorded.call.name, c.what, c.recorded.rule or c.recorded.verdict,
                c.decision.by[0][1] if c.decision.by else "",
            )
            for c in changes
        ],
        empty="nothing would have changed",
    )  # fmt: skip
    out.line()
    told = ", ".join(f"{number} {what}" for what, number in counts.items())
    out.line(f"{counted(seen, 'call')} in {counted(sessions, 'session')}: {told}")
    if unclear:
        out.line(f"{counted(unclear, 'call')} judged by what people may see of the arguments only")
    if unasked:
        out.line(f"not asked: {', '.join(sorted(unasked))} (they ask a model)")
    return 0


def _sessions(rein: Rein, session: str | None, since: float | None) -> Iterator[SessionRow]:
    if session is not None:
        yield session_of(rein.store, session)
        return
    assert since is not None
    oldest = rein.clock() - int(since * DAY)
    for row in rows_of(lambda after: rein.store.sessions(after=after, limit=1000)):
        if row.updated >= oldest:
            yield row


def _again(asked: Asked, rein: Rein, row: SessionRow) -> Iterator[tuple[Recorded, Decision]]:
    """Each call of a session with what the policy says now; counters count what ran."""
    counts: dict[str, float] = {}
    for recorded in calls_of(rein, row):
        decision = asked.decide(recorded.call, counts)
        yield recorded, decision
        if recorded.ran and decision.verdict != "BLOCK":
            for policy in asked.subject.policies:
                _count(policy.deciding, recorded, counts)


def _count(deciding: Deciding, recorded: Recorded, counts: dict[str, float]) -> None:
    for name, amount, unit in deciding.counted(recorded.call):
        counts[name] = counts.get(name, 0) + (amount / NANO if unit == "amount" else amount)
