"""The plugin: directions, tools, message parts, views, blocking, bad configuration."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from checkrein.call import Call, Outcome, ToolInfo
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Replace, Rewrite
from checkrein_plugins.redaction import Redaction

MAIL = "casey.lund@example.org"
CARD = "5555 5555 5555 4444"


def tool_call(name: str, **arguments: Any) -> Call:
    return Call("c1", "s1", "tool", name, MappingProxyType(arguments), ToolInfo(name))


def model_call(**arguments: Any) -> Call:
    return Call("c2", "s1", "model", "gpt-test", arguments, ToolInfo("gpt-test"))


def arguments_after(plugin: Redaction, call: Call) -> Any:
    verdict = plugin.pre_call(call)
    return verdict.call.arguments if isinstance(verdict, Rewrite) else call.arguments


def test_it_is_a_plugin_that_leaves_clean_calls_alone() -> None:
    plugin = Redaction()
    assert isinstance(plugin, Plugin)
    call = tool_call("lookup", query="opening hours", limit=5)
    assert plugin.pre_call(call) is None
    assert plugin.post_call(call, Outcome("done", {"hours": "9 to 5"})) is None


def test_tool_arguments_and_results_are_redacted() -> None:
    plugin = Redaction()
    call = tool_call("note", text=f"write to {MAIL}", tags=[CARD])
    assert arguments_after(plugin, call) == {"text": "write to [EMAIL]", "tags": ["[CREDIT_CARD]"]}
    replaced = plugin.post_call(call, Outcome("done", (f"paid with {CARD}", 3)))
    assert replaced == Replace(("paid with [CREDIT_CARD]", 3))


def test_the_mail_tool_keeps_its_address_where_told_so() -> None:
    plugin = Redaction(per_tool={"send_*": {"keep": ["email"]}})
    call = tool_call("send_mail", to=MAIL, body=f"card {CARD}, copy to {MAIL}")
    assert arguments_after(plugin, call) == {
        "to": MAIL,
        "body": f"card [CREDIT_CARD], copy to {MAIL}",
    }
    assert arguments_after(plugin, tool_call("resend_mail", to=MAIL)) == {"to": "[EMAIL]"}


def test_a_field_of_a_tool_can_be_kept_alone() -> None:
    plugin = Redaction(per_tool={"send_mail": {"fields": {"to": {"email": "keep"}}}})
    call = tool_call("send_mail", to=MAIL, body=f"copy to {MAIL}")
    assert arguments_after(plugin, call) == {"to": MAIL, "body": "copy to [EMAIL]"}


def test_views_are_masked_even_where_the_tool_keeps() -> None:
    plugin = Redaction(arguments="keep", per_tool={"send_mail": {"keep": ["email"]}})
    call = tool_call("send_mail", to=MAIL)
    assert plugin.pre_call(call) is None
    for sink in ("journal", "span", "person", "log", "webhook"):
        assert plugin.view(call, call.arguments, sink) == {"to": "[EMAIL]"}  # type: ignore[arg-type]  # literal from a loop
    assert plugin.view(call, ValueError(f"no such user {MAIL}"), "log") == (
        "ValueError: no such user [EMAIL]"
    )


def test_undo_calls_run_as_planned() -> None:
    plugin = Redaction()
    call = Call("c3", "s1", "undo", "recall", {"to": MAIL}, ToolInfo("recall"))
    assert plugin.pre_call(call) is None
    assert plugin.view(call, call.arguments, "journal") == {"to": "[EMAIL]"}


def test_the_whole_model_request_is_redacted_and_foreign_parts_stay_the_same_objects() -> None:
    blob = {"type": "blob", "mime_type": "image/png", "content": b"\x89PNG\xff\xfe"}
    odd = object()
    untouched = {"role": "assistant", "parts": [{"type": "text", "content": "Sure."}]}
    call = model_call(
        system=f"You serve {MAIL}.",
        messages=[
            {"role": "user", "parts": [{"type": "text", "content": f"I am {MAIL}"}, blob, odd]},
            untouched,
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": ""},
                    {
                        "type": "tool_call", "id": "t1", "name": "send",
                        "arguments": {"to": MAIL, "deep": [{"cc": (MAIL,)}]},
                    },
                ],
            },
            {
                "role": "tool",
                "parts": [
                    {"type": "tool_call_response", "id": "t1", "response": f"sent to {MAIL}"}
                ],
            },
            {"role": "user", "parts": [{"type": "text", "content": "thanks"}]},
        ],
        tools=[{"name": "send"}],
    )  # fmt: skip
    after = arguments_after(Redaction(), call)
    assert MAIL not in repr(after)
    assert after["system"] == "You serve [EMAIL]."
    first = after["messages"][0]["parts"]
    assert first[0] == {"type": "text", "content": "I am [EMAIL]"}
    assert first[1] is blob and first[2] is odd
    assert after["messages"][1] is untouched
    assert after["messages"][2]["parts"][1]["arguments"] == {
        "to": "[EMAIL]",
        "deep": [{"cc": ("[EMAIL]",)}],
    }
    assert after["tools"] is call.arguments["tools"]


def test_block_in_history_denies_before_the_call_and_never_names_the_value() -> None:
    plugin = Redaction(requests={"email": "block"})
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": f"I am {MAIL}"}]},
        {"role": "user", "parts": [{"type": "text", "content": "thanks"}]},
    ]
    verdict = plugin.pre_call(model_call(system=None, messages=messages))
    assert isinstance(verdict, Deny)
    assert verdict.rule == "redaction.email"
    assert verdict.reason == "email in messages[0].parts[0].content"
    assert plugin.pre_call(model_call(system=None, messages=messages[1:])) is None


def test_blocked_keys_are_named_by_place_only() -> None:
    verdict = Redaction(arguments={"email": "block"}).pre_call(tool_call("put", rows={MAIL: 1}))
    assert isinstance(verdict, Deny)
    assert "casey" not in verdict.reason and "rows<key 0>" in verdict.reason


def test_model_answers_are_redacted_and_tool_calls_in_them_follow_the_tool() -> None:
    plugin = Redaction(per_tool={"send_mail": {"keep": ["email"]}})
    answer = [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": f"I write to {MAIL}"},
                {"type": "tool_call", "id": "1", "name": "send_mail", "arguments": {"to": MAIL}},
                {"type": "tool_call", "id": "2", "name": "log", "arguments": {"who": MAIL}},
            ],
        }
    ]
    verdict = plugin.post_call(model_call(messages=[]), Outcome("done", answer))
    assert isinstance(verdict, Replace)
    parts = verdict.value[0]["parts"]
    assert parts[0]["content"] == "I write to [EMAIL]"
    assert parts[1] is answer[0]["parts"][1]  # type: ignore[index]  # plain test data
    assert parts[2]["arguments"] == {"who": "[EMAIL]"}


def test_pre_call_is_pure() -> None:
    plugin = Redaction()
    call = tool_call("note", text=MAIL)
    assert plugin.pre_call(call) == plugin.pre_call(call)
    assert call.arguments == {"text": MAIL}


def test_bytes_that_are_no_text_are_refused_unless_told_otherwise() -> None:
    call = tool_call("upload", data=b"\xff\xfe\x00")
    verdict = Redaction().pre_call(call)
    assert isinstance(verdict, Deny) and verdict.rule == "redaction.unchecked"
    assert Redaction(binary="keep").pre_call(call) is None


def test_streams_end_with_a_denial_where_a_category_is_blocked() -> None:
    plugin = Redaction(responses={"email": "block"})
    stream = plugin.open_stream(model_call(), "text")
    assert stream is not None
    assert stream.feed("All is well, so write to ") == "All is well, so write "
    denial = stream.feed("casey.lund@example.org now. ")
    assert isinstance(denial, Deny) and "casey" not in denial.reason
    assert stream.flush() is denial
    assert plugin.open_stream(model_call(), "tool:0") is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"categories": ["emial"]}, "emial"),
        ({"categories": "email"}, "list"),
        ({"requests": "hide"}, "requests"),
        ({"results": {"emial": "redact"}}, "results.emial"),
        ({"arguments": {"email": "hide"}}, "arguments.email"),
        ({"per_tool": {"send": {"keeps": []}}}, "per_tool.send.keeps"),
        ({"per_tool": {"send": {"keep": "email"}}}, "per_tool.send.keep"),
        ({"per_tool": {"send": {"keep": ["emial"]}}}, "emial"),
        ({"per_tool": {"send": {"fields": {"to": "hide"}}}}, "per_tool.send.fields.to"),
        ({"binary": "skip"}, "binary"),
        ({"custom": {"email": {"pattern": "x"}}}, "custom.email"),
        ({"custom": {"Bad Name": {"pattern": "x"}}}, "custom.Bad Name"),
        ({"custom": {"ticket": {"pattern": "TCK-(\\d{6}"}}}, "custom.ticket.pattern: RE2 refuses"),
        ({"custom": {"ticket": {"pattern": "x{2000}"}}}, "custom.ticket.pattern: RE2 refuses"),
        ({"custom": {"ticket": {"pattern": "(a)(?=b)"}}}, "custom.ticket.pattern: RE2 refuses"),
        ({"custom": {"ticket": {"pattern": "x*"}}}, "empty"),
        ({"custom": {"ticket": {"words": "one"}}}, "custom.ticket.words"),
        ({"custom": {"ticket": {"words": ["a\nb"]}}}, "line break"),
        ({"custom": {"ticket": {"pattern": "a\nb"}}}, "multiline"),
        ({"custom": {"ticket": {"pattern": "я(?=b)"}}}, "custom.ticket.pattern: RE2 refuses"),
        ({"custom": {"ticket": {"find": "x"}}}, "custom.ticket.find"),
        ({"custom": {"ticket": {"find": len, "check": len}}}, "custom.ticket.check"),
        ({"custom": {"ticket": {"find": len, "timeout": 0}}}, "custom.ticket.timeout"),
        ({"custom": {"ticket": {"find": len, "on_failure": "pass"}}}, "custom.ticket.on_failure"),
        ({"custom": {"ticket": {"pattern": "x", "on_failure": "allow"}}}, "for functions"),
        ({"custom": {"ticket": {"pattern": "x", "words": ["y"]}}}, "either"),
        ({"custom": {"ticket": {"regex": "x"}}}, "custom.ticket.regex"),
    ],
)
def test_bad_configuration_is_refused_with_its_key(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Redaction(**settings)


def test_a_history_that_comes_again_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Redaction()
    searched: list[int] = []
    findings = plugin._engine.findings
    monkeypatch.setattr(
        plugin._engine,
        "findings",
        lambda data, *more: searched.append(len(data)) or findings(data, *more),
    )
    history: list[Any] = []
    for turn in range(20):
        content = f"turn {turn}: write to {MAIL}. " + "All went well so far. " * 50
        history.append({"role": "user", "parts": [{"type": "text", "content": content}]})
        after = arguments_after(plugin, model_call(system=None, messages=list(history)))
        assert MAIL not in repr(after) and f"turn {turn}: write to [EMAIL]." in repr(after)
    assert searched[-1] < searched[0] * 2
    assert MAIL not in repr(vars(plugin._memory))


def test_a_blocked_history_is_blocked_again() -> None:
    plugin = Redaction(requests={"email": "block"})
    text = f"{MAIL} " + "and so on " * 100
    call = model_call(messages=[{"role": "user", "parts": [{"type": "text", "content": text}]}])
    first = plugin.pre_call(call)
    assert isinstance(first, Deny) and plugin.pre_call(call) == first


def test_categories_of_ones_own_work_like_the_built_in_ones() -> None:
    plugin = Redaction(
        custom={
            "ticket": {"pattern": r"TCK-\d{6}"},
            "project": {"words": ["Nightingale", "blue heron"]},
            "even": {"pattern": r"N\d{3}", "check": lambda text: int(text[1:]) % 2 == 0},
        },
        arguments={"ticket": "block"},
        requests={"ticket": "keep"},
    )
    call = tool_call("note", text="The Blue Heron team, N124 and N123")
    assert arguments_after(plugin, call) == {"text": "The [PROJECT] team, [EVEN] and N123"}
    denied = plugin.pre_call(tool_call("note", text="see TCK-123456"))
    assert isinstance(denied, Deny) and denied.reason == "ticket in text"
    assert plugin.view(call, "TCK-123456, nightingale", "log") == "[TICKET], [PROJECT]"
    assert plugin.pre_call(model_call(system="TCK-123456")) is None


def test_own_patterns_hold_in_streams_too() -> None:
    plugin = Redaction(custom={"project": {"words": ["operation blue heron"]}})
    text = 'He said "the operation blue heron is on", and wrote to casey.lund@example.org.\nDone'
    whole = 'He said "the [PROJECT] is on", and wrote to [EMAIL].\nDone'
    for cut in range(len(text)):
        stream = plugin.open_stream(model_call(), "text")
        assert stream is not None
        parts = [stream.feed(text[:cut]), stream.feed(text[cut:]), stream.flush()]
        assert "".join(map(str, parts)) == whole


def test_other_fields_of_an_answer_are_redacted_too() -> None:
    answer = {"role": "assistant", "parts": [], "structured": {"mail": MAIL}}
    verdict = Redaction().post_call(model_call(messages=[]), Outcome("done", answer))
    assert verdict == Replace({"role": "assistant", "structured": {"mail": "[EMAIL]"}, "parts": []})
