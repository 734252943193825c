"""An OpenAI-compatible server on loopback that says what a test tells it to.

    with OpenAIServer(["Hello", ToolCall("refund", {"order": 7}), "Done"]) as server:
        client = OpenAI(base_url=server.url, api_key="none")

It knows chat completions and the Responses API. Each request takes the next reply: text, one or
several tool calls, a `Reply` with everything spelt out, or a `Failure`. Answers are plain or
server-sent events, as the request asks.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeAlias, cast

from checkrein.testing import _chat_answers as chat_answers
from checkrein.testing import _response_answers as response_answers


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants a tool called."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    """Sent as JSON; a string is sent as it is (for broken JSON)."""
    id: str = ""
    """Default: `call_REQUEST_INDEX`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model."""

    text: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    reasoning: str | None = None
    """What the model says of its thinking: `reasoning_content`, or a reasoning item."""
    input_tokens: int = 11
    output_tokens: int = 7
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model: str | None = None
    """What the answer calls itself; default: the requested model."""
    finish_reason: str | None = None
    usage: bool = True
    """False: the answer reports no usage, as some servers do."""
    chunk: int = 4
    """Characters of one piece of a streamed answer, of text and of arguments."""
    delay: float = 0.0
    """Seconds before the answer begins."""
    cut_after: int | None = None
    """The connection breaks after so many streamed pieces."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The request goes wrong."""

    status: int = 500
    message: str = "the server had an error"
    code: str | None = None
    retry_after: float | None = None
    """Seconds, in a `Retry-After` header."""
    how: Literal["status", "hang_up", "garbage"] = "status"
    """`hang_up` closes the connection without an answer; `garbage` sends no JSON."""
    delay: float = 0.0
    """Seconds before it."""


Said: TypeAlias = "str | ToolCall | Sequence[ToolCall] | Reply | Failure"
Script: TypeAlias = "Sequence[Said] | Callable[[dict[str, Any]], Said]"


class OpenAIServer:
    """Serves the chat completions, the responses and the models of the API on 127.0.0.1.

    `replies`: a list, used up one by one (a request after the last gets status 500 and says
    so), or a function of the request's body. Use it with `with`, or call `close()`.
    """

    def __init__(self, replies: Script = (), *, model: str = "gpt-4o-mini") -> None:
        self._replies = replies if callable(replies) else list(replies)
        self.model = model
        self.requests: list[dict[str, Any]] = []
        """Bodies of the requests, in order of arrival."""
        self.headers: list[dict[str, str]] = []
        """Their headers, names in lower case."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        cast("Any", self._server).script = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05},
            name="openai-server", daemon=True,
        )  # fmt: skip
        self._thread.start()

    @property
    def url(self) -> str:
        """For `base_url`: `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def say(self, *replies: Said) -> None:
        """Add replies to the list."""
        if callable(self._replies):
            raise TypeError("this server answers by a function: it has no list to add to")
        with self._lock:
            self._replies += replies

    @property
    def left(self) -> int:
        """Replies that no request has taken yet."""
        return 0 if callable(self._replies) else len(self._replies)

    def take(self, body: dict[str, Any], headers: Mapping[str, str]) -> tuple[int, Reply | Failure]:
        """Record a request; its number from 1, and the reply to it."""
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            number = len(self.requests)
            if callable(self._replies):
                said = self._replies(body)
            elif self._replies:
                said = self._replies.pop(0)
            else:
                said = Failure(500, f"the script has no reply for request {number}")
        return number, _reply(said)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _reply(said: Said) -> Reply | Failure:
    if isinstance(said, (Reply, Failure)):
        return said
    if isinstance(said, str):
        return Reply(said)
    return Reply(tool_calls=(said,) if isinstance(said, ToolCall) else tuple(said))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the test reads `requests`."""

    @property
    def _script(self) -> OpenAIServer:
        return cast("OpenAIServer", cast("Any", self.server).script)

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            self._fail(Failure(404, f"no such path: {self.path}"))
            return
        model = {"id": self._script.model, "object": "model", "created": 0, "owned_by": "test"}
        self._json(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api = _APIS.get(self.path.rstrip("/"))
        if api is None:
            self._fail(Failure(404, f"no such path: {self.path}"))
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self._fail(Failure(400, "the body is not JSON", "invalid_request_error"))
            return
        number, reply = self._script.take(body, dict(self.headers.items()))
        if reply.delay:
            time.sleep(reply.delay)
        try:
            if isinstance(reply, Failure):
                self._fail(reply)
            elif body.get("stream"):
                self._stream(api[1](number, body, reply), reply, done=api is _APIS[_CHAT])
            else:
                self._json(200, api[0](number, body, reply))
        except (BrokenPipeError, ConnectionResetError):
            # The client went away: that is the client's affair.
            self.close_connection = True

    def _json(self, status: int, tree: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(tree).encode(), headers or {})

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, failure: Failure) -> None:
        if failure.how == "hang_up":
            self.close_connection = True
            return
        if failure.how == "garbage":
            self._send(200, b"<html>bad gateway", {})
            return
        headers = {}
        if failure.retry_after is not None:
            headers["Retry-After"] = f"{failure.retry_after:g}"
        kind = "invalid_request_error" if failure.status < 500 else "server_error"
        error = {"message": failure.message, "type": kind, "param": None, "code": failure.code}
        self._json(failure.status, {"error": error}, headers)

    def _stream(self, events: Iterator[dict[str, Any]], reply: Reply, *, done: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for index, tree in enumerate(events):
            if reply.cut_after is not None and index >= reply.cut_after:
                return
            name = b"" if done else f"event: {tree['type']}\n".encode()
            self.wfile.write(name + b"data: " + json.dumps(tree).encode() + b"\n\n")
            self.wfile.flush()
        if done:
            self.wfile.write(b"data: [DONE]\n\n")


_CHAT = "/v1/chat/completions"
_APIS: Mapping[str, tuple[Callable[..., Any], Callable[..., Iterator[dict[str, Any]]]]] = {
    _CHAT: (chat_answers.completion, chat_answers.chunks),
    "/v1/responses": (response_answers.response, response_answers.events),
}
"""Path -> (a whole answer, the events of a streamed one)."""
