"""What a client asks for that nothing here can stop or look at."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from checkrein import Deny, Plugin
from checkrein.errors import ConfigError, Denied
from checkrein_integrations.openai import supervise_client
from checkrein_plugins.redaction import Redaction

from .conftest import MODEL, Road, kinds, views

MAIL = "ann@example.org"
RESPONSES = [
    ({"tools": [{"type": "web_search"}]}, "web_search"),
    ({"tools": [{"type": "web_search_preview"}]}, "web_search_preview"),
    ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "file_search"),
    ({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "code_interpreter"),
    ({"tools": [{"type": "image_generation"}]}, "image_generation"),
    ({"tools": [{"type": "mcp", "server_label": "shop", "server_url": "https://x.example"}]},
     "mcp:shop"),
    ({"tools": [{"type": "shell"}]}, "shell"),
    ({"tools": [{"type": "tool_search"}]}, "tool_search"),
    ({"tools": [{"type": "made_up_tomorrow"}]}, "made_up_tomorrow"),
    ({"tools": [{"type": "namespace", "name": "n", "description": "",
                 "tools": [{"type": "web_search"}]}]}, "namespace"),
    ({"background": True}, "background"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"extra_body": {"background": True}}, "background"),
]  # fmt: skip
CHAT = [
    ({"web_search_options": {}}, "web_search"),
    ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "audio"),
    ({"tools": [{"type": "made_up_tomorrow"}]}, "made_up_tomorrow"),
]
OWN = [
    {"type": "function", "name": "pay", "parameters": {}},
    {"type": "custom", "name": "sql"},
    {"type": "local_shell"},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "apply_patch"},
    {"type": "computer_use_preview", "display_width": 1, "display_height": 1,
     "environment": "browser"},
    {"type": "tool_search", "execution": "client"},
    {"type": "namespace", "name": "n", "description": "",
     "tools": [{"type": "function", "name": "pay"}]},
]  # fmt: skip


@pytest.mark.parametrize(("form", "more", "name"), [
    *[("responses", *case) for case in RESPONSES], *[("chat", *case) for case in CHAT]
])  # fmt: skip
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_providers_own_doings_are_refused_or_marked(rein, server, form, more, name, mode):
    for streams in (False, True):
        road = Road(form, mode, streamed=streams)
        with pytest.raises(ConfigError, match=rf"{name}.*ungated='allow'"):
            road.ask(rein(), server, **more)
    assert server.requests == []
    server.say("ok")
    r = rein()
    assert Road(form, mode, streamed=False).ask(r, server, ungated="allow", **more).text == "ok"
    assert [view["labels"] for view in views(r, "intent")] == [{"ungated": name}]


def test_tools_that_the_caller_runs_are_no_such_thing(rein, server):
    server.say("ok")
    r = rein()
    assert Road("responses", "sync", streamed=False).ask(r, server, tools=OWN).text == "ok"
    assert "labels" not in views(r, "intent")[0]


OTHERS = [
    ("POST", "/embeddings", lambda c: c.embeddings.create(model="m", input=f"of {MAIL}")),
    ("POST", "/batches", lambda c: c.batches.create(
        input_file_id="f", endpoint="/v1/responses", completion_window="24h")),
    ("POST", "/images/generations", lambda c: c.images.generate(prompt="a cat")),
    ("POST", "/audio/speech", lambda c: c.audio.speech.create(
        input="hi", model="m", voice="alloy")),
    ("POST", "/moderations", lambda c: c.moderations.create(input="x")),
    ("POST", "/completions", lambda c: c.completions.create(model="m", prompt="x")),
    ("POST", "/threads", lambda c: c.beta.threads.create()),
    ("GET", "/responses/resp_1", lambda c: c.responses.retrieve("resp_1")),
    ("GET", "/files", lambda c: c.files.list()),
    ("POST", "/anything", lambda c: c.post("/anything", cast_to=object, body={"a": 1})),
    ("POST", "/responses/input_tokens", lambda c: c.responses.input_tokens.count(
        model="m", input="x")),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("method", "path", "ask"), OTHERS, ids=[path for _, path, _ in OTHERS])
def test_other_endpoints_are_refused(rein, server, method, path, ask):
    r = rein()
    made = supervise_client(r, OpenAI(base_url=server.url, api_key="x"))
    with made as client, pytest.raises(ConfigError, match=f"{method} {path}"):
        ask(client)

    async def go() -> None:
        made = supervise_client(r, AsyncOpenAI(base_url=server.url, api_key="x"))
        async with made as client:
            with pytest.raises(ConfigError, match=f"{method} {path}"):
                await ask(client)

    asyncio.run(go())
    assert server.requests == []


class Refuses(Plugin):
    def pre_call(self, call: Any) -> Any:
        return Deny("no files") if call.name == "openai.files" else None


def asked(road: Road, rein: Any, client: Any, ask: Any) -> Any:
    """Ask in a session that keeps what was done, whatever comes."""
    if road.mode == "sync":
        with client, rein.session(on_error="keep"):
            return ask(client)

    async def go() -> Any:
        async with client, rein.session(on_error="keep"):
            return await ask(client)

    return asyncio.run(go())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_endpoint_that_is_allowed_is_a_tool_call_that_shows(rein, server, mode):
    r = rein(Redaction(), Refuses())
    road = Road("chat", mode, streamed=False)

    def embed(client: Any) -> Any:
        return client.embeddings.create(model="m", input=f"of {MAIL}", extra_body={"user": MAIL})

    with pytest.raises(openai.NotFoundError, match="no such path"):
        asked(road, r, road.client(r, server, ungated="allow"), embed)
    with pytest.raises(Denied, match="no files"):
        asked(road, r, road.client(r, server, ungated="allow"), lambda c: c.files.list())
    (intent,) = views(r, "intent")
    assert (intent["kind"], intent["name"]) == ("tool", "openai.embeddings")
    assert intent["labels"] == {"ungated": "POST /embeddings"}
    body = intent["arguments"]["body"]
    assert (body["input"], body["user"]) == ("of [EMAIL]", "[EMAIL]")
    assert kinds(r)[-1] == "denied"
    assert MAIL not in json.dumps([dict(e.view) for e in r.store.events(limit=100)])


def test_the_list_of_models_is_free(rein, server):
    r = rein()
    with supervise_client(r, OpenAI(base_url=server.url, api_key="x")) as client:
        assert [model.id for model in client.models.list()] == ["gpt-4o-mini"]
    assert kinds(r) == []


@pytest.mark.parametrize("reach", [
    lambda c: c.realtime,
    lambda c: c.responses.connect(),
    lambda c: c.beta.realtime.connect(model="m"),
])  # fmt: skip
@pytest.mark.parametrize("ungated", ["refuse", "allow"])
def test_connections_past_the_gate_cannot_be_opened(rein, server, reach, ungated):
    for kind in (OpenAI, AsyncOpenAI):
        made = supervise_client(rein(), kind(base_url=server.url, api_key="x"), ungated=ungated)
        with pytest.raises(ConfigError, match="not supervised"):
            reach(made)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_raw_responses_are_refused_or_marked(rein, server, mode):
    road = Road("chat", mode, streamed=False)

    def ask(client: Any) -> Any:
        return client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": MAIL}]
        )

    r = rein(Redaction())
    with pytest.raises(ConfigError, match="raw response"):
        asked(road, r, road.client(r, server), ask)
    assert server.requests == []
    server.say("hello")
    got = asked(road, r, road.client(r, server, ungated="allow"), ask)
    assert got.parse().choices[0].message.content == "hello"
    assert MAIL not in json.dumps(server.requests)
    assert views(r, "intent")[0]["labels"] == {"ungated": "raw response"}
    assert views(r, "outcome")[0]["usage"]["output_tokens"] == 7
