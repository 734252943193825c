"""Answers that come by HTTP: who sent them is verified before anything is read.

    app = Answers(rein, secret_env="DESK_SECRET")       # a WSGI application
    reply = app.handle(headers, body)                   # or inside a framework of one's own

A body is `{"type": "checkrein.approval.answered", "data": {"id", "answer": "approve" | "reject",
"by", "reason", "arguments", "masked_ok"}}`, signed by Standard Webhooks and not older than five
minutes. Whatever is refused is recorded and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import StrictBool, ValidationError

from checkrein.errors import CheckreinError, ConfigError, Conflict
from checkrein_plugins._config import Settings, Text
from checkrein_plugins._webhooks import secret_of, signer

if TYPE_CHECKING:
    from checkrein.rein import Rein

LARGEST = 256 * 1024
"""Bytes of a body; beyond it nothing is read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What whoever sent an answer is told."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)


class _Answer(Settings):
    id: Text
    answer: Literal["approve", "reject"]
    by: Text
    reason: str = ""
    arguments: dict[str, Any] | None = None
    masked_ok: StrictBool = False


class _Message(Settings):
    type: Literal["checkrein.approval.answered"]
    timestamp: str = ""
    data: _Answer


class Forged(Exception):
    """Nobody knows who sent this, or when."""


class Receiver:
    """Base of what takes answers: a WSGI application."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein

    def handle(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """Take one answer; never raises for what came from outside."""
        lower = {name.lower(): value for name, value in headers.items()}
        if len(body) > LARGEST:
            return self.refuse("", "unknown", "too large", 413)
        try:
            self.verify(lower, body)
        except Forged as error:
            self.rein.log.warning("%s: an answer was refused: %s", type(self).__name__, error)
            self.rein.approvals.refused.record("", "unknown", type(self).__name__, str(error))
            return Reply(401, {"error": str(error)})
        return self.answered(body)

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        """Raise `Forged` unless the sender's signature and its age are right."""
        raise NotImplementedError

    def answered(self, body: bytes) -> Reply:
        """Do what a verified body says."""
        raise NotImplementedError

    def refuse(self, id: str, by: str, why: str, status: int = 400) -> Reply:
        """Refuse what was understood in no way, and record that."""
        self.rein.approvals.refused.record(id, by, type(self).__name__, why)
        return Reply(status, {"error": why})

    def decide(
        self,
        id: str,
        answer: str,
        by: str,
        *,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        masked_ok: bool = False,
    ) -> str:
        """Write the decision into the record; its new state. Raises `CheckreinError`."""
        approvals = self.rein.approvals
        if answer == "reject":
            return approvals.reject(id, by=by, reason=reason)
        return approvals.approve(id, by=by, arguments=arguments, masked_ok=masked_ok)

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        """The WSGI entry."""
        headers = {
            key[5:].replace("_", "-").lower(): str(value)
            for key, value in environ.items()
            if key.startswith("HTTP_")
        }
        length = str(environ.get("CONTENT_LENGTH") or "0")
        size = int(length) if length.isascii() and length.isdecimal() else 0
        body = environ["wsgi.input"].read(min(size, LARGEST + 1))
        if environ.get("REQUEST_METHOD") == "POST":
            reply = self.handle(headers, body)
        else:
            reply = Reply(405, {"error": "answers are posted"})
        text = json.dumps(reply.body).encode()
        start_response(
            f"{reply.status} {_REASONS.get(reply.status, 'Error')}",
            [("content-type", "application/json"), ("content-length", str(len(text)))],
        )
        return [text]


class Answers(Receiver):
    """Takes answers that a service signed with a secret it shares with this one.

    `secret` or `secret_env`: `whsec_` and base64, or base64 alone. Whoever has it may name
    anybody as the one who decided. Raises `ConfigError` without one.
    """

    def __init__(
        self, rein: Rein, *, secret: str | None = None, secret_env: str | None = None
    ) -> None:
        super().__init__(rein)
        found = secret_of(secret, secret_env, "answers")
        if found is None:
            raise ConfigError("answers.secret: is needed: without it anybody could answer")
        self._signer = signer(found, "answers")

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        try:
            self._signer.verify(body, dict(headers), json_parse=False)
        except Exception as error:  # noqa: BLE001 - for headers that are no headers the library
            # raises whatever base64 and int do
            raise Forged(f"the signature is wrong or too old ({type(error).__name__})") from None

    def answered(self, body: bytes) -> Reply:
        try:
            data = _Message.model_validate_json(body).data
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            return self.refuse("", "unknown", f"{place}: {first['msg']}")
        try:
            state = self.decide(
                data.id, data.answer, data.by, reason=data.reason, arguments=data.arguments,
                masked_ok=data.masked_ok,
            )  # fmt: skip
        except Conflict as error:
            return Reply(409, {"error": str(error)})
        except CheckreinError as error:
            return Reply(400, {"error": str(error)})
        return Reply(200, {"id": data.id, "state": state})


_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 405: "Method Not Allowed", 409: "Conflict",
    413: "Content Too Large",
}  # fmt: skip
