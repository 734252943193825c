"""What other systems get wrong about redaction, one by one."""

from __future__ import annotations

import json
import random
import string
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from checkrein import Rein
from checkrein_plugins.redaction import Redaction, TextFilter, redact, redact_tree, scan
from checkrein_plugins.redaction.text import DEFAULT, engine_for

MAIL = "casey@example.org"
CARD = "4111 1111 1111 1111"
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJjYXNleSIsImlhdCI6MX0."
    "c2lnbmF0dXJlLW9mLWEtdG9rZW4tdGhhdC1pcw"
)
PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 4
    + "-----END PRIVATE KEY-----"
)


class Customer(BaseModel):
    mail: str
    tags: list[str]


@dataclass
class Order:
    who: Customer
    note: str


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": [MAIL]}}, [MAIL, {"c": MAIL}], ((MAIL,), 1), {"mails": {MAIL}},
        frozenset({MAIL}), MAIL.encode(), bytearray(MAIL.encode()), {MAIL: 1}, {(MAIL, 1): 2},
        Customer(mail=MAIL, tags=[MAIL]), Order(Customer(mail=MAIL, tags=[]), MAIL),
        json.dumps({"to": MAIL}), json.dumps({"to": MAIL}).replace("@", "\\u0040"),
        json.dumps(json.dumps({"to": MAIL})),
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:12]}",
)  # fmt: skip
def test_nested_and_structured_values_are_redacted_in_their_own_type(value: Any) -> None:
    made = redact_tree(value)
    assert type(made) is type(value)
    assert "casey" not in repr(made)
    if isinstance(value, str):
        json.loads(made)


@pytest.mark.parametrize(
    "hidden",
    [
        "ca\u200bsey@exam\u200dple.org", "casey＠example.org", "casey@example．org",
        "ｃａｓｅｙ@example.org", "case\u0301y@example.org", "casey\u2060@example.org",
        "casey%40example.org", "casey@example\u3002org",
    ],
)  # fmt: skip
def test_disguised_addresses_are_found_where_they_stand(hidden: str) -> None:
    for before in ("", "…ﬁ½ ", "日本 "):
        text = f"{before}write to {hidden} today"
        (found,) = scan(text, ["email"])
        assert text[found.start : found.end] == hidden
        assert redact(text) == f"{before}write to [EMAIL] today"


@pytest.mark.parametrize(
    "value", ["４１１１ １１１１ １１１１ １１１１", "4111\u200b 1111 1111 1111"]
)
def test_disguised_cards_are_found(value: str) -> None:
    assert redact(f"card {value}.") == "card [CREDIT_CARD]."


@pytest.mark.parametrize(
    "secret",
    [
        JWT, PEM, "sk-proj-" + "aB3dE6gH9-jK2mN5pQ8_" * 5 + "xYz",
        "ghp_" + "aB3d" * 9, "AKIA" + "Q7ZJ5V2M4N8PRSTU",
    ],
)  # fmt: skip
def test_a_secret_goes_whole_or_not_at_all(secret: str) -> None:
    assert redact(f"use {secret} now") == "use [SECRET] now"


def test_the_password_of_an_address_goes_and_the_rest_stays() -> None:
    text = "postgres://app:s3cr3t-Pw@db.example.org/app"
    assert redact(text) == "postgres://app:[SECRET]@db.example.org/app"


@pytest.mark.parametrize(
    "text",
    [
        "1701254400", "order 12345678901", "created 1701254400123", "build 20240115.4",
        str(uuid.UUID(int=0x550E8400E29B41D4A716446655440000)),
        "9fceb02d0ae598e95dc970b74767f19372d61af8", "2024-01-15T09:30:00.000+00:00",
        "v1.2.3", "10.0.19045.3570", "python==3.12.4.1", "S3 and EKS", "i-0abcd1234ef567890",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ", "order 4539578763621487",
        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "ratio 16:9:4:3", "[.9EF1.0020.0004]", "51AB 4516 4520 4526 4527 52CD",
        "Boston, MA 02110-1301", "section 1.2.3.4 of the manual", "200 300 4000",
    ],
)  # fmt: skip
def test_ids_times_hashes_and_versions_are_left_alone(text: str) -> None:
    assert scan(text) == ()


def test_a_card_that_fails_its_check_counts_beside_the_word_only() -> None:
    assert redact("credit card 4539 5787 6362 1487") == "credit card [CREDIT_CARD]"
    assert redact("parcel 4539 5787 6362 1487") == "parcel 4539 5787 6362 1487"


def test_neighbours_and_overlaps_are_replaced_once_and_the_rest_is_untouched() -> None:
    assert redact("a@example.org b@example.org c@example.org") == "[EMAIL] [EMAIL] [EMAIL]"
    assert redact(f"{CARD} 5555 5555 5555 4444") == "[CREDIT_CARD] [CREDIT_CARD]"
    assert redact(f"card {CARD}.example.org") == "card [CREDIT_CARD].example.org"
    key = "sk-ant-api03-" + "Zx9aB" * 8
    assert redact(f"https://example.org/?key={key}&x=1") == "https://example.org/?key=[SECRET]&x=1"


def test_an_allowed_field_keeps_what_its_tool_needs() -> None:
    got: list[Any] = []

    def send(to: str, body: str) -> None:
        got.append((to, body))

    plugin = Redaction(per_tool={"send": {"fields": {"to": {"email": "keep"}}}})
    with Rein(plugins=[plugin]) as rein, rein.session():
        rein.call(send, MAIL, f"from {MAIL}")
    assert got == [(MAIL, "from [EMAIL]")]


STREAMED = [MAIL, CARD, "sk-ant-api03-" + "Zx9aB" * 8, PEM, JWT, "postgres://a:s3cr3t-Pw@db/x"]


@pytest.mark.parametrize("value", STREAMED, ids=lambda value: value[:12])
def test_a_stream_is_the_whole_text_however_it_is_cut(value: str) -> None:
    text = f"see {value} there"
    whole = redact(text)
    for cut in range(len(text) + 1):
        stream = TextFilter(engine_for(DEFAULT))
        parts = [stream.feed(text[:cut]), stream.feed(text[cut:]), stream.flush()]
        assert "".join(parts) == whole
    stream = TextFilter(engine_for(DEFAULT))
    assert "".join([*map(stream.feed, text), stream.flush()]) == whole


@pytest.mark.parametrize("value", STREAMED, ids=lambda value: value[:12])
def test_a_stream_that_is_cut_off_delivers_no_part_of_a_value(value: str) -> None:
    text = f"see {value}"
    for cut in range(len(text)):
        stream = TextFilter(engine_for(DEFAULT))
        out = stream.feed(text[:cut])
        stream.abort()
        rest = stream.feed("") + stream.flush()
        shown = (out + rest).removeprefix("see ").removesuffix(" ").removesuffix("[SECRET]")
        # Of an address with a password, what stands in front of it is no secret.
        assert shown in ("", "see", "se", "s", "postgres://a:") or not value.startswith(shown)


def test_clean_text_is_not_kept_back_without_need() -> None:
    stream = TextFilter(engine_for(DEFAULT))
    out = stream.feed("The report is ready and everybody ")
    assert out.startswith("The report is ready and")
    assert stream.holdback == 2048


def test_a_cut_inside_a_character_of_several_bytes(child: Any, tmp_path: Any) -> None:
    code = (
        "import sys; from checkrein_plugins.redaction.command import Source\n"
        "from checkrein_plugins.redaction import TextFilter\n"
        "import codecs; from checkrein_plugins.redaction.text import engine_for, DEFAULT\n"
        "data = 'né 日本 casey＠example.org \\U0001f600'.encode()\n"
        "for cut in range(len(data)):\n"
        "    decoder = codecs.getincrementaldecoder('utf-8')()\n"
        "    stream = TextFilter(engine_for(DEFAULT))\n"
        "    parts = [stream.feed(decoder.decode(data[:cut])),"
        " stream.feed(decoder.decode(data[cut:], True))]\n"
        "    assert ''.join([*parts, stream.flush()]) == 'né 日本 [EMAIL] \\U0001f600', cut\n"
        "print('done')"
    )
    out, told = child(code).communicate(timeout=60)
    assert out == "done\n", told


def test_results_from_a_cache_are_redacted_too(go: Any) -> None:
    from checkrein_plugins.guardrails.idempotency import IdempotencyGuard

    calls: list[str] = []

    def charge(customer: str) -> str:
        calls.append(customer)
        return f"charged {MAIL}"

    with Rein(plugins=[Redaction(), IdempotencyGuard(duplicates="answer")]) as rein, rein.session():
        first = go.call(rein, charge, MAIL)
        again = go.call(rein, charge, MAIL)
    assert first == again == "charged [EMAIL]"
    assert calls == ["[EMAIL]"]


SHAPES = {
    "dots": "a.", "dashes": "1-", "word": "a", "digit": "1", "jwt": "eyJaaaaaaa.",
    "pem": "-----BEGIN PRIVATE KEY-----\n", "at": "a@", "brackets": "(1", "names": "password=",
    "group": "4111 ", "quads": "1.1.", "colons": ":", "iban": "GB33 ", "plus": "+44 ", "a+": "aa!",
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_twice_the_text_takes_about_twice_the_work(name: str, child: Any) -> None:
    """A limit on CPU seconds, far above what linear time needs and far below square time."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from checkrein_plugins.redaction import redact, TextFilter\n"
        "from checkrein_plugins.redaction.text import engine_for, DEFAULT\n"
        "unit = sys.argv[1]; text = unit * (400_000 // len(unit))\n"
        "redact(text)\n"
        "stream = TextFilter(engine_for(DEFAULT))\n"
        "for at in range(0, len(text), 4000): stream.feed(text[at:at + 4000])\n"
        "stream.flush(); print('done')"
    )
    out, told = child(code, SHAPES[name]).communicate(timeout=120)
    assert out == "done\n", told


def test_a_users_pattern_cannot_make_a_text_slow(child: Any) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from checkrein.call import Call, ToolInfo\n"
        "from checkrein_plugins.redaction import Redaction\n"
        "for pattern in ('^(a+)+$', '(a|aa)+b', '(я+)+ж', '(x+x+)+y'):\n"
        "    plugin = Redaction(custom={'own': {'pattern': pattern}})\n"
        "    text = 'a' * 200_000 + 'я' * 200_000 + 'x' * 200_000\n"
        "    plugin.pre_call(Call('c', 's', 'tool', 't', {'text': text}, ToolInfo('t')))\n"
        "print('done')"
    )
    out, told = child(code).communicate(timeout=120)
    assert out == "done\n", told


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 6))
def test_no_value_is_left_in_any_structure(rng: random.Random, depth: int) -> None:
    values = [MAIL, CARD, "536-22-4127", JWT, "ghp_" + "aB3d" * 9]

    def build(level: int) -> Any:
        kind = rng.randrange(7) if level else 0
        if kind < 2:
            words = "".join(rng.choices(string.ascii_letters + " é日", k=rng.randrange(12)))
            return f"{words} {rng.choice(values)} {words}"
        if kind == 2:
            return [build(level - 1) for _ in range(rng.randrange(4))]
        if kind == 3:
            return tuple(build(level - 1) for _ in range(rng.randrange(4)))
        if kind == 4:
            return {f"{n} {rng.choice(values)}": build(level - 1) for n in range(rng.randrange(4))}
        if kind == 5:
            return {build(0), build(0)}
        return Customer(mail=build(0), tags=[build(0)])

    value = build(depth)
    made = redact_tree(value)
    assert type(made) is type(value)
    assert not [one for one in values if one in repr(made)]
