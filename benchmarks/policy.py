"""How long a policy takes to decide: 100 and 1,000 rules, 10 of them about the tool.

    python3 benchmarks/policy.py

CPU time of one decision, medians over interleaved rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("benchmarks", "core", "plugins")]

from _bench import Case, machine, measure, table  # noqa: E402 - found by the lines above

from checkrein import Call  # noqa: E402
from checkrein.testing.check_plugin import sample_call  # noqa: E402
from checkrein_plugins.policy import Policy  # noqa: E402


def policy(rules: int, matching: int = 10) -> Policy:
    """`rules` rules with two clauses each, of which `matching` are about the tool `pay`."""
    return Policy(
        layers=[
            {
                "rules": [
                    {
                        "tool": "pay" if index < matching else f"tool_{index}",
                        "name": f"rule {index}",
                        "when": f"args.amount > {1000 + index} or call.agent == 'nobody'",
                        "action": "BLOCK",
                    }
                    for index in range(rules)
                ]
            }
        ]
    )


def repeated(decide: Callable[[Call], object], call: Call) -> Callable[[int], None]:
    """`decide(call)`, n times."""

    def run(count: int) -> None:
        for _ in range(count):
            decide(call)

    return run


def main() -> None:
    """Measure and print."""
    call = sample_call("pay", {"amount": 500}, agent="support")
    cases = [
        Case(f"{rules} rules, 10 about the tool", repeated(policy(rules).pre_call, call), 2000)
        for rules in (100, 1000)
    ]
    measure(cases, 11)
    print(f"# Policy\n\n> {machine()}\n")
    print("\n".join(table(cases)))
    print(f"\n1,000 rules take {cases[1].median / cases[0].median:.2f} times what 100 take.")


if __name__ == "__main__":
    main()
