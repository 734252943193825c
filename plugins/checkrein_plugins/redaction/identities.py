"""Detectors of national numbers: identity, tax and insurance numbers."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from checkrein_plugins.redaction import checkdigits as digits
from checkrein_plugins.redaction.detector import Check, Detector, in_column
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import Words
from checkrein_plugins.redaction.validators import luhn


def _weights(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def _dated_luhn(value: str) -> bool:
    return digits.day_first(value) and digits.luhn_text(value)


def _emirates(value: str) -> bool:
    return value.startswith("784") and 1900 <= int(value[3:7]) <= 2100


def _curp(value: str) -> bool:
    return digits.dated(value[4:10])


def _mixed(value: str) -> bool:
    return sum(map(str.isdigit, value)) >= 3 and not value.isdigit()


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
    alone: bool = False
    """Refused among other groups of four signs."""


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
    Identity("in_aadhaar", r"[2-9]\d{3} \d{4} \d{4}", _aadhaar, alone=True),
    Identity("in_aadhaar", r"[2-9]\d{11}", _aadhaar, Words(rb"aadha|uidai")),
    Identity("se_personnummer", r"(?:19|20)?\d{6}[-+]\d{4}", _personnummer),
    Identity("ca_sin", r"\d{3}[ -]?\d{3}[ -]?\d{3}", _luhn_text, Words(rb" sin|social insurance")),
    Identity("kr_rrn", r"\d{6}-[1-8]\d{6}", _dated),
    Identity("be_nn", r"\d\d\.\d\d\.\d\d-\d{3}[.-]\d\d", digits.belgian),
    Identity("be_nn", r"\d{11}", digits.belgian,
        Words(rb"rijksregister|registre national|nn:|\bnrn")),
    Identity("ch_ahv", r"\d{3}\.\d{4}\.\d{4}\.\d\d", digits.ahv),
    Identity("ch_ahv", r"\d{13}", digits.ahv, Words(rb"ahv|\bavs\b|social|versichert")),
    Identity("no_fnr", r"\d{6} \d{5}", digits.norwegian),
    Identity("no_fnr", r"\d{11}", digits.norwegian,
        Words(rb"f.dselsn|personn|\bfnr\b|national|id ")),
    Identity("dk_cpr", r"\d{6}-\d{4}", digits.day_first,
        Words(rb"\bcpr|personn|danish|national|\bid\b")),
    Identity("is_kennitala", r"\d{6}-\d{4}", digits.icelandic, Words(rb"kennitala|\bkt\b")),
    Identity("cz_rc", r"\d{6}/\d{3,4}", digits.birth_number),
    Identity("ro_cnp", r"[1-9]\d{12}", digits.romanian, Words(rb"\bcnp\b|personal|national")),
    Identity("za_id", r"\d{13}", digits.south_african,
        Words(rb"south afric|\bid\b|identity|\brsa\b")),
    Identity("th_id", r"\d-\d{4}-\d{5}-\d\d-\d", digits.thai),
    Identity("th_id", r"[1-9]\d{12}", digits.thai, Words(rb"thai|citizen|national")),
    Identity("tr_tckn", r"[1-9]\d{10}", digits.turkish, Words(rb"\btc|kimlik|turkish")),
    Identity("ee_lt_id", r"[1-9]\d{10}", digits.baltic,
        Words(rb"isikukood|asmens|personal|national|id ")),
    Identity("lv_pk", r"\d{6}-\d{5}", digits.latvian),
    Identity("hr_oib", r"\d{11}", digits.iso_11_10, Words(rb"\boib\b")),
    Identity("pt_nif", r"\d{9}|\d{3} \d{3} \d{3}", digits.portuguese,
        Words(rb"\bnif\b|contribuinte|fiscal")),
    Identity("bg_egn", r"\d{10}", digits.bulgarian, Words(rb"\begn\b|bulgarian")),
    Identity("gr_amka", r"\d{11}", _dated_luhn, Words(rb"\bamka\b")),
    Identity("at_svnr", r"\d{4} ?\d{6}", digits.austrian, Words(rb"svnr|sozialvers|\bsv-")),
    Identity("hu_taj", r"\d{3}[ -]?\d{3}[ -]?\d{3}", digits.hungarian, Words(rb"\btaj\b")),
    Identity("il_id", r"\d{9}", digits.israeli, Words(rb"teudat|israel|\bt\.?z\b")),
    Identity("jp_my_number", r"\d{4}[ -]?\d{4}[ -]?\d{4}", digits.japanese,
        Words(rb"my.?number|individual num")),
    Identity("my_nric", r"\d{6}-\d\d-\d{4}", digits.malaysian),
    Identity("id_nik", r"\d{16}", _always, Words(rb"\bnik\b|\bktp\b")),
    Identity("pk_cnic", r"\d{5}-\d{7}-\d", _always),
    Identity("ae_id", r"\d{3}-\d{4}-\d{7}-\d", _emirates),
    Identity("ru_snils", r"\d{3}-\d{3}-\d{3}[ -]\d\d", digits.snils),
    Identity("ru_inn", r"\d{12}", digits.inn, Words(rb"\binn\b")),
    Identity("kz_iin", r"\d{12}", _dated, Words(rb"\biin\b")),
    Identity("ar_cuit", r"\d\d-\d{8}-\d", digits.argentine),
    Identity("cl_rut", r"\d{1,2}\.\d{3}\.\d{3}-\d", digits.chilean),
    Identity("br_cnpj", r"\d\d\.\d{3}\.\d{3}/\d{4}-\d\d", digits.cnpj),
    Identity("uk_nhs", r"\d{3}[ -]?\d{3}[ -]?\d{4}", digits.nhs,
        Words(rb"\bnhs\b|national health")),
    Identity("uk_utr", r"\d{5} ?\d{5}", _always, Words(rb"\butr\b|taxpayer ref")),
    Identity("au_tfn", r"\d{3} ?\d{3} ?\d{3}", digits.tfn, Words(rb"\btfn\b|tax file")),
    Identity("au_medicare", r"\d{4}[ -]?\d{5}[ -]?\d", digits.medicare, Words(rb"medicare")),
    Identity("au_abn", r"\d\d ?\d{3} ?\d{3} ?\d{3}", digits.abn, Words(rb"\babn\b|business num")),
    Identity("au_acn", r"\d{3} ?\d{3} ?\d{3}", digits.acn, Words(rb"\bacn\b|company num")),
    Identity("nz_ird", r"\d{2,3}-\d{3}-\d{3}", _always, Words(rb"\bird\b")),
    Identity("kr_rrn", r"\d{13}", digits.korean, Words(rb"resident|\brrn\b|korea")),
    Identity("ng_nin", r"\d{11}", _always, Words(rb"\bnin\b|nigeria")),
    Identity("vn_cccd", r"\d{12}", _always, Words(rb"cccd|cmnd|vietnam")),
    Identity("eg_id", r"[1-9]\d{13}", _always, Words(rb"egypt|national")),
    Identity("ua_id", r"\d{10}", _always, Words(rb"rnokpp|\bipn\b|ukrain")),
    Identity("lu_id", r"\d{13}", _always, Words(rb"luxemb|matricule")),
    Identity("fr_cni", r"\d{12}", _always, Words(rb"carte d.identit|\bcni\b")),
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
    Identity("es_dni", r"(?:\d{8}|[XYZ]\d{7})[- ]?[A-Z]|\d{7}-[A-Z]", _dni),
    Identity("it_codice_fiscale", r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]", _codice_fiscale),
    Identity("fr_nir", r"[12] ?\d\d ?\d\d ?2[AB] ?\d{3} ?\d{3} ?\d\d", _nir),
    Identity("cn_resident", r"[1-9]\d{5}(?:19|20)\d{9}X", _resident),
    Identity("sg_nric", r"[STFGM]\d{7}[A-Z]", _nric),
    Identity("fi_hetu", r"\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]", digits.finnish),
    Identity("ie_pps", r"\d{7}[A-W][A-IW]?", digits.irish),
    Identity("tw_id", r"[A-Z][12]\d{8}", digits.taiwanese),
    Identity("hk_id", r"[A-Z]{1,2}\d{6}\([0-9A]\)", _always),
    Identity("mx_curp", r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d", _curp),
    Identity("de_pension", r"\d\d ?\d{6} ?[A-Z] ?\d{3}", digits.german_pension),
    Identity("cl_rut", r"\d{1,2}\.?\d{3}\.?\d{3}-K", digits.chilean),
    Identity("us_mbi", r"[1-9][A-Z][A-Z0-9]\d-?[A-Z][A-Z0-9]\d-?[A-Z]{2}\d\d", _always),
    Identity("in_voter", r"[A-Z]{3}\d{7}", _always, Words(rb"voter|\bepic\b|election")),
    Identity(
        "id_card",
        r"[A-Z0-9]{8,10}",
        _mixed,
        Words(rb"personalausweis|ausweisnummer|ausweis-nr|identity card|id card|carta d.identit"),
    ),
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
    return functools.partial(first, rows) if rows else None


def _lettered_identity(data: bytes, start: int, end: int) -> Finding | None:
    left, right = data[start - 1 : start] if start else b"", data[end : end + 1]
    if (left and left in b"._-/\\") or (right and right in b"_-/"):
        return None
    return first(_LETTERED_FORMS, data, start, end)


def _card_number(data: bytes, start: int, end: int) -> Finding | None:
    """A mixture of letters and digits behind the name of a card."""
    at = max(data.rfind(mark, start, end) for mark in (b" ", b":", b"#", b"\1", b"=", b"(")) + 1
    return first(_LETTERED_FORMS, data, at, end) if end - at >= 8 else None


_ANY_WORDS = Words(
    b"|".join(row.words.pattern for row in (*NUMERIC, *LETTERED) if row.words is not None)
)


def first(rows: _Rows, data: bytes, start: int, end: int) -> Finding | None:
    """The first row whose form, words and check agree."""
    text = plain = ""
    worded: bool | None = None
    for row, form in rows:
        if row.words is not None:
            if worded is None:
                worded = _ANY_WORDS.before(data, start)
            if not worded or not row.words.before(data, start):
                continue
        if not text:  # most rows stop at their words
            text = data[start:end].decode("ascii").upper()
            plain = "".join(filter(str.isalnum, text))
        if form.fullmatch(text) is None or not row.check(plain):
            continue
        if row.alone and in_column(data, start, end):
            continue
        return Finding(start, end, "national_id", row.subtype)
    return None


DETECTORS = (
    Detector(
        "lettered_identity", frozenset({"national_id"}),
        rb"\b(?:(?i:[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-D])"
        rb"|[12] ?\d\d ?\d\d ?2[ABab] ?\d{3} ?\d{3} ?\d\d|[1-9]\d{16}[Xx]"
        rb"|\d{8}[- ]?[A-Z]|\d{7}-[A-Z]|[XYZ]\d{7}[- ]?[A-Z]"
        rb"|(?i:[A-Z]{6}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z])"
        rb"|[STFGM]\d{7}[A-Z]|[A-Z]{5}\d{4}[A-Z]|\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]|\d{7}[A-W][A-IW]?"
        rb"|[A-Z][12]\d{8}|[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d|\d\d ?\d{6} ?[A-Z] ?\d{3}"
        rb"|\d{1,2}\.?\d{3}\.?\d{3}-[Kk]|[1-9][A-Z][A-Z0-9]\d-?[A-Z][A-Z0-9]\d-?[A-Z]{2}\d\d"
        rb"|[A-Z]{3}\d{7})\b|\b[A-Z]{1,2}\d{6}\([0-9A]\)",
        (rb"(?i)\b[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-D]\b", rb"\b\d{8}[- ]?[A-Z]\b",
        rb"\b\d{7}-[A-Z]\b",
        rb"\b[A-Z]\d{7}[- ]?[A-Z]\b", rb"\d{7}[Xx]\b",
         rb"\b[12] ?\d\d ?\d\d ?2[ABab]", rb"(?i)\b[A-Z]{6}\d\d[A-Z]\d\d",
         rb"\b[A-Z]{5}\d{4}[A-Z]\b", rb"\b\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]\b",
         rb"\d{4}[A-W][A-IW]?\b",
         rb"\b[A-Z][12]\d{4}", rb"\d\d[HMX][A-Z]{5}", rb"\d{4} ?[A-Z] ?\d{3}\b",
         rb"\d{3}\.?\d{3}-[Kk]\b", rb"\b[1-9][A-Z][A-Z0-9]\d-?[A-Z][A-Z0-9]\d-?[A-Z]{2}\d\d\b",
         rb"\b[A-Z]{3}\d{4}", rb"\d{4}\([0-9A]\)"),
        _lettered_identity,
        exact=True,
    ),
    Detector(
        "identity_card", frozenset({"national_id"}),
        rb"(?i:personalausweis|ausweisnummer|ausweis-nr|identity card|id card"
        rb"|carta d.identit)[^\n\"\x00]{0,24}?"
        rb"\b[A-Z0-9]{8,10}\b",
        (rb"(?i)personalausweis|ausweisnummer|ausweis-nr|identity card|id card|carta d.identit",),
        _card_number,
        lookback=True,
    ),
)  # fmt: skip
