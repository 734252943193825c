"""An approval in Slack: an agent asks and ends, somebody clicks, the call runs once.

With your own Slack app: SLACK_WEBHOOK_URL (an incoming webhook) and SLACK_SIGNING_SECRET, and
the app's interactivity URL leading to the port below. Without them a stand-in plays Slack: it
takes the message and clicks `Approve`, signed as Slack signs. Needs the extra `notify`.
"""

import hashlib
import hmac
import json
import os
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from checkrein import Ask, Call, Plugin, Rein, errors
from checkrein_plugins.approvers.slack import SlackAnswers
from checkrein_plugins.approvers.webhook import Webhook

URL = os.environ.get("SLACK_WEBHOOK_URL")
SECRET = os.environ.get("SLACK_SIGNING_SECRET", "8f742231b10e8888abcd99yyyzzz85a5")
PORT = int(os.environ.get("PORT", "0"))


class BigRefunds(Plugin):
    """Somebody must approve refunds above 100."""

    def pre_call(self, call: Call) -> Ask | None:
        if call.name == "refund" and call.arguments["amount"] > 100:
            return Ask("more than 100", rule="big", risk="high")
        return None


class StandIn:
    """Slack, as far as this needs it."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Take a message, or what becomes of one."""
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        self.messages.append(json.loads(body))
        start_response("200 OK", [("content-type", "text/plain")])
        return [b"ok"]

    def click(self, url: str, back: str) -> Any:
        """Click the first button of the first message."""
        button = self.messages[0]["blocks"][-1]["elements"][0]
        payload = {
            "type": "block_actions",
            "user": {"id": "U024BE7LH"},
            "response_url": back,
            "actions": [{"action_id": button["action_id"], "value": button["value"]}],
        }
        body = urllib.parse.urlencode({"payload": json.dumps(payload)}).encode()
        sent = str(int(time.time()))
        signed = hmac.new(SECRET.encode(), b"v0:%b:%b" % (sent.encode(), body), hashlib.sha256)
        headers = {
            "X-Slack-Request-Timestamp": sent,
            "X-Slack-Signature": f"v0={signed.hexdigest()}",
        }
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - our own address
        with urllib.request.urlopen(request) as reply:  # noqa: S310 - our own address
            return json.load(reply)


class Quiet(WSGIRequestHandler):
    """Prints no log."""

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(app: Any, port: int = 0) -> Iterator[str]:
    """The address of a small server for a WSGI application; use your own in production."""
    with make_server("127.0.0.1", port, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    """Ask, wait for the click, resume."""
    with ExitStack() as stack:
        slack = StandIn()
        url = URL or stack.enter_context(serving(slack))
        channel = Webhook(url=url, format="slack", buttons=True, private=URL is None)
        rein = stack.enter_context(Rein(plugins=[BigRefunds(), channel], store="sqlite:///desk.db"))

        @rein.tool
        def refund(order: str, amount: int) -> str:
            return f"refunded {amount} for {order}"

        answers = SlackAnswers(
            rein, secret=SECRET, people={"U024BE7LH": "anna"}, private=URL is None
        )
        address = stack.enter_context(serving(answers, PORT))

        try:
            with rein.session(agent="desk", wait="suspend"):
                refund("A-1", 250)
        except errors.ApprovalPending as pending:
            token = pending.token
        print(f"{token} waits; answers come to {address}")

        if URL is None:
            print(slack.messages[0]["text"])
            print("clicked:", slack.click(address, url))
        while rein.approvals.get(token).state == "pending":
            time.sleep(0.2)
        print(rein.resume(token))


if __name__ == "__main__":
    main()
