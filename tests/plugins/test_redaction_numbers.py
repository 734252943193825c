"""Numbers of many countries, and secrets by their place: found, and refused if a digit is off."""

from __future__ import annotations

import pytest

from checkrein_plugins.redaction import scan

CHECKED = [
    ("rijksregisternummer {}", "85073003328"), ("{}", "85.07.30-033.28"),
    ("{}", "756.9217.0769.85"), ("AHV {}", "7569217076985"), ("fødselsnummer {}", "15108695088"),
    ("{}", "131052-308T"), ("kennitala {}", "450401-3150"), ("rodné číslo {}", "710319/2745"),
    ("CNP {}", "1630615123457"), ("SA ID: RSA id {}", "7503305044089"), ("{}", "1-2345-45678-78-1"),
    ("TC Kimlik {}", "17291716060"), ("isikukood {}", "36805280109"), ("OIB {}", "33392005961"),
    ("NIF {}", "501964843"), ("EGN {}", "7523169263"), ("SVNR {}", "1237 010180"),
    ("teudat zehut {}", "039337423"), ("INN {}", "500100732259"), ("{}", "112-233-445 95"),
    ("{}", "16.727.230/0001-97"), ("TFN {}", "123 456 782"), ("ABN {}", "83 914 571 673"),
    ("ACN {}", "004 085 616"), ("PPS {}", "6433435F"), ("{}", "A123456789"),
    ("CUIT {}", "20-05536168-2"), ("NHS number {}", "943 476 5870"), ("NHS {}", "9434765870"),
    ("CPF {}", "390.533.447-05"), ("BSN {}", "111222333"), ("PESEL {}", "44051401359"),
    ("{}", "12345678Z"), ("{}", "X1234567L"), ("Steuer-ID {}", "36574261809"),
    ("{}", "11010519491231002X"), ("{}", "2341 2341 2346"), ("SIN {}", "046 454 286"),
    ("My Number {}", "1234 5678 9018"), ("{}", "12.531.909-2"),
]  # fmt: skip
"""Numbers that the offices or the standards publish as examples."""


def national(text: str) -> list[str]:
    return [text[f.start : f.end] for f in scan(text, ["national_id"])]


@pytest.mark.parametrize(("frame", "number"), CHECKED)
def test_numbers_with_check_digits(frame: str, number: str) -> None:
    text = f"The customer, {frame.format(number)}, has paid."
    assert national(text) == [number]


@pytest.mark.parametrize(
    ("frame", "number"), [row for row in CHECKED if "Steuer" not in row[0]]
)  # whose word alone is enough
def test_a_wrong_check_digit_is_no_number(frame: str, number: str) -> None:
    last = number[-1]
    wrong = number[:-1] + (str((int(last) + 1) % 10) if last.isdigit() else "ZAB"[last == "Z"])
    assert national(f"The customer, {frame.format(wrong)}, has paid.") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CPR 010190-1234", "010190-1234"), ("NIK 3171234567890123", "3171234567890123"),
        ("id 42101-1234567-1", "42101-1234567-1"), ("784-1984-1234567-1", "784-1984-1234567-1"),
        ("Voter EPIC ABC1234567", "ABC1234567"), ("HKID A123456(7)", "A123456(7)"),
        ("MBI 1EG4-TE5-MK73", "1EG4-TE5-MK73"), ("900101-14-5678", "900101-14-5678"),
        ("CURP BOXW310820HNERXN09", "BOXW310820HNERXN09"), ("NINO AB 12 34 56 C", "AB 12 34 56 C"),
        ("Personalausweis L01X00T471", "L01X00T471"), ("UTR 12345 67890", "12345 67890"),
    ],
)  # fmt: skip
def test_numbers_by_form_and_word(text: str, value: str) -> None:
    assert national(f"{text}, please") == [value]


@pytest.mark.parametrize(
    "text",
    [
        "passport X1234567", "Passport No: 123456789", "Reisepass-Nr. C01X00T47",
        "Pass-Nr.: C4J6H2K19",
        "passeport n° 12AB34567", "pasaporte: AAA123456", "passaporto n. YA1234567",
        "paspoortnummer NX12345B6", "paszport ZS 1234567", "passaporte FC123456",
        "X1234567 is my passport", "AB1234567 (passport)",
        "L898902C36UTO7408122F1204159ZE184226B<<<<<10",
    ],
)  # fmt: skip
def test_passports(text: str) -> None:
    assert len(scan(f"{text} and so on", ["passport"])) == 1


@pytest.mark.parametrize(
    "text", ["passports 2024", "passport office opens at 9",
        "L898902C37UTO7408122F1204159ZE184226B<<<<<10"]
)  # fmt: skip
def test_no_passports(text: str) -> None:
    assert scan(text, ["passport"]) == ()


@pytest.mark.parametrize(
    "text",
    [
        "+44 20 7946 0958", "(+358) 170786687", "00420 603 030 414", "8 (495) 123-45-67",
        "08-46 53 98 11", "(08) 8096 5781", "0489.080.397", "+49 (0)30 123456", "06 12 34 56 78",
        "(415) 555-0147", "415-555-0147 x12", "tel. 6960530026", "Mobil: 0426657547",
        "My number is 82901878", "tlf. 42 90 21 24", "puh. 0714516854", "ligue 273 546 111",
        "Contact Kim, 3433031919, for more",
    ],
)  # fmt: skip
def test_phones_in_many_writings(text: str) -> None:
    (found,) = scan(text, ["phone"])
    assert sum(map(str.isdigit, text[found.start : found.end])) >= 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<password>Tr0ub4dor&3</password>", "Tr0ub4dor&3"),
        ('<add key="ApiKey" value="f3a9c1d27be84f60a1c2d3e4f5061728" />',
         "f3a9c1d27be84f60a1c2d3e4f5061728"),
        ("curl -u admin:Sup3rS3cret https://api.example.org", "Sup3rS3cret"),
        ("docker login -u me -p dkfj39fjd92", "dkfj39fjd92"),
        ("sshpass -p 'Ro0tMe!now' ssh host", "Ro0tMe!now"),
        ("--password ks93kd02ls", "ks93kd02ls"),
        ("twilio_auth_token = 5a1b2c3d4e5f60718293a4b5c6d7e8f9",
        "5a1b2c3d4e5f60718293a4b5c6d7e8f9"),
        ("token=1f8a90b7c6d5e4f3a2b1c0d9&page=2", "1f8a90b7c6d5e4f3a2b1c0d9"),
        ("?sv=2022&sig=Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWo%3D",
         "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWo%3D"),
    ],
)  # fmt: skip
def test_secrets_by_their_place(text: str, value: str) -> None:
    assert [text[f.start : f.end] for f in scan(text, ["secret"])] == [value]


@pytest.mark.parametrize(
    "text",
    [
        'private_key_id: "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3"',
        "private_key: Ed25519PrivateKey",
        "password: {{ vault_password }}", "token = request.headers['X-Token']", "max_tokens=4096",
        "curl -u $USER:$PASSWORD https://example.org", "docker run -p 8080:8080 nginx",
        "see the tokenizer1.c third_party/sqlite/ext/fulltext2.c",
    ],
)  # fmt: skip
def test_what_only_looks_like_one(text: str) -> None:
    assert scan(text, ["secret"]) == ()
