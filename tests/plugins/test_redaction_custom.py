"""Categories of one's own: any script, several lines, functions, and functions that fail."""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein import Rein, errors
from checkrein.call import Call, Outcome, ToolInfo
from checkrein.verdicts import Deny, Replace, Rewrite, Unchecked
from checkrein_plugins.redaction import Redaction


def tool_call(**arguments: Any) -> Call:
    return Call("c1", "s1", "tool", "note", MappingProxyType(arguments), ToolInfo("note"))


def after(plugin: Redaction, text: Any) -> Any:
    """What a tool gets for `text`."""
    call = tool_call(text=text)
    verdict = plugin.pre_call(call)
    return verdict.call.arguments["text"] if isinstance(verdict, Rewrite) else text


def streamed(plugin: Redaction, text: str, *cuts: int) -> str:
    stream = plugin.open_stream(Call("c2", "s1", "model", "m", {}, ToolInfo("m")), "text")
    assert stream is not None
    parts, last = [], 0
    for cut in (*cuts, len(text)):
        parts.append(str(stream.feed(text[last:cut])))
        last = cut
    return "".join([*parts, str(stream.flush())])


@pytest.mark.parametrize(
    ("table", "text", "expected"),
    [
        ({"pattern": r"[А-Я]{2}-\d{4}"}, "номер АБ-1234, да", "номер [OWN], да"),
        ({"pattern": r"\p{Han}{2,4}号"}, "在第三号楼", "[OWN]楼"),
        ({"pattern": r"№ ?\d+"}, "заказ № 17 готов", "заказ [OWN] готов"),
        ({"pattern": r"\p{Lu}\d{3}"}, "Ω123 und x123", "[OWN] und x123"),
        ({"pattern": r"К-\d{3}"}, "К-１２３ full-width", "[OWN] full-width"),
        ({"pattern": r"К-\d{3}"}, "К\u200b-1\u200b23.", "[OWN]."),
        ({"words": ["Москва"]}, "в москва, москвая", "в [OWN], москвая"),
        ({"words": ["東京"]}, "東京都から", "[OWN]都から"),
        ({"words": ["Müller"]}, "Mu\u0308ller und Müller, Muellers", "[OWN] und [OWN], Muellers"),
        ({"words": ["Ёлка"], "ignore_case": False}, "Ёлка ёлка", "[OWN] ёлка"),
        ({"pattern": "(?s)<<.*?>>", "multiline": True}, "a <<b\nc\n>> d", "a [OWN] d"),
        ({"pattern": r"BEGIN\n+\w+\n+END", "multiline": True}, "x BEGIN\nab\nEND", "x [OWN]"),
        ({"pattern": r"начало\nконец", "multiline": True}, "начало\nконец!", "[OWN]!"),
        ({"pattern": r"a.c"}, "a\nc abc", "a\nc [OWN]"),
        ({"pattern": r"^\d\d$"}, "12", "[OWN]"),
        ({"words": ["EKS"]}, "EKS", "[OWN]"),
        ({"words": ["EKS"]}, "x\nEKS\ny", "x\n[OWN]\ny"),
        ({"find": lambda text: [(1, 2)] if "é" in text else []}, "né", "n[OWN]"),
        ({"pattern": r"ID-\d+", "check": lambda text: text[-1] == "7"}, "ID-6 ID-7", "ID-6 [OWN]"),
        ({"pattern": r"К-\d+", "check": lambda text: text[-1] == "7"}, "К-6 К-7", "К-6 [OWN]"),
    ],
)  # fmt: skip
def test_patterns_lists_and_functions_in_any_script(table: Any, text: str, expected: str) -> None:
    plugin = Redaction(["email"], custom={"own": table}, responses={"own": "redact"})
    assert after(plugin, text) == expected
    for cut in range(len(text) + 1):
        assert streamed(plugin, text, cut) == expected
    nested = plugin.view(tool_call(), {"a": [text, {"b": (text,)}]}, "log")
    assert nested == {"a": [expected, {"b": (expected,)}]}


def test_a_function_gets_one_line_at_a_time_as_people_read_it() -> None:
    seen: list[str] = []

    def find(text: str) -> list[tuple[int, int]]:
        seen.append(text)
        return []

    plugin = Redaction(["email"], custom={"own": {"find": find}})
    after(plugin, {"key": "one\ntw\u200bo", "json": "a\\u0040b"})
    assert seen == ["text", "key", "one", "two", "json", "a@b"]
    seen.clear()
    whole = Redaction(["email"], custom={"own": {"find": find, "multiline": True}})
    after(whole, "one\ntwo")
    assert seen == ["text", "one\ntwo"]


def test_a_place_may_be_an_object_with_start_and_end() -> None:
    class Place:
        start, end = 2, 4

    plugin = Redaction(custom={"own": {"find": lambda text: [Place()] if "f" in text else []}})
    assert after(plugin, "abcdef") == "ab[OWN]ef"


ALPHABET = 'аб1\n\u200b "\\é１@x'


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet=ALPHABET, max_size=60), st.integers(0, 60), st.integers(0, 60))
@pytest.mark.parametrize("multiline", [False, True])
def test_however_a_stream_is_cut(multiline: bool, text: str, one: int, two: int) -> None:
    plugin = Redaction(
        custom={
            "own": {"pattern": "(?s)а.?б" if multiline else "а.?б", "multiline": multiline},
            "other": {"find": lambda text: [(i, i + 1) for i, c in enumerate(text) if c == "é"]},
        }
    )
    cuts = sorted((min(one, len(text)), min(two, len(text))))
    assert streamed(plugin, text, *cuts) == after(plugin, text)


def test_a_long_value_is_found_where_no_line_ends() -> None:
    value = "Ж" + "ж" * 20_000 + "Ж"
    plugin = Redaction(["email"], custom={"own": {"pattern": "Жж*Ж"}})
    text = "по " * 15_000 + value + " ещё" * 10_000
    expected = "по " * 15_000 + "[OWN]" + " ещё" * 10_000
    assert after(plugin, text) == expected
    assert streamed(plugin, text, *range(1000, len(text), 9000)) == expected


class Broken:
    """A function that finds "secret word", unless it is down."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __call__(self, text: str) -> Any:
        if self.error:
            raise self.error
        at = text.find("heron")
        return [(at, at + 5)] if at >= 0 else []


BAD = [
    Broken(RuntimeError("the heron is down")),
    Broken(TimeoutError()),
    lambda text: "<html>",
    lambda text: [(0, 10**6)],
    lambda text: [("0", 1)],
    lambda text: [(3, 3)],
    lambda text: {"verdict": "clean", "extra": 1},
    lambda text: None,
]


@pytest.mark.parametrize("find", BAD)
@pytest.mark.parametrize("action", ["redact", "block", "warn"])
def test_a_function_that_fails_is_not_nothing_found(find: Any, action: str) -> None:
    plugin = Redaction(
        ["email"], custom={"own": {"find": find}}, arguments=action, results=action,
        requests=action, responses=action,
    )  # fmt: skip
    call = tool_call(text="the heron")
    model = Call("c2", "s1", "model", "m", {"messages": ["heron"]}, ToolInfo("m"))
    stream = plugin.open_stream(model, "text")
    assert stream is not None
    for verdict in (
        plugin.pre_call(call), plugin.post_call(call, Outcome("done", "heron")),
        plugin.pre_call(model), plugin.post_call(model, Outcome("done", "heron")),
        stream.feed("heron\n"), stream.flush(),
    ):  # fmt: skip
        assert isinstance(verdict, Deny)
        assert verdict.rule == "checker_unavailable"
        assert "heron" not in verdict.reason
        assert "custom.own" in verdict.reason


@pytest.mark.parametrize("find", BAD)
def test_where_it_may_be_missed_it_shows_and_the_others_still_find(find: Any) -> None:
    plugin = Redaction(["email"], custom={"own": {"find": find, "on_failure": "allow"}})
    call = tool_call(text="heron to a.b@example.org")
    verdict = plugin.pre_call(call)
    assert isinstance(verdict, tuple)
    assert Unchecked("custom.own") in verdict
    assert [v.call.arguments["text"] for v in verdict if isinstance(v, Rewrite)] == [
        "heron to [EMAIL]"
    ]
    said = plugin.post_call(call, Outcome("done", "clean"))
    assert said == (None, Unchecked("custom.own"))
    model = Call("c9", "s1", "model", "m", {}, ToolInfo("m"))
    stream = plugin.open_stream(model, "text")
    assert stream is not None
    assert str(stream.feed("heron")) + str(stream.flush()) == "heron"
    assert plugin.post_call(model, Outcome("done", {"role": "assistant", "parts": []})) == (
        None, Unchecked("custom.own"),
    )  # fmt: skip


def test_a_veto_counts_whatever_could_not_be_checked() -> None:
    plugin = Redaction(
        ["email"], custom={"own": {"find": BAD[0], "on_failure": "allow"}}, arguments="block"
    )
    verdict = plugin.pre_call(tool_call(text="a.b@example.org"))
    assert isinstance(verdict, Deny)
    assert verdict.rule == "redaction.email"


def test_the_call_is_recorded_as_unchecked(go: Any) -> None:
    def note(text: str) -> str:
        return text

    plugin = Redaction(custom={"own": {"find": BAD[0], "on_failure": "allow"}})
    with Rein(plugins=[plugin]) as rein, rein.session() as session:
        assert go.call(rein, note, "heron") == "heron"
        events = list(session.events())
    (intent,) = [event for event in events if event.kind == "intent"]
    (result,) = [event for event in events if event.kind == "unchecked"]
    assert intent.view["unchecked"] == ["redaction: custom.own"]
    assert result.view["unchecked"] == ["redaction: custom.own"]


def test_nothing_runs_where_it_may_not_be_missed(go: Any) -> None:
    ran: list[str] = []
    plugin = Redaction(custom={"own": {"find": BAD[0]}})
    with (
        Rein(plugins=[plugin]) as rein,
        rein.session(on_error="keep"),
        pytest.raises(errors.Denied) as caught,
    ):
        go.call(rein, ran.append, "heron")
    assert caught.value.rule == "checker_unavailable"
    assert ran == []


def test_a_function_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    def find(text: str) -> list[tuple[int, int]]:
        release.wait(20)
        return []

    plugin = Redaction(["email"], custom={"own": {"find": find, "timeout": 0.02}})
    try:
        for _ in range(12):
            verdict = plugin.pre_call(tool_call(text="heron"))
            assert isinstance(verdict, Deny)
            assert verdict.rule == "checker_unavailable"
        assert "hangs" in verdict.reason
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("checkrein custom.own") <= 8
    finally:
        release.set()


def test_a_function_in_time_counts() -> None:
    plugin = Redaction(["email"], custom={"own": {"find": Broken(), "timeout": 20.0}})
    assert after(plugin, "the heron flies") == "the [OWN] flies"
    assert plugin.post_call(tool_call(), Outcome("done", "heron")) == Replace("[OWN]")
