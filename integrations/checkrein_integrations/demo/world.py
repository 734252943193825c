"""The world that the demo's agent acts on: shop, payments, mail."""

from __future__ import annotations

import contextlib
import json
import mailbox
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

CUSTOMERS = (
    ("c1", "Casey Doyle", "casey.doyle@example.org", "212-555-0142"),
    ("c2", "Robin Marsh", "robin.marsh@example.net", "415-555-0199"),
    ("c3", "Sam Iyer", "sam.iyer@example.com", "303-555-0117"),
)
ORDERS = (
    ("o1", "c1", "desk lamp", 4200, "arrived broken"),
    ("o2", "c2", "office chair", 26900, "never arrived"),
    ("o3", "c3", "monitor arm", 8900, "wrong size"),
    ("o4", "c1", "keyboard", 7500, "changed my mind"),
)
_SCHEMA = """
create table if not exists customers (id text primary key, name text, email text, phone text);
create table if not exists orders (
    id text primary key, customer text, item text, cents integer, complaint text
);
create table if not exists refunds (ord text primary key, cents integer, key text);
"""


@dataclass(frozen=True)
class Balance:
    """What stands in the world: rows in the shop, cents paid out, mails sent."""

    refund_rows: int
    paid_out: int
    mails: int

    def __str__(self) -> str:
        return (
            f"{self.refund_rows} refund rows, ${self.paid_out / 100:.2f} paid out, "
            f"{self.mails} mails"
        )


class World:
    """A folder with the shop's database, the payment service's database and a Maildir."""

    def __init__(self, folder: Path, *, late: float = 0.0) -> None:
        self.folder = folder
        self.late = late
        folder.mkdir(parents=True, exist_ok=True)
        with self.shop() as db:
            db.executescript(_SCHEMA)
            db.executemany("insert or ignore into customers values (?, ?, ?, ?)", CUSTOMERS)
            db.executemany("insert or ignore into orders values (?, ?, ?, ?, ?)", ORDERS)
        self.outbox = mailbox.Maildir(folder / "mail")
        self._service: subprocess.Popen[str] | None = None

    # -- the payment service

    def start(self) -> None:
        """Start the payment service, or find the one that an earlier process started."""
        port_file = self.folder / "payments.port"
        if port_file.exists():
            port = int(port_file.read_text().split()[0])
            with contextlib.suppress(OSError):
                _ask("GET", f"http://127.0.0.1:{port}/balance")
                self.url = f"http://127.0.0.1:{port}"
                return
        self._service = subprocess.Popen(  # noqa: S603 - this module's own service
            [sys.executable, "-m", "checkrein_integrations.demo.payments",
             str(self.folder / "payments.db"), "--late", str(self.late)],
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._service.stdout is not None
        port = int(self._service.stdout.readline())
        port_file.write_text(f"{port} {self._service.pid}")
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """End the payment service, whoever started it."""
        port_file = self.folder / "payments.port"
        if port_file.exists():
            pid = int(port_file.read_text().split()[1])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            port_file.unlink()
        if self._service is not None:
            self._service.wait(10)
            if self._service.stdout is not None:
                self._service.stdout.close()
            self._service = None

    def pay(self, key: str, order: str, amount: int) -> dict[str, Any]:
        """Pay out a refund. Raises `OSError` where no reply came: it may have been paid."""
        return _ask("POST", f"{self.url}/refunds", {"key": key, "order": order, "amount": amount})

    def paid(self, key: str) -> dict[str, Any] | None:
        """A refund that is in place at the payment service."""
        try:
            return _ask("GET", f"{self.url}/refunds/{key}")
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise

    def reverse(self, key: str) -> None:
        """Take a refund back at the payment service."""
        _ask("DELETE", f"{self.url}/refunds/{key}")

    # -- the shop

    @contextlib.contextmanager
    def shop(self) -> Iterator[sqlite3.Connection]:
        """The shop's database, one transaction."""
        db = sqlite3.connect(self.folder / "shop.db", timeout=30)
        db.row_factory = sqlite3.Row
        try:
            with db:
                yield db
        finally:
            db.close()

    def row(self, statement: str, *values: Any) -> dict[str, Any] | None:
        """One row as a dict."""
        with self.shop() as db:
            found = db.execute(statement, values).fetchone()
        return dict(found) if found is not None else None

    # -- mail

    def mail(self, key: str, to: str, subject: str, text: str) -> str:
        """Deliver a mail into the Maildir; its Message-ID."""
        message = EmailMessage()
        message["From"] = "refunds@shop.example"
        message["To"] = to
        message["Subject"] = subject
        message["Message-ID"] = f"<{key}@shop.example>"
        message.set_content(text)
        self.outbox.add(message)
        return str(message["Message-ID"])

    def mails(self) -> list[mailbox.MaildirMessage]:
        """Everything that was sent and not recalled."""
        self.outbox = mailbox.Maildir(self.folder / "mail")
        return list(self.outbox)

    def recall(self, key: str) -> None:
        """Remove a mail again."""
        self.outbox = mailbox.Maildir(self.folder / "mail")
        for name, message in list(self.outbox.items()):
            if message["Message-ID"] == f"<{key}@shop.example>":
                self.outbox.discard(name)

    def mailed(self, key: str) -> bool:
        """Whether a mail is there."""
        return any(m["Message-ID"] == f"<{key}@shop.example>" for m in self.mails())

    # -- all of it

    def balance(self) -> Balance:
        """What stands now."""
        with self.shop() as db:
            rows = db.execute("select count(*) from refunds").fetchone()[0]
        try:
            paid = int(_ask("GET", f"{self.url}/balance")["paid_out"])
        except (OSError, AttributeError):
            paid = -1
        return Balance(rows, paid, len(self.mails()))


def _ask(method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - loopback, built by this module
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 - as above
        found: dict[str, Any] = json.loads(reply.read())
        return found
