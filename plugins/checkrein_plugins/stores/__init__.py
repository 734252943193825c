"""Stores for many hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkrein.errors import ConfigError

if TYPE_CHECKING:
    from checkrein.store import Store, StoreOptions


def postgresql(url: str, options: StoreOptions | None = None) -> Store:
    """Open the store of a `postgresql://` address.

    Raises `ConfigError` without the extra `postgres`, and what `PostgresStore` raises.
    """
    try:
        from checkrein_plugins.stores.postgres import PostgresStore
    except ImportError as error:
        raise ConfigError(
            'store: postgresql:// needs the package psycopg: pip install "checkrein[postgres]"'
        ) from error
    return PostgresStore(url, options)
