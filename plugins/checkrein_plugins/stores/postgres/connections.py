"""Connections to the server: a pool, what its errors mean, and a fork."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg_pool import ConnectionPool, PoolTimeout

from checkrein.errors import ConfigError, StoreUnavailable, Unencodable
from checkrein_plugins.stores.postgres.address import Address

Connection: TypeAlias = Any
"""A psycopg connection. Its own type takes literal statements only; those here are put together
from constants of this package."""

VERSION = 1
"""Of the schema."""
_MAKING = 0x63726E31
"""The lock under which the schema is made."""
OLDEST_SERVER = 140000
"""PostgreSQL 14, as the server numbers itself."""
T = TypeVar("T")

_PAUSE = 0.05
"""Seconds before a lost server is tried again."""
CONNECTIONS = 16
"""Of one process, at most."""
PATIENCE = 10.0
"""Seconds that a call waits for a connection, and a commit for a server that went away."""


class Connections:
    """A pool of connections of one process; a forked child makes its own."""

    def __init__(self, address: Address, *, patience: float = PATIENCE) -> None:
        self.address = address
        self.patience = patience
        self._lock = threading.Lock()
        self._closed = False
        self._pid = 0
        self._pool: ConnectionPool[Any] | None = None

    def pool(self) -> ConnectionPool[Any]:
        """The pool of this process. Raises `StoreUnavailable` after `close`."""
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"store {self.address.shown} was closed")
            if self._pool is None or self._pid != os.getpid():
                # A pool that a parent process made is its own: it is left alone.
                self._pid = os.getpid()
                self._pool = ConnectionPool(
                    self.address.server,
                    min_size=1,
                    max_size=CONNECTIONS,
                    timeout=self.patience,
                    # Off by default: it costs a round trip. A dead one is found when it is used.
                    check=None,
                    kwargs={
                        "autocommit": True,
                        "connect_timeout": max(2, int(self.patience)),
                        "prepare_threshold": 2,
                        "options": f"-c search_path={self.address.schema}",
                        "application_name": "checkrein",
                    },
                    open=True,
                )
            return self._pool

    def run(
        self,
        step: Callable[[Connection], T],
        again: Callable[[Connection], T] | None = None,
    ) -> T:
        """`step` with a connection in autocommit; errors of the driver become ours.

        Where the connection is lost on the way, nobody knows whether `step` was done: `again`
        (by default `step`, for what may be repeated) is tried with other connections, until
        `patience` is over.
        """
        deadline = 0.0
        with self.errors():
            while True:
                try:
                    with self.pool().connection() as connection:
                        return step(connection)
                except psycopg.Error as error:
                    if not _is_lost(error):
                        raise
                    deadline = deadline or time.monotonic() + self.patience
                    if time.monotonic() > deadline:
                        raise
                    step = again or step
                    self.pool().check()
                    time.sleep(_PAUSE)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the driver into ours, with the next step and without credentials."""
        try:
            yield
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"store {self.address.shown}: no connection within {self.patience:g} s: is the "
                "server running, is the address right, are the credentials?"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreUnavailable(
                f"store {self.address.shown}: this role may not do that: {_primary(error)}; grant "
                "it, or use a role that may write"
            ) from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise StoreUnavailable(
                f"store {self.address.shown} is read-only (a standby?): name the primary"
            ) from error
        except psycopg.errors.DiskFull as error:
            raise StoreUnavailable(
                f"store {self.address.shown}: the server's disk is full: make room there"
            ) from error
        except (psycopg.DataError, UnicodeEncodeError) as error:
            raise Unencodable("event", "str", "PostgreSQL cannot hold it (a NUL?)") from error
        except psycopg.Error as error:
            raise StoreUnavailable(f"store {self.address.shown}: {_primary(error)}") from error

    def close(self) -> None:
        """Close the connections. Can be repeated."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection or the server went away, or another transaction stood in the way."""
    if isinstance(error, PoolTimeout):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    # 08: connection; 57P01-57P03: shutdown, crash, starting up; 40: deadlock, rolled back.
    return state[:2] in ("08", "40") or state in ("57P01", "57P02", "57P03")


def _primary(error: psycopg.Error) -> str:
    """The server's own first line, or the kind of error: never an address with a password."""
    return error.diag.message_primary or type(error).__name__


def migrate(connections: Connections) -> None:
    """Make the schema, or check that it is ours. Raises `StoreUnavailable`, `ConfigError`."""
    name = sql.Identifier(connections.address.schema)
    shown = connections.address.shown

    def make(connection: psycopg.Connection[Any]) -> None:
        if connection.info.server_version < OLDEST_SERVER:
            raise StoreUnavailable(
                f"store {shown}: PostgreSQL {connection.info.server_version // 10000} is too old: "
                "use 14 or newer"
            )
        if _version(connection, shown) is not None:
            return
        # Two processes that start at once: the second one waits, outside of a transaction, so
        # that it sees what the first has made.
        connection.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))
        try:
            with connection.transaction():
                if _version(connection, shown) is None:
                    _make(connection, name)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))

    connections.run(make)


def _make(connection: psycopg.Connection[Any], name: sql.Identifier) -> None:
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    schema = (files("checkrein_plugins.stores.postgres") / "schema.sql").read_text(encoding="utf-8")
    connection.execute(schema.encode())
    connection.execute("INSERT INTO meta VALUES ('version', %s)", (str(VERSION),))
    connection.execute("INSERT INTO secrets VALUES ('key', %s)", (os.urandom(32),))


def _version(connection: psycopg.Connection[Any], shown: str) -> int | None:
    found = connection.execute("SELECT to_regclass('meta'), to_regclass('events')").fetchone()
    if found is None or found[0] is None:
        if found is not None and found[1] is not None:
            raise ConfigError(f"store {shown}: its schema belongs to another program; name another")
        return None
    row = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    if row is None or not str(row[0]).isdecimal():
        raise ConfigError(f"store {shown}: its schema belongs to another program; name another")
    if int(row[0]) > VERSION:
        raise StoreUnavailable(
            f"store {shown} was written by a newer checkrein (schema {row[0]}, this one knows "
            f"{VERSION}): upgrade checkrein here, or use another schema"
        )
    return int(row[0])


def secret(connections: Connections) -> bytes:
    """The store's 32 random bytes."""
    row = connections.run(
        lambda connection: connection.execute(
            "SELECT value FROM secrets WHERE key = 'key'"
        ).fetchone()
    )
    if row is None or len(row[0]) != 32:
        raise StoreUnavailable(
            f"store {connections.address.shown}: its key is missing: restore it from a backup"
        )
    return bytes(row[0])
