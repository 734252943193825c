"""The payment service of the demo: HTTP on loopback, in its own process, its own database.

    POST   /refunds         {"key", "order", "amount"}  -> {"id", "key", "order", "amount"}
    GET    /refunds/KEY     -> the refund, or 404
    DELETE /refunds/KEY     -> reverses it
    GET    /balance         -> {"paid_out": cents}
    GET    /pending         -> {"pending": [[method, key], ...]}: received, not applied yet
    PUT    /late            {"seconds"}: from now on, apply requests that long after receipt
    POST   /stop            -> ends the service

It honours idempotency keys of payments. With `--late SECONDS` it applies a request that long
after it was received, also when the caller is gone by then: a server does not notice that its
client was killed. Every application is counted, so that a reversal which comes twice shows.

Standard library only: it is started as a file, isolated from everything else.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

_TABLES = """
create table if not exists refunds (
    key text primary key, ord text not null, amount integer not null,
    reversed integer not null default 0
);
create table if not exists applied (key text not null, what text not null);
"""


class Ledger:
    """Refunds in a SQLite file: what really happened."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=normal")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def pay(self, key: str, order: str, amount: int) -> dict[str, Any]:
        """Pay out once per key."""
        with self._lock, self._db:
            fresh = self._db.execute(
                "insert into refunds (key, ord, amount) values (?, ?, ?) "
                "on conflict do nothing returning key",
                (key, order, amount),
            ).fetchone()
            if fresh:
                self._db.execute("insert into applied values (?, 'paid')", (key,))
        return {"id": f"re_{key}", "key": key, "order": order, "amount": amount}

    def reverse(self, key: str) -> bool:
        """Take a refund back; whether there was one to take back. Each time is counted."""
        with self._lock, self._db:
            self._db.execute("insert into applied values (?, 'reversed')", (key,))
            changed = self._db.execute(
                "update refunds set reversed = 1 where key = ? and reversed = 0", (key,)
            ).rowcount
        return changed > 0

    def find(self, key: str) -> dict[str, Any] | None:
        """A refund that is in place."""
        with self._lock:
            row = self._db.execute(
                "select ord, amount from refunds where key = ? and reversed = 0", (key,)
            ).fetchone()
        if row is None:
            return None
        return {"id": f"re_{key}", "key": key, "order": row[0], "amount": row[1]}

    def paid_out(self) -> int:
        """Cents paid out and not reversed."""
        with self._lock:
            row = self._db.execute(
                "select coalesce(sum(amount), 0) from refunds where reversed = 0"
            ).fetchone()
        return int(row[0])


class Service(http.server.ThreadingHTTPServer):
    """The service; it ends itself after `idle` seconds without a request."""

    daemon_threads = True
    # Room for callers that are killed and come back faster than they are served.
    request_queue_size = 64

    def __init__(self, path: Path, late: float = 0.0, idle: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ledger = Ledger(path)
        self.late = late
        self.idle = idle
        self.last = time.monotonic()
        self.pending: dict[int, tuple[str, str]] = {}
        self.numbers = itertools.count()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def watch(self) -> None:
        """Wait until nobody has asked for anything for `idle` seconds, then end the service."""
        while (rest := self.last + self.idle - time.monotonic()) > 0:
            time.sleep(rest)
        self.shutdown()


class _Handler(http.server.BaseHTTPRequestHandler):
    @property
    def service(self) -> Service:
        """The service that this request came to."""
        assert isinstance(self.server, Service)
        return self.server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # the caller is gone; what it asked for has been done all the same

    def _body(self) -> dict[str, Any]:
        self.service.last = time.monotonic()
        found: dict[str, Any] = json.loads(
            self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
        )
        return found

    def _key(self) -> str:
        return self.path.rpartition("/")[2]

    def _received(self, method: str, key: str) -> int:
        number = next(self.service.numbers)
        self.service.pending[number] = (method, key)
        time.sleep(self.service.late)
        return number

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/stop":
            self._reply(200, {})
            threading.Thread(target=self.service.shutdown).start()
            return
        number = self._received("POST", body["key"])
        paid = self.service.ledger.pay(body["key"], body["order"], int(body["amount"]))
        del self.service.pending[number]
        self._reply(200, paid)

    def do_DELETE(self) -> None:
        self._body()
        number = self._received("DELETE", self._key())
        changed = self.service.ledger.reverse(self._key())
        del self.service.pending[number]
        self._reply(200, {"reversed": changed})

    def do_PUT(self) -> None:
        self.service.late = float(self._body()["seconds"])
        self._reply(200, {})

    def do_GET(self) -> None:
        self._body()
        if self.path == "/balance":
            self._reply(200, {"paid_out": self.service.ledger.paid_out()})
        elif self.path == "/pending":
            self._reply(200, {"pending": list(self.service.pending.values())})
        else:
            found = self.service.ledger.find(self._key())
            self._reply(200 if found else 404, found or {"error": "no such refund"})


def main(argv: list[str] | None = None) -> None:
    """Run the service until it is stopped or idle; print its port first."""
    parser = argparse.ArgumentParser(prog="payments")
    parser.add_argument("path", type=Path)
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--idle", type=float, default=0.0)
    options = parser.parse_args(argv)
    with Service(options.path, options.late, options.idle) as service:
        sys.stdout.write(f"{service.port}\n")
        sys.stdout.flush()
        if options.idle:
            threading.Thread(target=service.watch, daemon=True).start()
        service.serve_forever(poll_interval=0.2)
        service.ledger.close()


if __name__ == "__main__":
    main()
