"""What models are sent, what they answer, and what people see of it."""

from __future__ import annotations

from typing import Any

from checkrein import Deny, Plugin, Replace, Retry
from checkrein_plugins.redaction import Redaction

from .scenario import Expect, Scenario, says, use
from .world import Rules

DONE = "intent outcome:done"
MAIL = "ann.lee@example.org"


class NoWord(Plugin):
    """Stops an answer that holds a word: while it streams, and as a whole."""

    word = "forbidden"

    def open_stream(self, call: Any, channel: str) -> Any:
        return _Filter(self.word) if channel == "text" else None

    def post_call(self, call: Any, outcome: Any) -> Any:
        if call.kind == "model" and self.word in str(outcome.value):
            return Deny("a forbidden word", rule="word", halt=True)
        return None


class _Filter:
    holdback = 64

    def __init__(self, word: str) -> None:
        self._word = word
        self._kept = ""

    def feed(self, text: str) -> Any:
        self._kept += text
        if self._word in self._kept:
            return Deny("a forbidden word", rule="word", halt=True)
        out = self._kept[: -len(self._word)]
        self._kept = self._kept[len(out) :]
        return out

    def flush(self) -> Any:
        out, self._kept = self._kept, ""
        return out

    def abort(self) -> None:
        self._kept = ""


def _answer_without(call: Any, outcome: Any) -> Any:
    if outcome.error is not None:
        return None
    return Replace("an answer of the policy") if "secret" in str(outcome.value) else None


def _again(call: Any, outcome: Any) -> Any:
    return Retry() if outcome.error is not None else None


SCENARIOS = [
    Scenario(
        "redacted_request",
        "an address in the user's words never reaches the model",
        [use("note", text="x"), "done"],
        Expect(["note x"], ["noted x"], [f"note {DONE}"], never_sent=[MAIL]),
        plugins=lambda: [Redaction()],
        user=f"write to {MAIL}",
    ),
    Scenario(
        "redacted_result",
        "an address in a tool's result reaches neither model nor journal",
        [use("read", key=MAIL), "done"],
        Expect(
            [],
            [says("[EMAIL]")],
            [f"read {DONE} amended"],
            never_sent=[f"value of {MAIL}"],
            never_shown=[MAIL],
        ),
        plugins=lambda: [Redaction(arguments={"email": "keep"})],
        tools=("read",),
    ),
    Scenario(
        "redacted_argument",
        "a tool gets the placeholder, unless it is named",
        [(use("note", text=f"for {MAIL}"), use("mail", to=MAIL, body=f"from {MAIL}")), "done"],
        Expect(
            ["note for [EMAIL]", f"mail {MAIL} from [EMAIL]"],
            ["noted for [EMAIL]", "mail sent to [EMAIL]"],
            [f"note {DONE}", f"mail {DONE} amended"],
            models={
                "sequential": [f"{DONE} amended"] * 2 + [DONE],
                "parallel": [f"{DONE} amended", DONE],
            },
            never_shown=[MAIL],
        ),
        plugins=lambda: [Redaction(per_tool={"mail": {"fields": {"to": {"email": "keep"}}}})],
        tools=("note", "mail"),
    ),
    Scenario(
        "redacted_answer",
        "an address in the answer reaches neither the stream nor the user",
        [f"please write to {MAIL} today"],
        Expect(final="please write to [EMAIL] today", never_shown=[MAIL], models=[DONE]),
        plugins=lambda: [Redaction()],
    ),
    Scenario(
        "answer_replaced",
        "a policy gives another answer than the model",
        ["the secret is out"],
        Expect(final="an answer of the policy", models=[f"{DONE} amended"]),
        plugins=lambda: [Rules(post={"model": _answer_without})],
    ),
    Scenario(
        "answer_blocked",
        "nothing of a blocked answer is delivered from the forbidden word on",
        ["this holds a forbidden word in its middle and goes on"],
        Expect(
            models=["intent outcome:unknown !Denied"],
            tokens=15,
            final=None,
            end="Denied",
            session="FAILED rolled_back",
            never_delivered=["word in its middle"],
        ),
        plugins=lambda: [NoWord()],
        covers="D14",
    ),
    Scenario(
        "model_denied",
        "a refused model call ends the run",
        [use("pay", to="ann", amount=5), "never"],
        Expect(
            [],
            [],
            [],
            models=["denied:denied"],
            final=None,
            end="Denied",
            session="FAILED rolled_back",
        ),
        plugins=lambda: [Rules({"model": Deny("no models today")})],
        covers="D11",
    ),
    Scenario(
        "model_retried",
        "a model call that failed is made again",
        [use("note", text="x"), RuntimeError("overloaded"), "done"],
        Expect(
            ["note x"],
            ["noted x"],
            [f"note {DONE}"],
            models=[DONE, "intent outcome:unknown !RuntimeError intent outcome:done"],
        ),
        plugins=lambda: [Rules(post={"model": _again})],
    ),
]
