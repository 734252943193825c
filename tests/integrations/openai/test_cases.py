"""Faults that people have reported of model clients, as they would be here."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

from checkrein import Deny, Retry
from checkrein.errors import BudgetExceeded, Denied
from checkrein.testing import Failure
from checkrein_integrations.openai import supervise_client
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

from .conftest import MODEL, Rules, kinds, spent, views


def test_the_clients_own_retries_repeat_no_refusal(rein, server):
    r = rein(Budget(calls=0))
    made = supervise_client(r, OpenAI(base_url=server.url, api_key="x", max_retries=3))
    with made as client, r.session(on_error="keep"), pytest.raises(BudgetExceeded):
        client.responses.create(model=MODEL, input="hi")
    assert server.requests == []
    assert kinds(r) == ["denied"]


def test_the_clients_own_retries_are_one_call(rein, server):
    server.say(Failure(500, retry_after=0.001), "second")
    r = rein(Cost(), Budget(usd=1, tokens=20_000))
    made = supervise_client(r, OpenAI(base_url=server.url, api_key="x", max_retries=1))
    with made as client, r.session():
        assert client.responses.create(model=MODEL, input="hi").output_text == "second"
    assert len(server.requests) == 2
    assert kinds(r) == ["intent", "outcome"]


def test_a_reply_that_is_lost_is_in_doubt_and_charged(road, rein, server):
    server.say(Failure(how="hang_up"))
    r = rein(Cost(), Budget(usd=1, tokens=20_000))
    with pytest.raises(openai.APIConnectionError):
        road.ask(r, server)
    assert views(r, "outcome")[0]["state"] == "unknown"
    assert spent(r).estimated == 1


@pytest.mark.parametrize("limit", [2])
def test_a_validator_that_rejects_always_ends_with_one_typed_error(road, rein, server, limit):
    def post(call, outcome):
        if outcome.error is not None or "good" in str(outcome.value):
            return None
        return Retry(0) if call.attempt <= limit else Deny("never good", rule="validator")

    server.say("bad", "good")
    r = rein(Rules(post=post), Cost())
    assert road.ask(r, server).text == "good"
    assert len(server.requests) == 2
    server.say(*["bad"] * 9)
    with pytest.raises(Denied, match="never good"):
        road.ask(r, server)
    assert len(server.requests) == 2 + limit + 1
    session = r.store.sessions().rows[0].id
    assert r.read(session).spend().tokens == 18 * (limit + 1), "every attempt is on the bill"


def test_a_check_that_breaks_sends_nothing(road, rein, server):
    def broken(call):
        raise RuntimeError("a bug")

    r = rein(Rules(pre=broken))
    with pytest.raises(Denied):
        road.ask(r, server)
    assert server.requests == []
    assert views(r, "denied")[0]["code"] == "check_failed"


def test_calls_at_once_never_go_over_the_budget(rein, server):
    """Twenty requests at once, and money for two: two are sent."""
    import asyncio

    from openai import AsyncOpenAI

    server.say(*["ok"] * 20)
    r = rein(Budget(calls=2))

    async def go():
        made = supervise_client(r, AsyncOpenAI(base_url=server.url, api_key="x"))
        async with made as client, r.session(on_error="keep"):
            asks = [client.responses.create(model=MODEL, input="hi") for _ in range(20)]
            return await asyncio.gather(*asks, return_exceptions=True)

    came = asyncio.run(go())
    assert sum(isinstance(each, BudgetExceeded) for each in came) == 18
    assert len(server.requests) == 2
