"""Streams: however a text is cut, the parts joined are the redaction of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein_plugins.redaction import DEFAULT_CATEGORIES, TextFilter, redact
from checkrein_plugins.redaction.pieces import PIECE
from checkrein_plugins.redaction.text import engine_for

ENGINE = engine_for(frozenset(DEFAULT_CATEGORIES))

JWT = (
    "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJyb2JpbiIsImV4cCI6MTl9."
    "c2lnbmF0dXJlLW9mLXRoZS10b2tlbi1oZXJl"
)
PEM = (
    "-----BEGIN EC PRIVATE KEY-----\n"
    + "MHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVpBZqSWIDzJm2cVdoAoGCCqGSM49\n" * 3
    + "AwEHoUQ==\n-----END EC PRIVATE KEY-----"
)
VALUES = [
    "robin.vale@example.org", "o'neil+x@mail.example.co.uk", "4242 4242 4242 4242",
    "378282246310005", "212-555-0147", "(212) 555-0147", "+44 20 7946 0958", "219-09-9998",
    "GB33 BUKB 2020 1555 5555 55", "DE89370400440532013000", "203.0.113.77",
    "2001:db8::8a2e:370:7334",
    "sk-ant-api03-" + "Zx9" * 12, "AKIAQ7ZJ5V2M4N8PRSTU", JWT, PEM, "00:1b:44:11:3a:b7",
    "password: Tr0ub4dor&3x",
    'api_key="9f8e7d6c5b4a39281706f5e4d3c2b1a0"', "passport no. X1234567",
    "postgres://app:s3cr3t!pw@db.internal/x", "1BoatSLRHtKNngkdXEeobR76b53LETtpyT",
    "0121 234 5678", "AB 12 34 56 C", "r\u200bobin＠example．org",
    "４２４２ ４２４２ ４２４２ ４２４２",
    "robin\\u0040example.org", '{"card": 4242424242424242, "n": [4242424242424242]}',
]  # fmt: skip
FILLER = [
    "call ", "phone", "card ", "SSN ", "passcode: ", "passport ", "secret", "api_key=",
    " office", "id number ",
    "2125550147", "219099998", "1234 5678 9012", "71-33-52-22", "4242424242424241",
    "Abc123def456ghi789",
    "The report is ready. ", "Id 550e8400-e29b-41d4-a716-446655440000 ", "v1.2.3.4 ",
    "\n", '"', " ",
    "2026-03-14T09:26:53Z ", "ORDER 1234567890123456 ", "日本語のテキスト ", "Привет, мир ",
    "a", "1-", "\\n",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "x" * 40, "...", '\\"', "{", "[", ": ", ",",
    "é", "\u200b",
    "\ud83d", "1 ", "@",
]  # fmt: skip

texts = st.lists(st.sampled_from(VALUES + FILLER) | st.text(max_size=12), max_size=12).map("".join)


def delivered(text: str, cuts: list[int]) -> str:
    stream = TextFilter(ENGINE)
    out, last = [], 0
    for cut in [*sorted(cuts), len(text)]:
        out.append(stream.feed(text[last:cut]))
        last = cut
    out.append(stream.flush())
    return "".join(out)


@pytest.mark.parametrize("value", VALUES)
def test_every_single_cut_gives_the_same(value: str) -> None:
    text = f"Please note {value} for later, thanks"
    whole = redact(text)
    assert whole != text
    for cut in range(len(text) + 1):
        assert delivered(text, [cut]) == whole, cut
    assert delivered(text, list(range(len(text)))) == whole


@settings(max_examples=400, deadline=None)
@given(texts, st.data())
def test_random_texts_and_cuts_give_the_same(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    assert delivered(text, cuts) == redact(text)


@settings(max_examples=150, deadline=None)
@given(texts)
def test_single_characters_give_the_same(text: str) -> None:
    assert delivered(text, list(range(len(text)))) == redact(text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["1-", "A", "ab12", "4242424242424242,", "Zz9_" * 9, ",", "x.y@Z.org;", JWT]
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(200, 900),
    st.integers(1, 3000),
)
def test_texts_without_a_joint_are_cut_alike(parts: list[str], count: int, step: int) -> None:
    text = "".join(parts) * count
    text = text[: 5 * PIECE]
    assert delivered(text, list(range(0, len(text), step))) == redact(text)


@pytest.mark.parametrize("size", [PIECE - 7, PIECE, 3 * PIECE + 11])
def test_a_long_token_is_swallowed_whole(size: int) -> None:
    token = JWT + "Q" * size
    text = f"Use {token} from now on"
    assert redact(text) == "Use [SECRET] from now on"
    assert delivered(text, list(range(0, len(text), 17))) == "Use [SECRET] from now on"


def test_a_pem_block_is_replaced_at_its_opening_and_swallowed() -> None:
    stream = TextFilter(ENGINE)
    out = stream.feed("Here it is:\n-----BEGIN RSA PRIVATE KEY-----\n")
    assert out == "Here it is:\n[SECRET]"
    for _ in range(500):
        assert (
            stream.feed("MIIEpAIBAAKCAQEA7bq0Zk1sJpQ2c4Y5X8V9W0T1R2S3U4O5P6N7M8L9K0J1I2H3\n") == ""
        )
    assert stream.feed("-----END RSA PRIVATE KEY-----\nThat was all of it.\n") == (
        "\nThat was all of it.\n"
    )


def test_endless_pem_headers_are_not_kept() -> None:
    stream = TextFilter(ENGINE)
    out = "".join(stream.feed("-----BEGIN PRIVATE KEY-----\n") for _ in range(2000))
    assert out == "[SECRET]" and len(stream._pending) < 400
    assert redact("-----BEGIN PRIVATE KEY-----\n" * 2000) == "[SECRET]\n"


def test_clean_words_are_delivered_at_once_and_the_end_flushes() -> None:
    stream = TextFilter(ENGINE)
    assert stream.feed("Your refund was booked ") == "Your refund was booked "
    assert stream.feed("and mailed to robin.vale@exa") == "and mailed "
    assert stream.feed("mple.org") == ""
    assert stream.flush() == "to [EMAIL]"


def test_abort_delivers_nothing_and_forgets() -> None:
    stream = TextFilter(ENGINE)
    stream.feed("Mail robin.vale@exam")
    stream.abort()
    assert stream.flush() == ""


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='aB1 -.@,\n"', max_size=3 * PIECE), st.integers(1, 400))
def test_what_is_kept_back_is_bounded(text: str, step: int) -> None:
    stream = TextFilter(ENGINE)
    fed = out = 0
    for start in range(0, len(text), step):
        piece = text[start : start + step]
        fed += len(piece)
        out += len(stream.feed(piece))
        assert len(stream._pending) <= stream.holdback + 16  # the bound itself
    assert fed == len(text)
