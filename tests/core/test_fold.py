"""Folding verdicts: order does not matter, and no check is left out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import (
    Answer,
    Ask,
    Call,
    Deny,
    Hold,
    Plugin,
    Rein,
    Replace,
    Rewrite,
    Unchecked,
)
from checkrein.errors import ApprovalPending, ApprovalRejected, CheckreinError, Denied
from checkrein.verdicts import Approved, Rejected, Retry


class Says(Plugin):
    """Answers `pre_call` with one verdict, and counts."""

    def __init__(self, verdict: Any = None) -> None:
        self.verdict = verdict
        self.seen: list[dict[str, Any]] = []

    def pre_call(self, call: Call) -> Any:
        self.seen.append(dict(call.arguments))
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


class Adds(Plugin):
    """Rewrites `text`, once."""

    def __init__(self, word: str) -> None:
        self.word = word

    def pre_call(self, call: Call) -> Any:
        text = call.arguments["text"]
        if self.word in text:
            return None
        return Rewrite(call.replace(arguments={**call.arguments, "text": text + self.word}))


class Mask(Plugin):
    """Masks what looks secret, wherever it came from."""

    def pre_call(self, call: Call) -> Any:
        text = call.arguments["text"]
        if "secret" not in text:
            return None
        shown = text.replace("secret", "***")
        return Rewrite(call.replace(arguments={**call.arguments, "text": shown}))


def events(rein: Rein, kind: str) -> list[Any]:
    return [e for row in rein.store.sessions().rows for e in rein.read(row.id).events()
            if e.kind == kind]  # fmt: skip


def attempt(go: Any, plugins: list[Any], text: str = "hi") -> tuple[list[str], Any, Rein]:
    """(effects, result or error, the Rein)."""
    effects: list[str] = []

    def say(text: str) -> str:
        effects.append(text)
        return f"said {text}"

    rein = Rein(plugins=plugins)
    try:
        with rein.session(on_error="keep"):
            result = go.call(rein, say, text)
    except CheckreinError as error:
        result = error
    return effects, result, rein


def test_each_plugin_sees_what_the_one_before_it_made(go) -> None:
    last = Says()
    effects, result, rein = attempt(go, [Adds("-a"), Adds("-b"), last])
    assert effects == ["hi-a-b"]
    assert result == "said hi-a-b"
    assert last.seen == [{"text": "hi-a-b"}]
    rein.close()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_guard_sees_what_will_run_wherever_it_stands(go, order) -> None:
    class Guard(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Deny("no b") if "-b" in call.arguments["text"] else None

    plugins: list[Any] = [Guard(), Adds("-a"), Adds("-b")]
    effects, result, rein = attempt(go, [plugins[i] for i in order])
    assert effects == []
    assert isinstance(result, Denied)
    rein.close()


@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_a_masker_masks_what_a_later_plugin_added(go, order) -> None:
    plugins: list[Any] = [Mask(), Adds(" the secret word")]

    class Once(Plugin):
        def pre_call(self, call: Call) -> Any:
            if "word" in call.arguments["text"]:
                return None
            return Rewrite(call.replace(arguments={"text": "the secret word"}))

    plugins[1] = Once()
    effects, _, rein = attempt(go, [plugins[i] for i in order])
    assert effects == ["the *** word"]
    rein.close()


def test_rewrites_without_end_are_refused(go) -> None:
    class To(Plugin):
        def __init__(self, text: str) -> None:
            self.text = text

        def pre_call(self, call: Call) -> Any:
            if call.arguments["text"] == self.text:
                return None
            return Rewrite(call.replace(arguments={"text": self.text}))

    effects, result, rein = attempt(go, [To("a"), To("b")])
    assert effects == []
    assert isinstance(result, Denied)
    assert result.code == "check_failed"
    assert "without end" in result.reason
    rein.close()


def test_a_rewrite_changes_arguments_and_a_shorter_timeout_only(go) -> None:
    import dataclasses

    class Forger(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Rewrite(
                dataclasses.replace(
                    call, id="forged", session="forged", name="other", kind="model",
                    tool=dataclasses.replace(call.tool, name="other", effect="read", timeout=9.0),
                )
            )  # fmt: skip

    last = Says()
    seen: list[Call] = []

    class Looks(Plugin):
        def pre_call(self, call: Call) -> Any:
            seen.append(call)

    effects, _, rein = attempt(go, [Forger(), Looks(), last])
    assert effects == ["hi"]
    (call,) = seen
    assert call.id != "forged"
    assert call.session != "forged"
    assert (call.name, call.kind, call.tool.effect) == ("say", "tool", "write")
    assert call.tool.timeout == 9.0
    rein.close()


STRICT = {
    "deny": Deny("no", rule="r"),
    "ask": Ask("sure?", rule="r"),
    "answer": Answer("cached"),
    "rewrite": "rewrite",
    "none": None,
}


class Any_(Plugin):  # noqa: N801 - one plugin for every verdict
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def pre_call(self, call: Call) -> Any:
        verdict = STRICT[self.kind]
        if verdict == "rewrite":
            if call.arguments["text"].endswith("!"):
                return None
            return Rewrite(call.replace(arguments={"text": call.arguments["text"] + "!"}))
        return verdict

    def on_approval(self, call: Call, request: Any) -> Any:
        return Rejected("boss", "no") if self.kind == "ask" else None


@given(st.lists(st.sampled_from(sorted(STRICT)), min_size=1, max_size=5).flatmap(st.permutations))
def test_the_strictest_verdict_wins_in_any_order(kinds) -> None:
    effects: list[str] = []

    def say(text: str) -> str:
        effects.append(text)
        return text

    with Rein(plugins=[Any_(kind) for kind in kinds], approvals="channels") as rein:
        try:
            with rein.session(on_error="keep"):
                result: Any = rein.call(say, "hi")
        except CheckreinError as error:
            result = error
    if "deny" in kinds:
        assert type(result) is Denied
    elif "ask" in kinds:
        assert isinstance(result, ApprovalRejected)
    elif "answer" in kinds:
        assert result == "cached"
    else:
        assert result == ("hi!" if "rewrite" in kinds else "hi")
    ran = not {"deny", "ask", "answer"}.intersection(kinds)
    assert bool(effects) is ran


def test_every_check_runs_beside_one_that_raises(go) -> None:
    before, after = Says(), Says()
    effects, result, rein = attempt(go, [before, Says(ValueError("4111-1111")), after])
    assert effects == []
    assert isinstance(result, Denied)
    assert result.code == "check_failed"
    assert "ValueError" in result.reason
    assert "4111" not in str(result)
    assert len(before.seen) == len(after.seen) == 1
    assert len(events(rein, "denied")) == 1
    rein.close()


def test_halt_is_kept_whoever_else_says_no(go) -> None:
    for order in itertools.permutations([Deny("soft"), Deny("hard", halt=True)]):
        _, result, rein = attempt(go, [Says(v) for v in order])
        assert result.halt
        assert result.reason == "hard"
        rein.close()


def test_a_tuple_gives_several_verdicts(go) -> None:
    both = (
        Hold("hits", 1, "calls", 5, settle="keep"),
        None,
        Hold("bytes", 2, "tokens", 9, settle="keep"),
    )
    effects, _, rein = attempt(go, [Says(both)])
    assert effects == ["hi"]
    assert rein.store.balance("hits").spent == 1
    assert rein.store.balance("bytes").spent == 2
    rein.close()


def test_an_answer_runs_nothing_and_takes_no_hold(go) -> None:
    guard = Says()
    effects, result, rein = attempt(
        go, [Says(Answer("cached", "cache")), Says(Hold("hits", 1, "calls", 5)), guard]
    )
    assert effects == []
    assert result == "cached"
    assert guard.seen
    assert rein.store.balance("hits") is None
    (answered,) = events(rein, "answered")
    assert answered.view["state"] == "not_done"
    assert answered.view["source"] == "cache"
    assert not events(rein, "intent")
    rein.close()


def test_a_guard_after_an_answer_still_denies(go) -> None:
    effects, result, rein = attempt(go, [Says(Answer("cached")), Says(Deny("no"))])
    assert effects == []
    assert isinstance(result, Denied)
    rein.close()


def test_an_answer_does_not_take_a_question_back(go) -> None:
    class Yes(Plugin):
        asked = 0

        def on_approval(self, call: Call, request: Any) -> Any:
            Yes.asked += 1
            return Approved("boss")

    effects, result, rein = attempt(go, [Says(Answer("cached")), Says(Ask("sure?")), Yes()])
    assert effects == []
    assert result == "cached"
    assert Yes.asked == 1
    rein.close()


def test_an_answer_is_looked_up_on_the_final_call(go) -> None:
    class Cache(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Answer("of hi") if call.arguments["text"] == "hi" else None

    effects, result, rein = attempt(go, [Cache(), Adds("-a")])
    assert effects == ["hi-a"]
    assert result == "said hi-a"
    rein.close()


def test_a_failure_that_is_allowed_shows_as_unchecked(go) -> None:
    class Weak(Says):
        on_failure = "allow"

    effects, _, rein = attempt(go, [Weak(ValueError("down")), Says()])
    assert effects == ["hi"]
    (intent,) = events(rein, "intent")
    assert intent.view["unchecked"] == ["weak"]
    rein.close()


def test_what_a_plugin_could_not_check_is_recorded_and_passes(go) -> None:
    effects, _, rein = attempt(go, [Says((Unchecked("tone", "down"), Unchecked("topic"))), Says()])
    assert effects == ["hi"]
    (intent,) = events(rein, "intent")
    assert intent.view["unchecked"] == ["says: tone (down)", "says: topic"]
    assert ["says", "unchecked"] in intent.view["verdicts"]
    rein.close()


@pytest.mark.parametrize("first", [True, False])
def test_a_veto_counts_whatever_else_was_unchecked(go, first) -> None:
    said = (Unchecked("tone"), Deny("no")) if first else (Deny("no"), Unchecked("tone"))
    effects, error, rein = attempt(go, [Says(said)])
    assert effects == []
    assert isinstance(error, Denied)
    rein.close()


@pytest.mark.parametrize("change", [True, False])
def test_a_result_that_could_not_be_checked_is_recorded_as_such(go, change) -> None:
    class Late(Plugin):
        def post_call(self, call: Call, outcome: Any) -> Any:
            return (Unchecked("tone", "down"), Replace("other") if change else None)

    effects, result, rein = attempt(go, [Late()])
    assert effects == ["hi"]
    assert result == ("other" if change else "said hi")
    (event,) = events(rein, "unchecked")
    assert event.view["unchecked"] == ["late: tone (down)"]
    rein.close()


def test_an_unchecked_without_a_name_is_no_verdict(go) -> None:
    effects, error, rein = attempt(go, [Says(Unchecked(""))])
    assert effects == []
    assert isinstance(error, Denied)
    assert error.code == "check_failed"
    rein.close()


def test_a_weak_check_does_not_weaken_the_others(go) -> None:
    class Weak(Says):
        on_failure = "allow"

    effects, result, rein = attempt(go, [Weak(ValueError("down")), Says(Deny("no"))])
    assert effects == []
    assert isinstance(result, Denied)
    rein.close()


class Loose(Deny):
    """Somebody's own kind of veto."""


@pytest.mark.parametrize(
    "wrong",
    [
        False, True, "deny", {"deny": True}, 0, [Deny("x")], (Deny("x"), "deny"), Deny, object(),
        Retry(), Loose("x"), Deny(None), Deny("x", halt="no"), Rewrite("other"), Rewrite(None),
        Ask("x", quorum=0), Ask("x", risk="huge"), Ask("x", who="anna"), Ask("x", expires=-1),
        Hold("a", -1, "calls", 5), Hold("a", 1.5, "calls", 5), Hold("a", "1", "calls", 5),
        Hold("", 1, "calls", 5), Hold("a", 1, "euro", 5), Hold("a", True, "calls", 5),
        Hold("a", 1, "calls", 5, window=0), Hold("a", 1, "calls", 5, settle="never"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_verdict_is_a_veto(go, wrong) -> None:
    effects, result, rein = attempt(go, [Says(wrong)])
    assert effects == []
    assert isinstance(result, Denied)
    assert result.code == "check_failed"
    rein.close()


def test_a_coroutine_function_that_is_not_awaited_is_no_yes(go) -> None:
    async def later() -> Any:
        return Deny("no")

    class Returns(Plugin):
        def pre_call(self, call: Call) -> Any:
            return later()

    effects, result, rein = attempt(go, [Returns()])
    assert effects == []
    assert result.reason == "no"
    rein.close()


# after the call


class After(Plugin):
    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.seen: list[Any] = []

    def post_call(self, call: Call, outcome: Any) -> Any:
        self.seen.append(outcome)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def state(rein: Rein) -> str:
    return str(events(rein, "outcome")[0].view["state"])


def test_a_replaced_result_is_what_the_caller_sees(go) -> None:
    second = After(None)
    effects, result, rein = attempt(go, [After(Replace("other")), second])
    assert effects == ["hi"]
    assert result == "other"
    assert second.seen[0].value == "other"
    assert state(rein) == "done"
    assert events(rein, "amended")[0].view["result"] == "other"
    rein.close()


@pytest.mark.parametrize("verdict", [Deny("withheld"), ValueError("x"), False, "deny"], ids=repr)
def test_a_veto_after_the_call_withholds_the_result_and_keeps_the_state(go, verdict) -> None:
    effects, result, rein = attempt(go, [After(verdict), After(Replace("other"))])
    assert effects == ["hi"]
    assert isinstance(result, Denied)
    assert state(rein) == "done"
    rein.close()


def test_a_call_that_was_answered_is_looked_at_too(go) -> None:
    effects, result, rein = attempt(go, [Says(Answer("raw")), After(Replace("clean"))])
    assert effects == []
    assert result == "clean"
    rein.close()


def test_a_retry_does_not_uncover_an_answer(go) -> None:
    """Nothing ran, so there is nothing to repeat: the amended answer stands."""
    effects: list[int] = []
    rein = Rein(plugins=[Says(Answer("raw")), After(Replace("clean")), After(Retry())])

    @rein.tool(idempotent=True)
    def look() -> str:
        effects.append(1)
        return "x"

    with rein.session():
        assert go.call(rein, look) == "clean"
    assert effects == []
    rein.close()


def test_a_retry_of_a_call_that_must_not_be_repeated_is_ignored(go) -> None:
    effects, result, rein = attempt(go, [After(Retry()), After(Replace("clean"))])
    assert effects == ["hi"]
    assert result == "clean"
    rein.close()


def test_an_unanswered_question_is_not_a_yes(go) -> None:
    effects, result, rein = attempt(go, [Says(Ask("sure?"))])
    assert effects == []
    assert isinstance(result, Denied)
    assert result.code == "no_approver"
    assert not isinstance(result, ApprovalPending)
    rein.close()
