"""Names and patterns, compared so that a look-alike does not slip through.

What restricts is compared folded, what permits is compared exactly: `DELETE_FILE`,
`delete-file `, full-width or Cyrillic letters all meet a rule for `delete_file`, and none of
them is let in by a list that allows `delete_file`.

Patterns are globs over the whole string: `*` is any run of characters (also none), `?` is one
character, everything else stands for itself. They and regular expressions run on RE2: linear
time, whatever the pattern.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import re2  # type: ignore[import-untyped]  # the package ships no type information

from checkrein.errors import ConfigError

Matcher = Callable[[str], bool]

LOOKALIKES = str.maketrans(
    # Cyrillic, then Greek, then Latin letters that print like an ASCII letter (after case
    # folding, so small forms of capitals that look alike are here too: В -> в -> b).
    "авекмнорстухіјѕһԁԛԝѵгԍьӏαβεηικνορτυχγϲıɑɡɩʋɴʀʟ",
    "abekmhopctyxijshdqwvrgblabenikvoptuxyciagivnrl",
)
_INVISIBLE = frozenset({"Mn", "Me", "Cf"})
"""Combining marks and format characters (zero-width, direction)."""
_SEPARATORS = frozenset("-_‐‑‒–—―−")


def fold(name: str) -> str:
    """`name` without what can be changed while it still reads the same.

    Width and compatibility forms (NFKC), case, accents, look-alike letters of other scripts,
    invisible characters; runs of spaces, `-` and `_` become one `_`, none at the ends.
    ASCII look-alikes (`0` and `o`, `1` and `l`) stay different.
    """
    return _unify(name).strip("_")


def _unify(name: str) -> str:
    if name.isascii():
        name = name.lower()
    else:
        name = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
        name = "".join(c for c in name if unicodedata.category(c) not in _INVISIBLE)
        name = name.casefold().translate(LOOKALIKES)
    unified: list[str] = []
    for char in name:
        if char in _SEPARATORS or char.isspace() or not char.isprintable():
            if not unified or unified[-1] != "_":
                unified.append("_")
        else:
            unified.append(char)
    return "".join(unified)


def fold_text(text: str) -> str:
    """`text` for comparing with what is blocked: width, case and invisible characters."""
    if text.isascii():
        return text.lower().strip()
    text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in text if unicodedata.category(c) != "Cf").strip()


def is_glob(pattern: str) -> bool:
    """Whether `pattern` has a wildcard."""
    return "*" in pattern or "?" in pattern


def globs(patterns: Iterable[str]) -> Matcher:
    """One matcher for all of `patterns`: true if any matches the whole string."""
    wanted = set(patterns)
    if "*" in wanted:
        return everything
    exact = frozenset(p for p in wanted if not is_glob(p))
    # Most globs have one `*` at an end; for those no expression is needed.
    begin = {p for p in wanted if p.endswith("*") and not is_glob(p[:-1])}
    end = {p for p in wanted if p.startswith("*") and not is_glob(p[1:])}
    rest = sorted(wanted - exact - begin - end)
    heads, tails = tuple(p[:-1] for p in begin), tuple(p[1:] for p in end)
    parts: list[Matcher] = [exact.__contains__] if exact else []
    if heads:
        parts.append(lambda text: text.startswith(heads))
    if tails:
        parts.append(lambda text: text.endswith(tails))
    if rest:
        parts.append(regex("|".join(f"(?:{_translate(p)})" for p in rest), "pattern"))
    if len(parts) < 2:
        return parts[0] if parts else nothing
    return lambda text: any(part(text) for part in parts)


def regex(pattern: str, where: str) -> Matcher:
    """A matcher for a regular expression over the whole string; `.` also takes a newline.

    Raises `ConfigError` where RE2 refuses it (look-around and back-references, for example).
    """
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        fullmatch = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ConfigError(f"{where}: not a pattern that RE2 can run: {text}") from None
    return lambda text: fullmatch(text) is not None


def names(patterns: Iterable[str]) -> Matcher:
    """A matcher for what restricts: `patterns` against a name, both folded.

    A pattern without a wildcard also meets the name written with other or no separators
    (`DeleteFile` and `deletefile` for `delete_file`).
    """
    folded = [fold_pattern(p) for p in patterns]
    match = globs(folded)
    squeezed = frozenset(p.replace("_", "") for p in folded if not is_glob(p))

    def matches(name: str) -> bool:
        name = fold(name)
        return match(name) or name.replace("_", "") in squeezed

    return matches


def fold_pattern(pattern: str) -> str:
    """`pattern` folded between its wildcards; `shell_*` keeps its separator."""
    folded: list[str] = []
    start = 0
    for index, char in enumerate(pattern):
        if char in "*?":
            folded += (_unify(pattern[start:index]), char)
            start = index + 1
    folded.append(_unify(pattern[start:]))
    return "".join(folded).strip("_")


def everything(_text: str) -> bool:
    """Matches any string."""
    return True


def nothing(_text: object) -> bool:
    """Matches no string."""
    return False


def _translate(pattern: str) -> str:
    return "".join(".*" if c == "*" else "." if c == "?" else str(re2.escape(c)) for c in pattern)


def readable(value: Any) -> bool:
    """Whether `value` is a string that patterns can read (no lone surrogates)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
