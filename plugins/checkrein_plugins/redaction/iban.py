"""The detector of IBANs, and the forms of all countries that have one."""

from __future__ import annotations

from checkrein_plugins.redaction.detector import Detector
from checkrein_plugins.redaction.findings import Finding

IBAN_FORMS = {
    "AD": "8n12c", "AE": "19n", "AL": "8n16c", "AT": "16n", "AZ": "4a20c", "BA": "16n",
    "BE": "12n", "BG": "4a6n8c", "BH": "4a14c", "BI": "23n", "BR": "23n1a1c", "BY": "4c4n16c",
    "CH": "5n12c", "CR": "18n", "CY": "8n16c", "CZ": "20n", "DE": "18n", "DJ": "23n",
    "DK": "14n", "DO": "4c20n", "EE": "16n", "EG": "25n", "ES": "20n", "FI": "14n",
    "FK": "2a12n", "FO": "14n", "FR": "10n11c2n", "GB": "4a14n", "GE": "2a16n", "GI": "4a15c",
    "GL": "14n", "GR": "7n16c", "GT": "4c20c", "HN": "4a20n", "HR": "17n", "HU": "24n",
    "IE": "4a14n", "IL": "19n", "IQ": "4a15n", "IS": "22n", "IT": "1a10n12c", "JO": "4a4n18c",
    "KW": "4a22c", "KZ": "3n13c", "LB": "4n20c", "LC": "4a24c", "LI": "5n12c", "LT": "16n",
    "LU": "3n13c", "LV": "4a13c", "LY": "21n", "MC": "10n11c2n", "MD": "2c18c", "ME": "18n",
    "MK": "3n10c2n", "MN": "16n", "MR": "23n", "MT": "4a5n18c", "MU": "4a19n3a", "NI": "4a20n",
    "NL": "4a10n", "NO": "11n", "OM": "3n16c", "PK": "4a16c", "PL": "24n", "PS": "4a21c",
    "PT": "21n", "QA": "4a21c", "RO": "4a16c", "RS": "18n", "RU": "14n15c", "SA": "2n18c",
    "SC": "4a20n3a", "SD": "14n", "SE": "20n", "SI": "15n", "SK": "20n", "SM": "1a10n12c",
    "SO": "19n", "ST": "21n", "SV": "4a20n", "TL": "19n", "TN": "20n", "TR": "6n16c",
    "UA": "6n19c", "VA": "18n", "VG": "4a16n", "XK": "16n", "YE": "4a4n18c",
}  # fmt: skip
"""Account part by country: counts of digits (n), letters (a), either (c). Source: the SWIFT IBAN
registry."""


def _iban_classes(form: str) -> str:
    """`4a2n` becomes `aaaann`."""
    classes, count = "", ""
    for char in form:
        if char.isdigit():
            count += char
        else:
            classes += char * int(count)
            count = ""
    return classes


IBAN_CLASSES = {country: _iban_classes(form) for country, form in IBAN_FORMS.items()}


_AS_NUMBER = {65 + index: str(10 + index) for index in range(26)}


def valid(text: str) -> bool:
    """Check an IBAN in capitals and without spaces: country form and ISO 7064 mod 97-10."""
    classes = IBAN_CLASSES.get(text[:2])
    if classes is None or len(text) != len(classes) + 4:
        return False
    for char, kind in zip(text[4:], classes, strict=True):
        if (kind == "n" and not char.isdigit()) or (kind == "a" and not char.isalpha()):
            return False
    return int((text[4:] + text[:4]).translate(_AS_NUMBER)) % 97 == 1


def _iban(data: bytes, start: int, _end: int) -> Finding | None:  # a Check
    """Collect as many characters as the country's form has, over single spaces, and check them."""
    country = data[start : start + 2].decode("ascii").upper()
    need = len(IBAN_CLASSES[country]) + 4
    chars = bytearray()
    at, stop = start, min(len(data), start + need * 2)
    spaced = False
    while at < stop and len(chars) < need:
        char = data[at]
        if 48 <= char <= 57 or 65 <= char <= 90 or 97 <= char <= 122:
            chars.append(char)
        elif char in b" -" and data[at - 1] not in b" -":
            spaced = True
        else:
            return None
        at += 1
    follow = data[at : at + 1]
    if len(chars) < need or (follow.isalnum() and follow < b"\x80"):
        return None
    text = chars.decode("ascii")
    if not text.isupper() and (spaced or not text.islower()):
        return None
    return Finding(start, at, "iban", country) if valid(text.upper()) else None


_HEADS = "|".join(IBAN_CLASSES).encode("ascii")

DETECTORS = (
    Detector(
        "iban", frozenset({"iban"}),
        rb"(?i)\b(?:" + _HEADS + rb")\d\d[ -]?[A-Z0-9]{4}[ -]?[A-Z0-9]{3}",
        (
            rb"\b[A-Z][A-Z]\d\d[ -]?[A-Z0-9]{4}[ -]?[A-Z0-9]{3}",
            rb"\b(?:" + _HEADS.lower() + rb")\d\d[a-z0-9]{11}",
        ),
        _iban,
        exact=True,
    ),
)  # fmt: skip
