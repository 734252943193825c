"""`checkrein policy explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli._output import Out
from checkrein.cli._place import Place, command
from checkrein.errors import ConfigError
from checkrein_plugins.policy.commands.calls import call_of, parse
from checkrein_plugins.policy.commands.subject import load


@command
def explain(
    *,
    place: Place,
    out: Out,
    call: Annotated[
        str,
        typer.Argument(
            metavar="CALL", help="refund(amount=500), or a JSON object with tool, args."
        ),
    ],
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", metavar="FILE", help="Policy file or configuration. [yours]"),
    ] = None,
    agent: Annotated[str, typer.Option(help="Who calls.")] = "",
    effect: Annotated[str, typer.Option(help="read, write or egress. [write]")] = "",
    kind: Annotated[str, typer.Option(help="tool, model or undo. [tool]")] = "",
    count: Annotated[
        list[str] | None, typer.Option("--count", metavar="NAME=N", help="Value of a counter.")
    ] = None,
) -> int:
    """Say what a policy makes of a call, and why. Nothing is run."""
    counts = dict(map(_counted, count or ()))
    wanted = parse(call, agent=agent, effect=effect, kind=kind)
    subject = load(policy or (), place)
    with subject.asked() as asked:
        made = call_of(wanted)
        decision = asked.decide(made, counts)
        rules = asked.explain(made, counts)
    out.document(
        {
            "call": wanted.model_dump(exclude_defaults=True),
            "policy": subject.name,
            "verdict": decision.verdict,
            "by": [{"plugin": p, "rule": r, "reason": text} for p, r, text in decision.by],
            "limits": list(decision.limits),
            "not_asked": list(decision.unasked),
            "rules": [
                {
                    "layer": r.layer, "rule": r.rule, "action": r.action, "fired": r.fired,
                    "why": r.why,
                }
                for r in rules
            ],
        }
    )  # fmt: skip
    out.line(f"{decision.verdict}  {wanted.tool}  ({subject.name})")
    for plugin, rule, reason in decision.by:
        out.line(f"  by {plugin}{f', rule {rule}' if rule else ''}: {reason}")
    for limit in decision.limits:
        out.line(f"  counted when it runs: {limit}")
    for name in decision.unasked:
        out.line(f"  not asked here: {name} (it asks a model)")
    if rules:
        out.line()
        out.table(
            ("layer", "rule", "action", "fires", "why"),
            [(r.layer, r.rule, r.action, "yes" if r.fired else "no", r.why) for r in rules],
        )
    return 0


def _counted(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        told = f"--count {text}: write NAME=N, with a number"
        raise ConfigError(told if equals else f"--count {text}: write NAME=N") from None
