"""Files that are there whole and on disk, or not at all, whoever is killed while writing."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from checkrein.errors import StoreUnavailable

TEMPORARY = ".tmp-"
"""How the name of a file begins that is being written."""


def write_file(directory: Path, name: str, data: bytes) -> None:
    """Write a file that is there whole and on disk, or not at all."""
    try:
        make_directory(directory)
        descriptor, temporary = open_temporary(directory)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
            temporary.rename(directory / name)
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell
                temporary.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_directory(directory)
    except OSError as error:
        raise unavailable(f"payload cannot be written to {directory}", error) from error


def open_temporary(directory: Path) -> tuple[int, Path]:
    """A new, locked temporary file. The lock tells `sweep` that its writer lives."""
    while True:
        path = directory / f"{TEMPORARY}{os.urandom(12).hex()}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, path
        os.close(descriptor)  # a sweep came between creating and locking


def remove_unwritten(path: Path) -> int:
    """Remove a temporary file unless somebody holds its lock; 1 if it was removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return 1
    except (BlockingIOError, FileNotFoundError):
        return 0
    finally:
        os.close(descriptor)


def is_older(entry: os.DirEntry[str], oldest: float) -> bool:
    """Whether an entry of a directory is that old; one that is gone is not."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime <= oldest
    except FileNotFoundError:
        return False


def make_directory(directory: Path) -> None:
    """Make a directory that only its owner enters, on disk when this returns."""
    if not directory.is_dir():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unavailable(what: str, error: OSError) -> StoreUnavailable:
    """The error for a file that the system refuses."""
    return StoreUnavailable(f"{what}: {error.strerror or type(error).__name__}")
