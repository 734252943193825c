"""What was found in texts that come again, such as the history that every model call repeats.

Keyed by a digest under a key of this process, so that no text is held for the sake of being
recognised; what is held is the redacted text and where the findings were.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection

from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.shadow import shadow
from checkrein_plugins.redaction.text import located, settled

LEAST = 512
"""Characters from which on a text is remembered: a shorter one is searched as quickly as its
digest is taken."""
MOST = 4096
"""Texts that are remembered; the oldest go first."""


RECENT = 256
"""Values whose findings are kept: a call's arguments and result are looked at again for the journal
and for spans."""
_LONGEST = 1 << 16


class Recent:
    """Findings by text, for whole values that come again at once. Safe for threads."""

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._known: dict[tuple[bytes, Collection[str], Collection[str]], list[Finding]] = {}
        self._clean = ("", "")

    def located(
        self,
        text: str,
        engine: Engine,
        kept: Collection[str],
        passed: Collection[str],
        missed: set[str] | None = None,
    ) -> list[Finding]:
        """What `text.located` returns."""
        if len(text) > _LONGEST or engine.finders:
            # A finder may answer otherwise the next time: it may have failed, or ask somebody.
            return located(text, engine, kept, passed, missed)
        clean = self._clean
        if text in clean:
            return []
        shade = shadow(text)
        hits = engine.triggers(shade.data)
        if hits is None:
            # The arguments and the result of a call: they hold nothing, so they may be held.
            self._clean = (text, clean[0])
            return []
        plain = shade.starts is None and text.isascii()
        raw = shade.data if plain else text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(raw, digest_size=16, key=self._key).digest()
        found = self._known.get((digest, kept, passed))
        if found is None:
            found = settled(engine.findings(shade.data, None, hits), shade, kept, passed)
            if len(self._known) >= RECENT:
                for old in list(self._known)[: RECENT // 4]:
                    self._known.pop(old, None)
            self._known[digest, kept, passed] = found
        return found


class Memory:
    """Results by text. Safe for threads: losing a race costs one more search."""

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._known: dict[bytes, tuple[str | None, list[Finding]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def digest(self, name: str, text: str) -> bytes:
        """Key of a text that stands under `name`, which may be context of what is in it."""
        raw = f"{name}\0{text}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(raw, digest_size=16, key=self._key).digest()

    def get(self, digest: bytes) -> tuple[str | None, list[Finding]] | None:
        """The redacted text (None = as it was) and the findings; None if it is not known."""
        return self._known.get(digest)

    def put(self, digest: bytes, text: str | None, found: list[Finding]) -> None:
        """Remember a result."""
        if len(self._known) >= MOST:
            for old in list(self._known)[: MOST // 8]:
                self._known.pop(old, None)
        self._known[digest] = (text, found)
