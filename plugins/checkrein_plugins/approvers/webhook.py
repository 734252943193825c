"""Approvals told to a webhook: JSON for a service of one's own, or a chat message.

    Webhook(url="https://desk.example/approvals", secret_env="DESK_SECRET")
    Webhook(url="https://hooks.slack.com/...", format="slack", buttons=True, who=["anna"])

The message is a view of the record. The answer comes back through the store: `checkrein
approve`, an application of one's own, or `answers.Answers` and `slack.SlackAnswers`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Never

from pydantic import StrictBool

from checkrein.approval import masked_paths
from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.permission import SHOWN
from checkrein.request import ApprovalRequest
from checkrein.verdicts import Decision
from checkrein_plugins import _webhooks
from checkrein_plugins._config import Seconds, Text, Texts, listed, read, refuse_unknown
from checkrein_plugins.approvers import _messages

if TYPE_CHECKING:
    from checkrein.rein import Rein


class _Settings(_webhooks.WebhookSettings):
    buttons: StrictBool = False
    who: Texts | None = None
    link: Text | None = None
    timeout: Seconds = 10.0


class NotDelivered(Exception):
    """A message did not arrive: the channel has told nobody."""


class Webhook(Plugin):
    """Posts each waiting call, viewed for webhooks, to a URL; its answer comes otherwise.

    `url`, `format` (`json`, `slack`, `discord`), `secret` or `secret_env` (signs by Standard
    Webhooks), `private` (allow http and addresses of local networks). `buttons`: Slack's, whose
    answers `SlackAnswers` takes; a message that cannot show everything has none. `who`: tell
    only of requests that one of them may answer. `link`: where people decide, with `{id}`.
    `timeout`: seconds for one try of three.

    Raises `ConfigError` for settings that cannot be used.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        format: Literal["json", "slack", "discord"] = "json",
        secret: str | None = None,
        secret_env: str | None = None,
        private: bool = False,
        buttons: bool = False,
        who: list[str] | None = None,
        link: str | None = None,
        timeout: float = 10.0,
        **unknown: Never,
    ) -> None:
        where = "webhook"
        refuse_unknown(unknown, where, tuple(_Settings.model_fields))
        given = {
            "url": url, "format": format, "secret": secret, "secret_env": secret_env,
            "private": private, "buttons": buttons, "who": listed(who), "link": link,
            "timeout": timeout,
        }  # fmt: skip
        settings = read(_Settings, {k: v for k, v in given.items() if v is not None}, where)
        if settings.buttons and settings.format != "slack":
            raise ConfigError(f"{where}.buttons: only Slack has them")
        if settings.link is not None and "{id}" not in settings.link:
            raise ConfigError(f"{where}.link: needs {{id}} where the approval's id stands")
        self._hook = _webhooks.Webhook(settings, where, settings.timeout)
        self._settings = settings
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """Remember whose views a message goes through."""
        self._rein = rein

    def on_approval(self, call: Call, request: ApprovalRequest) -> Decision:
        """Post it; None: told. Raises `NotDelivered` where it did not arrive."""
        settings = self._settings
        if settings.who and request.who and not set(settings.who) & set(request.who):
            return None
        shown: Any = request.arguments
        if self._rein is not None:
            shown = self._rein.journal.view(call, shown, "webhook", SHOWN)
            hidden = (*request.masked, *masked_paths(request.arguments, shown))
            request = replace(request, masked=tuple(dict.fromkeys(hidden)))
        link = "" if settings.link is None else settings.link.replace("{id}", request.id)
        if settings.format == "slack":
            body = _messages.slack(request, shown, link, buttons=settings.buttons)
        elif settings.format == "discord":
            body = _messages.discord(request, shown, link)
        else:
            body = _messages.standard(request, shown, link)
        id = f"{request.id}.escalated" if request.escalated else request.id
        problem = self._hook.send(id, body)
        if problem:
            raise NotDelivered(problem)
        return None
