"""Which backend a URL names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from checkrein.errors import ConfigError

if TYPE_CHECKING:
    from checkrein.store import Store


@dataclass(slots=True)
class StoreOptions:
    """What a Rein asks of its store at opening."""

    durability: Literal["process", "power"] = "process"
    """`process` survives kills; `power` also survives a power cut (intents are synced)."""
    max_payload: int = 8 * 1024 * 1024
    encrypt: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    moving: bool = False
    """Open also what is half migrated: for the migration itself."""


def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open the store that `url` names.

    Raises `ConfigError` for an unknown scheme and `StoreUnavailable` where it cannot be used.
    """
    options = options or StoreOptions()
    scheme, colon, _ = url.partition(":")
    if scheme == "memory":
        from checkrein.store.memory import MemoryStore

        return MemoryStore(url, options)
    if scheme == "sqlite":
        from checkrein.store.sqlite import SqliteStore

        return SqliteStore(url, options)
    from importlib.metadata import entry_points

    for entry in entry_points(group="checkrein.stores"):
        if entry.name == scheme:
            opened: Store = entry.load()(url, options)
            return opened
    # Never the address itself: it may hold a password, and not only where one is expected.
    named = f"unknown scheme {scheme!r}" if colon and scheme.isalnum() else "it has no scheme"
    raise ConfigError(
        f"store: {named}; use memory:, sqlite:///PATH, or install a package that offers this scheme"
    )
