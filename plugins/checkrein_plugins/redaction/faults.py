"""Errors of redaction. None of them holds a value or a part of one."""

from __future__ import annotations

from checkrein.errors import CheckreinError


class RedactionError(CheckreinError):
    """Redaction cannot answer for a value: it must not be passed on."""


class DetectorFailed(RedactionError):
    """A detector failed. What it would have found is not known."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} failed: the text was not checked and must not be passed on")


class Unredactable(RedactionError, TypeError):
    """A value cannot be looked through, or not be rebuilt with its findings replaced."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path or 'value'}: {why}")
