"""Errors of tools and models: the same type in redacted words, to callers, models and records."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein_plugins.redaction import Redacted, Redaction

MAIL = "casey.lund@example.org"


class Gone(LookupError):
    """Takes no single text, and keeps what it was given."""

    def __init__(self, *, who: str, code: int) -> None:
        super().__init__(f"{who} is gone ({code})")
        self.who, self.code = who, code


class Secretive(Exception):
    """Says something that is in none of its parts."""

    def __str__(self) -> str:
        return f"mail {MAIL}"


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


def raised(go: Any, error: BaseException, plugin: Redaction | None = None) -> tuple[Any, str]:
    """What the caller gets, and everything that the session's record shows."""

    def tool() -> None:
        raise error

    with Rein([plugin or Redaction()]) as rein, rein.session(on_error="keep") as session:
        with pytest.raises(Exception) as caught:
            go.call(rein, tool)
        shown = repr([(event.kind, event.view) for event in session.events()])
    return caught.value, shown


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"no such customer: {MAIL}"),
        ValueError(f"no such customer: {MAIL}", {"card": ["4111 1111 1111 1111"]}),
        KeyError(MAIL),
        OSError(2, "no such file", f"/mail/{MAIL}"),
        Gone(who=MAIL, code=7),
        ConnectionError(f"postgres://app:s3cr3t-Pw9@db.example/x refused {MAIL}"),
        ExceptionGroup(f"two for {MAIL}", [ValueError(MAIL), TypeError("harmless")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_caller_gets_the_same_type_without_the_value(go: Any, error: Exception) -> None:
    got, shown = raised(go, error)
    assert isinstance(got, type(error))
    told = "".join(traceback.format_exception(got)) + repr(got) + repr(vars(got)) + shown
    assert MAIL not in told
    assert "s3cr3t" not in told
    assert "[EMAIL]" in str(got) + repr(got.args)


def test_bytes_in_an_error_do_not_leave(go: Any) -> None:
    bad = UnicodeDecodeError("utf-8", MAIL.encode() + b"\xff", 22, 23, f"bad {MAIL}")
    got, shown = raised(go, bad)
    assert isinstance(got, Redacted)
    assert MAIL not in str(got) + repr(got.args) + shown


def test_attributes_and_the_place_stay(go: Any) -> None:
    got, _ = raised(go, Gone(who=MAIL, code=7))
    assert (got.who, got.code) == ("[EMAIL]", 7)
    assert traceback.extract_tb(got.__traceback__)[-1].name == "tool"


def test_causes_are_told_in_redacted_words_too(go: Any) -> None:
    cause = ValueError(f"cause {MAIL}")
    error = RuntimeError("outer")
    error.__cause__ = cause
    inner = KeyError(f"context {MAIL}")
    cause.__context__ = inner
    got, _ = raised(go, error)
    told = "".join(traceback.format_exception(got))
    assert MAIL not in told
    assert "cause [EMAIL]" in told
    assert "context [EMAIL]" in told
    assert str(cause) == f"cause {MAIL}", "the tool's own errors are not changed"


def test_a_cycle_of_causes_ends(go: Any) -> None:
    one, other = ValueError(f"one {MAIL}"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    got, _ = raised(go, one)
    seen, at = 0, got
    while at is not None and seen < 50:
        assert MAIL not in str(at)
        seen, at = seen + 1, at.__cause__
    assert seen < 50


def test_a_class_that_says_it_in_its_own_way_is_replaced(go: Any) -> None:
    got, shown = raised(go, Secretive())
    assert isinstance(got, Redacted)
    assert str(got) == "Secretive: mail [EMAIL]"
    assert MAIL not in shown


@pytest.mark.parametrize("error", [ValueError("harmless"), NoText()])
def test_a_clean_error_is_passed_on_as_it_is(go: Any, error: Exception) -> None:
    got, _ = raised(go, error)
    assert got is error


def test_settings_of_results_hold_for_errors(go: Any) -> None:
    error = ValueError(f"no {MAIL}")
    kept, _ = raised(go, error, Redaction(results={"email": "keep"}))
    assert kept is error
    denied, shown = raised(go, error, Redaction(results={"email": "block"}))
    assert isinstance(denied, errors.Denied)
    assert MAIL not in str(denied) + shown
    masked, _ = raised(go, error, Redaction(results={"email": "pseudonym"}, trusted=["send"]))
    assert str(masked) == "no <EMAIL_1>"


def test_the_state_of_the_call_is_the_tools(go: Any) -> None:
    _, clean = raised(go, ValueError("x"))
    _, told = raised(go, ValueError(MAIL))
    assert clean.count("'state': 'unknown'") == told.count("'state': 'unknown'") == 1
    assert "amended" not in told


def test_errors_of_model_calls_follow_the_responses(go: Any) -> None:
    def model(**request: Any) -> Any:
        raise ValueError(f"refused for {MAIL}")

    for settings, expected in (({}, "refused for [EMAIL]"), ({"responses": "keep"}, MAIL)):
        with Rein(plugins=[Redaction(**settings)]) as rein, rein.session(on_error="keep"):
            with pytest.raises(ValueError, match=r"refused") as caught:
                go.run(rein, "model_call", model, model="m", messages=[])
            assert expected in str(caught.value)
