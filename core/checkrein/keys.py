"""The store's keys: one that makes digests nobody can guess, one that seals payloads."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from checkrein._files import make_directory, open_temporary, sync_directory, unavailable
from checkrein.errors import ConfigError, StoreUnavailable

_HEX = frozenset("0123456789abcdef")


def store_key(path: Path) -> bytes:
    """The store's 32 random bytes, made at first use.

    Made exactly once, also when several processes race, in a file with mode 0600. Raises
    `StoreUnavailable` for a wrong length, a file that others can read, or a failing disk.
    """
    try:
        try:
            return _read_key(path)
        except FileNotFoundError:
            _make_key(path)
            return _read_key(path)
    except OSError as error:
        raise unavailable(f"key file {path} cannot be used", error) from error


def seal_key(path: Path) -> bytes:
    """The 32 bytes that seal payloads: from `CHECKREIN_KEY`, else from a file like the store's.

    The variable holds 32 bytes as hex or base64. Raises `ConfigError` for anything else.
    """
    key = key_in("CHECKREIN_KEY")
    return store_key(path) if key is None else key


def key_in(variable: str) -> bytes | None:
    """The 32 bytes that an environment variable holds as hex or base64; None if it is not set.

    Raises `ConfigError` for anything else.
    """
    text = os.environ.get(variable)
    if text is None:
        return None
    key = _key_of(text.strip())
    if key is None:
        raise ConfigError(
            f"{variable} must be 32 bytes as base64url (43 characters) or hex (64), and it "
            "is neither; make one with: "
            'python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return key


def _key_of(text: str) -> bytes | None:
    import binascii

    try:
        if len(text) == 64:
            return bytes.fromhex(text) if set(text.lower()) <= _HEX else None
        bare = text.rstrip("=").translate(str.maketrans("-_", "+/"))
        if len(bare) != 43:
            return None
        key = binascii.a2b_base64(bare + "=", strict_mode=True)
        return key if binascii.b2a_base64(key, newline=False) == f"{bare}=".encode() else None
    except ValueError:  # characters or bits that the form does not have
        return None


def _read_key(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        mode = os.fstat(descriptor).st_mode
        key = os.read(descriptor, 64)
    finally:
        os.close(descriptor)
    if mode & 0o077:
        raise StoreUnavailable(f"key file {path} can be used by others: chmod 600 {path}")
    if len(key) != 32:
        raise StoreUnavailable(
            f"key file {path} has not 32 bytes: restore it from a backup; without the first key "
            "earlier digests and sealed payloads cannot be checked or read"
        )
    return key


def _make_key(path: Path) -> None:
    """Create the file with its whole content in one step: a link fails if it is there."""
    make_directory(path.parent)
    descriptor, temporary = open_temporary(path.parent)
    try:
        os.write(descriptor, os.urandom(32))
        os.fsync(descriptor)
        with suppress(FileExistsError):  # another process was faster: its key is the key
            os.link(temporary, path)
        sync_directory(path.parent)
    finally:
        temporary.unlink()
        os.close(descriptor)
