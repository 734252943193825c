"""Approvals over HTTP: what is told, who may answer, and what is refused."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx2
import pytest
import standardwebhooks

from checkrein import Ask, Call, Plugin, Rein, errors
from checkrein.testing import Clock, check_plugin
from checkrein_plugins import _webhooks
from checkrein_plugins.approvers.answers import LARGEST, Answers
from checkrein_plugins.approvers.slack import SlackAnswers
from checkrein_plugins.approvers.webhook import Webhook

SECRET = "whsec_" + "c2VjcmV0" * 4
SIGNING = "8f742231b10e8888abcd99yyyzzz85a5"


class Asks(Plugin):
    def __init__(self, **ask: Any) -> None:
        self.ask = {"rule": "big", **ask}

    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", **self.ask)


class Hides(Plugin):
    def view(self, call: Call, value: Any, sink: str) -> Any:
        return {**value, "to": "****"} if isinstance(value, dict) and "to" in value else value


@pytest.fixture
def served() -> Iterator[Callable[[Any], str]]:
    servers: list[Any] = []

    class Quiet(WSGIRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Nothing is printed."""

    def serve(app: Any) -> str:
        server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


class Desk:
    """A Rein whose calls wait, and its tool."""

    def __init__(self, url: str, *plugins: Plugin, **ask: Any) -> None:
        self.rein = Rein(plugins=[Asks(**ask), Hides(), *plugins], store=url)
        self.ran: list[int] = []

        @self.rein.tool
        def pay(amount: int, note: str = "") -> str:
            self.ran.append(amount)
            return f"paid {amount}"

        @self.rein.tool
        def mail(to: str) -> str:
            return to

        self.pay, self.mail = pay, mail

    def ask(self, *arguments: Any, tool: str = "pay") -> str:
        with (
            pytest.raises(errors.ApprovalPending) as pending,
            self.rein.session("desk", wait="suspend"),
        ):
            getattr(self, tool)(*arguments)
        return pending.value.token

    def refusals(self) -> list[str]:
        events = self.rein.store.events(kinds=("approval_refused",))
        return [event.view["reason"] for event in events]


@pytest.fixture
def desks(tmp_path) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(*plugins: Plugin, **ask: Any) -> Desk:
        made.append(Desk(f"sqlite:///{tmp_path}/s.db", *plugins, **ask))
        return made[-1]

    yield make
    for desk in made:
        desk.rein.close()


def answer(data: dict[str, Any], *, at: float = 0.0, secret: str = SECRET, **more: Any) -> Any:
    """(headers, body) as a service sends them."""
    body = json.dumps({"type": "checkrein.approval.answered", "data": data, **more})
    when = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=at)
    signature = standardwebhooks.Webhook(secret).sign("msg-1", when, body)
    headers = {
        "Webhook-Id": "msg-1", "Webhook-Timestamp": str(int(when.timestamp())),
        "Webhook-Signature": signature,
    }  # fmt: skip
    return headers, body.encode()


def click(action: str, id: str, *, user: str = "U1", at: float = 0.0, back: str = "") -> Any:
    """(headers, body) as Slack sends them."""
    payload = {
        "type": "block_actions", "user": {"id": user}, "response_url": back,
        "actions": [{"action_id": action, "value": id}],
    }  # fmt: skip
    body = urlencode({"payload": json.dumps(payload)}).encode()
    sent = str(int(time.time() + at))
    base = b"v0:" + sent.encode() + b":" + body
    signed = hmac.new(SIGNING.encode(), base, hashlib.sha256).hexdigest()
    headers = {
        "X-Slack-Request-Timestamp": sent, "X-Slack-Signature": f"v0={signed}",
        "Content-Type": "application/x-www-form-urlencoded",
    }  # fmt: skip
    return headers, body


def wait_for(ready: Callable[[], Any]) -> Any:
    for _ in range(1000):
        if found := ready():
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


# what is sent


def test_the_round_trip_over_http(receivers, served, desks) -> None:
    there = receivers.add()
    desk = desks(Webhook(url=there.url, secret=SECRET, private=True, link="https://desk/{id}"))
    token = desk.ask(250)
    headers, text = there.requests[0]
    body = standardwebhooks.Webhook(SECRET).verify(text, headers)
    assert headers["webhook-id"] == token
    assert body["type"] == "checkrein.approval.requested"
    data = body["data"]
    assert (data["id"], data["tool"], data["arguments"]) == (
        token, "pay", {"amount": 250, "note": ""}
    )  # fmt: skip
    assert (data["reason"], data["rule"], data["status"]) == ("sure?", "big", "PENDING_APPROVAL")
    assert data["link"] == f"https://desk/{token}"
    url = served(Answers(desk.rein, secret=SECRET))
    headers, sent = answer({"id": token, "answer": "approve", "by": "anna"})
    reply = httpx2.post(url, content=sent, headers=headers)
    assert (reply.status_code, reply.json()) == (200, {"id": token, "state": "approved"})
    again = httpx2.post(url, content=sent, headers=headers)
    assert again.status_code == 409
    assert "already approved (by anna)" in again.json()["error"]
    assert httpx2.get(url).status_code == 405
    assert desk.rein.resume(token) == "paid 250"
    assert desk.ran == [250]


def test_it_is_sent_again_until_it_arrives(receivers, desks, monkeypatch) -> None:
    monkeypatch.setattr(_webhooks, "PAUSE", 0.01)
    there = receivers.add(503, 429)
    token = desks(Webhook(url=there.url, private=True)).ask(1)
    assert [json.loads(text)["data"]["id"] for _, text in there.requests] == [token] * 3


def test_where_nobody_was_told_that_is_a_no(receivers, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(_webhooks, "PAUSE", 0.01)
    there = receivers.add(404)
    plugins = [Asks(), Webhook(url=there.url, private=True)]
    with (
        Rein(plugins=plugins, store=f"sqlite:///{tmp_path}/s.db", approvals="channels") as rein,
        pytest.raises(errors.ApprovalRejected, match="no approver"),
        rein.session(),
    ):
        rein.call(lambda amount: amount, 1)
    assert "secret-path" not in caplog.text


def test_masked_fields_are_sent_masked_and_marked(receivers, desks) -> None:
    there = receivers.add()
    desks(Webhook(url=there.url, private=True)).ask("casey@example.org", tool="mail")
    text = there.requests[0][1]
    assert "casey" not in text
    data = json.loads(text)["data"]
    assert (data["arguments"], data["masked"]) == ({"to": "****"}, ["to"])


def test_what_is_masked_for_webhooks_only_is_marked_there(receivers, desks) -> None:
    class Outside(Plugin):
        def view(self, call: Call, value: Any, sink: str) -> Any:
            if sink == "webhook" and isinstance(value, dict) and "note" in value:
                return {**value, "note": "****"}
            return value

    there = receivers.add()
    hook = Webhook(url=there.url, format="slack", buttons=True, private=True)
    desk = desks(Outside(), hook)
    token = desk.ask(5, "for nobody outside")
    message = json.loads(there.requests[0][1])
    assert "nobody outside" not in there.requests[0][1]
    assert "MASKED (not shown to you): note" in message["text"]
    button = message["blocks"][-1]["elements"][0]
    assert button["action_id"] == "checkrein.approve_masked"
    app = SlackAnswers(desk.rein, secret=SIGNING)
    assert app.handle(*click(button["action_id"], token)).body["state"] == "approved"


def test_slack_has_buttons_where_everything_can_be_seen(receivers, desks) -> None:
    there = receivers.add()
    desk = desks(Webhook(url=there.url, format="slack", buttons=True, private=True))
    one = desk.ask(1, "<!channel> & ```")
    desk.ask(2, "x" * 4000)
    desk.ask("casey@example.org", tool="mail")
    short, long, masked = (json.loads(text) for _, text in there.requests)
    assert "<!channel>" not in json.dumps(short)
    buttons = short["blocks"][-1]["elements"]
    assert [(b["action_id"], b["value"]) for b in buttons] == [
        ("checkrein.approve", one), ("checkrein.reject", one)
    ]  # fmt: skip
    assert [block["type"] for block in long["blocks"]] == ["section", "section"]
    assert "do not fit" in long["blocks"][-1]["text"]["text"]
    assert masked["blocks"][-1]["elements"][0]["action_id"] == "checkrein.approve_masked"
    assert "without seeing" in masked["blocks"][-1]["elements"][0]["text"]["text"]


def test_discord_is_told_in_its_own_shape(receivers, desks) -> None:
    there = receivers.add()
    desk = desks(Webhook(url=there.url, format="discord", private=True))
    desk.ask(1, "@everyone ```")
    desk.ask(2, "x" * 4000)
    short, long = (json.loads(text) for _, text in there.requests)
    assert short["allowed_mentions"] == {"parse": []}
    assert short["content"].count("```") == 2
    assert len(long["content"]) <= 2000
    assert "cut: look before you decide" in long["content"]


def test_only_those_who_may_answer_are_told_and_others_once_it_is_their_turn(
    receivers, tmp_path
) -> None:
    first, later = receivers.add(), receivers.add()
    clock = Clock()
    plugins = [
        Asks(who=("anna",), then=("ben",), after=60.0),
        Webhook(url=first.url, private=True, who=["anna"]),
        Webhook(url=later.url, private=True, who=["ben"]),
    ]
    with Rein(plugins=plugins, store=f"sqlite:///{tmp_path}/s.db", clock=clock) as rein:
        with pytest.raises(errors.ApprovalPending) as pending, rein.session(wait="suspend"):
            rein.call(lambda amount: amount, 1)
        assert (len(first.requests), len(later.requests)) == (1, 0)
        clock.advance(61)
        wait_for(lambda: later.requests)
        _, text = later.requests[0]
        assert json.loads(text)["type"] == "checkrein.approval.escalated"
        assert rein.approvals.approve(pending.value.token, by="ben") == "approved"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "webhook.url"),
        ({"url": "http://example.com"}, "scheme"),
        ({"url": "https://127.0.0.1/x"}, "private"),
        ({"url": "https://10.0.0.7/x"}, "private"),
        ({"url": "https://[::ffff:169.254.169.254]/"}, "private"),
        ({"url": "https://localhost/x"}, "private"),
        ({"url": "https://example.com", "secret": "whsec_"}, "secret"),
        ({"url": "https://example.com", "buttons": True}, "only Slack"),
        ({"url": "https://example.com", "link": "https://desk"}, "link"),
        ({"url": "https://example.com", "secret_env": "NOT_SET"}, "NOT_SET"),
        ({"url": "https://example.com", "formatt": "slack"}, "formatt"),
    ],
)
def test_bad_settings_are_refused_at_once(settings, told) -> None:
    with pytest.raises(errors.ConfigError, match=told):
        Webhook(**settings)


def test_a_name_that_leads_inside_later_is_not_followed(desks, monkeypatch) -> None:
    import socket

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: found)
    monkeypatch.setattr(_webhooks, "PAUSE", 0.01)
    monkeypatch.setattr(httpx2, "post", lambda *a, **k: pytest.fail("it was sent"))
    hook = Webhook(url="https://example.com/x")
    assert "private" in hook._hook.send("x", {})


def test_the_plugin_contract() -> None:
    check_plugin(Webhook(url="https://example.com"))


# answers that are signed


def test_a_signed_answer_may_edit_and_reject(desks) -> None:
    desk = desks()
    app = Answers(desk.rein, secret=SECRET)
    one, other = desk.ask(1), desk.ask(2)
    data = {"id": one, "answer": "approve", "by": "anna", "arguments": {"amount": 9}}
    assert app.handle(*answer(data)).status == 200
    data = {"id": other, "answer": "reject", "by": "anna", "reason": "no money"}
    assert app.handle(*answer(data)).body["state"] == "rejected"
    desk.rein.resume(one)
    with pytest.raises(errors.ApprovalRejected, match="no money"):
        desk.rein.resume(other)
    assert desk.ran == [9]


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"secret": "whsec_" + "b3RoZXIh" * 4}, 401, "wrong or too old"),
        ({"at": -600.0}, 401, "wrong or too old"),
        ({"at": 600.0}, 401, "wrong or too old"),
        ({"type": "other"}, 400, "type"),
        ({"data": {"answer": "maybe"}}, 400, "data.answer"),
        ({"data": {"tool": "other"}}, 400, "data.tool"),
        ({"data": {"by": ""}}, 400, "data.by"),
        ({"data": {"id": "ap-unknown"}}, 409, "unknown"),
        ({"data": {"by": "eve"}}, 409, "not by eve"),
        ({"data": {"arguments": {"sum": 1}}}, 409, "no argument 'sum'"),
    ],
)
def test_an_answer_that_is_not_right_has_no_effect_and_is_recorded(
    desks, change, status, told
) -> None:
    desk = desks(who=("anna",))
    token = desk.ask(1)
    data = {"id": token, "answer": "approve", "by": "anna", **change.pop("data", {})}
    reply = Answers(desk.rein, secret=SECRET).handle(*answer(data, **change))
    assert reply.status == status
    assert told in reply.body["error"]
    assert len(desk.refusals()) == 1
    assert desk.rein.approvals.get(token).state == "pending"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        ({"webhook-id": "x", "webhook-timestamp": "0", "webhook-signature": "v1"}, b"{}"),
        ({"webhook-id": "x", "webhook-timestamp": "nan", "webhook-signature": "v1,\xff"}, b"\xff"),
        ({}, b"x" * (LARGEST + 1)),
    ],
)
def test_nonsense_is_refused(desks, headers, body) -> None:
    desk = desks()
    assert Answers(desk.rein, secret=SECRET).handle(headers, body).status in (401, 413)
    assert SlackAnswers(desk.rein, secret=SIGNING).handle(headers, body).status in (401, 413)
    assert len(desk.refusals()) == 2


def test_without_a_secret_nothing_answers(desks) -> None:
    desk = desks()
    for kind in (Answers, SlackAnswers):
        with pytest.raises(errors.ConfigError, match="secret"):
            kind(desk.rein)


# answers from Slack


def test_a_click_decides_and_the_message_says_so(desks, receivers, served) -> None:
    desk, chat = desks(), receivers.add()
    app = SlackAnswers(desk.rein, secret=SIGNING, people={"U1": "anna"}, private=True)
    url = served(app)
    token = desk.ask(5)
    headers, body = click("checkrein.approve", token, back=chat.url)
    assert httpx2.post(url, content=body, headers=headers).status_code == 200
    wait_for(lambda: chat.requests)
    told = json.loads(chat.requests[0][1])
    assert told["replace_original"] is True
    assert "approved by anna" in told["text"]
    assert desk.rein.resume(token) == "paid 5"
    for headers, body in (
        click("checkrein.approve", token, back=chat.url),
        click("checkrein.reject", token, user="U2", back=chat.url),
    ):
        assert httpx2.post(url, content=body, headers=headers).status_code == 200
    wait_for(lambda: len(chat.requests) == 3)
    for _, text in chat.requests[1:]:
        told = json.loads(text)
        assert told["response_type"] == "ephemeral"
        assert "already done (by anna)" in told["text"]
    assert desk.ran == [5]


def test_who_clicked_is_who_slack_says(desks) -> None:
    desk = desks(who=("anna", "slack:U9"), quorum=2)
    app = SlackAnswers(desk.rein, secret=SIGNING, people={"U1": "anna"})
    token = desk.ask(5)
    assert (
        "not by slack:U2" in app.handle(*click("checkrein.approve", token, user="U2")).body["error"]
    )
    assert app.handle(*click("checkrein.approve", token)).body["state"] == "pending"
    assert "yes of anna already" in app.handle(*click("checkrein.approve", token)).body["error"]
    assert app.handle(*click("checkrein.approve", token, user="U9")).body["state"] == "approved"


def test_masked_fields_take_the_button_that_says_so(desks) -> None:
    desk = desks()
    app = SlackAnswers(desk.rein, secret=SIGNING)
    token = desk.ask("casey@example.org", tool="mail")
    assert "masked" in app.handle(*click("checkrein.approve", token)).body["error"]
    assert app.handle(*click("checkrein.approve_masked", token)).body["state"] == "approved"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda h, b: ({**h, "X-Slack-Signature": "v0=" + "0" * 64}, b),
        lambda h, b: ({**h, "X-Slack-Signature": "\xe9"}, b),
        lambda h, b: ({**h, "X-Slack-Request-Timestamp": "1700000000"}, b),
        lambda h, b: ({**h, "X-Slack-Request-Timestamp": "now"}, b),
        lambda h, b: (h, b.replace(b"approve", b"rejectt")),
        lambda h, b: ({}, b),
    ],
)
def test_a_click_that_slack_did_not_send_has_no_effect(desks, spoil) -> None:
    desk = desks()
    token = desk.ask(5)
    reply = SlackAnswers(desk.rein, secret=SIGNING).handle(
        *spoil(*click("checkrein.approve", token))
    )
    assert reply.status == 401
    assert desk.rein.approvals.get(token).state == "pending"
    assert len(desk.refusals()) == 1


@pytest.mark.parametrize("at", [-301.0, 301.0])
def test_a_click_that_is_old_is_refused(desks, at) -> None:
    desk = desks()
    token = desk.ask(5)
    app = SlackAnswers(desk.rein, secret=SIGNING)
    assert app.handle(*click("checkrein.approve", token, at=at)).status == 401


def test_a_click_on_something_else_is_refused(desks) -> None:
    desk = desks()
    app = SlackAnswers(desk.rein, secret=SIGNING)
    assert app.handle(*click("other.button", "x")).status == 400
    assert desk.refusals() == ["not one click on a button of ours"]
