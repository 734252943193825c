"""Detectors of national numbers: identity, tax and insurance numbers, passports."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from checkrein_plugins.redaction.detector import Check, Detector, glued
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import Words
from checkrein_plugins.redaction.validators import luhn


def _weights(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def _german_tax(value: str) -> bool:
    """ISO 7064 mod 11,10; of the first ten digits one is repeated (BZSt, since 2016 also twice)."""
    counts = Counter(value[:10])
    if value[0] == "0" or sum(n > 1 for n in counts.values()) != 1 or max(counts.values()) > 3:
        return False
    rest = 10
    for digit in value[:10]:
        step = (int(digit) + rest) % 10 or 10
        rest = step * 2 % 11
    return (11 - rest) % 10 == int(value[10])


def _pesel(value: str) -> bool:
    """Poland: birth date with the century in the month, then a check digit."""
    month, day = int(value[2:4]) % 20, int(value[4:6])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return False
    return (10 - _weights(value, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)) % 10) % 10 == int(value[10])


def _dni(value: str) -> bool:
    """Spain: DNI and NIE, the letter is the number mod 23."""
    number = value[:-1].translate(str.maketrans("XYZ", "012"))
    return number.isdigit() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == value[-1]


_CODICE_ODD_VALUES = (
    1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8,
    12, 14, 16, 10, 22, 25, 24, 23,
)  # fmt: skip
_CODICE_ODD = dict(zip("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", _CODICE_ODD_VALUES, strict=True))


def _codice_fiscale(value: str) -> bool:
    """Italy: the check letter of the tax code."""
    total = 0
    for index, char in enumerate(value[:15]):
        if index % 2 == 0:
            total += _CODICE_ODD[char]
        else:
            total += int(char) if char.isdigit() else ord(char) - 65
    return chr(65 + total % 26) == value[15]


def _nir(value: str) -> bool:
    """France: 13 digits and a key of 97 (Corsica's departments 2A and 2B count as 19 and 18)."""
    body = value[:13].replace("2A", "19").replace("2B", "18")
    return body.isdigit() and 97 - int(body) % 97 == int(value[13:])


def _bsn(value: str) -> bool:
    """Netherlands: the eleven test."""
    return _weights(value, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0 and int(value) > 0


def _cpf(value: str) -> bool:
    """Brazil: two check digits mod 11."""
    if len(set(value)) == 1:
        return False
    first = _weights(value[:9], (10, 9, 8, 7, 6, 5, 4, 3, 2)) * 10 % 11 % 10
    second = _weights(value[:10], (11, 10, 9, 8, 7, 6, 5, 4, 3, 2)) * 10 % 11 % 10
    return value[9:] == f"{first}{second}"


def _resident(value: str) -> bool:
    """China: birth date and ISO 7064 mod 11-2."""
    if not (1 <= int(value[10:12]) <= 12 and 1 <= int(value[12:14]) <= 31):
        return False
    total = _weights(value, (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2))
    return "10X98765432"[total % 11] == value[17]


def _nric(value: str) -> bool:
    """Singapore: NRIC and FIN, series S, T, F, G, M."""
    total = _weights(value[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"T": 4, "G": 4, "M": 3}.get(value[0], 0)
    if value[0] == "M":
        return "KLJNPQRTUWX"[10 - total % 11] == value[8]
    letters = "JZIHGFEDCBA" if value[0] in "ST" else "XWUTRQPNMLK"
    return letters[total % 11] == value[8]


_VERHOEFF = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_VERHOEFF_TURN = (
    "0123456789", "1576283094", "5803796142", "8916043527",
    "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


def _aadhaar(value: str) -> bool:
    """India: Verhoeff's check digit."""
    state = 0
    for index, char in enumerate(reversed(value)):
        state = int(_VERHOEFF[state][int(_VERHOEFF_TURN[index % 8][int(char)])])
    return state == 0


def _luhn_text(value: str) -> bool:
    return luhn(value.encode("ascii"))


def _personnummer(value: str) -> bool:
    """Sweden: birth date and Luhn over the last ten digits."""
    value = value[-10:]
    return 1 <= int(value[2:4]) <= 12 and 1 <= int(value[4:6]) % 60 <= 31 and _luhn_text(value)


def _dated(value: str) -> bool:
    """A birth date in the first six digits."""
    return 1 <= int(value[2:4]) <= 12 and 1 <= int(value[4:6]) <= 31


def _always(_value: str) -> bool:
    return True


class Identity(NamedTuple):
    """A row of a table: how one country's number is written and what makes it one."""

    subtype: str
    form: str
    """Python `re` for the whole candidate, as written, in capitals."""
    check: Callable[[str], bool]
    """Gets the candidate in capitals, without spaces and marks."""
    words: Words | None = None
    """Words in front of it, one of which is needed; None = the form and the check are enough."""


_NINO = r"(?!BG|GB|KN|NK|NT|TN|ZZ)[ABCEGHJ-PRSTW-Z][ABCEGHJ-NPRSTW-Z]"
"""Prefixes that HMRC gives out; the one of the sample number, OG, is among them."""

NUMERIC = (
    Identity("de_tax_id", r"\d{11}|\d\d \d{3} \d{3} \d{3}", _german_tax),
    Identity("pl_pesel", r"\d{11}", _pesel, Words(rb"pesel|national|id ")),
    Identity("fr_nir", r"[12] ?\d\d ?\d\d ?\d\d ?\d{3} ?\d{3} ?\d\d", _nir),
    Identity("nl_bsn", r"\d{9}|\d{4}[. ]\d\d[. ]\d{3}", _bsn, Words(rb"bsn|burgerservice|sofi")),
    Identity("br_cpf", r"\d{3}\.\d{3}\.\d{3}-\d\d", _cpf),
    Identity("br_cpf", r"\d{11}", _cpf, Words(rb"cpf")),
    Identity("cn_resident", r"[1-9]\d{5}(?:19|20)\d{10}", _resident),
    Identity("in_aadhaar", r"[2-9]\d{3} \d{4} \d{4}", _aadhaar),
    Identity("in_aadhaar", r"[2-9]\d{11}", _aadhaar, Words(rb"aadha|uidai")),
    Identity("se_personnummer", r"(?:19|20)?\d{6}[-+]\d{4}", _personnummer),
    Identity("ca_sin", r"\d{3}[ -]\d{3}[ -]\d{3}", _luhn_text, Words(rb" sin|social insurance")),
    Identity("kr_rrn", r"\d{6}-[1-8]\d{6}", _dated),
    Identity(
        "tax_id", r"\d{2,3}[ /-]?\d{3}[ /-]?\d{3,5}[ /-]?\d{0,3}", _always,
        Words(rb"steuer-id|steueridentifikation|steuernummer|national id|identity number"
        rb"|tax number|personal id"),
    ),
)  # fmt: skip
"""Numbers without letters. To add one, add a row here, and a trigger to the detector in `numbers`
if none of those there is part of it."""

LETTERED = (
    Identity("uk_nino", _NINO + r" ?\d\d ?\d\d ?\d\d ?[A-D]", _always),
    Identity("es_dni", r"(?:\d{8}|[XYZ]\d{7})[- ]?[A-Z]", _dni),
    Identity("it_codice_fiscale", r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]", _codice_fiscale),
    Identity("fr_nir", r"[12] ?\d\d ?\d\d ?2[AB] ?\d{3} ?\d{3} ?\d\d", _nir),
    Identity("cn_resident", r"[1-9]\d{5}(?:19|20)\d{9}X", _resident),
    Identity("sg_nric", r"[STFGM]\d{7}[A-Z]", _nric),
    Identity("in_pan", r"[A-Z]{3}[ABCFGHLJPT][A-Z]\d{4}[A-Z]", _always, Words(rb"pan|tax|india")),
)
"""Numbers with letters. To add one, add a row here and its form to the detector below."""

_Rows: TypeAlias = tuple[tuple[Identity, re.Pattern[str]], ...]
_NUMERIC_FORMS: _Rows = tuple((row, re.compile(row.form)) for row in NUMERIC)
_LETTERED_FORMS: _Rows = tuple((row, re.compile(row.form)) for row in LETTERED)
_NUMERIC_SHAPES = tuple(
    re.compile(
        re.sub(
            r"\\d|\[\d(?:-\d|\d)\]|19|20",
            lambda found: "dd" if found[0] in "1920" else "d",
            row.form,
        )
    )
    for row in NUMERIC
)


def numeric_check(shape: str) -> Check | None:
    """The check for numbers of a shape (see `numbers`), if a row of `NUMERIC` has it."""
    rows = tuple(
        row
        for row, form in zip(_NUMERIC_FORMS, _NUMERIC_SHAPES, strict=True)
        if form.fullmatch(shape)
    )
    return functools.partial(_first, rows) if rows else None


def _lettered_identity(data: bytes, start: int, end: int) -> Finding | None:
    left, right = data[start - 1 : start] if start else b"", data[end : end + 1]
    if (left and left in b"._-/\\") or (right and right in b"_-/"):
        return None
    return _first(_LETTERED_FORMS, data, start, end)


def _first(rows: _Rows, data: bytes, start: int, end: int) -> Finding | None:
    """The first row whose form, words and check agree."""
    text = data[start:end].decode("ascii").upper()
    for row, form in rows:
        if form.fullmatch(text) is None:
            continue
        if row.words is not None and not row.words.before(data, start):
            continue
        if row.check("".join(filter(str.isalnum, text))):
            return Finding(start, end, "national_id", row.subtype)
    return None


_PASSPORT_VALUE = re.compile(
    rb"\b(?:[A-Z]{0,3} ?\d{6,9}[A-Z]?|\d\d[A-Z]{2}\d{5}|[A-Z][A-Z0-9]{7,8}|[a-z]{1,2}\d{6,8})\b",
    re.ASCII,
)
_PASSPORT_WORDS = (
    rb"passport|reisepass|passeport|pasaporte|passaporto|passaporte|paspoort|paszport|passnummer"
    rb"|\bpass[ -]?(?:no|nr|num)\b|\bpas[ -]nr"
)


def _passport(data: bytes, start: int, end: int) -> Finding | None:
    """The first number behind the word: up to three letters and digits, or a German mixture."""
    for match in _PASSPORT_VALUE.finditer(data, start + 7, end):
        first, last = match.span()
        raw = match[0]
        if last == end and data[end : end + 1].isalnum():
            break
        if sum(48 <= char <= 57 for char in raw) >= 2 and not glued(data, first, last):
            return Finding(first + len(raw) - len(raw.lstrip()), last, "passport")
    return None


_PASSPORT_FIRST = re.compile(rb"[A-Z]{0,2}\d{6,9}")


def _passport_first(data: bytes, start: int, end: int) -> Finding | None:
    """A number right in front of the word: `X1234567 (passport)`, `... is my passport number`."""
    match = _PASSPORT_FIRST.match(data, start, end)
    if match is None or glued(data, start, match.end()):
        return None
    return Finding(start, match.end(), "passport")


_MRZ_WEIGHTS = (7, 3, 1)


def _mrz(data: bytes, start: int, end: int) -> Finding | None:
    """The second line of a passport's machine-readable zone (ICAO 9303-4): three check digits."""
    line = data[start:end].decode("ascii")
    for first, last in ((0, 9), (13, 19), (21, 27)):
        total = sum(
            (int(char, 36) if char != "<" else 0) * _MRZ_WEIGHTS[index % 3]
            for index, char in enumerate(line[first:last])
        )
        if str(total % 10) != line[last]:
            return None
    return Finding(start, end, "passport", "mrz")


DETECTORS = (
    Detector(
        "lettered_identity", frozenset({"national_id"}),
        rb"\b(?:(?i:[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-D])"
        rb"|[12] ?\d\d ?\d\d ?2[ABab] ?\d{3} ?\d{3} ?\d\d|[1-9]\d{16}[Xx]"
        rb"|\d{8}[- ]?[A-Z]|[XYZ]\d{7}[- ]?[A-Z]|(?i:[A-Z]{6}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z])"
        rb"|[STFGM]\d{7}[A-Z]|[A-Z]{5}\d{4}[A-Z])\b",
        (rb"(?i)\b[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-D]\b", rb"\b\d{8}[- ]?[A-Z]\b",
        rb"\b[A-Z]\d{7}[- ]?[A-Z]\b", rb"\d{11}[Xx]\b",
         rb"\b[12] ?\d\d ?\d\d ?2[ABab]", rb"(?i)\b[A-Z]{6}\d\d[A-Z]\d\d",
         rb"\b[A-Z]{5}\d{4}[A-Z]\b"),
        _lettered_identity,
        exact=True,
    ),
    Detector(
        "passport", frozenset({"passport"}),
        rb"(?i)(?:" + _PASSPORT_WORDS + rb")[^\n\x00]{0,48}",
        (rb"(?i)" + _PASSPORT_WORDS,),
        _passport,
        lookback=True,
    ),
    Detector(
        "passport_first", frozenset({"passport"}),
        rb"\b[A-Z]{0,2}\d{6,9}(?: is my| is a|,| -)? ?\(?(?i:passport)",
        (rb"\d{4}(?: is my| is a|,| -)? ?\(?(?i:passport)",),
        _passport_first,
        exact=True,
    ),
    Detector(
        "passport_zone", frozenset({"passport"}),
        rb"\b[A-Z0-9][A-Z0-9<]{8}\d[A-Z]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{14}[0-9<]\d\b",
        (rb"\d{7}[MFX<]\d{7}[A-Z0-9<]{14}",),
        _mrz,
        exact=True,
    ),
)  # fmt: skip
