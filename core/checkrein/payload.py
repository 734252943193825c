"""Payloads: exact trees as salted bytes, kept where they can be erased or sealed.

A payload is referenced by `ref`, the SHA-256 over its salt and its bytes, which stands in the
hashed event. So it can be erased, and the chain of events still verifies; and without the salt
nobody can guess what it was. Up to 64 KB it is kept in the store's row, above that in a file
beside the store, which is on disk before `pack` returns.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from checkrein._files import (
    TEMPORARY,
    is_older,
    remove_unwritten,
    sync_directory,
    unavailable,
    write_file,
)
from checkrein.codec import dumps, loads
from checkrein.errors import ConfigError, PayloadUnreadable, Undecodable
from checkrein.store import ERASED, Erased, Tree

Place: TypeAlias = Literal["row", "view", "file", "omitted"]

ROW_LIMIT = 64 * 1024
"""Bytes above which a payload goes into a file: long rows hold up the store's write lock."""

SALT_BYTES = 16

_SEALED = b"\x01"
"""First byte of sealed bytes. JSON never begins with it."""
_NONCE_BYTES = 12
_TAGGED = '{"$cr":'
_HEX = frozenset("0123456789abcdef")


@dataclass(slots=True)
class Packed:
    """A payload as it is stored."""

    ref: str
    """SHA-256 over salt and stored bytes, hex."""
    salt: bytes
    data: bytes
    """`row`: the bytes. `file`: the file's name. `omitted`, `view`: empty."""
    place: Place
    """`view`: a part of the event's view, see `Vault.keeps_view`. `omitted`: too large to keep,
    or erased since; a store that erases a row writes this and empties salt and data."""
    size: int = 0
    """Bytes of the tree's text, also where they were not kept."""


class Vault:
    """Packs payloads and gives them back; owns the directory of the large ones.

    `directory=None` keeps everything in rows. `max_bytes`: larger trees are not kept, only
    their digest and size. `seal_key`: 32 bytes; packed bytes are then sealed with AES-GCM.
    `key_source` says in messages where the key comes from. Safe to use from several threads
    and processes, and after a fork.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        max_bytes: int,
        seal_key: bytes | None = None,
        key_source: str = "CHECKREIN_KEY or the key file beside the store",
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._key_source = key_source
        self._cipher: Any = None if seal_key is None else _cipher(seal_key)
        self._view_limit = -1 if self._cipher else min(ROW_LIMIT, max_bytes)

    def pack(self, tree: Tree) -> Packed:
        """The tree as salted bytes; a large one is on disk when this returns.

        Raises `Unencodable` for what is not a tree, `StoreUnavailable` where the file cannot
        be written.
        """
        data = dumps(tree).encode()
        size = len(data)
        salt = os.urandom(SALT_BYTES)
        if size > self._max_bytes:
            if type(tree) is dict and "plan" in tree and len(tree) > 1:
                # However large a result is: what it takes to undo the call is kept.
                return self.pack({"plan": tree["plan"]})
            return Packed(_ref(salt, data), salt, b"", "omitted", size)
        if self._cipher is not None:
            nonce = os.urandom(_NONCE_BYTES)
            data = _SEALED + nonce + self._cipher.encrypt(nonce, data, salt)
        ref = _ref(salt, data)
        if size <= ROW_LIMIT or self._directory is None:
            return Packed(ref, salt, data, "row", size)
        write_file(self._directory, ref, data)
        return Packed(ref, salt, ref.encode(), "file", size)

    def keeps_view(self, view: str) -> bool:
        """Whether a payload that a view shows need not be stored again (place `view`).

        `ref` is then the SHA-256 of the view's text. Sealed and long ones are stored again.
        """
        return len(view) <= self._view_limit and not view.startswith(_TAGGED)

    def unpack(self, packed: Packed) -> Tree | Erased:
        """The tree, after its bytes are checked against `ref`; `ERASED` if it was not kept.

        Raises `PayloadUnreadable` where bytes are missing, altered, or sealed with another key.
        """
        if packed.place == "omitted":
            return ERASED
        data = self.stored(packed)
        if data[:1] == _SEALED:
            data = self._open(packed, data)
        return _tree(packed.ref, data)

    def stored(self, packed: Packed) -> bytes:
        """The bytes as they are stored, sealed or not, checked against `ref`.

        Raises `PayloadUnreadable` where they are missing or altered.
        """
        data = packed.data if packed.place == "row" else self._read(packed)
        if _ref(packed.salt, data) != packed.ref:
            raise _altered(packed.ref)
        return data

    def erase(self, packed: Packed) -> None:
        """Remove the file of a large payload; the others have none. Can be repeated."""
        if packed.place != "file" or self._directory is None:
            return
        try:
            self._path(packed).unlink(missing_ok=True)
            sync_directory(self._directory)
        except FileNotFoundError:  # the directory itself is gone, and the file with it
            return
        except OSError as error:
            raise unavailable(f"payload {packed.ref[:12]} cannot be erased", error) from error

    def sweep(
        self, referenced: Callable[[str], bool] | None = None, *, older_than: float = 3600.0
    ) -> int:
        """Remove what killed processes have left; returns how many files that were.

        Temporary files go if no process writes them any more. With `referenced`, complete
        files go too whose `ref` it does not know and which are older than `older_than`
        seconds: a younger one may be named by a transaction that is still open.
        """
        if self._directory is None or not self._directory.is_dir():
            return 0
        removed = 0
        oldest = time.time() - older_than
        try:
            for entry in sorted(os.scandir(self._directory), key=lambda found: found.name):
                if entry.name.startswith(TEMPORARY):
                    removed += remove_unwritten(Path(entry.path))
                elif (
                    referenced is not None
                    and _is_ref(entry.name)
                    and not referenced(entry.name)
                    and is_older(entry, oldest)
                ):
                    with suppress(FileNotFoundError):  # another sweep was faster
                        Path(entry.path).unlink()
                        removed += 1
        except OSError as error:
            raise unavailable(f"{self._directory} cannot be swept", error) from error
        return removed

    def _path(self, packed: Packed) -> Path:
        name = packed.data.decode("ascii", "replace")
        if self._directory is None:
            raise PayloadUnreadable(
                f"payload {packed.ref[:12]} is in a file, and this store has no directory"
            )
        # The name comes out of a row: nothing but a payload of ours may be reached with it.
        if name != packed.ref or not _is_ref(name):
            raise PayloadUnreadable(
                f"payload {packed.ref[:12]}: its row names a wrong file; "
                "the row was altered or damaged: restore it from a backup"
            )
        return self._directory / name

    def _read(self, packed: Packed) -> bytes:
        try:
            return self._path(packed).read_bytes()
        except OSError as error:
            raise _unreadable(
                f"payload {packed.ref[:12]}: its file in {self._directory} cannot be read", error
            ) from error

    def _open(self, packed: Packed, data: bytes) -> bytes:
        if self._cipher is None:
            raise PayloadUnreadable(
                f"payload {packed.ref[:12]} is sealed, and no key was given: "
                f"open the store with encrypt=True and its key ({self._key_source})"
            )
        from cryptography.exceptions import InvalidTag

        nonce, sealed = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
        try:
            opened: bytes = self._cipher.decrypt(nonce, sealed, packed.salt)
        except InvalidTag:
            raise PayloadUnreadable(
                f"payload {packed.ref[:12]} was sealed with another key: check {self._key_source}"
            ) from None
        return opened


def unpack_view(ref: str, view: str) -> Tree:
    """The view that holds a payload. Raises `PayloadUnreadable` where it is not that of `ref`."""
    data = view.encode()
    if _ref(b"", data) != ref:
        raise _altered(ref)
    return _tree(ref, data)


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError(
            'encrypt=True needs the package cryptography: pip install "checkrein[crypto]"'
        ) from None
    if len(key) != 32:
        raise ConfigError(f"the key that seals payloads must have 32 bytes, not {len(key)}")
    return AESGCM(key)


def _ref(salt: bytes, data: bytes) -> str:
    return hashlib.sha256(salt + data).hexdigest()


def _tree(ref: str, data: bytes) -> Tree:
    try:
        return loads(data.decode())
    except (Undecodable, UnicodeDecodeError) as error:
        raise PayloadUnreadable(f"payload {ref[:12]}: it is not one of this version") from error


def _altered(ref: str) -> PayloadUnreadable:
    return PayloadUnreadable(
        f"payload {ref[:12]}: its bytes do not match the event that names it; "
        "they were altered or damaged: restore them from a backup"
    )


def _is_ref(name: str) -> bool:
    return len(name) == 64 and _HEX.issuperset(name)


def _unreadable(what: str, error: OSError) -> PayloadUnreadable:
    return PayloadUnreadable(f"{what}: {error.strerror or type(error).__name__}")
