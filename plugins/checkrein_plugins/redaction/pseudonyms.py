"""Placeholders that stand for one value in one session, and lead back to it: `<EMAIL_1>`.

The way back is for the arguments of trusted tools only. It is kept in this process: after a
restart an older placeholder is unknown, and unknown ones are refused.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

from checkrein_plugins.redaction.leaves import Leaves
from checkrein_plugins.redaction.marks import Mark
from checkrein_plugins.redaction.memory import Memory
from checkrein_plugins.redaction.rebuild import Rebuild

PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]{0,39}_[1-9][0-9]{0,8}>")
MOST = 1024
"""Sessions whose placeholders are known; the oldest go first."""


class Book:
    """The placeholders of one session. Safe for threads."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._lock = threading.Lock()
        self._marks: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def marks(self, categories: Iterable[str]) -> dict[str, Mark]:
        """Marks for these categories, the same one for the same value."""
        return {category: self._mark(category) for category in categories}

    def _mark(self, category: str) -> Mark:
        def make(value: str) -> str:
            known = self._marks.get((category, value))
            if known is not None:
                return known
            with self._lock:
                known = self._marks.get((category, value))
                if known is None:
                    number = self._counts.get(category, 0) + 1
                    known = f"<{category.upper()}_{number}>"
                    self._counts[category] = number
                    self._values[known] = value
                    self._marks[category, value] = known
            return known

        return make

    def unknown(self, value: Any, binary: str) -> bool:
        """Whether a placeholder in `value` stands for nothing in this session."""
        leaves = Leaves(binary)
        leaves.add(value)
        return any(
            mark not in self._values
            for text in leaves.parts[::2]
            if "<" in text
            for mark in PLACEHOLDER.findall(text)
        )

    def restored(self, value: Any, binary: str) -> Any:
        """`value` with what its known placeholders stand for; itself if there are none."""
        return _mapped(value, binary, self._restore)

    def _restore(self, text: str) -> str:
        return PLACEHOLDER.sub(lambda match: self._values.get(match[0], match[0]), text)


class Books:
    """The books of all sessions of one plugin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._books: dict[str, Book] = {}

    def of(self, session: str) -> Book:
        """The book of a session, an empty one at first."""
        with self._lock:
            book = self._books.get(session)
            if book is None:
                if len(self._books) >= MOST:
                    self._books.pop(next(iter(self._books)))
                book = self._books[session] = Book()
            return book

    def close(self) -> None:
        """Forget every value."""
        with self._lock:
            self._books.clear()


def escaped(value: Any, binary: str, skipped: frozenset[str] = frozenset()) -> Any:
    """`value` with what looks like a placeholder made to look otherwise: `<~EMAIL_1>`."""
    return _mapped(value, binary, _escape, skipped)


def _escape(text: str) -> str:
    return PLACEHOLDER.sub(lambda match: f"<~{match[0][1:]}", text)


def _mapped(
    value: Any,
    binary: str,
    change: Callable[[str], str],
    skipped: frozenset[str] = frozenset(),
) -> Any:
    leaves = Leaves(binary, skipped)
    leaves.add(value)
    changed = False
    texts: list[str | None] = []
    for text in leaves.parts[::2]:
        new = change(text) if "<" in text else text
        texts.append(None if new == text else new)
        changed = changed or new != text
    return Rebuild(iter(texts), binary, skipped).of(value, "") if changed else value
