"""Check digits and dates of national numbers. Each check gets digits and capitals, no marks.

Sources: the rules that the issuing offices publish; for each the name of the number says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from checkrein_plugins.redaction.validators import luhn

Check: TypeAlias = Callable[[str], bool]


def weighted(value: str, weights: Sequence[int]) -> int:
    """Sum of digits times weights."""
    return sum(int(digit) * weight for digit, weight in zip(value, weights, strict=False))


def luhn_text(value: str) -> bool:
    """Luhn over a text of digits."""
    return luhn(value.encode("ascii"))


def dated(value: str) -> bool:
    """YYMMDD in the first six digits."""
    return 1 <= int(value[2:4]) <= 12 and 1 <= int(value[4:6]) <= 31


def day_first(value: str) -> bool:
    """DDMMYY in the first six digits; some offices add 40 to the day, or 80 to the month."""
    return 1 <= int(value[:2]) % 40 <= 31 and 1 <= int(value[2:4]) % 80 <= 12


def _modulo(weights: Sequence[int], modulus: int, *, minus: bool = True) -> Check:
    """The last digit is the weighted sum of those in front of it modulo `modulus`."""

    def check(value: str) -> bool:
        rest = weighted(value[: len(weights)], weights) % modulus
        rest = (modulus - rest) % modulus if minus else rest
        return rest % 10 == int(value[len(weights)]) and rest <= 10

    return check


def belgian(value: str) -> bool:
    """Belgium: date, and 97 minus the number modulo 97 (with a 2 in front since 2000)."""
    body, key = value[:9], int(value[9:])
    return dated(value) and key in (97 - int(body) % 97, 97 - int(f"2{body}") % 97)


def ahv(value: str) -> bool:
    """Switzerland: 756 and the check digit of EAN-13."""
    total = weighted(value[:12], (1, 3) * 6)
    return value.startswith("756") and (10 - total % 10) % 10 == int(value[12])


def norwegian(value: str) -> bool:
    """Norway: date and two check digits."""
    first = (11 - weighted(value, (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11) % 11
    second = (11 - weighted(value, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11) % 11
    return day_first(value) and value[9:] == f"{first}{second}"


def finnish(value: str) -> bool:
    """Finland: date, and the number modulo 31 as a sign."""
    number = int(value[:6] + value[-4:-1])
    return day_first(value) and "0123456789ABCDEFHJKLMNPRSTUVWXY"[number % 31] == value[-1]


def icelandic(value: str) -> bool:
    """Iceland: date and check digit."""
    total = weighted(value, (3, 2, 7, 6, 5, 4, 3, 2))
    century = value[9] in "089"
    return century and day_first(value) and (11 - total % 11) % 11 == int(value[8])


def birth_number(value: str) -> bool:
    """Czechia and Slovakia: date (women: month + 50), divisible by 11."""
    month = int(value[2:4]) % 50 % 20
    if not (1 <= month <= 12 and 1 <= int(value[4:6]) <= 31):
        return False
    return len(value) == 9 or int(value) % 11 == 0 or int(value[:9]) % 11 == 10


def romanian(value: str) -> bool:
    """Romania: date behind the first digit, check digit modulo 11."""
    rest = weighted(value, (2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9)) % 11
    return dated(value[1:]) and (1 if rest == 10 else rest) == int(value[12])


def south_african(value: str) -> bool:
    """South Africa: date and Luhn."""
    return dated(value) and value[10] in "012" and luhn_text(value)


def thai(value: str) -> bool:
    """Thailand: check digit modulo 11."""
    return (11 - weighted(value, range(13, 1, -1)) % 11) % 10 == int(value[12])


def turkish(value: str) -> bool:
    """Turkey: two check digits modulo 10."""
    digits = [int(char) for char in value]
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return digits[9] == tenth and sum(digits[:10]) % 10 == digits[10]


def baltic(value: str) -> bool:
    """Estonia and Lithuania: date behind the first digit, check digit modulo 11 in two steps."""
    rest = weighted(value, (1, 2, 3, 4, 5, 6, 7, 8, 9, 1)) % 11
    if rest == 10:
        rest = weighted(value, (3, 4, 5, 6, 7, 8, 9, 1, 2, 3)) % 11 % 10
    return dated(value[1:]) and rest == int(value[10])


def iso_11_10(value: str) -> bool:
    """ISO 7064 mod 11,10: Croatia's OIB, Germany's tax numbers."""
    rest = 10
    for digit in value[:-1]:
        step = (int(digit) + rest) % 10 or 10
        rest = step * 2 % 11
    return (11 - rest) % 10 == int(value[-1])


portuguese = _modulo((9, 8, 7, 6, 5, 4, 3, 2), 11)
"""Portugal's NIF."""
bulgarian = _modulo((2, 4, 8, 5, 10, 9, 7, 3, 6), 11, minus=False)
"""Bulgaria's EGN."""
japanese = _modulo((6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2), 11)
"""Japan's My Number."""
medicare = _modulo((1, 3, 7, 9, 1, 3, 7, 9), 10, minus=False)
"""Australia's Medicare number, its eighth digit."""


def argentine(value: str) -> bool:
    """Argentina's CUIT: modulo 11, 9 for ten."""
    rest = (11 - weighted(value, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11) % 11
    return (9 if rest == 10 else rest) == int(value[10])


def nhs(value: str) -> bool:
    """The NHS number of England: modulo 11."""
    return (11 - weighted(value, (10, 9, 8, 7, 6, 5, 4, 3, 2)) % 11) % 11 == int(value[9])


def korean(value: str) -> bool:
    """Korea's resident number, as it was given out until 2020: date and modulo 11."""
    total = weighted(value, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5))
    return dated(value) and (11 - total % 11) % 10 == int(value[12])


_AUSTRIAN = (3, 7, 9, 5, 8, 4, 2, 1, 6)


def austrian(value: str) -> bool:
    """Austria: the fourth digit checks the others; a date behind it."""
    rest = weighted(value[:3] + value[4:], _AUSTRIAN) % 11
    return rest == int(value[3]) and day_first(value[4:])


def israeli(value: str) -> bool:
    """Israel: Luhn over nine digits."""
    return luhn_text(value.zfill(9))


def malaysian(value: str) -> bool:
    """Malaysia: date and a code of the place of birth."""
    return dated(value) and value[6:8] not in ("00", "17", "18", "19", "20", "69", "70", "73", "80")


def snils(value: str) -> bool:
    """Russia's SNILS: weighted sum modulo 101."""
    return weighted(value, range(9, 0, -1)) % 101 % 100 == int(value[9:])


def inn(value: str) -> bool:
    """Russia's INN of a person: two check digits."""
    first = weighted(value, (7, 2, 4, 10, 3, 5, 9, 4, 6, 8)) % 11 % 10
    second = weighted(value, (3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)) % 11 % 10
    return value[10:] == f"{first}{second}"


def chilean(value: str) -> bool:
    """Chile's RUT: modulo 11, K for ten."""
    total = weighted(value[-2::-1], (2, 3, 4, 5, 6, 7, 2, 3))
    return "0123456789K0"[(11 - total % 11) % 12] == value[-1]


def cnpj(value: str) -> bool:
    """Brazil's number of a company."""
    first = weighted(value, (5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) % 11
    second = weighted(value, (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) % 11
    made = "".join(str(0 if rest < 2 else 11 - rest) for rest in (first, second))
    return value[12:] == made


def tfn(value: str) -> bool:
    """Australia's tax file number."""
    return weighted(value, (1, 4, 3, 7, 5, 8, 6, 9, 10)) % 11 == 0


def abn(value: str) -> bool:
    """Australia's business number: modulo 89."""
    total = weighted(value, (10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19)) - 10
    return total % 89 == 0


def acn(value: str) -> bool:
    """Australia's company number."""
    return (10 - weighted(value, (8, 7, 6, 5, 4, 3, 2, 1)) % 10) % 10 == int(value[8])


def irish(value: str) -> bool:
    """Ireland's PPS number: modulo 23, a second letter counts nine times its place."""
    total = weighted(value, (8, 7, 6, 5, 4, 3, 2))
    if len(value) > 8 and value[8] != "W":
        total += 9 * (ord(value[8]) - 64)
    return "WABCDEFGHIJKLMNOPQRSTUV"[total % 23] == value[7]


def taiwanese(value: str) -> bool:
    """Taiwan: the letter is a number, weighted sum modulo 10."""
    number = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(value[0]) + 10
    total = number // 10 + number % 10 * 9 + weighted(value[1:], (8, 7, 6, 5, 4, 3, 2, 1, 1))
    return total % 10 == 0


def german_pension(value: str) -> bool:
    """Germany's pension insurance number: the letter counts as its place, digits summed."""
    digits = value[:8] + f"{ord(value[8]) - 64:02d}" + value[9:11]
    total = 0
    for digit, weight in zip(digits, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), strict=False):
        product = int(digit) * weight
        total += product // 10 + product % 10
    return total % 10 == int(value[11]) and 1 <= int(value[4:6]) <= 12


def latvian(value: str) -> bool:
    """Latvia: date and check digit; numbers that begin with 32 have neither."""
    if value.startswith("32"):
        return True
    total = weighted(value, (1, 6, 3, 7, 9, 10, 5, 8, 4, 2))
    return day_first(value) and (1101 - total) % 11 % 10 == int(value[10])


def hungarian(value: str) -> bool:
    """Hungary's TAJ number."""
    return weighted(value, (3, 7) * 4) % 10 == int(value[8])
