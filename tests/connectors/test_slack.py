"""slack_sdk against a stand-in over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("slack_sdk")

import slack_sdk

from checkrein import Rein
from checkrein_plugins import connectors

from .conftest import StandIn, statuses


class Slack:
    """Messages, reactions and one channel."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.reactions: set[tuple[str, str]] = set()
        self.pins: set[str] = set()
        self.channel = {"id": "C1", "name": "old", "topic": {"value": "was"}}
        self.archived: set[str] = set()

    def __call__(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        call = path.lstrip("/")
        ok: dict[str, Any] = {"ok": True}
        ts = str(body.get("ts") or body.get("timestamp") or "")
        if call == "chat.postMessage":
            ts = f"{len(self.messages) + 1}.0"
            self.messages[ts] = body["text"]
            return 200, {"ok": True, "channel": "C1", "ts": ts}
        if call == "chat.update":
            self.messages[ts] = body["text"]
        elif call == "chat.delete":
            del self.messages[ts]
        elif call == "conversations.history":
            latest = str(body["latest"])
            return 200, {"ok": True, "messages": [{"ts": latest, "text": self.messages[latest]}]}
        elif call == "conversations.info":
            return 200, {"ok": True, "channel": self.channel}
        elif call == "conversations.rename":
            self.channel["name"] = body["name"]
        elif call == "conversations.setTopic":
            self.channel["topic"] = {"value": body["topic"]}
        elif call == "conversations.create":
            return 200, {"ok": True, "channel": {"id": "C2"}}
        elif call == "conversations.archive":
            self.archived.add(body["channel"])
        elif call == "reactions.add":
            self.reactions.add((ts, body["name"]))
        elif call == "reactions.remove":
            self.reactions.remove((ts, body["name"]))
        elif call == "pins.add":
            self.pins.add(ts)
        elif call == "pins.remove":
            self.pins.remove(ts)
        else:
            ok = {"ok": False, "error": "unknown_method"}
        return 200, ok


def test_what_was_said_and_set_is_taken_back(go: Any, rein: Rein, service: StandIn) -> None:
    service.answer = world = Slack()
    client = rein.wrap(
        slack_sdk.WebClient(token="x", base_url=f"{service.url}/"), connector="slack",
        table=connectors.SLACK,
    )  # fmt: skip
    with rein.session() as session:
        said = client.chat_postMessage(channel="C1", text="hello")
        client.chat_update(channel="C1", ts=said["ts"], text="hullo")
        client.reactions_add(channel="C1", name="tada", timestamp=said["ts"])
        client.pins_add(channel="C1", timestamp=said["ts"])
        client.conversations_rename(channel="C1", name="new")
        client.conversations_setTopic(channel="C1", topic="is")
        client.conversations_create(name="more")
    assert world.messages == {"1.0": "hullo"} and world.channel["name"] == "new"
    report = go.run(rein, "rollback", session.id)
    assert [status for _, status in statuses(report)] == ["undone"] * 7
    assert (world.messages, world.reactions, world.pins) == ({}, set(), set())
    assert world.channel == {"id": "C1", "name": "old", "topic": {"value": "was"}}
    assert world.archived == {"C2"}
