"""What is done with a finding: mask, hash, warn, keep, block, by category, direction and tool."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein import Rein, errors
from checkrein.errors import ConfigError
from checkrein_plugins.redaction import Redaction
from checkrein_plugins.redaction.findings import CATEGORIES
from checkrein_plugins.redaction.marks import Hashes, mask
from checkrein_plugins.redaction.policy import actions, policy
from checkrein_plugins.redaction.stream import TextFilter
from checkrein_plugins.redaction.text import engine_for, located, replaced

MAIL = "casey.lund@example.org"
CARD = "5555 5555 5555 4444"
PHONE = "212-555-0147"
KEY = "sk-ant-api03-" + "Zx9" * 12
PEM = (
    "-----BEGIN EC PRIVATE KEY-----\n"
    + "MHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVpBZqSWIDzJm2cVdoAoGCCqGSM49\n" * 3
    + "AwEHoUQ==\n-----END EC PRIVATE KEY-----"
)
ENGINE = engine_for(frozenset(CATEGORIES))


def given_to(plugin: Redaction, **arguments: Any) -> Any:
    """What a tool gets through a Rein."""
    got: dict[str, Any] = {}

    def note(**given: Any) -> str:
        got.update(given)
        return "ok"

    with Rein(plugins=[plugin]) as rein, rein.session(agent="desk"):
        rein.call(note, **arguments)
    return got


def test_a_mask_leaves_the_stated_part_and_the_grouping() -> None:
    plugin = Redaction(
        arguments={"credit_card": "mask", "email": {"action": "mask", "first": 2, "last": 0}}
    )
    assert given_to(plugin, text=f"{CARD}, {MAIL}, {PHONE}") == {
        "text": "**** **** **** 4444, ca***.****@*******.***, [PHONE]"
    }


def test_a_short_value_is_masked_whole() -> None:
    plugin = Redaction(
        ["secret"], custom={"code": {"pattern": "Z[0-9]{4}"}}, arguments={"code": "mask"}
    )
    assert given_to(plugin, text="code Z1234") == {"text": "code *****"}


def test_hashes_are_equal_for_equal_values_and_told_apart_by_the_key() -> None:
    first, second = "k" * 16, b"another key of 16"
    values = [CARD, "5555-5555-5555-4444", "5555555555554444", "4242 4242 4242 4242"]
    marks = [
        given_to(Redaction(arguments="hash", hash_key=first), text=f"card {value}")["text"]
        for value in values
    ]
    assert marks[0] == marks[1] == marks[2] != marks[3]
    assert marks[0].startswith("card [CREDIT_CARD#")
    other = given_to(Redaction(arguments="hash", hash_key=second), text=f"card {CARD}")["text"]
    assert other != marks[0]


def test_hashes_go_by_the_key_of_the_store(tmp_path: Any) -> None:
    got: list[str] = []
    for name in ("one", "one", "two"):
        store = f"sqlite:///{tmp_path}/{name}.db"
        with (
            Rein(plugins=[Redaction(arguments={"email": "hash"})], store=store) as rein,
            rein.session(agent="desk"),
        ):
            rein.call(got.append, MAIL.upper() if got else MAIL)
    assert got[0] == got[1] != got[2]


def test_a_warning_is_logged_and_the_very_value_passed_on(caplog: Any) -> None:
    plugin = Redaction(arguments={"email": "warn"})
    tree = {"to": [MAIL]}
    with caplog.at_level(logging.WARNING, "checkrein.redaction"):
        assert given_to(plugin, tree=tree) == {"tree": tree}
    (told,) = {record.getMessage().split(" (")[0] for record in caplog.records}
    assert told == "email in given.tree.to[0] of note"
    assert MAIL not in caplog.text


def test_a_warned_value_shields_no_severe_one(caplog: Any) -> None:
    plugin = Redaction(["secret", "url"], arguments={"url": "warn"})
    text = "postgres://app:s3cr3t!pw@db.internal/x and https://example.org/?api_key=" + KEY
    with caplog.at_level(logging.WARNING, "checkrein.redaction"):
        got = given_to(plugin, text=text)["text"]
    assert "s3cr3t" not in got
    assert KEY not in got


def test_actions_differ_by_direction_and_tool() -> None:
    plugin = Redaction(
        arguments={"email": "hash"},
        results={"email": "mask"},
        per_tool={"send_*": {"arguments": {"email": "keep", "secret": "block"}}},
    )
    got: list[str] = []

    def send_mail(to: str, body: str = "") -> str:
        got.append(to)
        return f"sent to {to}"

    with Rein(plugins=[plugin]) as rein, rein.session(agent="desk"):
        assert rein.call(send_mail, MAIL) == "sent to *****.****@******e.org"
        with pytest.raises(errors.Denied, match="secret in "):
            rein.call(send_mail, MAIL, KEY)
        assert rein.call(got.append, MAIL) is None
    assert got[0] == MAIL
    assert got[1].startswith("[EMAIL#")


def test_the_async_entry_does_the_same() -> None:
    async def note(text: str) -> str:
        return text

    async def main() -> Any:
        with Rein(plugins=[Redaction(arguments="mask")]) as rein:
            async with rein.session(agent="desk"):
                return await rein.acall(note, f"call {PHONE}")

    assert asyncio.run(main()) == "call ***-***-0147"


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"arguments": "scramble"}, "arguments: unknown action 'scramble'; known are redact, mask"),
        ({"results": {"email": "scramble"}}, "results.email: unknown action 'scramble'"),
        ({"requests": {"emails": "mask"}}, "requests.emails: not one of this plugin's categories"),
        ({"arguments": {"email": {"action": "mask", "last": 7}}}, "arguments.email: at most 6"),
        ({"arguments": {"email": {"action": "mask", "middle": 1}}}, "arguments.email.middle"),
        ({"arguments": {"email": {"action": "hash", "last": 1}}}, "arguments.email.last"),
        ({"arguments": {"email": {"action": "mask", "last": -1}}}, "arguments.email.last"),
        ({"arguments": {"email": {"action": "mask", "last": True}}}, "arguments.email.last"),
        ({"arguments": {"email": {}}}, "arguments.email: unknown action None"),
        ({"hash_key": "short"}, "hash_key: "),
        ({"hash_key": 7}, "hash_key: "),
    ],
)
def test_bad_settings_are_refused_with_their_place(settings: Any, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Redaction(**settings)
    assert str(refused.value).startswith(place)


VALUES = [
    MAIL, CARD, PHONE, KEY, PEM, "219-09-9998", "GB33 BUKB 2020 1555 5555 55", "203.0.113.77",
    'password: "Tr0ub4dor&3x"', '{"card": 4242424242424242}', "robin\\u0040example.org",
    "+44 20 7946 0958", "2001:db8::8a2e:370:7334", "00:1b:44:11:3a:b7",
    "postgres://app:s3cr3t!pw@db.internal/x", "x" * 3000, "r\u200bobin＠example．org",
    "passport no. X1234567",
]  # fmt: skip
texts = st.lists(
    st.sampled_from([*VALUES, " ", "\n", "card ", "id ", '"', "1", "password="])
    | st.text(max_size=6),
    max_size=9,
).map("".join)
ACTIONS = ("redact", "mask", "hash", "warn", "keep")
policies = st.dictionaries(st.sampled_from(CATEGORIES), st.sampled_from(ACTIONS)).map(
    lambda chosen: policy(actions(chosen, "arguments", frozenset(CATEGORIES)), Hashes(b"k" * 16))
)


@settings(max_examples=80, deadline=None)
@given(texts, policies, st.lists(st.integers(0, 3000), max_size=4))
def test_a_stream_delivers_what_the_whole_text_becomes(text: str, chosen: Any, cuts: Any) -> None:
    whole = replaced(text, located(text, ENGINE, chosen.kept, chosen.warned), chosen.marks)
    stream, out, last = TextFilter(ENGINE, chosen), "", 0
    for cut in sorted(min(cut, len(text)) for cut in cuts):
        out += stream.feed(text[last:cut])
        last = cut
    out += stream.feed(text[last:])
    assert out + stream.flush() == whole


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(VALUES), max_size=9), st.integers(0, 3), st.integers(0, 3))
def test_what_stands_in_a_values_place_is_itself_left_alone(
    values: list[str], first: int, last: int
) -> None:
    text = " ".join(values)
    for marks in (
        dict.fromkeys(CATEGORIES, mask(first, last)),
        {category: Hashes(b"k" * 16).mark(category) for category in CATEGORIES},
    ):
        once = replaced(text, located(text, ENGINE), marks)
        assert replaced(once, located(once, ENGINE), marks) == once
