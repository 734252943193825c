"""Agents inside agents, and other roads to a tool."""

from __future__ import annotations

from checkrein import Deny
from checkrein_plugins.cost import Cost

from .scenario import Expect, Scenario, says, use
from .scenarios_limits import PRICES
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
    Scenario(
        "killed_between_calls",
        "killed while the model is asked: another process goes on, and pays nothing twice",
        [use("pay", to="ann", amount=5), use("note", text="x"), "done"],
        Expect(
            ["pay ann 5", "note x"],
            ["paid 5 to ann", "noted x"],
            [f"pay {DONE}", f"note {DONE}"],
            models=[DONE, DONE, "intent intent outcome:done"],
            usd=0.02,
            only_spans=["invoke_agent clerk", "invoke_agent clerk/chat scripted-1"],
        ),
        plugins=lambda: [Cost(overlay=PRICES)],
        dies=("intent", "model", 3),
        forms=("sequential",),
        covers="step 87",
    ),
    Scenario(
        "killed_in_a_call",
        "killed between an effect and its record: in doubt, told to the model, not repeated",
        [use("note", text="x"), use("tick", number=1), "done"],
        Expect(
            ["note x", "tick"],
            ["noted x", says("[in_doubt] tick was started", "It is not repeated")],
            [f"note {DONE}", "tick intent"],
            models=[DONE, DONE, DONE],
            only_spans=["invoke_agent clerk", "invoke_agent clerk/chat scripted-1"],
        ),
        dies=("outcome", "tick", 1),
        modes=("sync",),
        forms=("sequential",),
        covers="step 87",
    ),
]
