"""The supervised client itself: what it is, and where it may be used."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import requires, version
from typing import Any

import openai
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from packaging.requirements import Requirement

from checkrein.errors import BudgetExceeded, ConfigError, SessionClosed
from checkrein_integrations.openai import framework, supervise_client
from checkrein_plugins.budget import Budget

from .conftest import MODEL, kinds, views

HI: Any = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("kind", [OpenAI, AsyncOpenAI])
def test_it_is_a_client_of_the_same_class_and_the_given_one_is_left(rein, server, kind):
    plain = kind(base_url=server.url, api_key="x")
    before = plain.chat.completions
    made = supervise_client(rein(), plain)
    assert isinstance(made, kind)
    assert type(made).__name__ == kind.__name__
    assert plain.chat.completions is before
    assert made.chat.completions is not before
    assert made.base_url == plain.base_url


def test_the_given_client_asks_past_us(rein, server):
    server.say("plain")
    r = rein()
    with OpenAI(base_url=server.url, api_key="x") as plain, r.session():
        supervise_client(r, plain)
        plain.chat.completions.create(model=MODEL, messages=HI)
    assert kinds(r) == []


def test_a_client_is_supervised_once(rein, server):
    server.say("ok")
    r = rein(Budget(calls=5))
    with OpenAI(base_url=server.url, api_key="x") as plain:
        once = supervise_client(r, plain)
        assert supervise_client(r, once) is once
        with pytest.raises(ConfigError, match="another Rein"):
            supervise_client(rein(), once)
        with r.session() as session:
            supervise_client(r, once).responses.create(model=MODEL, input="hi")
    assert session.spend().calls == 1
    assert kinds(r) == ["intent", "outcome"]


def test_copies_with_other_options_are_supervised_too(rein, server):
    server.say("ok", "ok")
    r = rein()
    with OpenAI(base_url=server.url, api_key="x") as plain, r.session():
        made = supervise_client(r, plain)
        made.with_options(timeout=5).responses.create(model=MODEL, input="hi")
        made.copy(max_retries=0).chat.completions.create(model=MODEL, messages=HI)
    assert kinds(r) == ["intent", "outcome"] * 2


def test_a_call_inside_a_model_call_of_ours_is_judged_once(rein, server):
    """Two adapters on one model: the outer one decides, charges and records."""
    server.say("ok", "ok")
    r = rein(Budget(calls=5))
    with OpenAI(base_url=server.url, api_key="x") as plain, r.session() as session:
        made = supervise_client(r, plain)

        def ask(model: str, **_: Any) -> Any:
            return made.chat.completions.create(model=model, messages=HI)

        r.model_call(ask, model=MODEL, messages=[])
        assert session.spend().calls == 1
        # Inside a tool it is a call of its own.
        r.call(ask, MODEL)
        assert session.spend().calls == 3
    assert [view["kind"] for view in views(r, "intent")] == ["model", "tool", "model"]


@pytest.mark.parametrize("kind", [AzureOpenAI, AsyncAzureOpenAI])
def test_azure_clients_are_clients(rein, server, kind):
    server.say("never")
    made = supervise_client(
        rein(Budget(calls=0)),
        kind(azure_endpoint=server.url, api_key="x", api_version="2024-10-21"),
    )
    asked = made.chat.completions.create

    async def go() -> None:
        async with made:
            await asked(model="my-deployment", messages=HI)

    if kind is AsyncAzureOpenAI:
        with pytest.raises(BudgetExceeded):
            asyncio.run(go())
    else:
        with made, pytest.raises(BudgetExceeded):
            asked(model="my-deployment", messages=HI)
    assert server.requests == []


def test_calls_outside_a_session_are_refused_where_they_must_be(rein, server):
    with (
        supervise_client(
            rein(unattributed="refuse"), OpenAI(base_url=server.url, api_key="x")
        ) as client,
        pytest.raises(SessionClosed),
    ):
        client.responses.create(model=MODEL, input="hi")
    assert server.requests == []


def test_a_sync_client_works_on_a_thread_whose_loop_runs(rein, server):
    server.say("ok", "ok")
    r = rein()

    async def go() -> Any:
        with supervise_client(r, OpenAI(base_url=server.url, api_key="x")) as client, r.session():
            text = client.responses.create(model=MODEL, input="hi").output_text
            return text, len(list(client.responses.create(model=MODEL, input="hi", stream=True)))

    text, events = asyncio.run(go())
    assert text == "ok"
    assert events > 3


@pytest.mark.parametrize(("settings", "match"), [
    ({"ungated": "maybe"}, "ungated"),
    ({"streams": "later"}, "streams"),
    ({"models": {"m": "gpt"}}, "'m' is a str"),
    ({"models": {"m": AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="x")}}, "like the"),
])  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(rein, server, settings, match):
    with pytest.raises(ConfigError, match=match):
        supervise_client(rein(), OpenAI(base_url=server.url, api_key="x"), **settings)


@pytest.mark.parametrize("other", [openai, "client", None])
def test_what_is_no_client_is_refused(rein, other):
    with pytest.raises(ConfigError, match="neither an OpenAI nor"):
        supervise_client(rein(), other)


# -- versions


def test_what_the_extra_names_is_installed():
    wanted = [
        requirement
        for requirement in map(Requirement, requires("checkrein") or [])
        if requirement.marker and requirement.marker.evaluate({"extra": "openai"})
    ]
    assert [requirement.name for requirement in wanted] == ["openai"]
    assert wanted[0].specifier.contains(version("openai"), prereleases=True)


@pytest.mark.parametrize("here", ["2.29.0", "1.99.1", "4.0.0", "4.0.0rc1"])
def test_a_version_that_is_not_known_is_named_at_construction(rein, server, monkeypatch, here):
    monkeypatch.setattr(framework, "version", lambda name: here)
    with pytest.raises(ConfigError, match=rf"openai {here} is not supported.*2\.30.*below 4"):
        supervise_client(rein(), OpenAI(base_url=server.url, api_key="x"))


def test_a_part_that_moved_is_named_at_construction(rein, server, monkeypatch):
    client = OpenAI(base_url=server.url, api_key="x")
    monkeypatch.setattr(framework, "_FIELDS", ("json_data", "was_here_once"))
    with pytest.raises(ConfigError, match=r"no FinalRequestOptions\.was_here_once.*supported"):
        supervise_client(rein(), client)


def test_the_missing_extra_is_named_with_its_command():
    code = "import sys; sys.modules['openai'] = None\nimport checkrein_integrations.openai"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ConfigError" in done.stderr
    assert "pip install 'checkrein[openai]'" in done.stderr


def test_the_client_is_imported_by_its_adapter_only():
    code = "import sys, checkrein, checkrein_integrations; assert 'openai' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
