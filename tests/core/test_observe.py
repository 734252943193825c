"""Mode "observe": everything passes, and what would have been done is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Answer, Ask, Call, Deny, Hold, Plugin, Rein, Replace, Rewrite, errors


class Says(Plugin):
    def __init__(self, verdict: Any, after: Any = None) -> None:
        self.verdict = verdict
        self.after = after

    def pre_call(self, call: Call) -> Any:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        if self.verdict == "rewrite":
            return Rewrite(call.replace(arguments={"n": 99})) if call.arguments["n"] != 99 else None
        return self.verdict

    def post_call(self, call: Call, outcome: Any) -> Any:
        return self.after


@pytest.mark.parametrize(
    ("verdict", "noted"),
    [
        (Deny("no", rule="r"), "deny"), (Ask("sure?"), "ask"), (Answer("x"), "answer"),
        ("rewrite", "rewrite"), (ValueError(), "deny"), ("nonsense", "deny"),
        (Hold("a", 5, "calls", 1), "hold_refused"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else v,
)  # fmt: skip
def test_nothing_is_stopped_or_changed_and_all_is_recorded(go, verdict, noted) -> None:
    ran: list[int] = []
    with Rein(plugins=[Says(verdict)], mode="observe") as rein:
        with rein.session():

            def tool(n: int) -> int:
                ran.append(n)
                return n

            assert go.call(rein, tool, 1) == 1
        (intent,) = rein.store.events(kinds=("intent",))
        assert noted in [verdict for _, verdict in intent.view["verdicts"]]
        assert ("would_deny" in intent.view) is (noted == "deny")
        assert not rein.store.records("approval").rows
    assert ran == [1]


def test_the_reason_of_a_denial_is_recorded(go) -> None:
    with Rein(plugins=[Says(Deny("too late", rule="hours"))], mode="observe") as rein:
        with rein.session():
            go.call(rein, lambda n: n, 1)
        would = rein.store.events(kinds=("intent",))[0].view["would_deny"]
    assert would == {"code": "denied", "rule": "hours", "plugin": "says", "reason": "too late"}


@pytest.mark.parametrize(
    "after", [Deny("no"), Replace("x"), Ask("look")], ids=lambda v: type(v).__name__
)
def test_results_are_left_alone(go, after) -> None:
    with Rein(plugins=[Says(None, after)], mode="observe") as rein, rein.session():
        assert go.call(rein, lambda n: n, 1) == 1
        (observed,) = rein.store.events(kinds=("observed",))
        assert observed.view["verdicts"] == [["says", type(after).__name__.lower()]]


def test_a_stopped_session_is_stopped_all_the_same(go) -> None:
    with Rein(plugins=[Says(None)], mode="observe") as rein:  # noqa: SIM117 - the order of endings is the point
        with pytest.raises(errors.Halted), rein.session(on_error="keep") as session:  # noqa: PT012 - what leaves the block is looked at
            rein.stop(session.id)
            go.call(rein, lambda n: n, 1)
