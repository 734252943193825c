"""An agent works through an SDK against a service over HTTP, is killed, and is taken back.

python examples/undo_stripe_like.py

The service and its SDK are small stand-ins, shaped like a payment provider's. The agent makes a
customer and a subscription, changes the customer, and dies in the middle of a refund. Another
process recovers the session: newest first, what cannot be undone is named.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from checkrein import Rein

# -- a service, and its SDK


class Service(BaseHTTPRequestHandler):
    """Objects by path; an `Idempotency-Key` makes a repeated request the same one."""

    objects: ClassVar[dict[str, dict[str, Any]]] = {}
    keys: ClassVar[dict[str, dict[str, Any]]] = {}

    def log_message(self, *args: Any) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        key = self.headers.get("Idempotency-Key", "")
        if key not in self.keys or not key:
            found = self._apply(body)
            if key:
                self.keys[key] = found
        else:
            found = self.keys[key]
        text = json.dumps(found).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _apply(self, body: dict[str, Any]) -> dict[str, Any]:
        path = self.path.strip("/")
        if self.command == "POST" and "/" not in path:
            id = f"{path}_{len(self.objects) + 1}"
            self.objects[f"{path}/{id}"] = {"id": id, **body}
            return self.objects[f"{path}/{id}"]
        if self.command == "DELETE":
            return self.objects.pop(path, {})
        if self.command == "POST" and path in self.objects:
            self.objects[path].update(body)
        return self.objects.get(path, {})

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names of the standard library


class Resource:
    """One kind of object of the SDK."""

    def __init__(self, url: str, kind: str) -> None:
        self.url, self.kind = url, kind

    def _send(self, method: str, path: str, params: Any, key: str | None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - a service of our own
            f"{self.url}/{path}", json.dumps(params).encode() if params else None, method=method
        )
        if key:
            request.add_header("Idempotency-Key", key)
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def create(self, params: dict[str, Any], idempotency_key: str | None = None) -> dict[str, Any]:
        """Make one."""
        return self._send("POST", self.kind, params, idempotency_key)

    def retrieve(self, id: str) -> dict[str, Any]:
        """Look at one."""
        return self._send("GET", f"{self.kind}/{id}", None, None)

    def update(
        self, id: str, params: dict[str, Any], idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Change one."""
        return self._send("POST", f"{self.kind}/{id}", params, idempotency_key)

    def delete(self, id: str, idempotency_key: str | None = None) -> dict[str, Any]:
        """Delete one."""
        return self._send("DELETE", f"{self.kind}/{id}", None, idempotency_key)


class Client:
    """The SDK's client."""

    def __init__(self, url: str) -> None:
        self.customers = Resource(url, "customers")
        self.subscriptions = Resource(url, "subscriptions")
        self.refunds = Resource(url, "refunds")


TABLE: dict[str, Any] = {
    "connector": "pay",
    "package": "pay-sdk",
    "tested": "1.0",
    "client": "undo_stripe_like:Client",
    "methods": {
        "customers.create": {
            "operation": "create",
            "undo": "customers.delete(result.id, idempotency_key=key)",
            "idempotency": "idempotency_key",
        },
        "customers.update": {
            "operation": "update",
            "before": "customers.retrieve(id)",
            "undo": "customers.update(id, before[params], idempotency_key=key)",
            "idempotency": "idempotency_key",
        },
        "subscriptions.create": {
            "operation": "create",
            "undo": "subscriptions.delete(result.id, idempotency_key=key)",
            "idempotency": "idempotency_key",
        },
        "refunds.create": {
            "operation": "create",
            "undo": "none",
            "why": "money that was sent back cannot be fetched again",
            "idempotency": "idempotency_key",
        },
    },
}


# -- the application


def application(store: str, url: str) -> tuple[Rein, Client]:
    """What every process of the application declares."""
    rein = Rein(store=store)
    return rein, rein.wrap(Client(url), connector="pay", table=TABLE)


def agent(store: str, url: str) -> None:
    """Work, and die in the middle of it."""
    rein, pay = application(store, url)
    with rein.session("billing", "move ann to the yearly plan"):
        old = pay.customers.create({"name": "ann", "plan": "monthly"})
        pay.subscriptions.create({"customer": old["id"]})
        pay.customers.update(old["id"], {"plan": "yearly"})
        pay.refunds.create({"customer": old["id"], "amount": 40})
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> list[tuple[str, str]]:
    """Play it; what became of each effect."""
    Service.objects, Service.keys = {}, {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'store.db'}"
        done = subprocess.run(  # noqa: S603 - this very file
            [sys.executable, __file__, store, url], check=False
        )
        print(f"the agent died of signal {-done.returncode}; over there: {[*Service.objects]}")
        rein, _ = application(store, url)
        with rein:
            report = rein.recover()
            found = [(a.name, a.status) for one in report.sessions for a in one.actions]
    server.shutdown()
    server.server_close()
    for name, status in found:
        print(f"  {name}: {status}")
    print(f"left over there: {[*Service.objects]}")
    assert [*Service.objects] == ["refunds/refunds_3"]
    assert [status for _, status in found] == ["not_undoable", "undone", "undone", "undone"]
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        agent(*sys.argv[1:])
    else:
        main()
