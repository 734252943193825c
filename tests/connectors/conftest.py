"""A small HTTP stand-in for services whose SDKs are real, and Reins over SQLite."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from checkrein import Rein


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """SDKs and moto leave connections and files to the collector, which complains of them."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


Answer = Callable[[str, str, dict[str, Any], dict[str, str]], tuple[int, Any]]


class StandIn:
    """Answers requests with `answer(method, path, body, headers)`; remembers them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Any], dict[str, str]]] = []
        self.answer: Answer = lambda method, path, body, headers: (404, {})
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length).decode() if length else ""
                parts = urlsplit(self.path)
                body = dict(parse_qsl(parts.query, keep_blank_values=True))
                if raw.startswith(("{", "[")):
                    read = json.loads(raw)
                    body |= read if isinstance(read, dict) else {"": read}
                elif raw:
                    body |= dict(parse_qsl(raw, keep_blank_values=True))
                request = (self.command, parts.path, body, dict(self.headers))
                service.seen.append(request)
                status, tree = service.answer(*request)
                text = b"" if status == 204 else json.dumps(tree).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[StandIn]:
    found = StandIn()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def rein(tmp_path: Path) -> Iterator[Rein]:
    with Rein(store=f"sqlite:///{tmp_path}/s.db", on_error="keep") as made:
        yield made


def statuses(report: Any) -> list[tuple[str, str]]:
    return [(a.name.partition(".")[2], a.status) for a in report.actions]
