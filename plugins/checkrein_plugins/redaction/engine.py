"""The search itself: one set of triggers over a piece, then only the patterns that it calls for.

Both run on RE2, whose time is linear in the text for every pattern. A failure of RE2 is an error,
never "nothing found".
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from checkrein_plugins.redaction import pieces
from checkrein_plugins.redaction.detector import CONTEXT, LINE, WORD, Check, Detector
from checkrein_plugins.redaction.faults import DetectorFailed
from checkrein_plugins.redaction.finders import Finder, Reading
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.linear import ANCHOR, Triggers, matcher

SMALL = 384
"""Bytes that a piece with triggers in it is cut down to, if there are joints."""
FEW = 7
"""So many patterns are run over a long piece rather than cut it."""


SHORTEST = 6
"""Characters of the shortest value: a keyed secret. Less is not searched."""
_REMEMBERED = 4096
"""Sets of triggers whose detectors are kept."""
_Match: TypeAlias = Callable[[bytes], list[int] | None]
_Run: TypeAlias = tuple[Any, Check, bool, bool, Any, Callable[[bytes, int, int], bool] | None]
_NEXT_WORD = re.compile(rb"[ \t]{0,2}[-(]?[A-Za-z]{0,8}")


class Step(NamedTuple):
    """What was decided about the next stretch of a text."""

    end: int
    """Everything in front of it is decided."""
    open: str = ""
    """`pem` or `token`: the last finding goes on behind `end`, as far as is known."""


class Engine:
    """Finds the values of a list of detectors. Compiled at first use; safe for threads."""

    def __init__(
        self,
        detectors: Iterable[Detector],
        categories: frozenset[str],
        finders: Iterable[Finder] = (),
    ) -> None:
        self.categories = categories
        self.detectors = tuple(row for row in detectors if row.categories & categories)
        self.finders = tuple(finders)
        self.pem = "secret" in categories
        reaches = [row.reach for row in self.detectors] + [row.reach for row in self.finders]
        self.reach = max(reaches, default=WORD)
        self.piece, self._guard = pieces.PIECE, pieces.GUARD
        self._least = SHORTEST
        if self.reach:
            self.piece, self._guard, self._least = pieces.WIDE, pieces.WIDE_GUARD, 1
        self._lock = threading.Lock()
        self._match: _Match | None = None
        self._canary = -1
        self._nothing: list[int] = []
        self._called: list[tuple[int, ...]] = []
        self._all_runs: list[_Run] = []
        self._runs: dict[tuple[int, ...], tuple[_Run, ...]] = {}

    def compile(self) -> _Match:
        """Compile all patterns now (about 20 ms) instead of at the first text."""
        with self._lock:
            return self._match or self._compile()

    def _compile(self) -> _Match:
        triggers: dict[bytes, list[int]] = {}
        for index, detector in enumerate(self.detectors):
            for trigger in detector.triggers:
                triggers.setdefault(trigger, []).append(index)
            self._all_runs.append(
                (
                    matcher(detector.pattern, lines=detector.reach == LINE),
                    detector.check,
                    detector.retry,
                    detector.lookback,
                    None if detector.exact else matcher(b"|".join(detector.triggers)),
                    detector.sure,
                )
            )
        chosen = Triggers(triggers)
        self._canary = chosen.canary
        self._nothing = [chosen.canary]
        self._called = [tuple(indexes) for indexes in triggers.values()]
        self._match = chosen.match
        return chosen.match

    def _triggered(self, data: bytes) -> list[int]:
        """Indexes of the triggers in `data`; one alone is the canary."""
        hits = (self._match or self.compile())(data)
        if hits is None or self._canary not in hits:
            raise DetectorFailed("the trigger set")
        return hits

    def triggers(self, data: bytes) -> list[int] | None:
        """What `findings` may be given to begin with: None if `data` holds no finding."""
        if self.finders:
            return []
        hits = self._triggered(data)
        if len(hits) == 1 and not (self.pem and pieces.PEM_OPENING in data):
            return None
        return hits

    def findings(
        self, data: bytes, reading: Reading | None = None, hits: list[int] | None = None
    ) -> list[Finding]:
        """All findings in `data`, unresolved, in its own offsets."""
        found: list[Finding] = []
        start, size = 0, len(data)
        if reading is None and size <= self.piece and pieces.PEM_OPENING not in data:
            hits = hits or (self._match or self.compile())(data)
            if hits != self._nothing:  # as `_triggered` has it, without a call
                self._piece(data, 0, size, found, hits)
            return found
        while start < size:
            start = self.step(data, start, True, found, reading).end
        return found

    def step(
        self,
        data: bytes,
        start: int,
        final: bool,
        found: list[Finding],
        reading: Reading | None = None,
    ) -> Step:
        """Decide on the next stretch from `start` on, appending to `found`.

        `final`: the text ends where `data` ends. Otherwise a step may decide nothing and return
        `start`: more text is needed. `reading`: the text as the finders see it.
        """
        size = len(data)
        limit = min(size, start + self.piece)
        if self.pem:
            opening, header = pieces.pem_header(data, start, limit, final)
            if opening >= 0:
                if header < 0:
                    end = pieces.last_joint(data, start, opening, self.reach)
                    return Step(self._upto(data, start, end, found, reading) if end else start)
                return self._block(data, start, opening, header, final, found, reading)
        if final and size <= start + self.piece:
            return Step(self._upto(data, start, size, found, reading))
        end = (pieces.joint if final else pieces.last_joint)(data, start, limit, self.reach)
        if end > start:
            return Step(self._upto(data, start, end, found, reading))
        if size < start + self.piece + (0 if final else pieces.AHEAD):
            return Step(start)
        return self._forced(data, start, limit, found, reading)

    def _upto(
        self, data: bytes, start: int, end: int, found: list[Finding], reading: Reading | None
    ) -> int:
        if end - start >= self._least:
            self._piece(data, start, end, found)
            if reading is not None:
                found += reading.between(start, end)
        return end

    def _block(
        self,
        data: bytes,
        start: int,
        opening: int,
        header: int,
        final: bool,
        found: list[Finding],
        reading: Reading | None,
    ) -> Step:
        self._upto(data, start, opening, found, reading)
        if final:
            end = pieces.pem_end(data, header)
            found.append(Finding(opening, end, "secret", "pem"))
            return Step(end)
        found.append(Finding(opening, header, "secret", "pem"))
        return Step(header, "pem")

    def _forced(
        self, data: bytes, start: int, limit: int, found: list[Finding], reading: Reading | None
    ) -> Step:
        """Cut a stretch without a joint, but no value in it."""
        window: list[Finding] = []
        self._piece(data, start, limit, window)
        if reading is not None:
            window += reading.between(start, limit)
        cut = limit - self._guard
        if self.pem:
            opening = data.find(pieces.PEM_OPENING[:-1], cut - 10, cut + 10)
            if 0 <= opening < cut:
                cut = opening
        moved = True
        while moved:
            moved = False
            for finding in window:
                if finding.start < cut < finding.end:
                    cut, moved = finding.end, True
        found.extend(finding for finding in window if finding.start < cut)
        if cut < limit - 8:
            return Step(cut)
        end = pieces.token_end(data, cut)
        for index, finding in enumerate(found):
            if finding.end == cut:
                found[index] = finding._replace(end=end)
        return Step(end, "token")

    def _piece(
        self,
        data: bytes,
        start: int,
        end: int,
        found: list[Finding],
        hits: list[int] | None = None,
    ) -> None:
        """Search `data[start:end]`, which lies between joints, or is cut by force."""
        low = start - CONTEXT if start > CONTEXT else 0
        if hits is None:
            hits = self._triggered(data if low == 0 and end == len(data) else data[low:end])
        elif self._canary not in hits:
            raise DetectorFailed("the trigger set")
        if len(hits) == 1:
            return
        if end - start > 2 * SMALL and len(self._runs_for(tuple(hits))) > FEW:
            while end - start > 2 * SMALL:
                cut = pieces.joint(data, start, start + SMALL, self.reach)
                if cut == 0:
                    break
                self._piece(data, start, cut, found)
                start = cut
                low = start - CONTEXT if start > CONTEXT else 0
            hits = self._triggered(data[low:end])
        self._patterns(data, low, start, end, hits, found)

    def _patterns(
        self, data: bytes, low: int, start: int, end: int, hits: Sequence[int], found: list[Finding]
    ) -> None:
        """Run the patterns that the triggers in `hits` call for."""
        if len(hits) == 1:
            return
        categories = self.categories
        for match, check, retry, lookback, trigger, sure in self._runs_for(tuple(hits)):
            at = low if lookback else start
            while True:
                first, last = match(ANCHOR, data, at, end)[0]
                if first < 0:
                    break
                accepted = check(data, first, last)
                if accepted is None:
                    at = first + 1 if retry else last
                    continue
                if (
                    accepted.start >= start
                    and accepted.category in categories
                    and (
                        trigger is None
                        or (sure is not None and sure(data, accepted.start, accepted.end))
                        or _called_for(trigger, data, accepted)
                    )
                ):
                    found.append(accepted)
                at = accepted.end if accepted.end > first else first + 1

    def _runs_for(self, hits: tuple[int, ...]) -> tuple[_Run, ...]:
        """The detectors that these triggers call for."""
        runs = self._runs.get(hits)
        if runs is not None:
            return runs
        indexes = {index for hit in hits if hit != self._canary for index in self._called[hit]}
        runs = tuple(self._all_runs[index] for index in sorted(indexes))
        if len(self._runs) < _REMEMBERED:
            self._runs[hits] = runs
        return runs


def _called_for(trigger: Any, data: bytes, found: Finding) -> bool:
    """Whether a trigger of the detector occurs in a value or right beside it."""
    if trigger(ANCHOR, data, found.start, found.end)[0][0] >= 0:
        return True
    low = found.start - CONTEXT if found.start > CONTEXT else 0
    word = _NEXT_WORD.match(data, found.end)
    # Cut out, so that the ends of what is looked at are ends of a text.
    around = data[low : word.end() if word else found.end]
    return bool(trigger(ANCHOR, around, 0, len(around))[0][0] >= 0)
