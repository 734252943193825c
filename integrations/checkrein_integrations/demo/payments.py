"""The payment service of the demo: HTTP on loopback, in its own process, its own database.

    POST   /refunds         {"key", "order", "amount"}  -> {"id", "key", "amount"}
    GET    /refunds/KEY     -> the refund, or 404
    DELETE /refunds/KEY     -> reverses it; doing it again changes nothing
    GET    /balance         -> {"paid_out": cents}

It honours idempotency keys, and with `--late SECONDS` it applies a request that long after it
was received, also when the caller is gone by then: a server does not notice that its client
was killed.
"""

from __future__ import annotations

import argparse
import http.server
import json
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

_TABLE = """
create table if not exists refunds (
    key text primary key, ord text not null, amount integer not null,
    reversed integer not null default 0, applied integer not null default 1
)
"""


class Ledger:
    """Refunds in a SQLite file: what really happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._lock, self._open() as db:
            db.execute("pragma journal_mode=wal")
            db.execute(_TABLE)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30, isolation_level=None)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._lock:
            db = self._open()
            try:
                return db.execute(statement, values).fetchall()
            finally:
                db.close()

    def pay(self, key: str, order: str, amount: int) -> dict[str, Any]:
        """Pay out once per key."""
        self._run(
            "insert into refunds (key, ord, amount) values (?, ?, ?) on conflict do nothing",
            key, order, amount,
        )  # fmt: skip
        found = self.find(key)
        return found if found is not None else {"key": key, "reversed": True}

    def reverse(self, key: str) -> bool:
        """Take a refund back; whether there was one to take back."""
        return bool(
            self._run(
                "update refunds set reversed = 1 where key = ? and reversed = 0 returning key", key
            )
        )

    def find(self, key: str) -> dict[str, Any] | None:
        """A refund that is in place."""
        rows = self._run(
            "select key, ord, amount from refunds where key = ? and reversed = 0", key
        )
        return {"id": f"re_{rows[0][0]}", "key": rows[0][0], "order": rows[0][1],
                "amount": rows[0][2]} if rows else None  # fmt: skip

    def paid_out(self) -> int:
        """Cents paid out and not reversed."""
        return int(
            self._run("select coalesce(sum(amount), 0) from refunds where reversed = 0")[0][0]
        )


class _Handler(http.server.BaseHTTPRequestHandler):
    ledger: Ledger
    late: float

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
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

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(self.late)
        self._reply(200, self.ledger.pay(body["key"], body["order"], int(body["amount"])))

    def do_DELETE(self) -> None:
        time.sleep(self.late)
        self._reply(200, {"reversed": self.ledger.reverse(self.path.rpartition("/")[2])})

    def do_GET(self) -> None:
        if self.path == "/balance":
            self._reply(200, {"paid_out": self.ledger.paid_out()})
            return
        found = self.ledger.find(self.path.rpartition("/")[2])
        self._reply(200 if found else 404, found or {"error": "no such refund"})


def serve(path: Path, late: float, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server on loopback; the caller runs it."""
    handler = type("Handler", (_Handler,), {"ledger": Ledger(path), "late": late})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


def main(argv: list[str] | None = None) -> None:
    """Run the service until it is killed; print its port first."""
    parser = argparse.ArgumentParser(prog="payments")
    parser.add_argument("path", type=Path)
    parser.add_argument("--late", type=float, default=0.0)
    options = parser.parse_args(argv)
    server = serve(options.path, options.late)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
