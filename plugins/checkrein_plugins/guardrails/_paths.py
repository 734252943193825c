"""File paths as a rule compares them: resolved, and in every way a tool might read them.

`/data/../etc/passwd`, `//etc/passwd`, `~/x`, `file:///etc/passwd`, ` /etc/passwd` and a link
that leads out of `/data` are different strings for one place. `readings` gives all the
absolute paths that a value may stand for; a rule must hold for each of them.

Two things no check of a path can see: a hard link, and a link that is changed between the
check and the call.
"""

from __future__ import annotations

import os
import unicodedata
from urllib.parse import unquote, urlsplit

from checkrein.errors import ConfigError
from checkrein_plugins._patterns import is_glob


class Unreadable(ValueError):
    """The value cannot be understood as what the rule needs. The text says why."""


def readings(value: str, root: str | None) -> list[str]:
    """Absolute paths that `value` may mean: as written and with links followed.

    A relative path is read against `root`. Raises `Unreadable` where it cannot be resolved.
    """
    if not value or "\0" in value:
        raise Unreadable("is not a path")
    forms = [value]
    if value[0] in "~ \t\r\nfF" or value[-1].isspace() or not value.isascii():
        forms += _other_forms(value)
    found: list[str] = []
    for form in forms:
        if form.startswith("/"):
            whole = form
        elif root is not None:
            whole = f"{root}/{form}"
        elif form.startswith("~"):
            continue
        else:
            raise Unreadable("is a relative path and the rule states no root")
        for path in (normal(whole), os.path.realpath(whole)):
            if path not in found:
                found.append(path)
    if not found:
        raise Unreadable("names a home directory that is not known here")
    return found


def expand(path: str) -> str:
    """`~` and `~user` at the beginning replaced; unchanged where the user is not known."""
    return os.path.expanduser(path)  # noqa: PTH111  # a Path would normalise the rest as well


def normal(path: str) -> str:
    """An absolute path without `.`, `..`, double and trailing slashes."""
    return os.path.normpath("/" + path.lstrip("/"))


def _other_forms(value: str) -> list[str]:
    forms: list[str] = []
    for form in (value, value.strip(), unicodedata.normalize("NFKC", value).strip()):
        if form.startswith("~"):
            home = expand(form)
            if home != form:
                forms.append(home)
        elif form[:5].lower() == "file:":
            forms.append(unquote(urlsplit(form).path))
        if form and form != value:
            forms.append(form)
    return [form for form in dict.fromkeys(forms) if form]


def absolute_root(root: str, where: str) -> str:
    """The root that relative paths are read against. Raises `ConfigError` if relative."""
    expanded = expand(root)
    if not expanded.startswith("/"):
        raise ConfigError(f"{where}: root must be an absolute path or begin with ~/")
    return normal(expanded)


def patterns(globs: list[str], root: str | None, where: str, *, block: bool) -> list[str]:
    """Path globs with their fixed directories normalised, and also with links followed.

    A blocked path covers all that lies under it, and `DIR/*` covers `DIR` as well.
    Raises `ConfigError` for a relative pattern without a root.
    """
    found: list[str] = []
    for index, glob in enumerate(globs):
        pattern = expand(glob)
        if not pattern.startswith(("/", "*")):
            if root is None:
                raise ConfigError(f"{where}[{index}]: a relative path needs a root")
            pattern = f"{root}/{pattern}"
        if pattern.startswith("*"):
            found.append(pattern)
            continue
        if block and pattern.endswith("/*"):
            pattern = pattern[:-2] or "/"
        head, tail = _fixed(pattern)
        for place in dict.fromkeys((normal(head), os.path.realpath(head))):
            whole = f"{place.rstrip('/')}/{tail}" if tail else place
            found.append(whole)
            if block:
                found.append(f"{whole.rstrip('/')}/*")
    return found


def _fixed(pattern: str) -> tuple[str, str]:
    """Split before the first path segment that has a wildcard."""
    if not is_glob(pattern):
        return pattern, ""
    segments = pattern.split("/")
    first = next(i for i, segment in enumerate(segments) if is_glob(segment))
    return "/".join(segments[:first]) or "/", "/".join(segments[first:])
