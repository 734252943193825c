"""Redaction of a text that arrives in pieces.

However the text is cut, the delivered parts joined are the redaction of the whole text. What is
kept back ends at the last joint (see `pieces`): as a rule the word that is being written.
"""

from __future__ import annotations

import re

from checkrein_plugins.redaction import pieces
from checkrein_plugins.redaction.detector import LINE
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.finders import Reading
from checkrein_plugins.redaction.findings import Finding, resolve
from checkrein_plugins.redaction.policy import PLAIN, Policy
from checkrein_plugins.redaction.shadow import Shadow, plain, shadow
from checkrein_plugins.redaction.text import Writer

_BREAK = re.compile(r"[\n\\\0\x85\u2028\u2029]")
"""What may be a line break to the patterns; other ways to write one decide a little later."""


class TextFilter:
    """Redacts one stream of text. Not for several threads at once."""

    def __init__(
        self, engine: Engine, chosen: Policy = PLAIN, missed: set[str] | None = None
    ) -> None:
        self.holdback = engine.piece
        """Most characters kept back. JSON escapes count as what they stand for, and invisible
        characters do not count."""
        self._engine = engine
        self._missed = missed
        self._chosen = chosen
        self._pending = ""
        self._context = b""
        self._open = ""
        self._shown = False
        """What goes on behind an opening is passed on, because its category is."""
        self._writer = Writer(chosen.marks)
        self.found: list[Finding] = []
        """What was found so far, in order, kept ones left out; offsets count from the stream's
        beginning. Whoever reads it may clear it. While `is_open`, the last one still grows."""
        self.position = 0
        """Characters that are decided."""

    @property
    def is_open(self) -> bool:
        """Whether the end of the last value is not known yet."""
        return self._open != ""

    def feed(self, text: str) -> str:
        """Take the next piece; return what is decided."""
        self._pending += text
        if self._engine.reach and not self._open and not self._decides(text):
            return ""  # or a long line would be looked at again for each of its pieces
        return self._run(False)

    def _decides(self, text: str) -> bool:
        """Whether a piece can make the pending text fit to be decided on."""
        if len(self._pending) >= self._engine.piece:
            return True
        return self._engine.reach == LINE and _BREAK.search(text) is not None

    def flush(self) -> str:
        """The text has ended: return the rest."""
        out = self._run(True)
        self._pending, self._context, self._open = "", b"", ""
        return out

    def abort(self) -> None:
        """Forget what was kept back. It is not delivered."""
        self._pending, self._context, self._open = "", b"", ""

    def _run(self, final: bool) -> str:
        out: list[str] = []
        while self._pending:
            shade = shadow(self._pending)
            if self._open and not self._swallow(shade, final, out):
                break
            if not self._pending:
                break
            if self._open == "" and not self._step(shadow(self._pending), final, out):
                break
        if final:
            out.append(self._pending)  # invisible characters, which the patterns do not see
        return "".join(out)

    def _step(self, shade: Shadow, final: bool, out: list[str]) -> bool:
        """Decide on all of the pending text that can be decided; whether to go on."""
        data = self._context + shade.data
        offset = len(self._context)
        found: list[Finding] = []
        reading = None
        if self._engine.finders:
            text = plain(self._pending, shade)
            reading = Reading(self._engine.finders, text, offset, self._missed)
        start = offset
        while start < len(data):
            step = self._engine.step(data, start, final, found, reading)
            self._open = step.open
            if step.end == start and not step.open:
                break
            start = step.end
            if step.open:
                break
        if start == offset and not found:
            return False
        at = 0
        writer, pending = self._writer, self._pending
        hidden = -1
        for finding in resolve(found, self._chosen.kept, self._chosen.warned):
            first, last = shade.start(finding.start - offset), shade.end(finding.end - offset)
            out.append(writer.text(pending[at:first]))
            out.append(writer.value(pending[first:last], finding.category, finding.subtype))
            here = self.position
            self.found.append(finding._replace(start=here + first, end=here + last))
            at = last
            if finding.category not in self._chosen.warned:
                hidden = last
        end = shade.end(start - offset)
        if end > at:
            out.append(writer.text(pending[at:end]))
        self._shown = hidden < end
        self._forget(data, start, end)
        return self._open != ""

    def _swallow(self, shade: Shadow, final: bool, out: list[str]) -> bool:
        """Read on behind an opening whose end is not known; whether the end has come."""
        if self._open == "token":
            end, closed = pieces.token_end(shade.data, 0), True
            if end == len(shade.data) and not final:
                closed = False
        elif final:
            end, closed = pieces.pem_end(shade.data, 0), True
        else:
            end, closed = pieces.pem_swallow(shade.data)
        if closed:
            self._open = ""
        if self._shown:
            out.append(self._writer.text(self._pending[: shade.end(end)]))
        if self.found:
            self.found[-1] = self.found[-1]._replace(end=self.position + shade.end(end))
        self._forget(self._context + shade.data, len(self._context) + end, shade.end(end))
        return closed

    def _forget(self, data: bytes, start: int, end: int) -> None:
        self._context = pieces.context_of(data, start)
        self._pending = self._pending[end:]
        self.position += end
