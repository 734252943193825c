"""Calls that a person decides, in place or later."""

from __future__ import annotations

from typing import Any

from checkrein import Approved, Ask, Rejected

from .scenario import Expect, Scenario, says, use
from .world import Rules

DONE = "intent outcome:done"
LATER = {"approvals": "store", "wait": "suspend"}


def _asking(**more: Any) -> Any:
    return {"pay": Ask("a payment", rule="ask", **more)}


def _approve(rein: Any, request: Any) -> None:
    rein.approvals.approve(request.id, by="ann")


def _reject(rein: Any, request: Any) -> None:
    rein.approvals.reject(request.id, by="ann", reason="not today")


def _edit(rein: Any, request: Any) -> None:
    rein.approvals.approve(request.id, by="ann", arguments={"to": "ann", "amount": 2})


def _bob_not(rein: Any, request: Any) -> None:
    if request.arguments["to"] == "bob":
        _reject(rein, request)
    else:
        _approve(rein, request)


SCENARIOS = [
    Scenario(
        "ask_approved",
        "an approver says yes while the call waits",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            ["pay ann 5"],
            ["paid 5 to ann"],
            [f"pay approval_requested approval_decided {DONE}"],
        ),
        plugins=lambda: [Rules(_asking(), approve={"pay": Approved("ann")})],
    ),
    Scenario(
        "ask_rejected",
        "an approver says no",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            [],
            [says("[rejected] pay was not run", "not today")],
            ["pay approval_requested approval_decided denied:rejected"],
        ),
        plugins=lambda: [Rules(_asking(), approve={"pay": Rejected("ann", "not today")})],
    ),
    Scenario(
        "ask_edited",
        "an approver says yes to other arguments",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            ["pay ann 2"],
            ["paid 2 to ann"],
            [f"pay approval_requested approval_decided {DONE}"],
        ),
        plugins=lambda: [
            Rules(_asking(), approve={"pay": Approved("ann", {"to": "ann", "amount": 2})})
        ],
    ),
    Scenario(
        "ask_expired",
        "nobody decides in time",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            [],
            [says("[expired] pay was not run")],
            ["pay approval_requested approval_expired denied:expired"],
        ),
        plugins=lambda: [Rules(_asking(expires=0.05), approve={})],
        settings={"approvals": "store", "wait": "block"},
    ),
    Scenario(
        "later_approved",
        "the run ends, waits, and goes on when somebody said yes",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            ["pay ann 5"],
            ["paid 5 to ann"],
            [f"pay approval_requested approval_decided {DONE}"],
        ),
        plugins=lambda: [Rules(_asking())],
        settings=LATER,
        decide=_approve,
    ),
    Scenario(
        "later_rejected",
        "the run goes on with the refusal",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            [],
            [says("[rejected] pay was not run", "not today")],
            ["pay approval_requested approval_decided denied:rejected"],
        ),
        plugins=lambda: [Rules(_asking())],
        settings=LATER,
        decide=_reject,
    ),
    Scenario(
        "later_edited",
        "the edited call is what runs",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            ["pay ann 2"],
            ["paid 2 to ann"],
            [f"pay approval_requested approval_decided {DONE}"],
        ),
        plugins=lambda: [Rules(_asking())],
        settings=LATER,
        decide=_edit,
    ),
    Scenario(
        "later_beside_others",
        "only the asked call waits: its siblings ran, and do not run again",
        [
            (use("pay", to="ann", amount=5), use("note", text="x"), use("pay", to="bob", amount=6)),
            "done",
        ],
        Expect(
            ["note x", "pay ann 5"],
            ["paid 5 to ann", "noted x", says("[rejected] pay was not run")],
            [
                f"pay approval_requested approval_decided {DONE}",
                f"note {DONE}",
                "pay approval_requested approval_decided denied:rejected",
            ],
        ),
        plugins=lambda: [Rules(_asking())],
        settings=LATER,
        decide=_bob_not,
        forms=("parallel",),
        covers="D04",
    ),
    Scenario(
        "later_in_two_turns",
        "a run that is paused twice does everything once",
        [
            use("note", text="x"),
            use("pay", to="ann", amount=5),
            use("pay", to="bob", amount=6),
            "done",
        ],
        Expect(
            ["note x", "pay ann 5", "pay bob 6"],
            ["noted x", "paid 5 to ann", "paid 6 to bob"],
            [
                f"note {DONE}",
                f"pay approval_requested approval_decided {DONE}",
                f"pay approval_requested approval_decided {DONE}",
            ],
        ),
        plugins=lambda: [Rules(_asking())],
        settings=LATER,
        decide=_approve,
        covers="D04",
    ),
]
