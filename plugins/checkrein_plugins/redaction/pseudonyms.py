"""Placeholders that stand for one value in one session, and lead back to it: `<EMAIL_1>`.

The way back is for the arguments of trusted tools only. It is kept as the payload of an event of
the session (kind `pseudonyms`), sealed and erased like every payload, so that another process
that goes on with the session restores what the first one gave out. A placeholder whose value was
erased, or that belongs to another session, is unknown, and unknown ones are refused.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from checkrein.store import Batch
from checkrein_plugins.redaction.leaves import Leaves
from checkrein_plugins.redaction.marks import Mark
from checkrein_plugins.redaction.memory import Memory
from checkrein_plugins.redaction.rebuild import Rebuild

if TYPE_CHECKING:
    from checkrein.rein import Rein

KIND = "pseudonyms"
PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]{0,39}_[1-9][0-9]{0,8}>")
MOST = 1024
"""Sessions whose placeholders are held in memory; the oldest go first."""


class Book:
    """The placeholders of one session. Safe for threads."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._lock = threading.Lock()
        self._marks: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._new: list[list[str]] = []

    def take(self, marks: Iterable[str], rows: Iterable[list[str]]) -> None:
        """Take over what was kept: all placeholders, and those whose values are still known."""
        with self._lock:
            for mark in marks:
                category, number = mark[1:-1].lower().rsplit("_", 1)
                self._counts[category] = max(self._counts.get(category, 0), int(number))
            for mark, category, value in rows:
                if self._values.setdefault(mark, value) == value:
                    self._marks[category, value] = mark
                else:  # given out twice: it leads nowhere
                    self._values[mark] = mark

    def new(self) -> list[list[str]]:
        """(placeholder, category, value) of those given out since this was last asked."""
        with self._lock:
            new, self._new = self._new, []
        return new

    def again(self, rows: list[list[str]]) -> None:
        """They could not be kept: `new` gives them once more."""
        with self._lock:
            self._new = rows + self._new

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
                    self._new.append([known, category, value])
            return known

        return make

    def unknown(self, value: Any, binary: str) -> bool:
        """Whether a placeholder in `value` stands for nothing in this session."""
        leaves = Leaves(binary)
        leaves.add(value)
        return any(
            self._values.get(mark, mark) == mark
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
        self.rein: Rein | None = None
        """Where they are kept; None = in memory only."""

    def of(self, session: str) -> Book:
        """The book of a session, with what an earlier process has kept of it."""
        book = self._books.get(session)
        if book is not None:
            return book
        made = self._read(session)
        with self._lock:
            book = self._books.get(session)
            if book is None:
                if len(self._books) >= MOST:
                    self._books.pop(next(iter(self._books)))
                book = self._books[session] = made
            return book

    def keep(self, session: str, call: str) -> None:
        """Write down what was given out and is not written down yet. Raises `StoreUnavailable`."""
        rein, book = self.rein, self._books.get(session)
        if rein is None or book is None:
            return
        rows = book.new()
        if not rows:
            return
        marks = [mark for mark, _, _ in rows]
        event = rein.journal.event(KIND, call, {"rows": rows}, marks=marks)
        batch = Batch(session, (event,), event.at)
        try:
            committed = rein.store.commit(batch)
        except BaseException:
            book.again(rows)
            raise
        rein.observers.notify(committed, batch)

    def _read(self, session: str) -> Book:
        book = Book()
        if self.rein is None:
            return book
        store = self.rein.store
        after = 0
        while events := store.events(session=session, kinds=(KIND,), after=after):
            for event in events:
                payload = store.payload(event.seq)
                rows = payload.get("rows", ()) if isinstance(payload, dict) else ()
                book.take(event.view["marks"], rows)
            after = events[-1].seq
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
