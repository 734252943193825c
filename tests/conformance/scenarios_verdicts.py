"""What policy makes of tool calls."""

from __future__ import annotations

from typing import Any

from checkrein import Answer, Deny, Replace, Retry, Rewrite

from .scenario import Expect, Scenario, says, use
from .world import AsyncRules, Rules

DONE = "intent outcome:done"


def refusal(tool: str, reason: str, code: str = "denied") -> str:
    """What a model reads of a denied call, everywhere."""
    return (
        f"[{code}] {tool} was not run: {reason}. This decision is final for this call; "
        "repeating it will be refused as well."
    )


def _to(call: Any, **arguments: Any) -> Rewrite:
    return Rewrite(call.replace(arguments={**call.arguments, **arguments}))


def _raises(*args: Any) -> Any:
    raise RuntimeError("the check itself broke")


def _above(call: Any) -> Any:
    return Deny("more than 100", rule="limit") if call.arguments["amount"] > 100 else None


SCENARIOS = [
    Scenario(
        "allow",
        "one call, nothing to say",
        [use("pay", to="ann", amount=5), "done"],
        Expect(["pay ann 5"], ["paid 5 to ann"], [f"pay {DONE}"]),
    ),
    Scenario(
        "allow_many",
        "three calls of one turn, or of three",
        [(use("pay", to="ann", amount=1), use("note", text="x"), use("read", key="k")), "done"],
        Expect(
            ["pay ann 1", "note x"],
            ["paid 1 to ann", "noted x", "value of k"],
            [f"pay {DONE}", f"note {DONE}", f"read {DONE}"],
        ),
        tools=("pay", "note", "read"),
    ),
    Scenario(
        "no_tool",
        "the model answers at once",
        ["hello there"],
        Expect(final="hello there"),
    ),
    Scenario(
        "deny",
        "the model reads the refusal and the run goes on",
        [use("pay", to="ann", amount=500), "done"],
        Expect([], [refusal("pay", "more than 100")], ["pay denied:denied"]),
        plugins=lambda: [Rules({"pay": _above})],
    ),
    Scenario(
        "deny_one",
        "a denied call beside allowed ones",
        [
            (
                use("pay", to="ann", amount=5),
                use("pay", to="bob", amount=500),
                use("note", text="x"),
            ),
            "done",
        ],
        Expect(
            ["pay ann 5", "note x"],
            ["paid 5 to ann", refusal("pay", "more than 100"), "noted x"],
            [f"pay {DONE}", "pay denied:denied", f"note {DONE}"],
        ),
        plugins=lambda: [Rules({"pay": _above})],
    ),
    Scenario(
        "deny_async_plugin",
        "a policy that is a coroutine blocks like any other",
        [use("pay", to="ann", amount=500), "done"],
        Expect([], [refusal("pay", "more than 100")], ["pay denied:denied"]),
        plugins=lambda: [AsyncRules({"pay": _above})],
        covers="D07",
    ),
    Scenario(
        "halt",
        "a denial that ends the run, and undoes what it did",
        [use("pay", to="ann", amount=5), use("note", text="x"), "never"],
        Expect(
            ["pay ann 5", "-pay ann 5"],
            ["paid 5 to ann"],
            [f"pay {DONE}", "note denied:denied"],
            models=[DONE] * 2,
            final=None,
            end="Denied",
            session="FAILED rolled_back",
        ),
        plugins=lambda: [Rules({"note": Deny("stop here", halt=True)})],
        covers="D13",
    ),
    Scenario(
        "halt_in_parallel",
        "a halt beside a running sibling: the sibling is undone",
        [(use("pay", to="ann", amount=5), use("note", text="x")), "never"],
        Expect(
            ["pay ann 5", "-pay ann 5"],
            [],
            [f"pay {DONE}", "note denied:denied"],
            models=[DONE],
            final=None,
            end="Denied",
            session="FAILED rolled_back",
        ),
        plugins=lambda: [Rules({"note": Deny("stop here", halt=True)})],
        forms=("parallel",),
    ),
    Scenario(
        "rewrite",
        "other arguments run than the model asked for",
        [use("pay", to="ann", amount=500), "done"],
        Expect(["pay ann 100"], ["paid 100 to ann"], [f"pay {DONE}"]),
        plugins=lambda: [Rules({"pay": lambda call: _to(call, amount=100)})],
    ),
    Scenario(
        "rewrite_then_deny",
        "the next plugin judges the rewritten call",
        [use("pay", to="ann", amount=5), "done"],
        Expect([], [refusal("pay", "more than 100")], ["pay denied:denied"]),
        plugins=lambda: [
            Rules({"pay": lambda call: _to(call, amount=500)}),
            Rules({"pay": _above}),
        ],
    ),
    Scenario(
        "answer",
        "a plugin's value stands for the result, and nothing runs",
        [use("pay", to="ann", amount=5), "done"],
        Expect([], ["as recorded"], ["pay answered"]),
        plugins=lambda: [Rules({"pay": Answer("as recorded")})],
    ),
    Scenario(
        "strictest_wins",
        "a denial beats an answer and a rewrite, in any order",
        [use("pay", to="ann", amount=5), "done"],
        Expect([], [refusal("pay", "no")], ["pay denied:denied"]),
        plugins=lambda: [
            Rules({"pay": Answer("as recorded")}),
            Rules({"pay": Deny("no")}),
        ],
    ),
    Scenario(
        "replace",
        "the model reads another result than the tool gave",
        [use("pay", to="ann", amount=5), "done"],
        Expect(["pay ann 5"], ["receipt 1"], [f"pay {DONE} amended"]),
        plugins=lambda: [Rules(post={"pay": Replace("receipt 1")})],
    ),
    Scenario(
        "withheld",
        "a result that is denied after the call is kept from the model",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            ["pay ann 5"],
            [says("[denied] pay", "holds a secret")],
            [f"pay {DONE} amended !Denied"],
        ),
        plugins=lambda: [Rules(post={"pay": Deny("it holds a secret")})],
    ),
    Scenario(
        "check_breaks",
        "a check that raises is a denial",
        [use("pay", to="ann", amount=5), "done"],
        Expect([], [says("[check_failed] pay was not run")], ["pay denied:check_failed"]),
        plugins=lambda: [Rules({"pay": _raises})],
        covers="D07",
    ),
    Scenario(
        "review_breaks",
        "a check of the result that raises withholds the result",
        [use("pay", to="ann", amount=5), "done"],
        Expect(
            ["pay ann 5"],
            [says("[check_failed] pay")],
            [f"pay {DONE} amended !Denied"],
        ),
        plugins=lambda: [Rules(post={"pay": _raises})],
    ),
    Scenario(
        "observe",
        "observe mode lets everything pass",
        [use("pay", to="ann", amount=500), "done"],
        Expect(["pay ann 500"], ["paid 500 to ann"], [f"pay {DONE}"]),
        plugins=lambda: [Rules({"pay": _above})],
        settings={"mode": "observe"},
    ),
    Scenario(
        "retry",
        "an idempotent tool is run again",
        [use("flaky", text="x"), "done"],
        Expect(
            ["flaky x", "flaky x"],
            ["sent x"],
            ["flaky intent outcome:unknown !Broken intent outcome:done"],
        ),
        plugins=lambda: [Rules(post={"flaky": _retry_once})],
        tools=("flaky",),
        declare={"flaky": {"idempotent": True}},
    ),
    Scenario(
        "no_retry",
        "a tool that is not idempotent is never run again",
        [use("flaky", text="x"), "done"],
        Expect(["flaky x"], [says("line busy")], ["flaky intent outcome:unknown !Broken"]),
        plugins=lambda: [Rules(post={"flaky": _retry_once})],
        tools=("flaky",),
        covers="D02 A",
    ),
    Scenario(
        "twice_on_purpose",
        "two identical calls are two effects",
        [use("pay", to="ann", amount=10), use("pay", to="ann", amount=10), "done"],
        Expect(
            ["pay ann 10", "pay ann 10"],
            ["paid 10 to ann"] * 2,
            [f"pay {DONE}"] * 2,
        ),
        covers="D08",
    ),
]


def _retry_once(call: Any, outcome: Any) -> Any:
    return Retry() if outcome.error is not None else None
