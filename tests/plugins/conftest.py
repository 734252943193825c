"""A place that takes webhooks, for what sends them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Receiver:
    """Keeps what is posted to it; answers with `states` in turn, then 204."""

    def __init__(self, *states: int) -> None:
        self.requests: list[tuple[dict[str, str], str]] = []
        self.states = list(states)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                headers = {key.lower(): value for key, value in self.headers.items()}
                receiver.requests.append((headers, self.rfile.read(length).decode()))
                self.send_response(receiver.states.pop(0) if receiver.states else 204)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-path"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Receivers(list[Receiver]):
    """Those of one test."""

    def add(self, *states: int) -> Receiver:
        self.append(Receiver(*states))
        return self[-1]


@pytest.fixture
def receivers() -> Iterator[Receivers]:
    made = Receivers()
    yield made
    for receiver in made:
        receiver.close()
