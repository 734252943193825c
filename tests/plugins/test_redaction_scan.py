"""`scan` and `redact`: what is found, what is left alone, where, and in what time."""

from __future__ import annotations

import importlib
import itertools
import json
import random
import re
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.errors import ConfigError
from checkrein_plugins.redaction import CATEGORIES, DetectorFailed, redact, scan
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.findings import Finding, resolve
from checkrein_plugins.redaction.tokens import TOKENS

FOUND = {
    "email": [
        "robin.vale@example.org", "o'neil+tag@mail.example.co.uk", "r_v@xn--bcher-kva.example",
        "ROBIN@EXAMPLE.ORG", "jürgen@müller.example.de",
    ],
    "phone": [
        "212-555-0147", "(212) 555-0147", "+1 212.555.0147", "+44 20 7946 0958", "+4915123456789",
        "06 12 34 56 78", "0121 234 5678", "+34 612 34 75 42", "001-212-555-0147",
        "212-555-0147 x12",
    ],
    "us_ssn": ["219-09-9998", "912-71-1234"],
    "credit_card": [
        "4242424242424242", "4242 4242 4242 4242", "5555-5555-5555-4444", "3782 822463 10005",
        "6011000990139424", "30569309025904",
    ],
    "iban": ["GB33BUKB20201555555555", "DE89 3704 0044 0532 0130 00", "nl91abna0417164300"],
    "ip_address": ["203.0.113.77", "2001:db8::8a2e:370:7334", "fe80::1ff:fe23:4567:890a"],
    "mac": ["00:1b:44:11:3a:b7", "00-1B-44-11-3A-B7", "001b.4411.3ab7"],
    "url": ["https://example.org/a?b=c#d", "ftp://files.example.org"],
    "crypto": [
        "1BoatSLRHtKNngkdXEeobR76b53LETtpyT", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
        "0x52908400098527886E0F7030069857D2E4169EE7",
    ],
    "national_id": ["AB 12 34 56 C", "86095742719", "12345678Z", "RSSMRA85T10A562S", "52998224725"],
    "secret": [
        "sk-ant-api03-" + "Zx9" * 12, "sk-proj-" + "aB3_" * 12, "AKIAQ7ZJ5V2M4N8PRSTU",
        "ghp_" + "aB3" * 12, "xoxb-123456789012-abcdefGHIJ", "AIza" + "aB3-_" * 7,
        "hf_" + "aBc" * 12, "npm_" + "aB3" * 12, "sk_live_" + "aB3" * 8,
        "https://hooks.slack.com/services/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",
    ],
}  # fmt: skip

CARD = 4242424242424242
HEX = "2a650a75592d3108bf4d56105f47aa3109dd3263"
AZURE = "Qm9ndXMga2V5IGZvciBhIHRlc3QsIG5vdCByZWFsLi4uLg/8b1c2d3e4+5f6a7b8c9d0e1f2g3h4i5j6k7l8=="

LEFT_ALONE = [
    "550e8400-e29b-41d4-a716-446655440000", "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "12345678-1234-4123-8123-123456789012", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "2026-03-14T09:26:53.589Z", "2026-03-14 09:26:53", "2026-03-14", "1701254400", "1727786331343",
    "14/03/2026", "1.2.3", "version 10.2.3.4", "v1.2.3.4", "Chrome/120.0.6099.71", "pkg==1.2.3.4",
    "1.3.6.1.4.1.311", "order 1234567890123456", "order #49387457799644", "INV-2026-084890",
    "S3, EKS and m5.large", "12:30:45", "a[::2]", "std::vector<int>", "icon@2x.png", "127.0.0.1",
    "getty@tty1.service", "git@github.com:org/repo.git", "@app.route", "ISBN 978-0-306-40615-7",
    "lat=29.8001213, lon=-28.5148690", "[0.00069825, 0.34727628, -0.28685873]", "~/.ssh/config",
    "password = os.environ['DB_PASSWORD']", "token = get_token(request)", "api_key: ${API_KEY}",
    "max_tokens=4096", "password: <your password>", "passport office opens at nine",
    "aGVsbG8gd29ybGQsIHRoaXMgaXMganVzdCBhIGJhc2U2NCBibG9iIG9mIHRleHQ=", "0xdeadbeef", "C0FFEE",
    "call_Tvetw0tESulEETldq8b8Vw2z chatcmpl-bJYAxyL1aCcTlN99mhWp708DwGw5H",
    '{"trace_id":"8b0e7153bf7c3706d85c524e44006655","duration_ns":8604464973}',
    "12345678901", "3 x 4 = 12", "555-0147", "+1", "call 911",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
]  # fmt: skip


@pytest.mark.parametrize(
    ("category", "value"), [(c, value) for c, values in FOUND.items() for value in values]
)
@pytest.mark.parametrize(
    "frame", ["{}", "Please note {}, thanks.", '{{"q": "{}", "n": 5}}', "a,{},b", "x ({})", "{}\nz"]
)
def test_found_in_any_frame(category: str, value: str, frame: str) -> None:
    if category == "national_id" and value == "52998224725":
        frame = "CPF " + frame
    if category == "url" and frame == "a,{},b":
        return  # a comma is part of a URL
    text = frame.format(value)
    found = scan(text)
    assert [(f.category, text[f.start : f.end]) for f in found] == [(category, value)]


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_left_alone(text: str) -> None:
    assert redact(text) == text
    assert redact(f"see {text} for more") == f"see {text} for more"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Passport number: C01X00T47", "C01X00T47"),
        ("my passport is X1234567 by the way", "X1234567"),
        ("Phone:\n60-56-85-91\n", "60-56-85-91"),
        ("call me on 2125550147", "2125550147"),
        ("SSN 219099998", "219099998"),
        ("credit card 4242424242424241", "4242424242424241"),
        ("password: Tr0ub4dor&3x", "Tr0ub4dor&3x"),
        ("DB_PASSWORD=4Z6#fc4f28Ti0o", "4Z6#fc4f28Ti0o"),
        (f'{{"client_secret": "{HEX}"}}', HEX),
        (f"Authorization: Bearer {HEX}", HEX),
        ("postgres://app:s3cr3t!pw@db.internal:5432/x", "s3cr3t!pw"),
        (f"AccountKey={AZURE}", AZURE),
    ],
)  # fmt: skip
def test_found_beside_its_word(text: str, value: str) -> None:
    assert [text[f.start : f.end] for f in scan(text)] == [value]


def test_neighbours_are_all_replaced_and_the_rest_is_untouched() -> None:
    assert redact("a@example.org b@example.org  c@example.org!") == "[EMAIL] [EMAIL]  [EMAIL]!"
    assert redact("4242 4242 4242 4242 212-555-0147 219-09-9998") == (
        "[CREDIT_CARD] [PHONE] [US_SSN]"
    )


def test_overlaps_are_replaced_once() -> None:
    key = "sk-ant-api03-" + "Zx9" * 12
    assert redact(f"https://x.example.org/?k={key}&a=1") == "https://x.example.org/?k=[SECRET]&a=1"
    text = f"https://x.example.org/?mail=robin@example.org&k={key}"
    assert redact(text, CATEGORIES).count("[") == 2
    assert "robin" not in redact(text, CATEGORIES) and "Zx9" not in redact(text, CATEGORIES)


def test_a_key_is_replaced_whole_never_in_part() -> None:
    key = "sk-proj-" + "2125550147_" * 4 + "Ab"
    assert redact(f"key {key} end") == "key [SECRET] end"


@pytest.mark.parametrize(
    ("text", "value", "category"),
    [
        ("… ﬁne ½ ro\u200bbin@exa\u200dmple.org, ok", "ro\u200bbin@exa\u200dmple.org", "email"),
        ("mail robin＠example．org now", "robin＠example．org", "email"),
        ("mail robin@example\u3002org now", "robin@example\u3002org", "email"),
        (
            "card ４２４２ ４２４２ ４２４２ ４２４２",
            "４２４２ ４２４２ ４２４２ ４２４２",
            "credit_card",
        ),
        (
            "card 4242\u20134242\u20134242\u20134242",
            "4242\u20134242\u20134242\u20134242",
            "credit_card",
        ),
        ("tel ＋44\u00a020 7946 0958", "＋44\u00a020 7946 0958", "phone"),
        ("жжж иван@пример.рф ждёт", "иван@пример.рф", "email"),
        ("联系robin@example.org谢谢", "robin@example.org", "email"),
        ("mail r\u0301obin@example.org", "r\u0301obin@example.org", "email"),
        ("mail 𝐫𝐨𝐛𝐢𝐧@example.org", "𝐫𝐨𝐛𝐢𝐧@example.org", "email"),
        ('{"to": "robin\\u0040example.org"}', "robin\\u0040example.org", "email"),
        ('{"to": "x\\nrobin@example.org"}', "robin@example.org", "email"),
    ],
)
def test_seen_through_with_offsets_of_the_original(text: str, value: str, category: str) -> None:
    assert [(text[f.start : f.end], f.category) for f in scan(text)] == [(value, category)]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_around_leaves_offsets_right(left: str, right: str) -> None:
    text = f"{left} |robin.vale@example.org| {right}"
    assert (text.index("|robin") + 1, text.index("org|") + 3, "email", "") in scan(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_findings_are_ordered_and_apart_and_redaction_is_stable(text: str) -> None:
    found = scan(text)
    assert all(f.start < f.end for f in found)
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "document",
    [
        {"card": CARD, "cards": [CARD, 1], "note": f"card: {CARD}"},
        {"to": "robin@example.org", "robin@example.org": ['a\nrobin@example.org\t"x"']},
        [CARD, {"inner": json.dumps({"a": "robin@example.org", "n": CARD})}],
    ],
)  # fmt: skip
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_stays_json(document: object, ascii_only: bool) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only)
    after = redact(text)
    json.loads(after)
    assert "robin" not in after and "4242" not in after


def test_the_default_set_leaves_urls() -> None:
    assert redact("see https://example.org/x") == "see https://example.org/x"
    assert [f.category for f in scan("see https://example.org/x")] == ["url"]


def test_unknown_categories_are_refused() -> None:
    with pytest.raises(ConfigError, match="emial"):
        scan("x", ["emial"])
    with pytest.raises(ConfigError, match="list"):
        redact("x", "email")


def test_an_engine_that_fails_is_an_error_not_an_empty_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine((), frozenset({"secret"}))
    engine.compile()
    monkeypatch.setattr(engine, "_match", lambda data: None)
    with pytest.raises(DetectorFailed):
        engine.findings(b"robin@example.org")
    with pytest.raises(DetectorFailed):
        engine.triggers(b"robin@example.org")


def test_kept_findings_do_not_shield_what_is_more_severe() -> None:
    mail, phone = Finding(0, 20, "email"), Finding(0, 12, "phone")
    assert resolve([mail, phone], {"email"}) == []
    secret = Finding(3, 9, "secret")
    assert resolve([mail, secret], {"email"}) == [secret]


HOSTILE = [
    "'1' * n", "'1-' * n", "'1 ' * n", "'a@' * n", "'a.' * n", "'a' * n", "'1.1.' * n", "':' * n",
    "'eyJhbGciOi.' * n", "'eyJaaaaaaa.' * n", "'-----BEGIN PRIVATE KEY-----\\n' * (n // 8)",
    "'http://' * n", "'GB12 ' * n", "'+44 ' * n", "'password=' * n", "'sk-' + 'a' * n", "'(1' * n",
    "'4242 ' * n", "'219-09-' * n", "chr(92) * n", "(chr(92) + 'u0040') * n", "chr(0x200b) * n",
    "chr(0xff11) * n", "'passport ' * n", "'ab:' * n", "'0x' * n", "'a@' + 'b.' * n",
    "'http://' + 'a:' * n", "'[{' * n", "'\"password\":' * n", "'A1 ' * n", "'a1b2' * n",
]  # fmt: skip


def test_hostile_texts_take_linear_time(tmp_path: Path) -> None:
    """Quadratic time on these would take minutes; the limit is 30 s of CPU for all together."""
    script = tmp_path / "hostile.py"
    lines = ["import resource", "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))"]
    lines += ["from checkrein_plugins.redaction import redact", "n = 1 << 17"]
    lines += [f"redact({text})" for text in HOSTILE]
    script.write_text("\n".join([*lines, "print('done')"]))
    done = subprocess.run(  # our own interpreter and script
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr[-500:]


WORD = string.ascii_letters + string.digits


def sample(pattern: bytes, rng: random.Random) -> str:
    """A random text that `pattern` matches whole; for what stands in the table of tokens."""
    parser = importlib.import_module("re._parser")

    def made(tree: Any) -> str:
        return "".join(one(str(kind), value) for kind, value in tree)

    def one(kind: str, value: Any) -> str:
        if kind == "LITERAL":
            return chr(value)
        if kind == "IN":
            return rng.choice([char for item in value for char in members(*item)])
        if kind == "MAX_REPEAT":
            low, high, tree = value
            return "".join(made(tree) for _ in range(rng.randint(low, min(high, low + 20))))
        if kind == "BRANCH":
            return made(rng.choice(value[1]))
        if kind == "SUBPATTERN":
            return made(value[3])
        raise AssertionError(kind)

    def members(kind: Any, value: Any) -> str:
        if str(kind) == "LITERAL":
            return chr(value)
        if str(kind) == "RANGE":
            return "".join(map(chr, range(value[0], value[1] + 1)))
        return {"CATEGORY_DIGIT": string.digits, "CATEGORY_WORD": WORD}[str(value)]

    return made(parser.parse(pattern.decode("ascii")))


@pytest.mark.parametrize("row", range(len(TOKENS)), ids=lambda row: f"{row}-{TOKENS[row][0]}")
def test_every_row_of_the_table_of_tokens_is_found(row: int) -> None:
    rng = random.Random(row)
    for _ in range(8):
        token = sample(TOKENS[row][1], rng)
        while not re.search(r"\d.*[A-Za-z0-9]=*$", token):
            token = sample(TOKENS[row][1], rng)
        text = f"use {token} for that"
        assert [text[f.start : f.end].rstrip("=") for f in scan(text, ["secret"])] == [
            token.rstrip("=")
        ]


def test_a_telegram_token_is_found_inside_its_address() -> None:
    token = "7135246801:AA" + "hT9_" * 8 + "x"
    text = f"GET https://api.telegram.org/bot{token}/getMe"
    assert [text[f.start : f.end] for f in scan(text, ["secret"])] == [token]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('algolia_key := "k3jd82hf91kal0s9d8f7g6h5j4k3l2m1"', "k3jd82hf91kal0s9d8f7g6h5j4k3l2m1"),
        (
            "GITEA_TOKEN=4d5f02646593a6cdac1d09a99f21f5127ca1181b",
            "4d5f02646593a6cdac1d09a99f21f5127ca1181b",
        ),
        ("ALGOLIA_ADMIN_KEY=224c1108906525a6012a5d4b292647a8", "224c1108906525a6012a5d4b292647a8"),
        ("SNYK_TOKEN=8a3c9e5d-1b7f-4c2a-9e8d-7f6b5a4c3d2e", "8a3c9e5d-1b7f-4c2a-9e8d-7f6b5a4c3d2e"),
        (
            "curl -H 'X-Api-Key: RG26AcQpcD6wfg1MsPujJkyFdCNTKy1A'",
            "RG26AcQpcD6wfg1MsPujJkyFdCNTKy1A",
        ),
        ("MYSQL_PWD: 'pa55-W0rd!x'", "pa55-W0rd!x"),
    ],
)
def test_values_behind_secret_names(text: str, value: str) -> None:
    assert [text[f.start : f.end] for f in scan(text, ["secret"])] == [value]


@pytest.mark.parametrize(
    "text",
    [
        'primary_key = "a1b2c3d4e5f6a7b8c9d0e1f2"', 'next_page_token: "CAUQAA9x8y7z6w5v4u3t2s1r"',
        "token_count: 1234567890123456", 'secret_name = "prod/payments/stripe"', "password=None",
        'password: "********"', "def set_password(self, password: str) -> None:", "--token TOKEN",
        "if token == previous_token_value_1:", 'key = "value-of-the-day"', "password_hash(user)",
        "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')", "pass the_argument_2 on",
    ],
)  # fmt: skip
def test_names_and_code_are_no_secrets(text: str) -> None:
    assert redact(text) == text
