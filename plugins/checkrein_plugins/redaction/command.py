"""The command `checkrein redact`: files or a pipe, in constant memory."""

from __future__ import annotations

import codecs
import json
import os
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.custom import detectors
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.explain import decided_by, explaining, rule_of
from checkrein_plugins.redaction.faults import NotText, RedactionError
from checkrein_plugins.redaction.findings import DEFAULT_CATEGORIES, Finding
from checkrein_plugins.redaction.stream import TextFilter
from checkrein_plugins.redaction.text import engine_with, known

if TYPE_CHECKING:
    import io

CHUNK = 1 << 16
"""Bytes read at once."""
PIPE = "-"
_OFTEN = 0.2
"""Seconds between two looks at the progress."""
_SPOOLED = 1 << 20
"""Bytes of explanations that are kept in memory; more go to a file without a name."""


def command(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files to read; - for standard input.")
    ],
    *,
    category: Annotated[
        list[str] | None,
        typer.Option("--category", metavar="NAME", help="Look for this only. May be repeated."),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern", metavar="NAME=RE2", help="A category of your own. May be repeated."
        ),
    ] = None,
    nlp: Annotated[
        str | None,
        typer.Option(
            "--nlp", metavar="MODEL", help="Names and addresses too: spacy:MODEL or presidio."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell which rule found what, and what decided.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Redact files or a pipe: the text goes to standard output, notes to standard error."""
    engine = _engine(category, pattern, nlp)
    _refuse_missing(files)
    out = Output(sys.stdout)
    if as_json:
        _as_json(files, engine, explain, out)
    else:
        _as_text(files, engine, explain, out)
    out.flush()
    return 0


class Output:
    """Writes text as UTF-8, line ends as they are."""

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._raw: IO[bytes] | None = getattr(stream, "buffer", None)
        self._stream = stream

    def write(self, text: str) -> None:
        """Write `text`."""
        if self._raw is None:
            self._stream.write(text)
        else:
            self._raw.write(text.encode("utf-8"))

    def flush(self) -> None:
        """Hand on what was written."""
        (self._raw or self._stream).flush()


class Source:
    """One file or pipe on its way through a filter."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = "standard input" if name == PIPE else name
        self.size = 0
        """Bytes read."""
        self.counts: Counter[str] = Counter()
        self.found: list[tuple[int, Finding]] = []
        """Line (from 1) and finding, since this was last cleared."""
        self._path = name
        self._filter = TextFilter(engine)
        self._line = 1
        self._breaks: deque[int] = deque()
        self._end = 0

    def pieces(self) -> Iterator[str]:
        """The redacted text, piece by piece.

        Raises:
            NotText: bytes that are not UTF-8; what is in front of them was delivered.
            RedactionError: it cannot be read any further.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("strict")
        progress = Progress(self.name, self._path)
        try:
            for data in self._read():
                self.size += len(data)
                yield self._filtered(self._text(decoder, data, False))
                progress.show(self.size)
            yield self._filtered(self._text(decoder, b"", True))
            rest = self._filter.flush()
            self._note()
            yield rest
        finally:
            progress.clear()

    def _read(self) -> Iterator[bytes]:
        try:
            if self._path == PIPE:
                # read1: what has arrived goes on at once.
                pipe = cast("io.BufferedReader", sys.stdin.buffer)
                while data := pipe.read1(CHUNK):
                    yield data
                return
            with Path(self._path).open("rb") as file:
                while data := file.read(CHUNK):
                    yield data
        except OSError as error:
            raise RedactionError(f"{self.name}: {error.strerror or error}") from error

    def _text(self, decoder: codecs.IncrementalDecoder, data: bytes, final: bool) -> str:
        try:
            return decoder.decode(data, final)
        except UnicodeDecodeError as error:
            raise NotText(self.name, self.size - len(error.object) + error.start) from error

    def _filtered(self, text: str) -> str:
        at = text.find("\n")
        while at >= 0:
            self._breaks.append(self._end + at)
            at = text.find("\n", at + 1)
        self._end += len(text)
        out = self._filter.feed(text)
        self._note()
        return out

    def _note(self) -> None:
        """Take over what was found and has an end."""
        found = self._filter.found
        ready = len(found) - self._filter.is_open if found else 0
        for finding in found[:ready]:
            self.counts[finding.category] += 1
            self._pass(finding.start)
            self.found.append((self._line, finding))
        del found[:ready]
        self._pass(found[0].start if found else self._filter.position)

    def _pass(self, offset: int) -> None:
        while self._breaks and self._breaks[0] < offset:
            self._breaks.popleft()
            self._line += 1


class Progress:
    """How far a long file is, on a terminal."""

    def __init__(self, name: str, path: str) -> None:
        self._name = "".join(char if char.isprintable() else "?" for char in name)[-40:]
        place = Path(path)
        self._total = place.stat().st_size if path != PIPE and place.is_file() else 0
        self._shown = False
        # On a terminal that shows the text itself, the line would stand in the middle of it.
        self._wanted = sys.stderr.isatty() and not sys.stdout.isatty()
        self._next = time.monotonic() + _OFTEN

    def show(self, size: int) -> None:
        """Tell that `size` bytes are read."""
        if not self._wanted or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _OFTEN
        share = f" of {self._total / 1e6:.0f}" if self._total else ""
        sys.stderr.write(f"\r{self._name}: {size / 1e6:.0f}{share} MB")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _engine(categories: list[str] | None, patterns: list[str] | None, nlp: str | None) -> Engine:
    table: dict[str, Any] = {}
    for row in patterns or ():
        name, sign, pattern = row.partition("=")
        if not sign:
            raise ConfigError("--pattern: give NAME=PATTERN, as in ticket='TCK-[0-9]{6}'")
        table[name] = {"pattern": pattern}
    default = () if patterns and not categories else DEFAULT_CATEGORIES
    if nlp is None:
        return explaining(engine_with(known(categories or None, default), detectors(table)))
    from checkrein_plugins.redaction import nlp as language

    more = language.NLP_CATEGORIES
    chosen = known(categories or None, default, more)
    finders = language.finders(nlp, chosen)
    return explaining(engine_with(chosen - set(more), detectors(table, more), finders))


def _refuse_missing(files: list[str]) -> None:
    """Before anything is written."""
    for name in files:
        if name == PIPE:
            continue
        if Path(name).is_dir():
            raise ConfigError(f"{name}: is a folder; name files")
        if not os.access(name, os.R_OK):
            raise ConfigError(f"{name}: there is no such file, or it may not be read")
    if files.count(PIPE) > 1:
        raise ConfigError("standard input can be read once: give - once")


def _as_text(files: list[str], engine: Engine, explain: bool, out: Output) -> None:
    for name in files:
        source = Source(name, engine)
        for piece in source.pieces():
            out.write(piece)
            if name == PIPE:
                out.flush()
            if explain:
                for line, finding in source.found:
                    sys.stderr.write(
                        f"{source.name}:{line}: {finding.category} at {finding.start}-"
                        f"{finding.end}: rule {rule_of(finding)}; {decided_by(finding)}\n"
                    )
            source.found.clear()


def _as_json(files: list[str], engine: Engine, explain: bool, out: Output) -> None:
    """One document, written as it arises; explanations wait in a spool for the text's end."""
    out.write('{"files": [')
    for number, name in enumerate(files):
        source = Source(name, engine)
        out.write((", " if number else "") + f'{{"name": {json.dumps(source.name)}, "text": "')
        with tempfile.SpooledTemporaryFile(_SPOOLED, "w+", encoding="utf-8") as spool:
            for piece in source.pieces():
                out.write(json.dumps(piece)[1:-1])
                if explain:
                    for line, finding in source.found:
                        spool.write(
                            (", " if spool.tell() else "") + json.dumps(_row(line, finding))
                        )
                source.found.clear()
            out.write(f'", "bytes": {source.size}, "counts": {json.dumps(dict(source.counts))}')
            if explain:
                out.write(', "findings": [')
                spool.seek(0)
                while part := spool.read(CHUNK):
                    out.write(part)
                out.write("]")
        out.write("}")
    out.write("]}\n")


def _row(line: int, finding: Finding) -> dict[str, Any]:
    return {
        "category": finding.category,
        "subtype": str(finding.subtype),
        "line": line,
        "start": finding.start,
        "end": finding.end,
        "rule": rule_of(finding),
        "decided_by": decided_by(finding),
    }
