"""Answers from Slack's buttons: a WSGI application for the app's interactivity URL.

    app = SlackAnswers(rein, secret_env="SLACK_SIGNING_SECRET", people={"U024BE7LH": "anna"})

Slack signs what it sends; the signature and its age are verified. Who clicked is named by
Slack: `people` says who that is to rules, everybody else is `slack:U...`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from checkrein._io import in_thread
from checkrein.errors import CheckreinError, ConfigError
from checkrein_plugins import _webhooks
from checkrein_plugins._config import read
from checkrein_plugins.approvers._messages import ACTIONS, decided
from checkrein_plugins.approvers.answers import Forged, Receiver, Reply

if TYPE_CHECKING:
    from checkrein.rein import Rein

OLDEST = 300
"""Seconds that a message may be old."""


class SlackAnswers(Receiver):
    """Takes the clicks on a message that `Webhook(format="slack", buttons=True)` sent.

    `secret` or `secret_env`: the app's signing secret. `people`: Slack's user ids -> names.
    `private`: allow answers to be sent to local addresses. Raises `ConfigError`.
    """

    def __init__(
        self,
        rein: Rein,
        *,
        secret: str | None = None,
        secret_env: str | None = None,
        people: Mapping[str, str] | None = None,
        private: bool = False,
    ) -> None:
        super().__init__(rein)
        found = _webhooks.secret_of(secret, secret_env, "slack")
        if not found:
            raise ConfigError("slack.secret: is needed: the app's signing secret")
        self._secret = found.encode()
        self._people = dict(people or {})
        self._private = private

    def verify(self, headers: Mapping[str, str], body: bytes) -> None:
        sent = headers.get("x-slack-request-timestamp", "")
        if not (sent.isascii() and sent.isdecimal()) or len(sent) > 12:
            raise Forged("there is no time on it")
        expected = hmac.new(self._secret, b"v0:%b:%b" % (sent.encode(), body), hashlib.sha256)
        given = headers.get("x-slack-signature", "").encode()
        if not hmac.compare_digest(b"v0=" + expected.hexdigest().encode(), given):
            raise Forged("the signature is wrong")
        if abs(time.time() - int(sent)) > OLDEST:
            raise Forged("it is too old, or from the future")

    def answered(self, body: bytes) -> Reply:
        try:
            click = json.loads(parse_qs(body.decode())["payload"][0])
            (action,) = click["actions"]
            answer, id = ACTIONS[action["action_id"]], str(action["value"])
            user = str(click["user"]["id"])
            back = str(click.get("response_url") or "")
        except (KeyError, ValueError, TypeError, IndexError):
            return self.refuse("", "unknown", "not one click on a button of ours")
        by = self._people.get(user, f"slack:{user}")
        masked_ok = action["action_id"].endswith("_masked")
        try:
            state = self.decide(id, answer, by, masked_ok=masked_ok)
            request = self.rein.approvals.get(id)
        except CheckreinError as error:
            # Slack shows an error of its own for anything but 200: the person is told in words.
            self._say(back, {"response_type": "ephemeral", "text": str(error)})
            return Reply(200, {"error": str(error)})
        if state == "pending":
            text = f"{by} said yes; others must as well"
            self._say(back, {"response_type": "ephemeral", "text": text})
        elif request is not None:
            self._say(back, {"replace_original": True, "text": decided(request, by)})
        return Reply(200, {"id": id, "state": state})

    def _say(self, url: str, message: dict[str, Any]) -> None:
        """Answer in the chat, later: Slack waits three seconds for its own answer."""
        if url:
            in_thread(partial(self._post, url, message), "checkrein-slack")

    def _post(self, url: str, message: dict[str, Any]) -> None:
        """The decision stands, whether or not this arrives."""
        message["text"] = _webhooks.escaped(message["text"])
        given = {"url": url, "private": self._private}
        try:
            settings = read(_webhooks.WebhookSettings, given, "slack")
            problem = _webhooks.Webhook(settings, "slack.response_url", 5.0).send("", message)
        except ConfigError as error:
            problem = str(error)
        if problem:
            self.rein.log.warning("slack was not told of a decision: %s", problem)
