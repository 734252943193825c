"""Files under a root, changed so that it can be taken back.

    files = rein.wrap(Files(root), connector="files")

What is overwritten or deleted is kept first, as a copy that is named by its content, in
`.checkrein` under the root: equal content is kept once, and a copy is never changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkrein.errors import ConfigError

COPIES = ".checkrein"
"""Directory of the copies, under the root."""


class Files:
    """Changes files under `root`, and nothing outside it. Paths are relative to it.

    Raises `ConfigError` for a path that leads out of the root, also by a link, or to the copies.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise ConfigError(f"files: {root} is no directory")

    # -- what agents call

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self.at(path).read_bytes()

    def list(self, path: str = ".") -> list[str]:
        """Names in a directory."""
        return sorted(p.name for p in self.at(path).iterdir() if p.name != COPIES)

    def write(self, path: str, data: bytes | str) -> int:
        """Write a whole file; how many bytes."""
        return self._replace(self.at(path), data if isinstance(data, bytes) else data.encode())

    def append(self, path: str, data: bytes | str) -> int:
        """Add to the end of a file; how many bytes it has then."""
        place = self.at(path)
        old = place.read_bytes() if place.exists() else b""
        return self._replace(place, old + (data if isinstance(data, bytes) else data.encode()))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.at(path).unlink()

    def move(self, source: str, target: str) -> None:
        """Move a file; what lies at the target is overwritten."""
        self.at(source).replace(self.at(target))

    def copy(self, source: str, target: str) -> None:
        """Copy a file; what lies at the target is overwritten."""
        self._replace(self.at(target), self.at(source).read_bytes())

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        self.at(path).mkdir()

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""
        self.at(path).rmdir()

    def rmtree(self, path: str) -> None:
        """Delete a directory with all that it holds."""
        shutil.rmtree(self.at(path))

    def chmod(self, path: str, mode: int) -> None:
        """Set a file's permissions."""
        self.at(path).chmod(mode)

    def truncate(self, path: str, size: int = 0) -> None:
        """Cut a file."""
        self._replace(self.at(path), self.at(path).read_bytes()[:size])

    # -- places

    def at(self, path: str) -> Path:
        """A path under the root. Raises `ConfigError` for one that leads elsewhere."""
        if "\0" in path:
            raise ConfigError("files: a path holds a NUL")
        place = (self.root / path).resolve()
        if not place.is_relative_to(self.root) or (self.root / COPIES) in (place, *place.parents):
            raise ConfigError(f"files: {path!r} does not lie under the root")
        return place

    @staticmethod
    def _replace(place: Path, data: bytes) -> int:
        """Write beside it, and put that in its place: nobody sees half a file."""
        mode = place.stat().st_mode & 0o7777 if place.exists() else 0o644
        beside = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
        try:
            with beside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.chmod(mode)
            beside.replace(place)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        return len(data)

    # -- what stood there

    def keep(self, place: Path) -> dict[str, Any]:
        """What stands at a place, its content kept as a copy; empty if nothing does."""
        if place.is_dir():
            inner = [p for p in sorted(place.iterdir()) if p.name != COPIES]
            holds = {p.name: self.keep(p) for p in inner}
            return {"dir": True, "mode": place.stat().st_mode & 0o7777, "holds": holds}
        if not place.exists():
            return {}
        data = place.read_bytes()
        name = hashlib.sha256(data).hexdigest()
        copy = self.root / COPIES / name[:2] / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            (self.root / COPIES).chmod(0o700)
            self._replace(copy, data)
        return {"sha256": name, "mode": place.stat().st_mode & 0o7777}

    def put_back(self, place: Path, before: Mapping[str, Any]) -> None:
        """Make a place what it was. To do it twice is to do it once."""
        if not before:
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        elif before.get("dir"):
            place.mkdir(parents=True, exist_ok=True)
            for name, inner in before["holds"].items():
                self.put_back(place / name, inner)
            place.chmod(before["mode"])
        else:
            data = (self.root / COPIES / before["sha256"][:2] / before["sha256"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != before["sha256"]:
                raise OSError(f"the copy {before['sha256'][:12]} was altered: it is not put back")
            self._replace(place, data)
            place.chmod(before["mode"])


def before(files: Files, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What stands at a call's paths."""
    names = [arguments[key] for key in ("path", "source", "target") if key in arguments]
    return {name: files.keep(files.at(name)) for name in names}


def back(files: Files, before: dict[str, Any]) -> None:
    """Make the places of a call what they were."""
    for name, kept in before.items():
        files.put_back(files.at(name), kept)
