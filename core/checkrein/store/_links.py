"""Whether a stored event is what was written: its place in the chain, and its payload."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from checkrein.codec import loads
from checkrein.errors import Undecodable
from checkrein.store import Event
from checkrein.store._rules import chain_body, chain_hash, missing_event


def bad_event(
    row: tuple[Any, ...], session: str, n: int, head: bytes, files: Path | None
) -> Event | None:
    """The event if it is not what was written, an event of kind `missing` for a gap, or None.

    `row`: seq, n, kind, call, attempt, at, ref, prev, hash, view, salt, data, place. `n`, `head`:
    what its place must be, and the hash of the one before it. `files`: where large payloads lie.
    """
    seq, stored_n, kind, call, attempt, at, ref, prev, digest, view, salt, data, place = row
    if stored_n > n:
        return missing_event(session, n, prev.hex())
    expected = chain_hash(head, seq, n, attempt, at, ref, chain_body(session, kind, call, view))
    chained = stored_n == n and prev == head and digest == expected
    if chained and _payload_fits(ref, salt, data, place, view, files):
        return None
    try:
        tree = loads(view)
    except Undecodable:
        tree = None
    return Event(
        seq, session, stored_n, kind, call, attempt, at, tree, ref.hex(), prev.hex(), digest.hex()
    )


def _payload_fits(
    ref: bytes,
    salt: bytes | None,
    data: bytes | None,
    place: str | None,
    view: str,
    files: Path | None,
) -> bool:
    if not ref:
        return salt is None and data is None and place is None
    if place == "view":
        return salt is None and data is None and sha256(view.encode()).digest() == ref
    if salt is None or data is None:
        return False
    if place == "file":
        if files is None or data != ref.hex().encode():
            return False
        try:
            data = (files / ref.hex()).read_bytes()
        except OSError:
            return False
    elif place == "omitted":
        return not data
    return place in ("row", "file") and sha256(salt + data).digest() == ref
