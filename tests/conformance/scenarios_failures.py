"""Errors, timeouts, cancelled and stopped runs, and what is undone."""

from __future__ import annotations

from checkrein import Deny

from .scenario import MODEL, Expect, Scenario, says, use
from .world import Rules

DONE = "intent outcome:done"

SCENARIOS = [
    Scenario(
        "tool_error_told",
        "the model is told of a tool's error, and the run goes on",
        [use("fail", reason="x"), "done"],
        Expect(["fail x"], [says("carrier down: x")], ["fail intent outcome:unknown !Broken"]),
        tools=("fail",),
    ),
    Scenario(
        "tool_error_raised",
        "a tool's error ends the run, and what was done is undone",
        [use("pay", to="ann", amount=5), use("fail", reason="x"), "never"],
        Expect(
            ["pay ann 5", "fail x", "-pay ann 5"],
            ["paid 5 to ann"],
            [f"pay {DONE}", "fail intent outcome:unknown !Broken needs_human"],
            models=[DONE] * 2,
            final=None,
            end="Broken",
            session="FAILED partial",
        ),
        tools=("pay", "fail"),
        errors="raised",
    ),
    Scenario(
        "rollback_with_siblings",
        "a call fails while its sibling is running: the sibling is undone too",
        [(use("steady", text="x"), use("collapse", reason="y")), "never"],
        Expect(
            ["collapse y", "steady x", "-steady x"],
            [],
            [f"steady {DONE}", "collapse intent outcome:unknown !Broken needs_human"],
            models=[DONE],
            final=None,
            end="Broken",
            session="FAILED partial",
        ),
        tools=("steady", "collapse"),
        errors="raised",
        forms=("parallel",),
    ),
    Scenario(
        "halt_with_siblings",
        "a result ends the run while a sibling is running: the sibling is undone too",
        [(use("steady", text="x"), use("signal", text="y")), "never"],
        Expect(
            ["signal y", "steady x", "-steady x"],
            [],
            [f"steady {DONE}", f"signal {DONE} amended !Denied"],
            models=[DONE],
            final=None,
            end="Denied",
            session="FAILED partial",
        ),
        plugins=lambda: [Rules(post={"signal": Deny("that is enough", halt=True)})],
        tools=("steady", "signal"),
        forms=("parallel",),
    ),
    Scenario(
        "timeout",
        "a tool that takes too long is in doubt, never repeated",
        [use("slow", text="x"), "done"],
        Expect(["slow x"], [says("slow")], ["slow intent outcome:unknown !TimeoutError late"]),
        tools=("slow",),
        declare={"slow": {"timeout": 0.05}},
    ),
    Scenario(
        "unknown_tool",
        "a tool that does not exist: seen, told, nothing to undo",
        [use("vanish", what="x"), "done"],
        Expect([], [says("vanish")], ["vanish intent outcome:not_done"]),
    ),
    Scenario(
        "malformed_arguments",
        "arguments that do not fit run nothing, and the model is told",
        [use("pay", to="ann"), "done"],
        Expect([], [says("amount")], ["pay intent outcome:not_done"]),
    ),
    Scenario(
        "stopped",
        "somebody stops the session: the next call ends the run",
        [use("pay", to="ann", amount=5), use("stop", why="x"), use("note", text="x"), "never"],
        Expect(
            ["pay ann 5", "stop", "-pay ann 5"],
            ["paid 5 to ann"],
            [f"pay {DONE}", f"stop {DONE}"],
            models=[DONE] * 2,
            final=None,
            end="Halted",
            session="FAILED partial",
            more_spans=[f"chat {MODEL} !Halted"],
        ),
        tools=("pay", "stop", "note"),
    ),
    Scenario(
        "cancelled",
        "the caller cancels while a tool runs: in doubt, and undone",
        [use("hang", text="x"), "never"],
        Expect(
            ["hang x", "-hang x"],
            [],
            ["hang intent outcome:unknown !CancelledError"],
            models=[DONE],
            final=None,
            end="CancelledError",
            session="FAILED rolled_back",
        ),
        tools=("hang",),
        modes=("async",),
        cancel=True,
        covers="D05",
    ),
    Scenario(
        "model_fails",
        "the provider fails in the third turn: two turns stay on the bill",
        [use("note", text="x"), use("note", text="y"), RuntimeError("provider down")],
        Expect(
            ["note x", "note y"],
            ["noted x", "noted y"],
            [f"note {DONE}"] * 2,
            models=[DONE, DONE, "intent outcome:unknown !RuntimeError"],
            final=None,
            end="RuntimeError",
            session="FAILED partial",
        ),
        covers="D15",
    ),
    Scenario(
        "undo_keeps_order",
        "three effects are undone newest first",
        [
            (use("pay", to="a", amount=1), use("pay", to="b", amount=2)),
            use("pay", to="c", amount=3),
            use("note", text="x"),
            "never",
        ],
        Expect(
            ["pay a 1", "pay b 2", "pay c 3", "-pay c 3", "-pay b 2", "-pay a 1"],
            ["paid 1 to a", "paid 2 to b", "paid 3 to c"],
            [f"pay {DONE}"] * 3 + ["note denied:denied"],
            models=[DONE] * 4,
            final=None,
            end="Denied",
            session="FAILED rolled_back",
        ),
        plugins=lambda: [Rules({"note": Deny("stop here", halt=True)})],
        forms=("sequential",),
    ),
]
