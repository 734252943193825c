"""Signed anchors: checkpoints over the whole store that a rewritten journal cannot match.

A chain shows what was changed inside a session. Whoever can write the database could still cut
its end and recompute the rest, or drop a whole session. An anchor closes that: it names the head
of every session that changed since the anchor before it, and is signed (Ed25519, extra `crypto`)
with a key that need not be on this machine. It is an event of its own session, `ANCHORS`, and
names the digest of the anchor before it. Keep the digest of the last one elsewhere: then even
dropping the newest anchors shows.

Taking an anchor reads the events since the last one; memory grows with the sessions that changed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein.codec import canonical
from checkrein.errors import ConfigError
from checkrein.store import Batch, Event, NewEvent, Put, SessionPut, Store
from checkrein.store._rules import ANCHORS, FORGOTTEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KIND = "anchor"
HEADS = 1000
"""Sessions that one anchor names; more changed sessions make more anchors."""
_PAGE = 1000


@dataclass(slots=True)
class Anchored:
    """What checking the anchors of a store gave."""

    anchors: int = 0
    heads: int = 0
    """Heads of sessions that were found as they were signed."""
    forgotten: int = 0
    """Heads of sessions that were forgotten since: they say so, and cannot be compared."""
    last: str = ""
    """Digest of the newest anchor: keep it elsewhere."""
    unanchored: int = 0
    """Events that came after the newest anchor: nothing but their chains speaks for them."""
    faults: list[str] = field(default_factory=list)


class Signer:
    """Takes anchors. `seed`: the 32 bytes of an Ed25519 private key.

    Raises `ConfigError` where the package `cryptography` is missing.
    """

    def __init__(self, seed: bytes) -> None:
        self._key: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public_key(self) -> str:
        """What anchors are checked with: 64 hex digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def anchor(self, store: Store, clock: Callable[[], int]) -> list[str]:
        """Sign the heads of all sessions that changed since the last anchor.

        Returns the digests of the anchors made, newest last; none if nothing changed. Raises
        `Conflict` if another process took one meanwhile: nothing is lost, it covers the same.
        """
        last = _last(store)
        number, before, covered = (0, "", 0) if last is None else _place(last)
        heads = _changed(store, covered)
        made = []
        for start in range(0, len(heads), HEADS):
            number += 1
            named = heads[start : start + HEADS]
            # By the number of their last event: a signer that is killed between two anchors has
            # covered everything up to there, and the next one goes on from it.
            body: dict[str, Any] = {
                "number": number, "at": clock(), "before": before, "until": named[-1][2],
                "heads": named, "key": self.public_key,
            }  # fmt: skip
            signed = canonical(body)
            body["signature"] = base64.b64encode(self._key.sign(signed)).decode()
            _write(store, body, number)
            before = _digest(body)
            made.append(before)
        return made


def check(store: Store, public_key: str, *, kept: str = "") -> Anchored:
    """Compare the store with its anchors, in the order in which they were taken.

    `public_key`: 64 hex digits. `kept`: a digest that was kept elsewhere, and must be among the
    anchors. Chains are not recomputed here: that is `store.verify`. Raises `ConfigError` for a
    key that is none.
    """
    key = _public(public_key)
    found = Anchored()
    before, covered = "", 0
    seen = not kept
    for number, event in enumerate(_anchors(store), 1):
        body = dict(event.view)
        found.anchors = number
        fault = _forged(body, key, number, before)
        if fault:
            found.faults.append(f"anchor {number} (event {event.seq}): {fault}")
            return found
        before = _digest(body)
        seen = seen or before == kept
        covered = int(body["until"])
        for head in body["heads"]:
            _compare(store, found, head, number)
    found.last = before
    if not seen:
        found.faults.append(f"no anchor has the digest {kept}: the newest anchors are missing")
    found.unanchored = sum(1 for _ in _since(store, covered))
    return found


def _changed(store: Store, after: int) -> list[list[Any]]:
    heads: dict[str, list[Any]] = {}
    for event in _since(store, after):
        heads[event.session] = [event.session, event.n, event.seq, event.hash]
    return sorted(heads.values(), key=lambda head: int(head[2]))


def _since(store: Store, after: int) -> Iterator[Event]:
    """Events of all sessions but the anchors' own."""
    while page := store.events(after=after, limit=_PAGE):
        yield from (event for event in page if event.session != ANCHORS)
        after = page[-1].seq


def _anchors(store: Store) -> Iterator[Event]:
    after = 0
    while page := store.events(session=ANCHORS, kinds=(KIND,), after=after, limit=100):
        yield from page
        after = page[-1].seq


def _last(store: Store) -> Event | None:
    found = store.events(session=ANCHORS, kinds=(KIND,), reverse=True, limit=1)
    return found[0] if found else None


def _place(last: Event) -> tuple[int, str, int]:
    """Number and digest of an anchor, and the event that it covers last."""
    body = dict(last.view)
    return int(body["number"]), _digest(body), int(body["until"])


def _write(store: Store, body: dict[str, Any], number: int) -> None:
    event = NewEvent(KIND, "", int(body["at"]), body)
    # Two signers at once: the row with the number is there already for the slower one.
    put = Put(KIND, str(number), "signed", {}, ANCHORS, if_state=("",))
    begin = SessionPut(create=True, state="COMPLETED", body={"agent": "checkrein"})
    missing = store.session(ANCHORS) is None
    batch = Batch(ANCHORS, (event,), event.at, puts=(put,), durable=True)
    batch.session_put = begin if missing else None
    store.commit(batch)


def _forged(body: dict[str, Any], key: Ed25519PublicKey, number: int, before: str) -> str:
    """What is wrong with an anchor itself; empty if nothing is."""
    from cryptography.exceptions import InvalidSignature

    unsigned = {name: value for name, value in body.items() if name != "signature"}
    try:
        key.verify(base64.b64decode(str(body.get("signature", ""))), canonical(unsigned))
    except (InvalidSignature, ValueError):
        return "its signature does not fit the key"
    if body["number"] != number:
        return f"it is number {body['number']}: an anchor before it is missing"
    if body["before"] != before:
        return "it does not follow the anchor before it"
    return ""


def _compare(store: Store, found: Anchored, head: list[Any], number: int) -> None:
    session, n, seq, digest = head
    at = store.events(session=session, after=seq - 1, before=seq + 1, limit=1)
    if at and (at[0].n, at[0].hash) == (n, digest):
        found.heads += 1
        return
    first = store.events(session=session, limit=1)
    if not at and first and first[0].kind == FORGOTTEN and first[0].view["events"] >= n:
        found.forgotten += 1
        return
    what = "is not in the store" if not at else "is not what was signed"
    found.faults.append(f"session {session}: event {n}, signed in anchor {number}, {what}")


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(body)).hexdigest()


def _public(text: str) -> Ed25519PublicKey:
    try:
        key = bytes.fromhex(text)
        found: Ed25519PublicKey = _ed25519().Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise ConfigError("the public key is not 64 hex digits of an Ed25519 key") from None
    return found


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ConfigError(
            'signed anchors need the package cryptography: pip install "checkrein[crypto]"'
        ) from error
    return ed25519
