"""Who is told of what, in which shape, how often, and what is not told."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein.testing import Clock, check_plugin
from checkrein_plugins.alerts import Alert, Alerts
from checkrein_plugins.budget import Budget
from checkrein_plugins.redaction import Redaction
from checkrein_plugins.resilience import CircuitBreaker, SilenceAlarm


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    def __call__(self, alert: Alert) -> None:
        self.alerts.append(alert)

    @property
    def kinds(self) -> list[str]:
        return [alert.kind for alert in self.alerts]


def down() -> None:
    raise OSError("down")


def test_a_failed_run_and_what_it_left(go, store) -> None:
    told = Told()

    def broken() -> None:
        raise ValueError("cannot be undone")

    with Rein(plugins=[Alerts(to=told)], store=store, undo_tries=1) as rein:
        make = rein.tool(name="make", undo=broken)(lambda: 1)
        with contextlib.suppress(OSError), rein.session():
            make()
            go.call(rein, down)
    assert told.kinds == ["run_failed", "needs_human", "rollback_partial"]
    assert "OSError" in told.alerts[0].text
    assert told.alerts[-1].details["left"]


def test_an_open_circuit_is_told_once(go, store) -> None:
    told = Told()
    plugins = [Alerts(to=told), CircuitBreaker(threshold=2)]
    with Rein(plugins=plugins, store=store) as rein, rein.session(on_error="keep"):
        rein.declare("down", down)
        for _ in range(6):
            with contextlib.suppress(OSError, errors.BudgetExceeded):
                go.call(rein, down)
    assert told.kinds == ["breaker_open"]
    assert told.alerts[0].details == {"tool": "down"}


def test_a_budget_is_told_before_it_is_used_up(go, store) -> None:
    told = Told()
    plugins = [Alerts(to=told, budget=0.5), Budget(calls=4)]
    with Rein(plugins=plugins, store=store) as rein:
        for _ in range(2):
            with rein.session() as session:
                go.call(rein, int)
                assert told.kinds.count("budget") <= 1
                go.call(rein, int)
        account = f"budget/calls/session/{session.id}"
    assert told.kinds == ["budget", "budget"]
    assert told.alerts[1].details == {
        "account": account, "unit": "calls", "spent": 2, "limit": 4,
    }  # fmt: skip
    assert told.alerts[1].text.startswith("50% of")


@pytest.mark.parametrize("per", ["agent", "tool", ["agent", "user"]])
def test_every_budget_is_watched_by_what_it_counts_by(go, per) -> None:
    told = Told()
    plugins = [Alerts(to=told), Budget(calls=1, per=per)]
    with Rein(plugins=plugins) as rein, rein.session(agent="billing", user="ann"):
        go.call(rein, int)
    assert told.kinds == ["budget"]


def test_silence_is_told(store) -> None:
    told = Told()
    clock = Clock()
    alarm = SilenceAlarm(seconds=3600)
    plugins = [alarm, Alerts(to=told)]
    with Rein(plugins=plugins, store=store, clock=clock) as rein, rein.session(on_error="keep"):
        clock.advance(3600)
        alarm.check()
    assert told.kinds == ["silence"]
    assert "3600" in told.alerts[0].text


def test_needs_human_is_told(store) -> None:
    told = Told()
    with Rein(plugins=[Alerts(to=told)], store=store) as rein:
        pay = rein.tool(name="pay", undo=lambda: None, probe=lambda: None)(down)
        with pytest.raises(OSError, match="down"), rein.session():
            pay()
    assert "needs_human" in told.kinds


def test_the_same_thing_is_told_once_in_a_while(go) -> None:
    told = Told()
    with Rein(plugins=[Alerts(to=told, every=0.000_001, per_minute=3)]) as rein:
        for _ in range(5):
            with contextlib.suppress(OSError), rein.session():
                go.call(rein, down)
    assert len(told.alerts) == 3
    told = Told()
    with Rein(plugins=[Alerts(to=told, every=3600), CircuitBreaker(threshold=1)]) as rein:
        rein.declare("down", down)
        for _ in range(5):
            with contextlib.suppress(OSError, errors.BudgetExceeded), rein.session():
                go.call(rein, down)
    assert told.kinds.count("breaker_open") == 1


def test_only_what_is_asked_for_is_told(go) -> None:
    told = Told()
    plugins = [Alerts(to=told, on=["silence"])]
    with Rein(plugins=plugins) as rein, contextlib.suppress(OSError), rein.session():
        go.call(rein, down)
    assert told.alerts == []


def test_a_function_may_be_async_and_may_fail(go, caplog) -> None:
    told = Told()

    async def hear(alert: Alert) -> None:
        told(alert)

    def broken(alert: Alert) -> None:
        raise RuntimeError("secret")

    caplog.set_level(logging.WARNING)
    plugins = [Alerts(to=[broken, hear], on=["run_failed"])]
    with Rein(plugins=plugins) as rein, contextlib.suppress(OSError), rein.session():
        go.call(rein, down)
    assert told.kinds == ["run_failed"]
    assert "run_failed" in caplog.text
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


# -- webhooks


def fail(**settings: Any) -> None:
    plugins = [Redaction(), Alerts(log=False, on=["run_failed"], **settings)]
    with Rein(plugins=plugins) as rein, contextlib.suppress(OSError), rein.session():
        rein.call(down)


def test_bodies_are_signed(receivers) -> None:
    webhooks = pytest.importorskip("standardwebhooks")
    receivers.add()
    secret = "whsec_" + "c2VjcmV0" * 4
    fail(webhooks=[{"url": receivers[0].url, "secret": secret, "private": True}])
    headers, text = receivers[0].requests[0]
    body = webhooks.Webhook(secret).verify(text, headers)
    assert body["type"] == "checkrein.run_failed"
    assert body["data"]["details"] == {"error": "OSError"}
    with pytest.raises(webhooks.WebhookVerificationError):
        webhooks.Webhook(secret).verify(text.replace("OSError", "Other"), headers)


@pytest.mark.parametrize(("shape", "key"), [("slack", "text"), ("discord", "content")])
def test_chats_have_shapes_of_their_own(receivers, shape, key) -> None:
    receivers.add()
    hook = {"url": receivers[0].url, "format": shape, "private": True}
    told = Told()
    with Rein(plugins=[Alerts(to=told, webhooks=[hook])], undo_tries=1) as rein:
        odd = rein.tool(name="<!channel>@everyone", undo=lambda: 1 / 0)(lambda: 1)
        with contextlib.suppress(OSError), rein.session():
            odd()
            rein.call(down)
    texts = [json.loads(text) for _, text in receivers[0].requests]
    assert len(texts) == len(told.alerts)
    assert all(
        f"[{alert.kind}]" in body[key] for alert, body in zip(told.alerts, texts, strict=True)
    )
    assert not any("<!channel>" in body.get("text", "") for body in texts)
    assert all(body.get("allowed_mentions", {"parse": []}) == {"parse": []} for body in texts)


def test_a_receiver_that_is_down_is_tried_again(receivers, caplog) -> None:
    receivers.add(503)
    fail(webhooks=[{"url": receivers[0].url, "private": True}])
    assert len(receivers[0].requests) == 2
    receivers.add(404)
    fail(webhooks=[{"url": receivers[1].url, "private": True}])
    assert len(receivers[1].requests) == 1
    assert "HTTP 404" in caplog.text
    assert "secret-path" not in caplog.text


def test_texts_are_redacted(receivers) -> None:
    receivers.add()

    def why(alert: Alert) -> None:
        told.append(alert.text)

    told: list[str] = []
    hook = {"url": receivers[0].url, "private": True}
    plugins = [Redaction(), Alerts(to=why, webhooks=[hook], log=False)]
    with Rein(plugins=plugins, undo_tries=1) as rein:
        name = "write_to_casey@example.org"
        pay = rein.tool(name=name, undo=lambda: None, probe=lambda: None)(down)
        with pytest.raises(OSError, match="down"), rein.session():
            pay()
    assert told
    assert "casey@example.org" not in " ".join(told)
    assert all("casey@example.org" not in text for _, text in receivers[0].requests)


# -- settings


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"log": False}, "nobody would be told"),
        ({"on": ["run_fialed"]}, r"alerts\.on\[0\]: unknown kind 'run_fialed'.*run_failed"),
        ({"budget": 1.5}, r"alerts\.budget"),
        ({"to": 5}, "alerts"),
        ({"to": [5]}, r"alerts\.to"),
        ({"nonsense": 1}, "unknown key 'nonsense'"),
        ({"webhooks": [{"url": "http://example.com/x"}]}, r"alerts\.webhooks\[0\]\.url: has a sch"),
        ({"webhooks": [{"url": "https://10.0.0.1/x"}]}, r"alerts\.webhooks\[0\]\.url: leads to"),
        ({"webhooks": [{"url": "https://a.com", "format": "irc"}]}, r"webhooks\[0\]\.format"),
        ({"webhooks": [{"url": "https://a.com", "secret_env": "NOT_SET_HERE"}]}, "NOT_SET_HERE"),
        (
            {"webhooks": [{"url": "https://a.com", "secret": "x", "secret_env": "Y"}]},
            "secret or secret_env",
        ),
    ],
)
def test_bad_settings_are_refused(settings, told) -> None:
    with pytest.raises((errors.ConfigError, TypeError), match=told):
        Alerts(**settings)


def test_a_secret_that_is_none_is_refused() -> None:
    pytest.importorskip("standardwebhooks")
    with pytest.raises(errors.ConfigError) as refused:
        Alerts(webhooks=[{"url": "https://a.com", "secret": "whsec_"}])
    assert "whsec_ and base64" in str(refused.value)


def test_it_keeps_the_rules_of_a_plugin() -> None:
    check_plugin(Alerts())


def test_a_file_names_the_function_that_is_told(tmp_path, monkeypatch) -> None:
    (tmp_path / "pager.py").write_text("told = []\ndef page(alert):\n    told.append(alert)\n")
    (tmp_path / "checkrein.toml").write_text('[plugins.alerts]\nto = "pager:page"\nlog = false\n')
    monkeypatch.syspath_prepend(tmp_path)
    with (
        Rein.from_file(tmp_path / "checkrein.toml", store="memory:") as rein,
        pytest.raises(ZeroDivisionError),
        rein.session(),
    ):
        raise ZeroDivisionError
    import pager

    assert [alert.kind for alert in pager.told] == ["run_failed"]
    with pytest.raises(errors.ConfigError, match=r"alerts.to\[0\]: 'pager' has no 'nobody'"):
        Alerts(to=["pager:nobody"])
