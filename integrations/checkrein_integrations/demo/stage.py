"""What the demo prints: colours on a terminal, plain text on a pipe, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NAMES = 15
"""Characters of a name, at least: then the values of a scene stand in one column."""

MARKS = {"good": "green", "bad": "red", "wait": "yellow", "dim": "dim", "": ""}


def clean(text: object) -> str:
    """Text without control characters: what a model wrote must not steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(text))


class Stage:
    """Prints the story, and collects its facts for `--json`."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.facts: dict[str, Any] = {}
        self.console = Console(highlight=False, quiet=as_json)
        self._scene: dict[str, Any] = self.facts

    def scene(self, key: str, title: str, why: str) -> None:
        """Begin a scene: its headline, and what it shows."""
        self._scene = self.facts[key] = {}
        self._print()
        self._print(Text(f"({key}) {title}", style="bold"))
        self._print(Text(why, style="dim"))

    def fact(self, **facts: Any) -> None:
        """Facts of the scene, for `--json` and for tests."""
        self._scene.update(facts)

    def say(self, text: object, mark: str = "") -> None:
        """A line of the story, wrapped under its indent."""
        self._print(Padding(Text(clean(text), style=MARKS[mark]), (0, 0, 0, 2), expand=False))

    def pairs(self, *rows: tuple[str, object] | tuple[str, object, str]) -> None:
        """Names, values and perhaps marks, one a line, wrapped under the value."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=NAMES)
        grid.add_column(overflow="fold")
        for name, value, *mark in rows:
            style = MARKS[str(mark[0])] if mark else ""
            grid.add_row(Text(clean(name), style="dim"), Text(clean(value), style=style))
        self._print(Padding(grid, (0, 0, 0, 2), expand=False))

    def table(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[object]], right: int = 99
    ) -> None:
        """A table under a headline; columns from number `right` on are set to the right."""
        self._print()
        self._print(Text(title, style="bold"))
        terminal = self.console.is_terminal
        table = Table(
            box=box.SIMPLE_HEAD if terminal else None,
            header_style="bold" if terminal else "", pad_edge=False, padding=(0, 2, 0, 0),
        )  # fmt: skip
        for number, name in enumerate(head):
            table.add_column(name, overflow="fold", justify="right" if number >= right else "left")
        for row in rows:
            table.add_row(*(Text(clean(cell)) for cell in row))
        self._print(Padding(table, (0, 0, 0, 2), expand=False))

    def headline(self, text: str) -> None:
        """A headline without a scene."""
        self._print()
        self._print(Text(text, style="bold"))

    def line(self, text: str) -> None:
        """A line from the left edge, wrapped."""
        self._print(Text(text))

    def command(self, text: str) -> None:
        """A command line that can be copied: never wrapped."""
        self._print(Text(f"  $ {text}"), soft_wrap=True)

    def _print(self, what: RenderableType = "", *, soft_wrap: bool = False) -> None:
        if self.console.is_terminal:
            self.console.print(what, soft_wrap=soft_wrap)
            return
        # Whatever is laid out in columns is filled up with blanks, which a file need not keep.
        with self.console.capture() as captured:
            self.console.print(what, soft_wrap=soft_wrap)
        for line in captured.get().splitlines():
            self.console.print(Text(line.rstrip()), soft_wrap=True)

    def close(self) -> None:
        """Print the JSON document, if that was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(self.facts, indent=2, ensure_ascii=False) + "\n")
            sys.stdout.flush()
