"""The world that the demo's agent acts on: shop, payments, mail."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import mailbox
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

CUSTOMERS = (
    ("c1", "casey.doyle@example.org", "212-555-0142"),
    ("c2", "robin.marsh@example.net", "415-555-0199"),
    ("c3", "sam.iyer@example.com", "303-555-0117"),
)
ORDERS = (
    ("o1", "c1", "desk lamp", 4200, "Arrived broken. I paid with 4111 1111 1111 1111."),
    ("o2", "c2", "office chair", 26900, "Never arrived. My SSN is 536-22-8731, if you need it."),
    ("o3", "c3", "monitor arm", 8900, "Wrong size. Call 303-555-0117."),
    ("o4", "c1", "keyboard", 7500, "Two keys are dead."),
    ("o5", "c3", "webcam", 6400, "Sent back last week."),
)
IDLE = 120.0
"""Seconds without a request after which the payment service ends itself."""
_SERVICE = Path(__file__).with_name("payments.py")
_SCHEMA = """
create table if not exists customers (id text primary key, email text, phone text);
create table if not exists orders (
    id text primary key, customer text, item text, cents integer, complaint text
);
create table if not exists refunds (ord text primary key, cents integer);
create table if not exists unrecorded (ord text);
create table if not exists closed (ord text primary key);
"""


@dataclass(frozen=True, slots=True)
class Balance:
    """What stands in the world: rows in the shop, cents paid out, mails sent."""

    refund_rows: int
    paid_out: int
    mails: int

    def __str__(self) -> str:
        return (
            f"${self.paid_out / 100:.2f} paid out, {_count(self.refund_rows, 'refund row')}, "
            f"{_count(self.mails, 'mail')}"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class World:
    """A folder with the shop's database, the payment service's database and a Maildir.

    `late`: seconds after receipt at which the payment service applies a request. Whoever
    asks the service first starts it; several processes share it.
    """

    def __init__(self, folder: Path, *, late: float = 0.0) -> None:
        self.folder = folder
        self._late = late
        self._url = ""
        self._service: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with self.shop() as db:
            db.executescript(_SCHEMA)
            db.executemany("insert or ignore into customers values (?, ?, ?)", CUSTOMERS)
            db.executemany("insert or ignore into orders values (?, ?, ?, ?, ?)", ORDERS)
        mailbox.Maildir(folder / "mail")
        mailbox.Maildir(folder / "mail-recalled")

    # -- the payment service

    def start(self) -> None:
        """Find the running payment service, or start it; it ends with this process."""
        port_file = self.folder / "payments.port"
        with (self.folder / "payments.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if port_file.exists():
                url = f"http://127.0.0.1:{port_file.read_text()}"
                with contextlib.suppress(OSError):
                    _ask("GET", f"{url}/balance")
                    self._url = url
                    return
            with (self.folder / "payments.log").open("a") as log:
                self._service = subprocess.Popen(  # noqa: S603 - a file of this package
                    [sys.executable, "-I", str(_SERVICE), str(self.folder / "payments.db"),
                     "--late", str(self._late), "--idle", str(IDLE)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                    start_new_session=True,
                )  # fmt: skip
            atexit.register(self.stop)
            assert self._service.stdout is not None
            with self._service.stdout as told:
                port = told.readline().strip()
            port_file.write_text(port)
            self._url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """End the payment service, if this process started it."""
        service, self._service = self._service, None
        if service is None:
            return
        atexit.unregister(self.stop)
        with contextlib.suppress(OSError):
            _ask("POST", f"{self._url}/stop", {})
        self._url = ""
        try:
            service.wait(5)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()
        (self.folder / "payments.port").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def payments(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request to the payment service; it is started if it does not run.

        Raises `OSError` where no reply came: the request may have been applied.
        """
        if not self._url:
            self.start()
        try:
            return _ask(method, self._url + path, body)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            # Nobody took the request, so it can be sent again.
            self.start()
            return _ask(method, self._url + path, body)

    def pay(self, key: str, order: str, amount: int) -> dict[str, Any]:
        """Pay out a refund in cents."""
        return self.payments("POST", "/refunds", {"key": key, "order": order, "amount": amount})

    def paid(self, key: str) -> dict[str, Any] | None:
        """A refund that is in place at the payment service."""
        try:
            return self.payments("GET", f"/refunds/{key}")
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise

    def reverse(self, key: str) -> None:
        """Take a refund back at the payment service."""
        self.payments("DELETE", f"/refunds/{key}")

    def pending(self) -> list[tuple[str, str]]:
        """(method, key) of requests that were received and are not applied yet."""
        return [(method, key) for method, key in self.payments("GET", "/pending")["pending"]]

    def be_late(self, seconds: float) -> None:
        """From now on, requests are applied that long after their receipt."""
        self.payments("PUT", "/late", {"seconds": seconds})

    # -- the shop

    @contextlib.contextmanager
    def shop(self) -> Iterator[sqlite3.Connection]:
        """The shop's database, one transaction."""
        db = sqlite3.connect(self.folder / "shop.db", timeout=30)
        db.row_factory = sqlite3.Row
        # What is committed here has to survive kills, not power cuts.
        db.execute("pragma synchronous=off")
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

    def unrecord(self, order: str) -> None:
        """Delete a refund's row; each time is counted."""
        with self.shop() as db:
            db.execute("delete from refunds where ord = ?", (order,))
            db.execute("insert into unrecorded values (?)", (order,))

    # -- mail

    def mail(self, key: str, to: str, subject: str, text: str) -> str:
        """Deliver a mail into the Maildir; its Message-ID."""
        message = EmailMessage()
        message["From"] = "refunds@shop.example"
        message["To"] = to
        message["Subject"] = subject
        message["Message-ID"] = _message_id(key)
        message.set_content(text)
        mailbox.Maildir(self.folder / "mail").add(message)
        return str(message["Message-ID"])

    def mails(self) -> list[mailbox.MaildirMessage]:
        """Everything that was sent and not recalled."""
        return list(mailbox.Maildir(self.folder / "mail"))

    def recall(self, key: str) -> None:
        """Move a mail out of the Maildir again, in one step."""
        box = mailbox.Maildir(self.folder / "mail")
        for name, message in box.items():
            if message["Message-ID"] == _message_id(key):
                found = next((self.folder / "mail" / message.get_subdir()).glob(f"{name}*"))
                found.rename(self.folder / "mail-recalled" / "new" / found.name)

    def mailed(self, key: str) -> bool:
        """Whether a mail is there."""
        return any(m["Message-ID"] == _message_id(key) for m in self.mails())

    # -- all of it

    def balance(self) -> Balance:
        """What stands now."""
        with self.shop() as db:
            rows = db.execute("select count(*) from refunds").fetchone()[0]
        paid = int(self.payments("GET", "/balance")["paid_out"])
        return Balance(rows, paid, len(self.mails()))


def _message_id(key: str) -> str:
    return f"<{key}@shop.example>"


def _ask(method: str, url: str, body: Any = None) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - loopback, built by this module
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    # No proxy: a proxy of the environment must not get requests to loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        found: dict[str, Any] = json.loads(reply.read())
        return found
