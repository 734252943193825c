"""Errors of redaction. None of them holds a value or a part of one."""

from __future__ import annotations

from checkrein.errors import CheckreinError


class RedactionError(CheckreinError):
    """Redaction cannot answer for a value: it must not be passed on."""


class Redacted(RuntimeError):
    """Stands for an error whose class has no other way to say its text: it names the class."""


class DetectorFailed(RedactionError):
    """A detector failed. What it would have found is not known."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} failed: the text was not checked and must not be passed on")


class NotText(RedactionError, ValueError):
    """Bytes that are not UTF-8: they cannot be checked."""

    def __init__(self, name: str, offset: int) -> None:
        self.name = name
        self.offset = offset
        super().__init__(
            f"{name}: byte {offset} is not UTF-8; nothing from there on was checked or written. "
            "Convert it to UTF-8 first (as with iconv)"
        )


class Unredactable(RedactionError, TypeError):
    """A value cannot be looked through, or not be rebuilt with its findings replaced."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path or 'value'}: {why}")
