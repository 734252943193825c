"""Agents inside agents, and other roads to a tool."""

from __future__ import annotations

from checkrein import Deny

from .scenario import Expect, Scenario, use
from .world import Rules

DONE = "intent outcome:done"

SCENARIOS = [
    Scenario(
        "sub_agent",
        "an agent inside a tool is under the same policy and on the same bill",
        [use("delegate", input="pay ann"), "done"],
        Expect(
            ["pay ann 5"],
            ["inner done"],
            [f"delegate {DONE}", f"> pay {DONE}"],
        ),
        inner=[use("pay", to="ann", amount=5), "inner done"],
        covers="D12",
    ),
    Scenario(
        "sub_agent_denied",
        "what is denied is denied to the inner agent too",
        [use("delegate", input="pay ann"), "done"],
        Expect([], ["inner done"], [f"delegate {DONE}", "> pay denied:denied"]),
        plugins=lambda: [Rules({"pay": Deny("no payments")})],
        inner=[use("pay", to="ann", amount=5), "inner done"],
        covers="D39",
    ),
    Scenario(
        "sub_agent_halts",
        "a halt inside ends the outer run, and what both did is undone",
        [use("pay", to="bob", amount=1), use("delegate", input="pay ann"), "never"],
        Expect(
            ["pay bob 1", "pay ann 5", "-pay ann 5", "-pay bob 1"],
            ["paid 1 to bob"],
            [
                f"pay {DONE}",
                "delegate intent outcome:unknown !Denied needs_human",
                f"> pay {DONE}",
                "> note denied:denied",
            ],
            models=[DONE] * 2 + [f"> {DONE}"] * 2,
            final=None,
            end="Denied",
            session="FAILED partial",
        ),
        plugins=lambda: [Rules({"note": Deny("stop here", halt=True)})],
        inner=[use("pay", to="ann", amount=5), use("note", text="x"), "never"],
        covers="D12",
    ),
]
