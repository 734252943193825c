"""Pseudonyms: stable in a session, restored for trusted tools only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein.call import Call, Outcome, ToolInfo
from checkrein.errors import ConfigError
from checkrein.verdicts import Deny, Replace, Rewrite
from checkrein_plugins.redaction import Redaction

MAIL, OTHER = "casey.lund@example.org", "robin.vale@example.org"
EMAILS: Any = {"email": "pseudonym"}


def plugin() -> Redaction:
    return Redaction(requests=EMAILS, responses=EMAILS, results=EMAILS, trusted=["send_*"])


def asked(made: Redaction, *texts: tuple[str, str], session: str = "s1") -> list[str]:
    """What a model is sent, message by message."""
    messages = [
        {"role": role, "parts": [{"type": "text", "content": text}]} for role, text in texts
    ]
    call = Call("c1", session, "model", "m", {"messages": messages}, ToolInfo("m"))
    verdict = made.pre_call(call)
    rows = (verdict.call if isinstance(verdict, Rewrite) else call).arguments["messages"]
    return [row["parts"][0]["content"] for row in rows]


def used(made: Redaction, name: str, session: str = "s1", **arguments: Any) -> Any:
    """The arguments that a tool gets, or the denial."""
    call = Call("c2", session, "tool", name, arguments, ToolInfo(name))
    verdict = made.pre_call(call)
    if isinstance(verdict, Rewrite):
        assert made.pre_call(verdict.call) is None, "rewritten once"
        return verdict.call.arguments
    return verdict if isinstance(verdict, Deny) else arguments


def test_equal_values_have_one_placeholder_and_a_trusted_tool_gets_the_value() -> None:
    made = plugin()
    assert asked(made, ("user", f"{MAIL}, {OTHER}"), ("user", MAIL)) == [
        "<EMAIL_1>, <EMAIL_2>", "<EMAIL_1>",
    ]  # fmt: skip
    sent = used(made, "send_mail", to=["<EMAIL_2>"], body={"text": "for <EMAIL_1>"})
    assert sent == {"to": [OTHER], "body": {"text": f"for {MAIL}"}}
    assert used(made, "save_note", text="for <EMAIL_1>") == {"text": "for <EMAIL_1>"}
    assert asked(made, ("assistant", "sent to <EMAIL_2>")) == ["sent to <EMAIL_2>"]


def test_unknown_placeholders_are_refused_for_tools_and_left_as_text_elsewhere() -> None:
    made = plugin()
    asked(made, ("user", MAIL))
    for name in ("send_mail", "save_note"):
        for session, mark in (("s1", "<EMAIL_7>"), ("s2", "<EMAIL_1>")):
            refused = used(made, name, session, to=mark)
            assert isinstance(refused, Deny)
            assert refused.rule == "redaction.placeholder"
    assert asked(made, ("assistant", "<EMAIL_7>")) == ["<EMAIL_7>"]


def test_text_that_looks_like_a_placeholder_is_escaped() -> None:
    made = plugin()
    assert asked(made, ("user", f"{MAIL} <EMAIL_1>")) == ["<EMAIL_1> <~EMAIL_1>"]
    call = Call("c3", "s1", "tool", "fetch", {}, ToolInfo("fetch"))
    page = made.post_call(call, Outcome("done", {"page": f"mail <EMAIL_1> or {OTHER}"}))
    assert page == Replace({"page": "mail <~EMAIL_1> or <EMAIL_2>"})


def test_a_result_and_every_view_hide_what_a_trusted_tool_got() -> None:
    made = plugin()
    asked(made, ("user", MAIL))
    call = Call("c4", "s1", "tool", "send_mail", {"to": MAIL}, ToolInfo("send_mail"))
    assert made.post_call(call, Outcome("done", f"sent to {MAIL}")) == Replace("sent to <EMAIL_1>")
    assert made.view(call, call.arguments, "span") == {"to": "[EMAIL]"}


@pytest.mark.parametrize("entry", ["sync", "async"])
def test_through_a_rein_the_record_never_shows_the_value(entry: str) -> None:
    got: list[str] = []

    def find_customer() -> str:
        return f"write to {MAIL}"

    def send_mail(to: str) -> str:
        got.append(to)
        return f"sent to {to}"

    async def both(rein: Rein) -> tuple[Any, Any, str]:
        async with rein.session(agent="desk") as session:
            found = await rein.acall(find_customer)
            return found, await rein.acall(send_mail, "<EMAIL_1>"), session.id

    with Rein(plugins=[plugin()]) as rein:
        if entry == "async":
            found, sent, name = asyncio.run(both(rein))
        else:
            with rein.session(agent="desk") as session:
                found, sent = rein.call(find_customer), rein.call(send_mail, "<EMAIL_1>")
                name = session.id
        shown = repr([event.view for event in rein.read(name).events()])
        with rein.session(agent="desk"), pytest.raises(errors.Denied, match="stands for nothing"):
            rein.call(send_mail, "<EMAIL_1>")
    assert (found, sent, got) == ("write to <EMAIL_1>", "sent to <EMAIL_1>", [MAIL])
    assert MAIL not in shown


def test_images_pass_and_what_cannot_be_checked_is_denied() -> None:
    made = plugin()
    image = {"type": "blob", "data": b"\xff\xfe<EMAIL_1>"}
    rows = [{"role": "user", "parts": [image, {"type": "text", "content": MAIL}]}]
    call = Call("c6", "s1", "model", "m", {"messages": rows}, ToolInfo("m"))
    verdict = made.pre_call(call)
    assert isinstance(verdict, Rewrite)
    parts = verdict.call.arguments["messages"][0]["parts"]
    assert parts[0] is image
    assert parts[1]["content"] == "<EMAIL_1>"
    call = Call("c7", "s1", "tool", "fetch", {}, ToolInfo("fetch"))
    assert isinstance(made.post_call(call, Outcome("done", [b"\xff"])), Deny)


def test_a_stream_gives_the_same_placeholders() -> None:
    made = plugin()
    asked(made, ("user", MAIL))
    call = Call("c5", "s1", "model", "m", {}, ToolInfo("m"))
    stream = made.open_stream(call, "text")
    assert stream is not None
    pieces = [stream.feed(f"to {MAIL[:9]}"), stream.feed(MAIL[9:]), stream.flush()]
    assert "".join(str(piece) for piece in pieces) == "to <EMAIL_1>"


@pytest.mark.parametrize("trusted", ["send_mail", [7], 7, [""]])
def test_bad_names_of_trusted_tools_are_refused(trusted: Any) -> None:
    with pytest.raises(ConfigError, match=r"^trusted: "):
        Redaction(requests=EMAILS, trusted=trusted)
    with pytest.raises(ConfigError, match=r"^trusted: no category"):
        Redaction(trusted=["send_mail"])
