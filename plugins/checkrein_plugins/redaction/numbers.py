"""The detector of numbers: cuts out runs of digits and hands each to the checks for its shape.

A shape is the run with every digit written as d: `ddd-dd-dddd`. One search finds all runs; what a
run may be follows from its shape alone, so that a text full of figures costs little.
"""

from __future__ import annotations

import re

from checkrein_plugins.redaction import identities, phones
from checkrein_plugins.redaction.detector import (
    Check,
    Detector,
    behind,
    digits_of,
    glued,
    in_column,
    quiet,
)
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import Words
from checkrein_plugins.redaction.validators import card_network, luhn, us_ssn

_CARD_WORDS = Words(
    rb"card|visa|master|amex|american express|credit|debit|\bcc\b|\bpan\b|kredit|carte|tarjeta"
)
_SSN_WORDS = Words(rb"ssn|social|itin|taxpayer|tax id")


def _card(data: bytes, start: int, end: int) -> Finding | None:
    """Accept by range, length and check digit; without the check digit only near card words."""
    digits = digits_of(data, start, end)
    size = len(digits)
    network = card_network(digits)
    if network and luhn(digits):
        sure = size == 16 or (size == 15 and network in ("amex", "jcb"))
        sure = sure or (size == 14 and network == "diners")
        sure = sure or (size == 19 and network in ("visa", "unionpay"))
        sure = sure and not in_column(data, start, end)
        if sure or _near_card(data, start):
            return Finding(start, end, "credit_card", network)
        return None
    if _near_card(data, start):
        return Finding(start, end, "credit_card", "unchecked")
    return None


def _near_card(data: bytes, start: int) -> bool:
    return _CARD_WORDS.before(data, start, 40)


def _ssn(data: bytes, start: int, end: int) -> Finding | None:
    """3-2-4: with dashes, or with other marks where it stands alone or beside its word."""
    kind = us_ssn(digits_of(data, start, end))
    if not kind:
        return None
    mark = data[start + 3]
    if data[end : end + 1] == b"-" and data[end + 1 : end + 2].isalnum():
        return None  # a longer number of some other kind
    if mark == 46 and kind == "ssn" and quiet(data, start, end):
        return Finding(start, end, "us_ssn", kind)
    if mark == 45 or _SSN_WORDS.before(data, start):
        return Finding(start, end, "us_ssn", kind)
    if mark == 32 and kind == "ssn":
        if (
            data[start - 2 : start].strip()[-1:].isdigit()
            or behind(data, end).strip()[:1].isdigit()
        ):
            return None  # one of a column of figures
        return Finding(start, end, "us_ssn", kind)
    return None


def _plain_ssn(data: bytes, start: int, end: int) -> Finding | None:
    """Nine digits in a row beside the word."""
    kind = us_ssn(data[start:end])
    if kind and _SSN_WORDS.before(data, start, 40):
        return Finding(start, end, "us_ssn", kind)
    return None


_SHAPES: tuple[tuple[str, tuple[Check, ...]], ...] = (
    (r"dddd([ .-])dddd\1dddd\1dddd(?:\1ddd)?", (_card,)),
    (r"dddd([ .-])dddddd\1ddddd?", (_card,)),
    (r"dddd([ -])dddd\1dddd\1d{1,4}", (_card,)),
    (r"d{12,19}", (_card,)),
    (r"ddd[ .-]dd[ .-]dddd", (_ssn,)),
    (r"d{9}", (_plain_ssn,)),
    (r"(?:(?:dd)?d[-. ]?)?(?:\(ddd\) ?|ddd[-/ ]{1,2})ddd[-. ]dddd", (phones.us_phone,)),
    (r"(?:\+?d[. ])?ddd\.ddd\.dddd|ddd\) ?ddd[- ]dddd", (phones.dotted_phone,)),
    (r"\+d(?:[ .()/-]{0,2}d){6,14}", (phones.plus_phone,)),
    (r"\(\+?d{1,3}\) ?d(?:[ .-]?d){6,11}", (phones.bracketed_phone,)),
    (r"dd(?:[ -]?d){9,13}", (phones.zeros_phone,)),
    (r"d[ -]?\(?ddd\)?[ -]ddd[ -]?dd[ -]?dd", (phones.russian_phone,)),
    (r"ddd ddd? ddd?(?: dd)?", (phones.grouped_nine,)),
)
"""Shape and the checks that may take it, in this order. Shapes of national numbers come in between,
those of phones with a leading zero first."""


_DIGITS = (("d", r"\\d"), ("N", "[1-9]"), ("Z", "0"), ("W", "1"), ("V", "[12]"))


def _form(form: str, *, shape: bool = False) -> re.Pattern[bytes]:
    """Compile a form whose digits are the letters of `_DIGITS`; all of them are d in a shape."""
    for letter, digits in _DIGITS:
        form = re.sub(rf"(?<!\\){letter}", "d" if shape else digits, form)
    return re.compile(form.encode("ascii"))


_ZERO_FORM = (
    r"\(?Z(?:N(?:[ .-]dd){4}"  # France
    r"|d-d{7}|d\)?d{8}|dddd?\.ddd\.ddd"  # Australia
    r"|d{2,4}\)?[ /]d{4,6}[ -]d{2,4}|d{1,3}-d{2,3} d{2,3}(?: dd)?"  # Austria, Sweden
    r"|d{2,4}\)?[ -]d{3}[ -]?d{3,4}"  # United Kingdom
    r"|d{2,4}\)?[ /-]d{4,8}"  # Germany, Austria, Italy
    r"|d{1,3}\)?[ /-]d{2,4}[ -]d{2}[ -]d{2}"  # Switzerland, Sweden, the Netherlands
    r"|d{1,2}\)?[ -]d{4}[ -]d{4})"
)
_ZERO = _form(_ZERO_FORM)
_ZERO_SHAPE = _form(_ZERO_FORM, shape=True)
_COMPILED = tuple((re.compile(shape), checks) for shape, checks in _SHAPES)
_ANY = re.compile("|".join([shape.replace("\\1", "[ .-]") for shape, _ in _SHAPES]))
_AS_SHAPE = bytes(100 if 48 <= byte <= 57 else byte for byte in range(256))
_REMEMBERED = 4096
"""Shapes whose checks are kept."""

_known: dict[bytes, tuple[Check | None, tuple[Check, ...], bool]] = {}
"""By shape: the check of identities, which comes first, the others, and whether a trigger is sure
to be in it."""
_FORMS = (
    rb"\d{4}[ .-]\d{4}[ .-]\d{4}",
    rb"\d\d\d[ .-]\d\d[ .-]\d\d\d\d",
    rb"\d\d\d\)?[-. /]{0,2}\d\d\d[-. ]\d\d\d\d",
)
"""Triggers that ask for no certain figure and look at nothing outside."""
_FORM_SHAPES = re.compile(b"|".join(_FORMS).replace(rb"\d", b"d"))
_DATES = (b"dddd-dd-dd", b"dddd-dd-dd dd")
_hopeless: set[bytes] = set()
"""Shapes of runs that are no number and in which none can hide."""


def _checks_for(shape: bytes) -> tuple[Check | None, tuple[Check, ...], bool]:
    """Which checks may take a run of this shape, as in `_known`."""
    text = shape.decode("ascii")
    found: list[Check] = []
    identity = identities.numeric_check(text)
    if _ANY.fullmatch(text):
        for form, checks in _COMPILED:
            if form.fullmatch(text):
                found.extend(checks)
    if 7 <= text.count("d") <= 13 and text.count(".") != 3:  # three dots: an IP address
        found.append(phones.worded_phone)
    result = (identity, tuple(found), _FORM_SHAPES.search(shape) is not None)
    if len(_known) < _REMEMBERED:
        _known[shape] = result
    return result


def _at(data: bytes, start: int, end: int, shape: bytes) -> Finding | None:
    """Try one stretch of some shape as one number."""
    identity, checks, _ = _known.get(shape) or _checks_for(shape)
    if not (checks or identity) or glued(data, start, end):
        return None
    if data[end : end + 1].isalnum() and not phones.EXTENSION.match(behind(data, end, 12)):
        return None
    if identity is not None:  # its words or digits say what it is
        found = identity(data, start, end)
        if found:
            return found
    if data[start] in b"0(" and _ZERO.fullmatch(data, start, end):
        size = len(digits_of(data, start, end))
        fits = 9 <= size <= 13 or (size == 8 and b"-" in shape)
        found = phones.national_phone(data, start, end) if fits else None
        if found:
            return found
    for check in checks:
        found = check(data, start, end)
        if found:
            return found
    return None


_LONGEST = 40
"""Characters of the longest shape (a French number with spaces has 21, a card 23)."""
_PARTS = re.compile(rb"[ /()+]")
_INNER_FORM = (
    r"(?<![d.\-])(?:d{4}([ .-])d{4}\1d{4}\1d{4}(?:\1d{3}(?!d))?|d{4}([ .-])d{6}\2d{4,5}"
    r"|[+]d(?:[ .()/-]{0,2}d){6,14}|(?:(?:ZZ)?W[-. ]?)?(?:\(d{3}\) ?|d{3}[-. ])d{3}[-. ]d{4}"
    r"|d{3}[ .-]d{2}[ .-]d{4}|\(?Zd{1,4}\)?(?:[ ./-]d{2,8}){1,4}|dd d{3} d{3} d{3}"
    r"|d{3}\.d{3}\.d{3}-dd|d{4} d{4} d{4}|V dd dd dd d{3} d{3} dd"
    r"|(?:dd)?d{6}[-+]d{4}|d{3} d{3} d{3}|d{3} dd dd dd|d{9,19})(?!d|[.-]d)"
)
_INNER = _form(_INNER_FORM)
"""The shapes as they are looked for among several numbers in one run."""
_INNER_SHAPE = _form(_INNER_FORM, shape=True)


def _is_hopeless(shape: bytes) -> bool:
    """Whether nothing of this shape is a number, or holds one."""
    if any(_checks_for(shape)[:2]):
        return False
    return not (_ZERO_SHAPE.fullmatch(shape) or _INNER_SHAPE.search(shape))


def _number(data: bytes, start: int, end: int) -> Finding | None:
    """The first number in a run of digits and marks: the whole run, or some groups of it."""
    inside = bool(start) and data[start - 1 : start].isalnum()
    if inside and not _PARTS.search(data, start, end):
        return None
    shape = data[start:end].translate(_AS_SHAPE)
    if shape in _hopeless or (shape in _DATES and data[start : start + 2] in (b"19", b"20")):
        return None
    # Short shapes come again and again; a text of random figures shall not be judged for nothing.
    if len(shape) <= 16 and len(_known) < _REMEMBERED and shape not in _known:
        if _is_hopeless(shape):
            _hopeless.add(shape)
            return None
    if not inside:
        if end - start <= _LONGEST:
            found = _at(data, start, end, shape)
            if found:
                return found
        if not _PARTS.search(data, start, end):
            return None
    at = start
    while (match := _INNER.search(data, at, end)) is not None:
        first, last = match.span()
        if first > start or not data[first - 1 : first].isalnum():
            found = _at(data, first, last, data[first:last].translate(_AS_SHAPE))
            if found:
                return found
        at = first + 1
    return None


def _sure(data: bytes, start: int, end: int) -> bool:
    known = _known.get(data[start:end].translate(_AS_SHAPE))
    return known is not None and known[2]


def _plain(data: bytes, start: int, end: int) -> Finding | None:
    """Eleven digits or more in a row: what needs no word beside it."""
    if glued(data, start, end):
        return None
    shape = data[start:end].translate(_AS_SHAPE)
    identity, checks, _ = _known.get(shape) or _checks_for(shape)
    for check in (identity, *checks):
        if check is not None and check is not phones.worded_phone:
            found = check(data, start, end)
            if found:
                return found
    return None


DETECTORS = (
    Detector(
        "plain_number", frozenset({"credit_card", "national_id"}),
        rb"\b\d{11,19}\b",
        (
            rb"\b(?:[2-689]|1800|2131)\d{11}", rb"\b[1-9]\d{10}\b", rb"\b[12]\d{14}\b",
            rb"\b\d{18}\b",
        ),
        _plain,
        retry=False,
    ),
    Detector(
        "number", frozenset({"credit_card", "us_ssn", "phone", "national_id"}),
        rb"[+(]{0,2}\d(?:[ .()/+-]{0,2}\d){6,}",
        (
            *_FORMS, rb"\b\d{4}[ .-]\d{6}[ .-]\d{4}",
            rb"\+\d[\d .()/-]{4}",
            rb"(?:^|[^0-9A-Za-z.-])0\d{1,4}\)?[ ./-](?:\d\d\d\d|\d{2,3}[ ./-]\d\d)",
            rb"\b[2-9]\d\d \d\d\d? \d\d",
            rb"(?i)(?:" + phones.WORDS + rb")[^0-9+(\x00]{0,24}[+(]{0,2}\d[\d .()/-]{5}",
            rb"\b00[1-9]\d{0,2}[ -]\d", rb"\b8[ -]?\(?\d{3}\)?[ -]\d{3}[ -]?\d\d",
            rb"\(\+?\d{1,3}\) ?\d",
            rb"(?i)\d[ \t]{0,2}-?(?:office|fax|mobile|home|work)\b",
            rb"(?i)(?:\bssn|social|\bitin\b|taxpayer|card|visa|\bcc\b)[^0-9\x00]{1,24}\d",
            rb"\.\d\d-\d{3}[.-]\d\d\b", rb"\b756\.\d",
            rb"\d{4}/\d{3,4}\b",
            rb"\b\d-\d{4}-\d", rb"\d{4}-\d\d-\d{4}\b", rb"-\d{7}-\d\b",
            rb"\b784-\d",
            rb"-\d{3}-\d{3}[ -]\d\d\b", rb"-\d{8}-\d\b",
            rb"\.\d{3}\.\d{3}[-/]\d",
            rb"\b\d\d \d{3} \d{3} \d{3}\b", rb"\.\d{3}-\d\d\b",
            rb"\b(?:\d\d)?\d{6}[-+]\d{4}", rb"\b[12] \d\d \d\d ",

            (rb"(?i)(?:\bbsn\b|burgerservice|\bsofi|steuer|national.?id|identity.?num"
            rb"|\bid.?number|\bsin\b|social ins|\bcpf\b|tax.?num|tax.?id|insurance.?num|adha"
            rb"|pesel|personal.?id|\bahv|\bavs\b|dselsn|personn|\bfnr\b|\bcpr|kennitala"
            rb"|\bcnp\b|\btc|kimlik"
            rb"|isikukood|asmens|\boib\b|\bnif\b|contribuinte|\begn\b|\bamka\b|svnr|sozialvers"
            rb"|\btaj\b|teudat|israel"
            rb"|my.?number|\bnik\b|\bktp\b|\binn\b|\biin\b|\bnhs\b|\butr\b|\btfn\b|tax file"
            rb"|medicare|\babn\b"
            rb"|\bacn\b|\bird\b|\brrn\b|\bnin\b|cccd|cmnd|rnokpp|\bipn\b|matricule|\bcni\b"
            rb"|registre nat|rijksreg|\brsa id)[^0-9\x00]{1,20}\d"),
        ),
        _number,
        retry=False,
        sure=_sure,
    ),
)  # fmt: skip
