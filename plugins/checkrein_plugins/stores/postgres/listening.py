"""LISTEN: a connection of its own that the server tells of changes, while somebody waits."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from checkrein_plugins.stores.postgres.address import Address

AGAIN = 1.0
"""Seconds before a lost connection is tried again; meanwhile the store is asked."""
NAME = "checkrein listening"
"""How the connection is called in the server's list."""


class Ear:
    """Implements `checkrein.store._hearing.Ear`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: psycopg.Connection[Any] | None = None
        self._retry = 0.0

    def wait(self, seconds: float) -> bool:
        """Return when something was committed, or the time is over; False: ask the store."""
        try:
            if self._connection is None:
                if time.monotonic() < self._retry:
                    return False
                self._connect()
                return True
            for _ in self._connection.notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error:
            self.close()
            self._retry = time.monotonic() + AGAIN
            return False
        return True

    def _connect(self) -> None:
        connection = psycopg.connect(
            self._address.server, autocommit=True, connect_timeout=2, application_name=NAME
        )
        self._connection = connection
        channel = sql.Identifier(f"{self._address.schema}_changed")
        connection.execute(sql.SQL("LISTEN {}").format(channel))

    def close(self) -> None:
        """Hear no more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
