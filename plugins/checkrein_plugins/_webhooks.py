"""Sending a JSON body to a webhook: signed, to public places only, with a few tries.

Signatures follow the Standard Webhooks specification: `webhook-id`, `webhook-timestamp` and
`webhook-signature`, so that receivers can check them with that project's libraries.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from typing import Any, Literal, Self

from pydantic import StrictBool, model_validator

from checkrein.errors import ConfigError
from checkrein.transient import TRANSIENT
from checkrein_plugins._config import Settings, Text
from checkrein_plugins.guardrails.urls import UrlGuard

TRIES = 3
PAUSE = 0.5
"""Seconds before the second try; twice as long before the third."""


class WebhookSettings(Settings):
    """Where alerts go, and in which shape."""

    url: Text
    """https; http only where `private` allows it."""
    format: Literal["json", "slack", "discord"] = "json"
    secret: Text | None = None
    """`whsec_` and base64, or base64 alone: signs every body."""
    secret_env: Text | None = None
    """Name of the environment variable that holds the secret."""
    private: StrictBool = False
    """Allow http, and addresses of this machine and of local networks."""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if self.secret is not None and self.secret_env is not None:
            raise ValueError("state secret or secret_env, not both")
        return self


class Webhook:
    """One receiver."""

    def __init__(self, settings: WebhookSettings, where: str, timeout: float) -> None:
        problem = _guard(settings.private, resolve=False).check(settings.url)
        if problem is not None:
            # The URL of a webhook is a secret: it is not told.
            raise ConfigError(f"{where}.url: {problem}")
        # A name may lead elsewhere by the time that something is sent.
        self._guard = _guard(settings.private, resolve=not settings.private)
        self._url = settings.url
        self.format = settings.format
        self.where = where
        self._timeout = timeout
        secret = secret_of(settings.secret, settings.secret_env, where)
        self._signer = None if secret is None else signer(secret, where)

    def send(self, id: str, body: Any) -> str:
        """Post `body`; what went wrong, without the URL, or an empty string."""
        import httpx2

        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            problem = self._guard.check(self._url) or ""
            if problem:
                continue
            try:
                response = httpx2.post(
                    self._url,
                    content=text.encode(),
                    headers=self._headers(id, text),
                    timeout=self._timeout,
                    follow_redirects=False,
                )
            except httpx2.HTTPError as error:
                problem = type(error).__name__
                continue
            if response.status_code < 300:
                return ""
            problem = f"HTTP {response.status_code}"
            if response.status_code not in TRANSIENT:
                return problem
        return problem

    def _headers(self, id: str, text: str) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self._signer is not None:
            now = dt.datetime.now(dt.UTC)
            headers["webhook-id"] = id
            headers["webhook-timestamp"] = str(int(now.timestamp()))
            headers["webhook-signature"] = self._signer.sign(id, now, text)
        return headers


def _guard(private: bool, *, resolve: bool) -> UrlGuard:
    schemes = ["https", "http"] if private else ["https"]
    return UrlGuard(schemes=schemes, private=private, resolve=resolve)


def secret_of(secret: str | None, variable: str | None, where: str) -> str | None:
    """A secret that is stated, or that an environment variable holds. Raises `ConfigError`."""
    if secret is not None and variable is not None:
        raise ConfigError(f"{where}: state secret or secret_env, not both")
    if variable is None:
        return secret
    found = os.environ.get(variable)
    if not found:
        raise ConfigError(f"{where}.secret_env: {variable} is not set")
    return found


def chat(text: str, shape: str) -> dict[str, Any]:
    """A text as Slack or Discord take it: nothing in it calls anybody."""
    if shape == "discord":
        return {"content": text[:2000], "allowed_mentions": {"parse": []}}
    return {"text": escaped(text)[:3000]}


def escaped(text: str) -> str:
    """Text for Slack: unescaped, <!channel> in it would call everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def signer(secret: str, where: str) -> Any:
    """What signs and verifies with a secret, by Standard Webhooks. Raises `ConfigError`."""
    try:
        import standardwebhooks
    except ImportError:
        raise ConfigError(
            f"{where}: signing needs the extra `notify`: pip install 'checkrein[notify]'"
        ) from None
    try:
        return standardwebhooks.Webhook(secret)
    except Exception:  # noqa: BLE001 - whatever it raises may hold the secret
        raise ConfigError(f"{where}.secret: not a secret (whsec_ and base64)") from None
