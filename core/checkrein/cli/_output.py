"""What a command prints: tables on a terminal, plain text on a pipe, or one JSON document."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import Any, TextIO

NARROW = 14
"""Characters that a column of long texts has on a terminal, at least."""

WIDE = 120
"""Characters of a line from which on a terminal is given everything side by side."""


def say(text: str, stream: TextIO | None = None) -> None:
    """One line on standard output, or on `stream`."""
    (stream or sys.stdout).write(text + "\n")


def fail(text: str, code: int) -> int:
    """One clear line on standard error; returns `code`."""
    say(f"checkrein: {clean(text)}", sys.stderr)
    return code


def clean(text: object) -> str:
    """Text without control characters: what an agent wrote must not steer a terminal."""
    return "".join(
        c if c.isprintable() else " " if c in "\n\r\t" else f"\\x{ord(c):02x}" for c in str(text)
    )


def is_rich(stream: TextIO) -> bool:
    """Whether colours and boxes may be used."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def when(micros: int) -> str:
    """Local date and time to the second, with offset."""
    return datetime.fromtimestamp(micros / 1e6, UTC).astimezone().isoformat(" ", "seconds")


def since(micros: int, now: int) -> str:
    """How long ago, in words: `3m`, `2h`, `5d`."""
    seconds = max(0, (now - micros) // 1_000_000)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds(span: str, option: str) -> float:
    """`90s`, `30m`, `2h` or `7d`. Raises `ConfigError`, naming the option."""
    from checkrein.errors import ConfigError

    number, unit = span[:-1], span[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdecimal()) or not int(number):
        raise ConfigError(f"{option} {span}: write a number and s, m, h or d, for example 2h")
    return float(int(number) * _UNITS[unit])


def usd(nano: int | None) -> str:
    """Dollars for people."""
    if nano is None:
        return ""
    return f"${nano / 1e9:.6f}".rstrip("0").rstrip(".") if nano else "$0"


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def compact(value: Any, limit: int = 0) -> str:
    """A view as one line of JSON, cut at `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = clean(text)
    return text if not limit or len(text) <= limit else text[: limit - 1] + "…"


class Out:
    """Where a command's result goes."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.rich = not as_json and is_rich(sys.stdout)
        self.narrow = self.rich and shutil.get_terminal_size().columns < WIDE

    def document(self, value: Any) -> None:
        """The one JSON document, if asked for."""
        if self.as_json:
            say(json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def id(self, id: str) -> str:
        """An id for a table: on a narrow terminal as much of it as names one thing."""
        head, dash, tail = id.rpartition("-")
        return f"{head}{dash}{tail[:12]}" if self.narrow else id

    def line(self, text: str = "") -> None:
        """A line for people."""
        if not self.as_json:
            say(clean(text))

    def note(self, text: str) -> None:
        """A hint beside the result, on standard error."""
        if not self.as_json:
            say(clean(text), sys.stderr)

    def fields(self, pairs: Mapping[str, object]) -> None:
        """Names and values, one a line; empty ones left out."""
        shown = {k: v for k, v in pairs.items() if v not in ("", None)}
        width = max(map(len, shown), default=0)
        for key, value in shown.items():
            self.line(f"{key:<{width}}  {clean(value)}")

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = ""
    ) -> None:
        """Rows under headings: whole values on a pipe, wrapped ones on a terminal."""
        if self.as_json:
            return
        if not rows:
            self.line(empty)
            return
        texts = [[clean(cell) for cell in row] for row in rows]
        if self.rich:
            self._rich(head, texts)
            return
        widths = [max(len(row[i]) for row in [list(head), *texts]) for i in range(len(head))]
        for row in [[h.upper() for h in head], *texts]:
            say("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())

    def _rich(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console()
        used = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
        widths = {i: max(len(line[i]) for line in [head, *rows]) for i in used}
        whole = _unbroken(widths, console.width - 2 * len(used))
        table = Table(
            box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0)
        )
        for i in used:
            table.add_column(head[i], overflow="fold", no_wrap=i in whole)
        for row in rows:
            table.add_row(*(Text(row[i], style=_style(row[i])) for i in used))
        console.print(table)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A sign of life on a terminal while the application's own code runs.

        What that code prints goes to standard error: standard output is the command's.
        """
        if self.as_json or not is_rich(sys.stderr):
            with redirect_stdout(sys.stderr):
                yield
            return
        from rich.console import Console

        with Console(stderr=True).status(clean(text)), redirect_stdout(sys.stderr):
            yield

    @contextmanager
    def progress(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar on a terminal: the function given is told how far the work has come."""
        if self.as_json or not is_rich(sys.stderr) or sys.stdout.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(transient=True, console=Console(stderr=True)) as bars:
            task = bars.add_task(clean(text), total=total)
            yield lambda done: bars.update(task, completed=done)


def _unbroken(widths: Mapping[int, int], room: int) -> set[int]:
    """Columns that keep to one line: the first, which people copy, and the narrowest that fit."""
    whole = {0}
    for column in sorted(widths, key=lambda i: (i != 0, widths[i])):
        others = len(widths) - len(whole | {column})
        if sum(widths[i] for i in whole | {column}) + NARROW * others <= room:
            whole.add(column)
    return whole


_GOOD = {"COMPLETED", "REVERTED", "ok", "undone", "done", "absent", "approved"}
_BAD = {
    "FAILED", "PARTIALLY_REVERTED", "ROLLBACK_FAILED", "ORPHANED", "declined", "fault", "failed",
    "needs_human", "not_undoable", "denied", "unknown", "rejected", "expired", "in_doubt",
}  # fmt: skip
_WAITING = {
    "AWAITING_APPROVAL",
    "ROLLING_BACK",
    "STOPPED",
    "PAUSED",
    "pending",
    "warning",
    "running",
    "asked",
}


def _style(cell: str) -> str:
    word = cell.partition(" ")[0]
    if word in _GOOD:
        return "green"
    if word in _BAD:
        return "red"
    return "yellow" if word in _WAITING else ""
