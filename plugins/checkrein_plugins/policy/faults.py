"""What is wrong with a policy: each fault with its file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from checkrein._config_file import Document, Key, dotted
from checkrein.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong (`error`) or looks wrong (`warning`)."""

    level: Literal["error", "warning"]
    file: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"

    def tree(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "level": self.level, "file": self.file, "line": self.line, "key": self.key,
            "text": self.text,
        }  # fmt: skip


def fault(
    document: Document, key: Key, text: str, level: Literal["error", "warning"] = "error"
) -> Fault:
    """A fault at `key` of a document."""
    return Fault(level, document.name, document.line(key), dotted(key), text)


def refuse(faults: Iterable[Fault]) -> None:
    """Raise `ConfigError` if there are errors: the first in full, the others counted."""
    errors = [f for f in faults if f.level == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: checkrein policy check)" if errors[1:] else ""
        raise ConfigError(f"{errors[0]}{more}")


def from_error(document: Document, error: ConfigError) -> Fault:
    """A fault of reading a file, whose message begins with its place."""
    text = str(error)
    line: int | None = None
    head = f"{document.name}:"
    if text.startswith(head):
        text = text.removeprefix(head)
        number, colon, rest = text.partition(":")
        if colon and number.isdigit():
            line, text = int(number), rest
    return Fault("error", document.name, line, "", text.strip())


def ordered(faults: Sequence[Fault]) -> list[Fault]:
    """By file and line, each only once."""
    return sorted(dict.fromkeys(faults), key=lambda f: (f.file, f.line or 0, f.key))
